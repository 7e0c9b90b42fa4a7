"""Style that a machine can check: sizes, banned calls, no set iteration in node code (`ARCHITECTURE.md`)."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.house import PRODUCT, Room, Source, statements, unclear_names, weak_docstrings
from tests.support.house import sources as modules_of

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("harness", "cluster", "checkers", "nemesis", "workloads", "results", "assay", "tests", "bench")
MAX_FILE_LINES = 700
MIN_MEDIAN_LINES = 155
MAX_MODULES_PER_1000_LINES = 5
MAX_FUNCTION_LINES = 60
MAX_ARGUMENTS = 7

BANNED = {
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.sleep",
    "datetime.now",
    "datetime.utcnow",
    "datetime.datetime.now",
    "os.urandom",
    "uuid.uuid4",
    "uuid.uuid1",
    "asyncio.wait",
    "asyncio.as_completed",
    "asyncio.TaskGroup",
    "asyncio.to_thread",
    "threading.Thread",
    "socket.socket",
    "builtins.open",
}
BANNED_IN_NODES = {"open", "hash", "id"}
RANDOM_ALLOWED = {"random.Random"}

REAL_WORLD = ("harness/ports/real/", "harness/env/", "harness/history/cores.py", "cluster/deploy/database_ssh.py")
"""Where the real world is touched."""

SIMULATED = ("harness/", "harness/env/sim.py", "cluster/", "nemesis/", "workloads/")
"""What runs in the simulator or decides what does, but for REAL_WORLD; a file that is named wins over its folder."""


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def is_deterministic(name: str) -> bool:
    """Code that runs in the simulator: nodes, nemeses, workloads, and all of the harness but its real twins."""
    return name in SIMULATED or (name.startswith(SIMULATED) and not name.startswith(REAL_WORLD))


def test_the_places_of_determinism_are_where_it_lives() -> None:
    assert all(
        is_deterministic(name)
        for name in ("harness/run/life_cycle.py", "harness/run/interpreter.py", "harness/env/sim.py")
    )
    assert not any(
        is_deterministic(name) for name in ("harness/ports/real/ports.py", "harness/env/ssh.py", "results/report.py")
    )
    names = {relative(path) for path in sources()}
    assert all(any(name.startswith(place) for name in names) for place in (*SIMULATED, *REAL_WORLD))


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return "?"


def is_set(node: ast.expr) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    return isinstance(node, ast.Call) and dotted(node.func) in ("set", "frozenset")


def banned_calls(tree: ast.AST, node_code: bool) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            module_random = name.startswith("random.") and name not in RANDOM_ALLOWED
            if name in BANNED or module_random or (node_code and name in BANNED_IN_NODES):
                yield f"line {node.lineno}: {name}()"
        if isinstance(node, ast.AsyncFunctionDef) and any(isinstance(n, ast.Yield) for n in ast.walk(node)):
            yield f"line {node.lineno}: async generator {node.name}"
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension) and is_set(node.iter):
            yield f"line {node.iter.lineno}: iteration over a set"


def test_deterministic_code_uses_only_the_ports() -> None:
    found = [
        f"{relative(path)}: {call}"
        for path in sources()
        if is_deterministic(relative(path))
        for call in banned_calls(ast.parse(path.read_text()), relative(path).startswith("cluster/"))
    ]
    assert found == []


def names_engine(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Name) and part.id.endswith("Engine") for part in ast.walk(node))


def engines_asked_for(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        asks = isinstance(node, ast.Call) and dotted(node.func) in ("isinstance", "issubclass", "type")
        if asks and names_engine(node):
            yield f"line {node.lineno}: {ast.unparse(node)}"
        if isinstance(node, ast.Compare) and dotted(node.left).endswith("engine.name"):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def test_nobody_asks_which_engine_there_is() -> None:
    """What is done otherwise by each is a `Work` (`checkers/engines/api.py`)."""
    texts = {path: path.read_text() for path in sources() if not relative(path).startswith("tests/")}
    found = [
        f"{relative(path)}: {asked}"
        for path, text in texts.items()
        if "Engine" in text or "engine.name" in text
        for asked in engines_asked_for(ast.parse(text))
    ]
    assert found == []
    for code in ("isinstance(engine, SparkEngine)", "x = not isinstance(e, A | LocalEngine)", "engine.name == 'spark'"):
        assert len(list(engines_asked_for(ast.parse(code)))) == 1


def test_files_and_functions_stay_small() -> None:
    found = []
    for path in sources():
        text = path.read_text()
        lines = text.count("\n")
        if lines > MAX_FILE_LINES:
            found.append(f"{relative(path)}: {lines} lines")
        for node in statements(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    found.append(f"{relative(path)}:{node.lineno} {node.name}: {length} lines")
    assert found == []


def test_modules_are_worth_opening() -> None:
    """A reader pays for each hop: what has one importer and no concept of its own belongs to its owner."""
    product = Room(modules_of(ROOT, PRODUCT))
    assert product.median >= MIN_MEDIAN_LINES
    assert product.density <= MAX_MODULES_PER_1000_LINES


def test_names_and_docstrings_can_be_understood_alone() -> None:
    modules = modules_of(ROOT)
    assert [found for source in modules for found in unclear_names(source)] == []
    assert [found for source in modules for found in weak_docstrings(source)] == []


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("def told_apart(keys): pass", 1),
        ("def each(finer, *, most_told=0): pass", 2),
        ("class HotHunt: pass\nLOOSE, firmly = 1, 2", 2),
        ("def _told(loose): pass\ndef test_what_is_told(): pass\ndef retold(): loose = 1", 0),
        ("class A:\n    x: int\n    'Two words.'", 1),
        ("def f():\n    'So many nodes stop at once.'", 1),
        ("def f():\n    'The same for those of one node.'", 1),
        ("def f():\n    'It knows of none.'", 1),
        ("def f():\n    'The same seed gives the same trace, in any process.'", 0),
        ("def f():\n    'It was refused once, though nothing had been written by then.'", 0),
    ],
)
def test_unclear_names_and_docstrings_are_seen(code: str, count: int) -> None:
    source = Source("room/module.py", code, ast.parse(code))
    assert len([*unclear_names(source), *weak_docstrings(source)]) == count


def too_many_arguments(tree: ast.AST) -> Iterator[str]:
    """Functions whose arguments are more than a reader keeps apart; `self` and `cls` don't count."""
    for node in statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            told = len(every) - (bool(every) and every[0].arg in ("self", "cls"))
            if told > MAX_ARGUMENTS:
                yield f"line {node.lineno}: {node.name} takes {told} arguments"


FEW_ARGUMENTS = ("bench", "checkers", "cluster", "harness", "nemesis", "results", "workloads")


def test_functions_take_few_arguments() -> None:
    found = [
        f"{relative(path)}: {told}"
        for folder in FEW_ARGUMENTS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for told in too_many_arguments(ast.parse(path.read_text()))
    ]
    assert found == [], "more are a named tuple with documented columns"
    assert len(list(too_many_arguments(ast.parse("def f(a, b, c, d, *, e, f, g, h): pass")))) == 1
    assert not list(too_many_arguments(ast.parse("def f(self, b, c, d, e, f, g, h): pass")))


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("import time\ntime.time()", 1),
        ("import random\nrandom.random()", 1),
        ("import random\nrandom.Random(1)", 0),
        ("for x in {1, 2}: pass", 1),
        ("[x for x in set(y)]", 1),
        ("for x in sorted(set(y)): pass", 0),
        ("async def f():\n    yield 1", 1),
        ("open('x')", 1),
    ],
)
def test_the_check_itself_sees_what_is_banned(code: str, count: int) -> None:
    assert len(list(banned_calls(ast.parse(code), node_code=True))) == count


def class_names() -> Counter[str]:
    """The classes outside of tests."""
    return Counter(
        node.name
        for path in sources()
        if not relative(path).startswith("tests/")
        for node in statements(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )


def test_no_class_name_stands_twice() -> None:
    twice = {name for name, count in class_names().items() if count > 1}
    assert twice == set(), "a reader who meets the name has to know which of them is meant"


NO_MIRROR = ("cluster/raft/golden",)
"""What tests compare with."""


def test_folders_of_tests_are_those_of_what_they_test() -> None:
    folders = [path for package in PACKAGES for path in (ROOT / "tests" / package).rglob("*") if path.is_dir()]
    names = {path.relative_to(ROOT / "tests").as_posix() for path in folders if path.name != "__pycache__"}
    assert {"checkers/isolation", "cluster/master", "harness/ports/sim"} <= names
    assert [name for name in sorted(names - {*NO_MIRROR}) if not (ROOT / name).is_dir()] == []


def test_no_file_of_tests_has_the_name_of_another() -> None:
    """Pytest imports them by name alone: two of one name stop the whole run, though each passes on its own."""
    counts = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert counts
    assert [name for name, count in counts.items() if count > 1] == []


DRAWS = ("tests/conftest.py", "tests/support/few_seeds.py")
"""Where it is said how many examples hypothesis draws."""


def fixed_examples(tree: ast.AST) -> int:
    return sum(isinstance(node, ast.keyword) and node.arg == "max_examples" for node in ast.walk(tree))


def test_torture_draws_more_of_everything() -> None:
    """What a test says of its examples goes before what the profile says."""
    others = [path for path in (ROOT / "tests").rglob("*.py") if relative(path) not in DRAWS]
    assert [relative(path) for path in others if fixed_examples(ast.parse(path.read_text()))] == []
    assert fixed_examples(ast.parse("@settings(deadline=None, max_examples=7)\ndef f(): pass")) == 1


@pytest.mark.xdist_group("together")
def test_groups_of_tests_are_kept_together_by_workers(request: pytest.FixtureRequest) -> None:
    """Tests that need Docker look at containers of the whole machine, and must not run beside each other."""
    if not hasattr(request.config, "workerinput"):
        pytest.skip("no workers here: run with -n 2 --dist loadgroup")
    assert request.node.nodeid.endswith("@together")

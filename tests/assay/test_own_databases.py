"""Databases, workloads and nemeses of one's own: what is found in files, and what is refused in one sentence."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from assay.check_command import named_model
from assay.discovery import find_database, load_plugins, resolve_database_options
from assay.judging import checkers_of
from assay.new_command import kit
from assay.options import RunOptions
from harness.errors import HarnessError, UserError
from harness.history.ops import Op
from harness.own_code import own_file
from harness.ports.machines import ProcessState
from harness.run.first_look import check_plugin, last_words
from harness.verdict.adequacy import Floors
from harness.verdict.facts import RunRecord
from harness.verdict.failures import FailureLog
from harness.verdict.faults import Fault, served_while_down
from nemesis.registry import KINDS, NEMESES, SCRIPTS
from tests.assay.command_line import assay
from tests.assay.verify.stand_in import StandIn, StandInMachines
from workloads.registry import WORKLOADS

HEAD = "from assay.plugin import *\nfrom assay import plugin\n"
ONE = """
class Stone(plugin.DatabasePlugin):
    name = {name!r}
    options = (plugin.Option("depth", 2, 1, 9, "how deep"), plugin.WordOption("read", ("all", "one"), "from whom"))
    requires = {requires!r}
    default_nodes = {nodes}
    def make(self, environment, setup):
        raise KeyError("no stone")

{variable} = Stone()
"""


def plugin_file(folder: Path, name: str = "stone", requires: tuple[str, ...] = (), nodes: int = 2) -> Path:
    path = folder / "stone.py"
    path.write_text(HEAD + ONE.format(name=name, requires=requires, nodes=nodes, variable="STONE"))
    return path


def test_a_file_gives_its_database_with_where_it_comes_from(tmp_path: Path) -> None:
    path = plugin_file(tmp_path)
    for word in (str(path), f"{path}:STONE"):
        found = find_database(word)
        assert (found.value.name, found.value.default_nodes) == ("stone", 2)
        assert found.origin == {"file": str(path), "name": "stone", "sha256": own_file(str(path)).digest}
        assert find_database(word) is found, "it is read once"
    assert resolve_database_options(found.value, {"depth": "3"}) == {"depth": 3, "read": "all"}


NONE, RAISES = "X = 1\n", "import json\n\nraise ValueError('not today')\n"
TWO = HEAD + ONE.format(name="a", requires=(), nodes=1, variable="A") + "B = Stone()\n"
FILES = {
    "none.py": NONE,
    "raises.py": RAISES,
    "two.py": TWO,
    "words.py": "def make(:\n",
    "named.py": HEAD + ONE.format(name="A B", requires=(), nodes=1, variable="A"),
    "many.py": HEAD + ONE.format(name="many", requires=(), nodes=99, variable="A"),
    "lacks.py": HEAD + ONE.format(name="lacks", requires=("no-such-client>=5",), nodes=1, variable="A"),
    "older.py": HEAD + ONE.format(name="older", requires=("msgspec>=99",), nodes=1, variable="A"),
    "fine.py": HEAD + ONE.format(name="fine", requires=(), nodes=1, variable="A"),
}
ON_DOCKER = ("--on", "docker")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--database", "none.py"), "none.py has no database: define an object of a class that derives from"),
        (("--database", "two.py"), "two.py has several databases, A and B; name one as .*two.py:A"),
        (("--database", "two.py:C"), "two.py defines no C"),
        (("--database", "none.py:X"), "none.py:X is no database"),
        (("--database", "raises.py"), r"raises.py, line 3: ValueError: not today\."),
        (("--database", "words.py"), r"words.py, line 1: SyntaxError"),
        (("--database", "gone.py"), "gone.py can't be read: No such file"),
        (("--database", "named.py"), "named 'A B'; names are of small letters"),
        (("--database", "many.py"), "has 99 nodes by default; there can be 1 to 50"),
        (("--database", "lacks.py"), "needs no-such-client>=5; say pip install 'no-such-client>=5'"),
        (("--database", "older.py"), "needs msgspec>=99; msgspec .* is installed"),
        (("--database", "nobody"), "There is no database 'nobody'; there are reference, .* and files"),
        (("--database", "fine.py"), "The simulator runs the reference cluster only; .* needs --on docker"),
        (
            ("--database", "fine.py", *ON_DOCKER, "-d", "wide=1"),
            "The database 'fine' has no option 'wide'; it has depth",
        ),
        (("--database", "fine.py", *ON_DOCKER, "-d", "depth=10"), "'depth' must be a whole number between 1 and 9"),
        (("--database", "fine.py", *ON_DOCKER, "-d", "depth"), "-d takes KEY=VALUE, not 'depth'"),
        (("--database", "fine.py", *ON_DOCKER, "--masters", "3"), "--masters is of the reference cluster"),
        (
            ("--database", "fine.py", *ON_DOCKER, "--flaw", "raft-ack-before-fsync"),
            "--flaw is of the reference cluster",
        ),
        (("--database", "fine.py", *ON_DOCKER, "--world", "rtt=1ms"), "--world is of the reference cluster"),
        (("--database", "fine.py", *ON_DOCKER, "--swarm"), "--swarm is of the reference cluster"),
        (("-d", "depth=1"), "-d is of another database than the reference cluster; name it with --database"),
        (("--plugin", "none.py"), "none.py has no workload and no nemesis"),
    ],
)
def test_what_can_not_be_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], sentence: str
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    given = [str(tmp_path / word) if ".py" in word else word for word in arguments]
    answer = assay(capsys, "run", "register", *given, "--store", tmp_path / "store")
    assert answer.code == 254
    assert re.search(sentence, answer.complaint), answer.complaint
    assert not (tmp_path / "store").exists()


WORK = """
from dataclasses import replace
from nemesis.registry import KINDS, SCRIPTS
from workloads.registry import WORKLOADS
MINE = replace(WORKLOADS["register"], name="my-register")
SLOW_KILL = replace(KINDS["kill"], name="slow-kill")
"""


@pytest.fixture
def registries() -> Iterator[None]:
    """What a test adds to them is gone after it."""
    tables: tuple[dict[str, Any], ...] = (WORKLOADS, NEMESES, SCRIPTS, KINDS)
    before = [dict(table) for table in tables]
    yield
    for table, known in zip(tables, before, strict=True):
        table.clear()
        table.update(known)


@pytest.mark.usefixtures("registries")
def test_workloads_and_nemeses_of_a_file_are_run_like_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "work.py"
    path.write_text(WORK)
    command = ("run", "my-register", "--plugin", path, "--nemesis", "slow-kill", "--time-limit", "5", "--seed", "1")
    answer = assay(capsys, *command, "--store", tmp_path / "store", "--json")
    assert answer.code == 0, answer
    assert answer.objects[0]["command"].startswith(
        f"assay run my-register --on sim --plugin {path} --nemesis slow-kill"
    )
    with pytest.raises(UserError, match="defines 'my-register', which there is already"):
        load_plugins((f"{path}:MINE",))
    run = answer.objects[0]["run"]
    del WORKLOADS["my-register"]
    judged = assay(capsys, "check", run)
    assert judged.code == 0, "its models are ours, and saved in the run"


def test_models_that_nobody_has_here_are_named() -> None:
    words = {
        **dict.fromkeys(("name", "workload"), "register"),
        **dict.fromkeys(("environment", "database", "started"), ""),
    }
    numbers = {"concurrency": 1, "time_limit_s": 1.0, "rate_hz": None, "recovery_budget_s": 1.0}
    rest = {"fs": (), "floors": Floors(), "requested_faults": (), "final_reads": True, "options": {}, "provenance": {}}
    record = RunRecord(**words, **numbers, **rest)
    assert checkers_of(record) == ("register", "stats")
    assert checkers_of(replace(record, options={"checkers": ["stats"]})) == ("stats",)
    theirs = replace(record, options={"checkers": ["stats", "stone"]}, plugin={"file": "stone.py"})
    with pytest.raises(UserError, match=r"judged by stone, which is no model of ours; .*stone\.py"):
        checkers_of(theirs)


def test_the_command_of_another_database_names_it_and_nothing_of_ours() -> None:
    options = RunOptions(
        "register", on="docker", database="kv/plugin.py", plugins=("work.py",), database_options={"depth": "3"}, nodes=3
    )
    assert options.command().startswith(
        "assay run register --on docker --database kv/plugin.py --plugin work.py -d depth=3 --time-limit 60 "
    )
    assert "--masters" not in options.command()
    assert not {"masters", "flaw", "world"} & options.as_dict().keys()


def test_what_a_file_s_code_raises_is_told_with_its_line(tmp_path: Path) -> None:
    path = plugin_file(tmp_path)
    plugin, log = find_database(str(path)).value, FailureLog()
    with pytest.raises(KeyError) as raised:
        plugin.make(None, None)
    log.record("client", raised.value)
    line = path.read_text().splitlines().index('        raise KeyError("no stone")') + 1
    assert log.failures()[0].error == f"KeyError: 'no stone' ({path}, line {line})"


class Restarts(StandIn):
    """Begins another life at each start."""

    async def start(self, node: str) -> None:
        await super().start(node)
        self.real.nodes[node].life += 1


class SaysDead(StandIn):
    """Calls dead what serves."""

    async def process_state(self, node: str) -> ProcessState:
        return ProcessState.DEAD if node == "n2" else await super().process_state(node)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (StandIn, None),
        (Restarts, "start: a second one began another life of n1, though it ran"),
        (SaysDead, "process_state: n2 is called dead while it serves"),
    ],
)
def test_set_up_repeats_the_cheap_half_of_verify(kind: type[StandIn], sentence: str | None) -> None:
    async def looked() -> None:
        machines = StandInMachines()
        database = kind(machines, machines)
        await database.first_start()
        try:
            await check_plugin(database)
        finally:
            await database.teardown()

    with nullcontext() if sentence is None else pytest.raises(HarnessError, match=sentence):
        asyncio.run(looked())


def test_who_is_called_dead_and_answers_is_told() -> None:
    def done(node: str, began_ns: int, ended_ns: int) -> tuple[Op, Op]:
        begun = Op("invoke", 1, "read", time=began_ns)
        return begun, replace(begun, type="ok", time=ended_ns, node=node)

    kill = Fault("kill", 1, None, ("n1",), 0, spans=((100, 200),))
    told = ("n1 was called dead while it answered 1 operation of clients",)
    for node, began_ns, ended_ns, sentences in (
        ("n1", 110, 150, told),
        ("n1", 90, 150, ()),
        ("n1", 150, 210, ()),
        ("n2", 110, 150, ()),
    ):
        assert served_while_down((kill,), done(node, began_ns, ended_ns)) == sentences
    loop = Fault("crash-loop", 2, None, ("n1",), 0)
    assert served_while_down((kill, loop), done("n1", 110, 150)) == ()


def test_logs_end_with_their_last_lines() -> None:
    logs = {"n1/kv.log": b"a\nb\nc\nd\n\n", "n2/kv.log": b""}
    assert list(last_words(logs)) == ["n1/kv.log ends with: b / c / d", "n2/kv.log ends with: nothing"]


def test_a_new_database_is_written_under_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert assay(capsys, "new", "database", "stone", "--to", tmp_path).code == 0
    assert sorted(path.name for path in (tmp_path / "stone").iterdir()) == sorted(kit("stone", broken=False))
    plugin = (tmp_path / "stone" / "plugin.py").read_text()
    assert "kv" not in plugin.lower()
    assert len(plugin.splitlines()) <= 90
    assert find_database(str(tmp_path / "stone" / "plugin.py")).value.name == "stone"
    again = assay(capsys, "new", "database", "stone", "--to", tmp_path)
    assert (again.code, "is there already" in again.complaint) == (254, True)
    assert assay(capsys, "new", "database", "No Name", "--to", tmp_path).code == 254
    assert assay(capsys, "new", "database", "stone", "--to", tmp_path / "broken", "--broken").code == 0
    assert "SYNCS = False" in (tmp_path / "broken" / "stone" / "store.py").read_text()


@pytest.mark.parametrize("broken", [False, True])
def test_the_store_of_a_new_database_keeps_what_it_answered_unless_it_is_broken(tmp_path: Path, broken: bool) -> None:
    """What the test that comes with it says holds."""
    scope: dict[str, Any] = {"__name__": "store"}
    exec(kit("stone", broken)["store.py"], scope)
    store = scope["CellStore"](str(tmp_path / "log"))
    said = [store.answer(*line.split()) for line in ("r 1", "w 1 5", "cas 1 5 6", "cas 1 5 7", "r 1")]
    assert said == ["nil", "ok", "ok", "no 6", "6"]
    assert scope["CellStore"](str(tmp_path / "log")).answer("r", "1") == ("nil" if broken else "6")


def test_databases_are_listed_with_what_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    listed = assay(capsys, "list", "databases", "-v")
    assert listed.code == 0
    assert listed.out.startswith("reference\t")


PACKAGED = """
class Packaged(plugin.DatabasePlugin):
    name = "packaged"
    options = (plugin.Option("depth", 2, 1, 9, "how deep"),)
    def make(self, environment, setup): ...

PLUGIN = Packaged()


class Model:
    initial = None

    def step(self, state, operation):
        return state
"""


def test_installed_packages_give_databases_and_models_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "packaged_stone.py").write_text(HEAD + PACKAGED)
    for number, databases in enumerate(("packaged", "packaged-twice", "packaged-twice", "packaged-lacks"), 1):
        info = tmp_path / f"stone{number}-1.{number}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: stone{number}\nVersion: 1.{number}\n")
        module = "packaged_stone" if "lacks" not in databases else "no_such_module"
        models = f"[assay.models]\nstone-model = {module}:Model\n" if number == 1 else ""
        (info / "entry_points.txt").write_text(f"[assay.databases]\n{databases} = {module}:PLUGIN\n{models}")
    monkeypatch.syspath_prepend(tmp_path)
    found = find_database("packaged")
    origin = {"name": "packaged", "entry_point": "packaged_stone:PLUGIN", "distribution": "stone1", "version": "1.1"}
    assert (found.value.name, found.origin) == ("packaged", origin)
    with pytest.raises(UserError, match="'packaged-twice' is given by several packages, stone2 and stone3"):
        find_database("packaged-twice")
    with pytest.raises(UserError, match=r"packaged-lacks .* can't be loaded: ModuleNotFoundError"):
        find_database("packaged-lacks")
    listed = assay(capsys, "list", "databases", "-v").out
    assert any(line.rstrip() == "packaged\tstone1 1.1\t1\tregister" for line in listed.splitlines()), listed
    assert "packaged\t-d depth=2\t1 to 9\thow deep" in listed
    assert named_model("stone-model") == f"{tmp_path / 'packaged_stone.py'}:Model"
    assert named_model("no-model") == "no-model"

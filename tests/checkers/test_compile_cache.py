"""Kernels are compiled once, whoever needs them, from the code as it is; a user who waits for that is told so."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import njit

import checkers
from checkers import compile_cache
from checkers.compile_cache import code_digest, compilation_reported
from checkers.compiled import kernel, lean, lean_inline
from checkers.linking import Kernel


@lean
def _sum_to(limit, first):
    total = 0
    for number in range(first, limit):
        total += number
    return total


@lean_inline
def _twice(number):
    return 2 * number


@kernel
def _refuse_above(number, most):
    if number > most:
        raise ValueError("above the most")
    return number


@kernel
def _sums(narrow, wide):
    """Hands one kernel numbers of 32, 64 and 8 bits and constants."""
    return (
        _sum_to(narrow[0], 0) + _sum_to(wide[0], narrow[0]) + _sum_to(10, np.uint8(3)) + _twice(narrow[0]) + _twice(1)
    )


@kernel
def _guarded(number):
    return _refuse_above(number, 7)


def test_compilation_is_told_as_one_however_many_functions_it_takes() -> None:
    @njit
    def inner(x):
        return x + 1

    @njit
    def outer(x):
        return inner(x)

    told: list[bool] = []
    with compilation_reported(told.append):
        assert outer(1) == 2
        assert told == [True, False]
        assert outer(2) == 3
        assert told == [True, False]
        assert outer(0.5) == 1.5
    assert told == [True, False, True, False]
    assert outer(1j) == 1 + 1j and len(told) == 4


def test_kernels_are_compiled_for_one_width_of_whole_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkers.linking.kernels_directory", lambda: tmp_path)
    narrow, wide = np.array([4], np.int32), np.array([7], np.int64)
    assert _sums(narrow, wide) == (0 + 1 + 2 + 3) + (4 + 5 + 6) + sum(range(3, 10)) + 8 + 2
    assert len(_sum_to.part.signatures) == len(_twice.part.signatures) == 1
    assert not _sum_to.signatures  # for Python has not called it
    assert _sum_to(5, 0) == 10


def test_a_part_raises_through_kernels_that_call_it() -> None:
    assert _guarded(7) == 7
    with pytest.raises(ValueError, match="above the most"):
        _guarded(8)
    with pytest.raises(TypeError, match="kernels only"):
        _refuse_above.part(1, 2)


def test_of_processes_that_need_a_kernel_at_once_one_compiles_it(tmp_path: Path) -> None:
    code = """
import numpy as np
from numba.core import event
from checkers.columns.projection import _count_keys
compiled = []
class Listener(event.Listener):
    def on_start(self, event): compiled.append(event)
    def on_end(self, event): pass
event.register("numba:compile", Listener())
counts = np.zeros(4, np.int64)
_count_keys(np.array([0, 2, 2]), counts)
assert counts.tolist() == [0, 1, 0, 2]
print(len(compiled))
"""
    setting = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(checkers.__file__).parents[1])}
    start = [sys.executable, "-c", code]
    running = [subprocess.Popen(start, env=setting, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    counts = [int(process.communicate()[0]) for process in running]
    assert all(process.returncode == 0 for process in running)
    assert sum(count > 0 for count in counts) == 1
    again = subprocess.run(start, env=setting, capture_output=True, text=True, check=True)
    assert int(again.stdout) == 0


def test_a_kernel_is_compiled_anew_when_anything_it_is_made_of_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in _modules_with_kernels():
        told = _digested(module, monkeypatch)
        for name, value in vars(importlib.import_module(module)).items():
            if isinstance(value, Kernel):
                assert value.py_func.__module__ in told, f"{module} uses {name}"


def _modules_with_kernels() -> list[str]:
    names = [each.name for each in pkgutil.walk_packages(checkers.__path__, "checkers.") if not each.ispkg]
    sources = {name: Path(checkers.__file__).parent.joinpath(*name.split(".")[1:]).with_suffix(".py") for name in names}
    found = [name for name, source in sources.items() if "checkers.compiled import" in source.read_text()]
    assert len(found) > 40
    return found


def _digested(module: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The modules that a digest is made of."""
    seen: set[str] = set()
    read = compile_cache._code_and_imports

    def noted(name: str) -> tuple[bytes, frozenset[str]]:
        seen.add(name)
        return read(name)

    with monkeypatch.context() as context:
        context.setattr(compile_cache, "_code_and_imports", noted)
        code_digest.__wrapped__(module)
    return seen


def test_the_digest_is_another_for_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_digest.__wrapped__("checkers.linearizability.objects.object_search")
    read = compile_cache._code_and_imports

    def changed(name: str) -> tuple[bytes, frozenset[str]]:
        code, imported = read(name)
        return code + (b"#" if name == "checkers.linearizability.objects.word_store" else b""), imported

    monkeypatch.setattr(compile_cache, "_code_and_imports", changed)
    assert code_digest.__wrapped__("checkers.linearizability.objects.object_search") != before
    assert code_digest.__wrapped__("checkers.columns.graph") == code_digest("checkers.columns.graph")


@pytest.mark.parametrize(
    "line",
    [
        "from harness.columns import LIMIT",
        "import harness.columns as columns",
        "from harness import (\n    columns,\n)",
        "def made():\n    from harness.columns import LIMIT\n    return LIMIT",
        "if True:\n    import harness.columns",
        "from checkers.between import LIMIT",
    ],
)
def test_the_digest_follows_imports_wherever_they_stand(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A constant of another package, or one that a function imports, is as much part of a kernel."""
    monkeypatch.setattr(compile_cache, "_ROOT", tmp_path)
    monkeypatch.setattr(compile_cache, "_code_and_imports", compile_cache._code_and_imports.__wrapped__)
    for name, text in {"checkers": "", "harness": "LIMIT = 1"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text)
    (tmp_path / "checkers" / "between.py").write_text("from harness.columns import LIMIT\nimport harness.gone")
    (tmp_path / "checkers" / "made.py").write_text(f"import os\n{line}\n")
    (tmp_path / "harness" / "columns.py").write_text("LIMIT = 1")
    before = code_digest.__wrapped__("checkers.made")
    assert code_digest.__wrapped__("checkers.made") == before
    (tmp_path / "harness" / "columns.py").write_text("LIMIT = 2")
    assert code_digest.__wrapped__("checkers.made") != before


def test_constants_of_the_harness_are_part_of_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"harness.history.columns", "harness.history.ops"} <= _digested("checkers.importers.pairing", monkeypatch)


ONE_KIND = """
import gc
from checkers.api import judge_source
from checkers.engines.local import LocalEngine
from checkers.linking import Kernel
from checkers.made.examples import groups, open_example

for example in [each for group in groups() for each in group.examples if each.path.suffix != ".log"]:
    judge_source(open_example(example.path), example.model, LocalEngine())
kernels = [each for each in gc.get_objects() if isinstance(each, Kernel) and each.overloads]
print(len(kernels), {each.py_func.__qualname__: len(each.overloads) for each in kernels if len(each.overloads) > 1})
"""


def test_no_example_takes_a_kernel_compiled_twice() -> None:
    """For arrays that may be written and others, or that lie otherwise, or of another width; but the search for objects
    is one for each kind: locks, those with owners, queues and bags, sets, strings, rows of registers."""
    ran = subprocess.run([sys.executable, "-c", ONE_KIND], capture_output=True, text=True, check=False)
    count, several = ran.stdout.split(maxsplit=1)
    assert int(count) > 60 and several == "{'search_keys': 6}\n", ran.stderr


SET_UP = """
import gc
from checkers.compile_all import compile_model
from checkers.linking import Kernel
from checkers.importers.detect import open_source
from checkers.made.examples import EXAMPLES

compile_model(("isolation", EXAMPLES / "isolation"))
loaded = {each for each in gc.get_objects() if isinstance(each, Kernel) and each.overloads}
open_source(%r)
print([each.py_func.__qualname__ for each in gc.get_objects() if isinstance(each, Kernel) and each.overloads
       and each not in loaded])
"""


def test_what_is_set_up_reads_texts_of_awdit(tmp_path: Path) -> None:
    """`make setup` compiles what reads them; no history among the examples is one."""
    text = tmp_path / "history.txt"
    text.write_text("w 3 4\nr 5 0\n-----\nr 3 4\n=====\nw 5 7\n")
    ran = subprocess.run([sys.executable, "-c", SET_UP % str(text)], capture_output=True, text=True, check=False)
    assert ran.stdout == "[]\n", ran.stderr

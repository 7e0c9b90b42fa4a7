"""Judging a small history loads what judges it, and nothing of runs, pictures or Spark."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import checkers
from checkers.made.examples import EXAMPLES

DOCUMENT = Path(__file__).parents[2] / "docs" / "checking.md"

PROGRAM = """
import atexit, sys
from assay import cli
def show():
    print(sorted(sys.modules), file=sys.stderr)
atexit.register(show)
cli.main()
"""


def run(code: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    setting = {**os.environ, "PYTHONPATH": str(Path(checkers.__file__).parents[1])}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=setting, cwd=cwd, check=False)


FAMILIES = {"catalog", "isolation", "jepsen", "linearizability", "quorum", "sessions", "snapshots", "transactions"}
COMPILER = "numba.cpython.randomimpl"
"""Loaded by numba to compile, not to run what was compiled before."""


def loaded_by_check(model: str) -> set[str]:
    """The modules that judging an example takes, its kernels compiled."""
    example = next(path for path in sorted((EXAMPLES / model).glob("*.edn")))
    for _ in range(2):
        ran = run(PROGRAM, "check", str(example), "--model", model)
        assert ran.returncode == 1 and ran.stdout.startswith("INVALID: "), ran.stderr
        loaded = set(ast.literal_eval(ran.stderr.strip().splitlines()[-1]))
        if COMPILER not in loaded:
            break
    return loaded


@pytest.mark.parametrize(("model", "family"), [("register", {"linearizability"}), ("set", {"jepsen"})])
def test_a_check_loads_no_more_than_judging_takes(model: str, family: set[str]) -> None:
    modules = loaded_by_check(model)
    loaded = {name.partition(".")[0] for name in modules}
    assert {"checkers", "numba", "pyarrow"} <= loaded
    needless = {"pandas", "matplotlib", "networkx", "pyspark", "py4j", "docker", "paramiko", "uvloop"}
    assert loaded.isdisjoint(needless | {"cluster", "nemesis", "workloads", "results"})
    assert COMPILER not in modules
    packages = {name.split(".")[1] for name in modules if name.startswith("checkers.")}
    assert packages & FAMILIES == family


def test_every_model_is_where_the_table_says() -> None:
    from checkers.models import MODELS

    for info in MODELS.values():
        package = info.function.partition(".")[0].partition(":")[0]
        assert package in FAMILIES and callable(info.judge)


def test_all_is_said_and_put_away_although_the_process_leaves_at_once(tmp_path: Path) -> None:
    code = "import sys, tempfile\nfrom assay.cli import main\nsys.stdout.write('said ')\n"
    code += f"kept = tempfile.TemporaryDirectory(dir={str(tmp_path)!r})\nmain()"
    ran = run(code, "list", "models")
    assert ran.returncode == 0 and ran.stdout.startswith("said ") and "cas-register" in ran.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_documented_program_judges(tmp_path: Path) -> None:
    example = DOCUMENT.read_text().split("```python\n")[1].split("```")[0]
    history = next(path for path in sorted((EXAMPLES / "register").glob("stale-read*.edn")))
    (tmp_path / "history.edn").write_bytes(history.read_bytes())
    ran = run(example, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "stale-read" in ran.stdout and "False" in ran.stdout


def test_a_run_of_seeds_loads_no_pandas(tmp_path: Path) -> None:
    ran = run(PROGRAM, "run", "register", "--seeds", "1..1", "--time-limit", "1", "--store", str(tmp_path))
    assert "1 of 1 seeds" in ran.stdout, ran.stderr
    assert "pandas" not in ast.literal_eval(ran.stderr.strip().splitlines()[-1])


LOADS = """
import gc
from assay.processes import loading
for for_good, enabled in ((False, True), (True, True), (True, False)):
    gc.unfreeze()
    (gc.enable if enabled else gc.disable)()
    with loading(for_good):
        assert not gc.isenabled()
    assert gc.isenabled() == enabled and (gc.get_freeze_count() > 0) == for_good
"""


def test_nothing_is_collected_while_modules_are_loaded_and_all_is_as_before_afterwards() -> None:
    ran = run(LOADS)
    assert ran.returncode == 0, ran.stderr


def test_a_process_that_judges_is_forked_only_where_no_thread_may_hold_a_lock() -> None:
    asked = "from assay.processes import _may_fork\nimport sys, threading\n"
    alone = run(asked + "sys.exit(_may_fork() is not (sys.platform == 'linux'))")
    busy = "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    assert alone.returncode == 0 and run(asked + busy + "sys.exit(_may_fork())").returncode == 0


LEFT = """
import multiprocessing, sys
from assay import processes
processes._load = lambda: __import__("time").sleep(60)
try:
    with processes.judge_process():
        (child,) = multiprocessing.active_children()
        raise KeyError
except KeyError:
    sys.exit(child.exitcode != -9)
"""


def test_nobody_waits_for_the_process_that_judges_where_nothing_is_to_be_judged_any_more() -> None:
    assert run(LEFT).returncode == 0


RUN_LOADS = """
import sys
import assay.compose, assay.run_command
print(*sys.modules)
from assay import processes
processes._load()
print(*sys.modules)
"""


def test_a_run_loads_nothing_that_draws_on_terminals_and_its_judge_nothing_that_only_compiling_needs() -> None:
    loaded = run(RUN_LOADS)
    of_run, of_judge = map(str.split, loaded.stdout.splitlines())
    assert "assay.progress" in of_run
    assert not {"rich", "uvloop", "numba", "matplotlib", "pandas"} & set(of_run)
    assert {"numba", "matplotlib"} <= set(of_judge)
    assert COMPILER not in of_judge

"""Judging a small history loads what judges it, and nothing of runs, pictures or Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import checkers

EXAMPLES = Path(__file__).parents[1] / "checkers" / "examples"
DOCUMENT = Path(__file__).parents[2] / "docs" / "checking.md"

PROGRAM = """
import atexit, sys
from assay import cli
def show():
    print(sorted({name.split(".")[0] for name in sys.modules}), file=sys.stderr)
atexit.register(show)
cli.main()
"""


def run(code: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    setting = {**os.environ, "PYTHONPATH": str(Path(checkers.__file__).parents[1])}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=setting, cwd=cwd, check=False)


def test_a_check_loads_no_more_than_judging_takes() -> None:
    example = next(path for path in sorted((EXAMPLES / "register").glob("*.edn")))
    ran = run(PROGRAM, "check", str(example), "--model", "register")
    assert ran.returncode == 1 and ran.stdout.startswith("INVALID: ")
    loaded = set(eval(ran.stderr.strip().splitlines()[-1]))
    assert {"checkers", "numba", "pyarrow"} <= loaded
    needless = {"pandas", "matplotlib", "networkx", "pyspark", "py4j", "docker", "paramiko", "uvloop"}
    assert loaded.isdisjoint(needless | {"cluster", "nemesis", "workloads", "results"})


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

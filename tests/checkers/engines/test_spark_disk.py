"""What ends Spark in mid-check is one sentence and 254: a full disk for spilled data."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkers.made.registers import RegisterShape, write_register_history
from tests.mounts import small_disk

pytestmark = [pytest.mark.spark, pytest.mark.campaign]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("history") / "h.parquet"
    write_register_history(RegisterShape(3_000_000, keys=100), path)
    return path


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few MiB."""
    with small_disk(tmp_path / "small", "8m") as place:
        yield place


def checking(history: Path, *conf: str) -> subprocess.Popen[str]:
    options = [part for setting in conf for part in ("--spark-conf", setting)]
    command = [sys.executable, "-m", "assay.cli", "check", str(history), "--model", "register", "--engine", "spark"]
    pipe = subprocess.PIPE
    return subprocess.Popen([*command, "--spark-master", "local[2]", *options], stdout=pipe, stderr=pipe, text=True)


def error_line(process: subprocess.Popen[str]) -> str:
    """The one sentence that says why the check failed."""
    out, err = process.communicate()
    assert process.returncode == 254, (out, err)
    (line,) = (out + err).strip().splitlines()[-1:]
    assert "Traceback" not in err and "Py4J" not in err, err
    return line


def test_a_full_disk_for_spilled_data(history: Path, disk: Path) -> None:
    before = sorted(history.parent.iterdir())
    assert "disk for spilled data is full" in error_line(checking(history, f"spark.local.dir={disk}"))
    assert sorted(history.parent.iterdir()) == before

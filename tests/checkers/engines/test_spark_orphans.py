"""A driver on this machine that is killed takes its JVM and its workers with it, whatever these are at. One whose JVM
is killed in mid-check says so in a sentence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from checkers.made.registers import RegisterShape, write_register_history
from tests.support.cluster_driver import Heard, heard_in, kill_jvm
from tests.support.patience import until

pytestmark = [pytest.mark.spark, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]

MARK = "ASSAY_TEST_MARK"
DEEP_TASK = Path(__file__).with_name("deep_task.py")


def marked(mark: str) -> list[str]:
    """The processes that have this in their environment; one that ended and was not reaped has none."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (place / "environ").read_bytes():
                found.append(place.name)
        except OSError:  # it ended meanwhile, or is another user's
            continue
    return found


def test_a_driver_that_is_killed_leaves_no_worker(tmp_path: Path) -> None:
    mark = str(tmp_path)
    process = subprocess.Popen([sys.executable, DEEP_TASK, tmp_path, "local[2]"], env=os.environ | {MARK: mark})
    try:
        until(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
        assert len(marked(mark)) >= 5, "driver, JVM, the workers' parent, and two workers"
        process.kill()
        process.wait()
        until(lambda: not marked(mark))
    finally:
        for pid in marked(mark):
            os.kill(int(pid), signal.SIGKILL)


def test_a_jvm_that_is_killed_in_mid_check_is_one_sentence(tmp_path: Path) -> None:
    """A traceback came before it, and the end of the session, which was there no more, took its place."""
    path, log = tmp_path / "history.parquet", tmp_path / "events"
    write_register_history(RegisterShape(2_000_000, keys=100), path)
    log.mkdir()
    told = [word for name, value in heard_in(log) for word in ("--spark-conf", f"{name}={value}")]
    where = ["--engine", "spark", "--spark-master", "local[2]", *told]
    command = [sys.executable, "-m", "assay.cli", "check", path, "--model", "register", *where]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: [file for file in log.iterdir() if Heard(file).is_judging()], every_s=0.02)
    kill_jvm(process.pid)
    said, errors = process.communicate()
    assert (process.returncode, said) == (254, "") and len(errors.splitlines()) == 1, said + errors
    assert "Spark's own process on this machine died" in errors

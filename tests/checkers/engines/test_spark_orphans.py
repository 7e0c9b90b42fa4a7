"""A driver on this machine that is killed takes its JVM and its workers with it, whatever these are at."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.standalone_cluster import await_true

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
        await_true(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
        assert len(marked(mark)) >= 5, "driver, JVM, the workers' parent, and two workers"
        process.kill()
        process.wait()
        await_true(lambda: not marked(mark))
    finally:
        for pid in marked(mark):
            os.kill(int(pid), signal.SIGKILL)

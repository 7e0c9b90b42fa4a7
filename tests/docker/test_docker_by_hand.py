"""`assay cluster up` in containers: every call by hand, and nothing is left of it after its signal."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from assay.cluster_command import UP_FILE
from harness.env.docker.engine import RUN_LABEL
from tests.by_hand import Operator, make_every_call

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]

UP_S = 120.0


def test_every_call_on_a_cluster_that_is_up(engine: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filters = {"label": RUN_LABEL}
    before = {each.name for each in engine.containers.list(all=True, filters=filters)}
    command = ["cluster", "up", "--masters", "1", "--nodes", "3", "--store", str(tmp_path)]
    up = subprocess.Popen([sys.executable, "-m", "assay.cli", *command], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + UP_S
        while not (tmp_path / UP_FILE).exists():
            assert up.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        make_every_call(Operator(tmp_path, capsys))
    finally:
        up.send_signal(signal.SIGINT)
        assert up.wait(UP_S) == 0
    assert not (tmp_path / UP_FILE).exists()
    assert {each.name for each in engine.containers.list(all=True, filters=filters)} <= before

"""`assay cluster up` in containers: every call by hand, and nothing is left of it after its signal."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.cluster_command import UP_FILE
from tests.by_hand import Operator, make_every_call
from tests.docker.conftest import made_by
from tests.support.patience import until

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]


def test_every_call_on_a_cluster_that_is_up(engine: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["cluster", "up", "--masters", "1", "--nodes", "3", "--store", str(tmp_path)]
    up = subprocess.Popen([sys.executable, "-m", "assay.cli", *command], stdout=subprocess.DEVNULL)
    before = made_by(engine, up.pid)
    try:
        until(lambda: (tmp_path / UP_FILE).exists() or up.poll() is not None, within_s=120.0)
        make_every_call(Operator(tmp_path, capsys))
    finally:
        up.send_signal(signal.SIGINT)
        assert up.wait() == 0
    assert not (tmp_path / UP_FILE).exists()
    assert made_by(engine, up.pid) <= before

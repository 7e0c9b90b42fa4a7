"""Nemeses of processes, failpoints and disks in containers: seen in effect, seen to be gone, and nothing is lost."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from assay.compose import carry_out
from assay.judging import judge_saved_run
from assay.options import RunOptions
from harness.run import Silent

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]


@pytest.mark.parametrize(
    ("kinds", "seconds"),
    [
        (("stop", "crash-loop", "rolling-restart"), 30.0),
        (("slow-disk", "hung-disk", "full-disk"), 30.0),
        (("failpoint",), 20.0),
        (("bit-flip", "truncate", "wipe"), 40.0),
    ],
    ids=["processes", "disks", "failpoint", "damage"],
)
def test_faults_take_effect_heal_and_lose_nothing(
    engine: Any, tmp_path: Path, kinds: tuple[str, ...], seconds: float
) -> None:
    options = RunOptions("register", on="docker", nemesis=kinds, time_limit=seconds, seed=1, store=tmp_path)
    finished = carry_out(options, judge_saved_run, Silent(), datetime.now(), lambda sentence: None)
    verdict = finished.outcome.verdict
    assert verdict.overall == "valid", verdict.reasons
    faults = verdict.adequacy.details["faults"]
    assert all(faults[kind]["observed"] >= 1 for kind in kinds)

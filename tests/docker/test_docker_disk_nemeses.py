"""Nemeses of disks in containers: seen in effect, seen to be gone, and nothing is lost."""

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


def test_what_disks_lose_is_replaced(engine: Any, tmp_path: Path) -> None:
    kinds = ("bit-flip", "truncate", "wipe")
    options = RunOptions("register", on="docker", nemesis=kinds, time_limit=40.0, seed=1, store=tmp_path)
    verdict = carry_out(options, judge_saved_run, Silent(), datetime.now(), lambda sentence: None).outcome.verdict
    assert verdict.overall == "valid", verdict.reasons
    faults = verdict.adequacy.details["faults"]
    assert all(faults[kind]["observed"] >= 1 for kind in kinds)

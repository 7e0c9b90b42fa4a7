"""Strong reads of a GLOBAL table by every replica, in containers: as in the simulator, valid without its flaw alone."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from assay.compose import carry_out
from assay.judging import judge_saved_run
from assay.options import RunOptions
from harness.run.spec import Silent

pytestmark = [pytest.mark.docker, pytest.mark.campaign, pytest.mark.xdist_group("docker")]


@pytest.mark.parametrize(
    ("nemesis", "flaw", "overall", "anomaly"),
    [
        ("policy-change", (), "valid", None),
        ("clock-jump(target=all-within)", ("global-no-commit-wait",), "invalid", "stale-read"),
    ],
)
def test_answers_that_wait_for_their_time_are_what_makes_it_linearizable(
    nemesis: str, flaw: tuple[str, ...], overall: str, anomaly: str | None, engine: Any, tmp_path: Path
) -> None:
    options = RunOptions(
        "global-reads", on="docker", nemesis=(nemesis,), flaw=flaw, time_limit=30.0, seed=1, store=tmp_path
    )
    verdict = carry_out(options, judge_saved_run, Silent(), datetime.now(), lambda sentence: None).outcome.verdict
    assert verdict.overall == overall, verdict.reasons
    assert anomaly is None or anomaly in verdict.checkers["register"]["anomalies"]

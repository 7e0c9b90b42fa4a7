"""Replicas of quorum tables become equal by hints and repair, not by being looked at (Q2)."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from assay.compose import carry_out
from assay.options import RunOptions
from checkers.api import check_run
from harness.run.spec import Silent

CALM = "severity=mild,latency=lan"


@pytest.mark.parametrize(
    ("nemesis", "world", "equal"),
    [
        ("partition", CALM, True),
        ("partial-write", CALM, False),
        ("partial-write", f"{CALM},repair-period-ms=3000", True),
    ],
    ids=["hints make up for a partition", "a dead coordinator left none", "repair makes up for that"],
)
def test_replicas_become_equal_by_hints_and_repair(tmp_path: Path, nemesis: str, world: str, equal: bool) -> None:
    options = RunOptions(
        "convergence",
        nemesis=(nemesis,),
        time_limit=12,
        rate=60,
        concurrency=8,
        seed=3,
        world=world,
        store=tmp_path,
    )
    finished = carry_out(options, lambda _: {}, Silent(), datetime(2026, 1, 1), lambda _: None)
    (verdict,) = check_run(finished.outcome.rundir.history_parquet, ("convergence",), engine="local").values()
    assert verdict.valid is equal
    assert verdict.details["compared"] > 50

"""A lease that its holder times by its wall clock, in containers: found by clocks that are set wrong, by nothing else.

Two or three minutes. Few clients write to many keys: a write that waits for a quorum that is gone holds its key, and a
reader that comes upon it leaves the old holder for good.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from assay.compose import carry_out
from assay.judging import judge_saved_run
from assay.options import RunOptions
from harness.run.spec import Silent
from harness.verdict.run_verdict import RunVerdict

pytestmark = [pytest.mark.docker, pytest.mark.campaign, pytest.mark.xdist_group("docker")]

CLOCKS, CUTS = "clock-jump(target=all-within,for=12s)", "partition(target=leaseholder,for=12s)"
KNOBS = {
    "election-timeout-ms": 2000,
    "raft-heartbeat-ms": 300,
    "tablet-lease-ms": 2000,
    "max-clock-offset-ms": 20_000,
    "check-quorum-ms": 40_000,
}
SEED = 61
"""Its third cycle sets the master's clock ahead and all tablet servers' back, and cuts a leaseholder off meanwhile."""


def judged(store: Path, *nemesis: str) -> RunVerdict:
    options = RunOptions(
        "register",
        on="docker",
        masters=1,
        nodes=3,
        nemesis=nemesis,
        flaw=("lease-by-wall-clock",),
        time_limit=70.0,
        concurrency=20,
        seed=SEED,
        world=",".join(f"{name}={value}" for name, value in KNOBS.items()),
        workload_options={"keys": "120", "hot": "120", "readers": "0.9", "reads": "0.2"},
        store=store,
    )
    return carry_out(options, judge_saved_run, Silent(), datetime.now(), lambda sentence: None).outcome.verdict


def test_it_is_found_by_clocks_that_jump_within_the_bound(engine: Any, tmp_path: Path) -> None:
    verdict = judged(tmp_path, CLOCKS, CUTS)
    assert verdict.overall == "invalid", verdict.reasons
    assert set(verdict.checkers["register"]["anomalies"]) == {"stale-read"}


def test_where_clocks_are_right_the_same_cuts_find_nothing(engine: Any, tmp_path: Path) -> None:
    verdict = judged(tmp_path, CUTS)
    assert verdict.safety.answer is True, verdict.reasons

"""Known bugs of the masters are found in containers too, each by the command of `flaws.md`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from assay.compose import carry_out
from assay.judging import judge_saved_run
from assay.options import RunOptions
from harness.run.spec import Silent
from nemesis.asked import split

pytestmark = [pytest.mark.docker, pytest.mark.campaign, pytest.mark.xdist_group("docker")]
TRIES = 4

HURRIED = {"rows": "0.02"}
"""Most operations are of the catalog."""

COMMANDS: dict[str, tuple[str, str, dict[str, str], str]] = {
    "abort-on-failed-replication": ("master-partition", "", {}, ""),
    "heartbeat-leader-only": ("master-kill(target=leader)", "", {}, "end-state"),
    "no-full-report": ("heartbeat-loss(target=leader),master-pause(target=leader)", "", HURRIED, "end-state"),
    "cold-replica-map": ("master-kill(target=leader,every=5s)", "tserver-heartbeat-ms=1500", HURRIED, "no-location"),
}
"""Nemesis, world and options, and which anomaly shows the flaw; none named: the cluster does not recover."""


@pytest.mark.parametrize("flaw", COMMANDS)
def test_a_flaw_of_the_masters_is_found_in_containers(engine: Any, tmp_path: Path, flaw: str) -> None:
    nemesis, world, workload_options, shown = COMMANDS[flaw]
    for seed in range(1, TRIES + 1):
        options = RunOptions(
            "catalog",
            on="docker",
            nemesis=tuple(split(nemesis)),
            time_limit=30.0,
            seed=seed,
            flaw=(flaw,),
            world=world,
            workload_options=workload_options,
            store=tmp_path,
        )
        finished = carry_out(options, judge_saved_run, Silent(), datetime.now(), lambda sentence: None)
        verdict = finished.outcome.verdict
        if verdict.overall == "invalid" and shown in str(verdict.checkers):
            return
    pytest.fail(f"{flaw} was not found by {TRIES} seeds")

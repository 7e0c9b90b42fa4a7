"""Whole runs in containers: valid with every fault observed, and a known bug found."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from assay.compose import Finished, carry_out
from assay.judging import judge_saved_run
from assay.options import RunOptions
from cluster.deploy.database_ssh import SshDatabase
from harness.run.spec import Silent
from tests import honest_runs as honest

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]
TRIES = 4


def carry(store: Path, seed: int, nemesis: tuple[str, ...], flaw: tuple[str, ...] = ()) -> Finished:
    options = RunOptions("register", on="docker", nemesis=nemesis, time_limit=20.0, seed=seed, flaw=flaw, store=store)
    return carry_out(options, judge_saved_run, Silent(), datetime.now(), lambda sentence: None)


def test_faults_of_links_processes_and_disks_are_survived_and_observed_and_a_teardown_raises(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What disks lose is replaced. The load goes on for as long as some kind was not seen in effect. That the database
    can't be torn down is told, and leaves the run valid (`test_docker_honest.py`)."""
    kinds = ("partition", "kill", "bit-flip", "truncate", "wipe")
    honest.with_a_failing_teardown(monkeypatch, SshDatabase)
    outcome = carry(tmp_path, 1, kinds).outcome
    honest.lost_only_the_teardown(outcome)
    verdict = outcome.verdict
    faults = verdict.adequacy.details["faults"]
    assert all(faults[kind]["observed"] >= 1 for kind in kinds)
    reads = verdict.adequacy.details["each_node"]["reads"]
    assert sorted(reads) == ["t1", "t2", "t3", "t4", "t5"] and all(answered for _, answered in reads.values())
    assert verdict.checkers["invariants"]["details"]["checked"]["state-digest"] > 0


def test_entries_applied_before_they_are_committed_are_found(engine: Any, tmp_path: Path) -> None:
    for seed in range(1, TRIES + 1):
        verdict = carry(tmp_path, seed, ("partition",), ("apply-uncommitted",)).outcome.verdict
        if verdict.safety.answer is False:
            break
    assert verdict.overall == "invalid"
    assert verdict.checkers["register"]["valid"] is False, "clients saw it"

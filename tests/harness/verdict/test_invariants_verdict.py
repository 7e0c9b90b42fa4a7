"""Invariants that broke during a run are a finding of it: in the verdict, in the saved run, and when judged again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.protocols import Breach, InvariantsRecord, Watched
from harness.verdict.facts import conclude_run, load_invariants
from harness.verdict.run_verdict import as_checker
from tests.harness.run.memory_runs import KillNemesis, Setup
from tests.support.memory_database import MemoryDatabase

BREACH = Breach("one-leader-per-term", "two replicas lead in term 2", 1_500_000_000, 42, ("t1", "t2"), "tablet")
CLEAN = InvariantsRecord({"one-leader-per-term": 9})
BROKEN = InvariantsRecord({"one-leader-per-term": 9}, {"one-leader-per-term": 3}, (BREACH,))


class WatchedMemory(MemoryDatabase):
    capabilities = MemoryDatabase.capabilities | {"invariants"}

    """A database in memory that tells what it is given."""

    record = CLEAN

    async def invariants(self) -> InvariantsRecord:
        return self.record


def test_a_database_has_the_power_or_not(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    assert not isinstance(setup.database, Watched)
    assert isinstance(WatchedMemory(setup.environment.clock), Watched)


def test_a_breach_says_what_where_and_when() -> None:
    checker = as_checker(BROKEN)
    assert checker["valid"] is False
    assert checker["counts"] == {"one-leader-per-term": 3}
    (anomaly,) = checker["anomalies"]["one-leader-per-term"]
    assert anomaly["message"] == (
        "two replicas lead in term 2 (t1, t2 in group tablet; at 1.500000 s of virtual time, step 42)"
    )
    assert anomaly["details"] == {"time_ns": 1_500_000_000, "step": 42, "nodes": ["t1", "t2"], "group": "tablet"}


def test_what_was_never_put_to_the_test_is_unknown() -> None:
    assert as_checker(CLEAN)["valid"] is True
    assert as_checker(InvariantsRecord({"one-leader-per-term": 0}))["valid"] == "unknown"
    assert as_checker(InvariantsRecord({}))["reason"]


def test_a_run_with_a_breach_is_invalid_and_stays_so_when_it_is_judged_again(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    database = WatchedMemory(setup.environment.clock)
    database.record = BROKEN
    outcome = setup.run(database=database, nemesis=KillNemesis(database))
    assert outcome.verdict.overall == "invalid"
    assert outcome.verdict.safety.reasons == ("an invariant broke during the run: one-leader-per-term",)
    assert load_invariants(outcome.rundir) == BROKEN
    saved = outcome.rundir.read_json(outcome.rundir.verdict_json)
    assert saved["checkers"]["invariants"]["anomalies"]["one-leader-per-term"][0]["message"].startswith("two replicas")
    again = conclude_run(outcome.rundir, {"values": {"valid": True}})
    assert (again.overall, again.checkers["invariants"]) == ("invalid", as_checker(BROKEN))


@pytest.mark.parametrize(("record", "overall", "why"), [(BROKEN, "invalid", "refuted"), (CLEAN, "unknown", "harness")])
def test_what_broke_while_it_was_set_up_is_a_finding_too(
    record: InvariantsRecord, overall: str, why: str, tmp_path: Path
) -> None:
    """Seed 6745474952884405547 of apply-uncommitted: two nodes panicked, and the harness was said to have failed."""

    class Hopeless(WatchedMemory):
        async def setup_workload(self, workload: str, options: Mapping[str, Any]) -> None:
            raise TimeoutError("the cluster was not ready")

    setup = Setup(tmp_path)
    database = Hopeless(setup.environment.clock)
    database.record = record
    verdict = setup.run(database=database, nemesis=KillNemesis(database)).verdict
    assert (verdict.overall, verdict.why) == (overall, why)


def test_a_run_without_a_breach_is_valid(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    database = WatchedMemory(setup.environment.clock)
    outcome = setup.run(database=database, nemesis=KillNemesis(database))
    assert outcome.verdict.overall == "valid"
    assert outcome.verdict.checkers["invariants"]["details"] == {"checked": {"one-leader-per-term": 9}}


def test_a_run_whose_record_of_invariants_is_gone_is_not_valid(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    database = WatchedMemory(setup.environment.clock)
    outcome = setup.run(database=database, nemesis=KillNemesis(database))
    outcome.rundir.invariants_json.unlink()
    again = conclude_run(outcome.rundir, {"values": {"valid": True}})
    assert again.overall == "unknown" and again.checkers["invariants"]["valid"] == "unknown"

"""Invariants over what nodes say of themselves, and over nodes that stop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from watched_cluster import GROUP, Cluster

from cluster.deploy.database_ssh import SshDatabase
from cluster.invariants.watch import NO_PANIC, Reports, Watch
from cluster.log.envelope import CorruptLog
from cluster.raft.types import InvariantBroken
from harness.protocols import Damage, GroupStatus, NodeStatus
from harness.verdict.run_verdict import as_checker


def status(node: str, term: int, index: int, digest: int, role: str = "follower", incarnation: int = 1) -> NodeStatus:
    group = GroupStatus("g", role, term, ("a", "b"), None, index, index, index, term, False, digest=digest)
    return NodeStatus(node, "tserver", incarnation, (group,))


def test_reports_of_different_moments_are_compared() -> None:
    reports = Reports()
    reports.take(status("a", 1, 5, 77, "leader"))
    reports.take(status("a", 1, 6, 78, "leader"))
    reports.take(status("b", 1, 5, 77))
    reports.take(status("b", 2, 9, 90, "leader"))
    assert reports.record().breaches == ()
    assert reports.record().checked == {"no-panic": 4, "one-leader-per-term": 3, "state-digest": 1}
    reports.take(status("c", 1, 6, 79))
    reports.take(status("c", 2, 9, 90, "leader"))
    found = [(breach.invariant, breach.nodes, breach.group) for breach in reports.record().breaches]
    assert found == [("state-digest", ("a", "c"), "g"), ("one-leader-per-term", ("b", "c"), "g")]


def test_a_restarted_leader_does_not_lead_the_same_term() -> None:
    reports = Reports()
    reports.take(status("a", 1, 5, 77, "leader"))
    reports.take(status("a", 1, 5, 77, "leader", incarnation=2))
    anomalies = as_checker(reports.record())["anomalies"]["one-leader-per-term"]
    message = "two replicas lead in term 1 (a (incarnation 1), a (incarnation 2) in group g)"
    assert [anomaly["message"] for anomaly in anomalies] == [message]


def test_an_unknown_digest_is_not_compared() -> None:
    reports = Reports()
    reports.take(status("a", 1, 5, 0))
    reports.take(status("b", 1, 5, 7))
    assert reports.record().breaches == ()


def test_a_node_that_stops_for_what_its_disk_does_is_no_breach(cluster: Cluster) -> None:
    cluster.watch.panicked("a", OSError(5, "Input/output error"))
    assert cluster.breaches == []
    cluster.watch.panicked("b", InvariantBroken("told to drop entry 5"))
    (breach,) = cluster.watch.record().breaches
    assert (breach.invariant, breach.nodes) == ("no-panic", ("b",))
    assert breach.message == "a node stopped: InvariantBroken: told to drop entry 5"


def test_a_corrupt_log_is_no_breach_only_where_the_disk_was_damaged(cluster: Cluster) -> None:
    cluster.watch = Watch(lambda: (0, 0), damaged=lambda node: node == "a")
    for name in ("a", "b"):
        observer = cluster.life(name)
        cluster.watch.panicked(name, CorruptLog("the record is damaged"))
        observer.replica_failed(GROUP, damaged=True, reason="frame 3")
    assert cluster.breaches == [(NO_PANIC, ("b",)), (NO_PANIC, ("b",))]
    assert (
        cluster.watch.record().breaches[1].message
        == "a replica is quarantined on a disk that nothing has damaged: frame 3"
    )


def test_no_damage_excuses_a_program_that_fails(cluster: Cluster) -> None:
    cluster.watch = Watch(lambda: (0, 0), damaged=lambda node: True)
    cluster.life("a").replica_failed(GROUP, damaged=False, reason="poisoned")
    assert [(breach.message, breach.group) for breach in cluster.watch.record().breaches] == [
        ("a replica failed: poisoned", GROUP)
    ]


@pytest.mark.parametrize(
    ("role", "reason"),
    [("failed", "has failed"), ("quarantined", "is quarantined on a disk that nothing has damaged")],
)
def test_a_replica_reported_as_stopped_is_a_breach(role: str, reason: str) -> None:
    reports = Reports()
    reports.take(status("a", 0, 0, 0, role))
    assert [(breach.message, breach.nodes) for breach in reports.record().breaches] == [(f"a replica {reason}", ("a",))]


def test_a_replica_that_is_quarantined_on_a_damaged_disk_is_no_breach_and_one_that_failed_is() -> None:
    """A file cut short by the nemesis made runs in containers invalid: the node did what it must (G7)."""
    reports = Reports(damaged=lambda node: node == "a")
    reports.take(status("a", 0, 0, 0, "quarantined"))
    assert reports.record().breaches == ()
    reports.take(status("b", 0, 0, 0, "quarantined"))
    reports.take(status("a", 0, 0, 0, "failed"))
    assert [breach.nodes for breach in reports.record().breaches] == [("b",), ("a",)]


class Wrecked(SshDatabase):
    """Nodes that are down, whose files anybody may damage."""

    async def _dead(self, node: str) -> None: ...

    async def _command(self, node: str, command: str) -> str:
        return "00 became 01"


def test_a_database_knows_whose_disks_it_damaged() -> None:
    machines: Any = None
    database = Wrecked(machines)
    asyncio.run(database.corrupt("t1", Damage("bit-flip", "masters", 0)))
    for node in ("t1", "t2"):
        database._reports.take(status(node, 0, 0, 0, "quarantined"))
    assert [breach.nodes for breach in database._reports.record().breaches] == [("t2",)]

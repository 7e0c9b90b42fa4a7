"""Invariants over what nodes say of themselves, and over nodes that stop."""

from __future__ import annotations

from watched_cluster import Cluster

from cluster.invariants.reports import Reports
from cluster.raft.types import InvariantBroken
from harness.invariants import as_checker
from harness.protocols import GroupStatus, NodeStatus


def status(node: str, term: int, index: int, digest: int, role: str = "follower", incarnation: int = 1) -> NodeStatus:
    group = GroupStatus("g", role, term, None, index, index, index, term, False, ("a", "b"), digest=digest)
    return NodeStatus(node, "tserver", incarnation, (group,))


def test_reports_of_different_moments_are_compared() -> None:
    reports = Reports()
    reports.take(status("a", 1, 5, 77, "leader"))
    reports.take(status("a", 1, 6, 78, "leader"))
    reports.take(status("b", 1, 5, 77))
    reports.take(status("b", 2, 9, 90, "leader"))
    assert reports.record().breaches == ()
    assert reports.record().checked == {"one-leader-per-term": 3, "state-digest": 4}
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


def test_a_node_that_stops_for_what_its_disk_does_is_no_breach() -> None:
    cluster = Cluster()
    cluster.watch.panicked("a", OSError(5, "Input/output error"))
    assert cluster.breaches == []
    cluster.watch.panicked("b", InvariantBroken("told to drop entry 5"))
    (breach,) = cluster.watch.record().breaches
    assert (breach.invariant, breach.nodes) == ("no-panic", ("b",))
    assert breach.message == "a node stopped: InvariantBroken: told to drop entry 5"

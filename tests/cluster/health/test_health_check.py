"""What `assay cluster check` finds wrong with facts that are wrong in one way each, and how it tells them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest
from msgspec.structs import replace as changed

from cluster.health.check import ClusterReport, examine, look, report_text
from cluster.health.facts import SCHEMA_VERSIONS, CatalogFacts, ClusterFacts, collect
from cluster.wire.messages import (
    MastersReply,
    Partition,
    Replica,
    TableInfo,
    TabletLocation,
    TabletServersReply,
)
from harness.errors import DefiniteError
from harness.protocols import Examination, GroupStatus, InvariantsRecord, Node, NodeStatus
from harness.verdict.run_verdict import END_STATE, as_checker, with_examination

MASTERS, TSERVERS = ("m1", "m2", "m3"), ("t1", "t2", "t3", "t4")
NODES = (*(Node(name, "master") for name in MASTERS), *(Node(name, "tserver") for name in TSERVERS))
TABLE = TableInfo("table-1", "orders", "RUNNING", 2)
VOTERS = ("t1", "t2", "t3")


def replica(group: str, leader: str, name: str, voters: tuple[str, ...]) -> GroupStatus:
    role = "leader" if name == leader else "follower"
    return GroupStatus(group, role, 3, voters, leader, 9, 9, 9, 3, role == "leader", config_index=1, digest=77)


def location(bucket: int) -> TabletLocation:
    replicas = tuple(Replica(name, f"{name}:7050") for name in VOTERS)
    return TabletLocation(f"tablet-{bucket}", Partition(bucket, 2), replicas, "RUNNING", "t1")


def healthy() -> ClusterFacts:
    statuses = {name: NodeStatus(name, "master", 1, (replica("catalog", "m2", name, MASTERS),)) for name in MASTERS}
    for name in TSERVERS:
        groups = tuple(replica(f"tablet-{bucket}", "t1", name, VOTERS) for bucket in range(2)) if name in VOTERS else ()
        versions = {group.group: TABLE.version for group in groups}
        statuses[name] = NodeStatus(name, "tserver", 1, groups, details={SCHEMA_VERSIONS: versions})
    catalog = CatalogFacts(
        MastersReply(tuple(Replica(name, "") for name in MASTERS), (), "m2", 1),
        TabletServersReply(tuple(Replica(name, "") for name in TSERVERS), TSERVERS),
        (TABLE,),
        {"table-1": 3},
        {"table-1": (location(0), location(1))},
        heard=dict.fromkeys(MASTERS, TSERVERS),
    )
    return ClusterFacts(NODES, statuses, catalog)


Spoil = Callable[[ClusterFacts], ClusterFacts]


def with_group(node: str, group: str, **changes: object) -> Spoil:
    """One replica says something else of itself."""

    def corrupt(facts: ClusterFacts) -> ClusterFacts:
        status = facts.statuses[node]
        assert status is not None
        groups = tuple(replace(each, **changes) if each.group == group else each for each in status.groups)  # type: ignore[arg-type]
        return replace(facts, statuses={**facts.statuses, node: replace(status, groups=groups)})

    return corrupt


def with_schema(node: str, version: int, **changes: object) -> Spoil:
    """One replica of a tablet has another version of its table's schema."""

    def corrupt(facts: ClusterFacts) -> ClusterFacts:
        report_text = with_group(node, "tablet-1", **changes)(facts)
        status = report_text.statuses[node]
        assert status is not None
        other = replace(status, details={SCHEMA_VERSIONS: {"tablet-0": TABLE.version, "tablet-1": version}})
        return replace(report_text, statuses={**report_text.statuses, node: other})

    return corrupt


def without_schema(node: str) -> Spoil:
    """A node that says nothing of its tablets' schemas."""

    def corrupt(facts: ClusterFacts) -> ClusterFacts:
        status = facts.statuses[node]
        assert status is not None
        return replace(facts, statuses={**facts.statuses, node: replace(status, details={})})

    return corrupt


def with_catalog(change: Callable[[CatalogFacts], CatalogFacts]) -> Spoil:
    def corrupt(facts: ClusterFacts) -> ClusterFacts:
        assert facts.catalog is not None
        return replace(facts, catalog=change(facts.catalog))

    return corrupt


def with_tablet(**changes: object) -> Spoil:
    tablets = {"table-1": (location(0), changed(location(1), **changes))}
    return with_catalog(lambda catalog: replace(catalog, tablets=tablets))


def stray(state: str | None) -> Spoil:
    def corrupt(facts: ClusterFacts) -> ClusterFacts:
        statuses = {**facts.statuses, "t4": NodeStatus("t4", "tserver", 1, (replica("old", "t4", "t4", ("t4",)),))}
        return with_catalog(lambda catalog: replace(catalog, hosted={"old": state}))(replace(facts, statuses=statuses))

    return corrupt


def beside_the_members(**changes: object) -> Spoil:
    """One more server holds a replica of a tablet; as it is one that was created to be added, and was not yet."""
    found = replace(replica("tablet-1", "t4", "t1", VOTERS), role="learner", voters=(), last_index=0)

    def corrupt(facts: ClusterFacts) -> ClusterFacts:
        more = NodeStatus("t4", "tserver", 1, (replace(found, **changes),))  # type: ignore[arg-type]
        return replace(facts, statuses={**facts.statuses, "t4": more})

    return corrupt


WRONG: dict[str, tuple[Spoil, str]] = {
    "silent-node": (lambda facts: replace(facts, statuses={**facts.statuses, "t4": None}), "t4 does not answer"),
    "no-leader-master": (with_group("m2", "catalog", role="follower"), "nobody leads"),
    "two-leader-masters": (with_group("m1", "catalog", role="leader"), "m1, m2 leads"),
    "master-in-another-term": (with_group("m3", "catalog", term=2), "different terms"),
    "masters-configurations": (with_group("m3", "catalog", config_index=0), "configurations of different entries"),
    "masters-differ": (with_group("m3", "catalog", digest=78), "replicas on m1, m2, m3 differ at applied index 9"),
    "nobody-answers": (
        lambda facts: replace(facts, catalog=None, silence="timeout"),
        "no leader master answers: timeout",
    ),
    "dead-by-heartbeats": (
        with_catalog(lambda catalog: replace(catalog, servers=TabletServersReply((), VOTERS))),
        "t4 is not live",
    ),
    "follower-master-unheard-of": (
        with_catalog(lambda catalog: replace(catalog, heard={**catalog.heard, "m3": ("t1", "t2", "t4")})),
        "m3 has not heard of t3 lately",
    ),
    "master-does-not-say": (
        with_catalog(lambda catalog: replace(catalog, heard={**catalog.heard, "m1": None})),
        "m1 does not say which tablet servers it has heard of",
    ),
    "altering": (
        with_catalog(lambda catalog: replace(catalog, tables=(changed(TABLE, state="ALTERING"),))),
        "orders is ALTERING, at schema version 2",
    ),
    "schema-behind": (
        with_schema("t1", 1),
        "orders:1 (tablet-1) has schema version 1 on t1; the table has 2",
    ),
    "schema-ahead": (with_schema("t1", 3), "has schema version 3 on t1; the table has 2"),
    "schema-behind-where-nobody-leads": (with_schema("t2", 1, role="replica"), "has schema version 1 on t2"),
    "schema-untold": (without_schema("t1"), "does not say its schema version on t1; the table has 2"),
    "half-a-table": (
        with_catalog(lambda catalog: replace(catalog, tablets={"table-1": (location(0),)})),
        "has tablets for partitions 0 of 2",
    ),
    "no-tablets": (
        with_catalog(lambda catalog: replace(catalog, tablets={"table-1": ()})),
        "has tablets for partitions none of 1",
    ),
    "tablet-creating": (with_tablet(state="CREATING"), "is CREATING"),
    "one-replica-too-many": (
        with_tablet(replicas=(*location(1).replicas, Replica("t4", "t4:7050"))),
        "has 4 replicas by the catalog, and should have 3",
    ),
    "two-servers-of-one-node": (
        with_tablet(replicas=(*location(1).replicas, Replica("t3.new", "t3:7050"))),
        "has 4 replicas by the catalog, and should have 3",
    ),
    "learner-too-many": (
        with_group("t1", "tablet-1", learners=("t4",)),
        "has the learners t4 beside enough voters",
    ),
    "not-located": (with_tablet(replicas=()), "has 0 replicas by the catalog, and should have 3"),
    "not-led": (with_group("t1", "tablet-1", role="follower"), "has no leader with a lease"),
    "lease-lost": (with_group("t1", "tablet-1", lease_valid=False), "has no leader with a lease"),
    "other-voters": (with_group("t1", "tablet-1", voters=("t1", "t2", "t4")), "the catalog has t1, t2, t3"),
    "replica-lost": (
        lambda facts: replace(facts, statuses={**facts.statuses, "t3": NodeStatus("t3", "tserver", 1)}),
        "has no replica on t3",
    ),
    "replicas-differ": (with_group("t2", "tablet-0", digest=78), "tablet-0 replicas on t1, t2, t3 differ"),
    "deletion-outstanding": (stray("DELETED"), "old is DELETED, and still on t4"),
    "not-a-member": (
        beside_the_members(voters=("t1", "t2", "t4")),
        "a replica on t4, which is not in its configuration",
    ),
    "not-a-member-and-not-empty": (beside_the_members(last_index=7), "a replica on t4, which is not in its"),
    "orphan": (stray(None), "old is on t4, and the catalog has no record of it: an orphan"),
}


def test_a_healthy_cluster_has_no_problem() -> None:
    report = examine(healthy())
    assert report.healthy and report.problems == ()
    assert report_text(report).endswith("HEALTHY: 7 nodes, 1 tables, 2 tablets, 6 replicas")
    assert "orders  RUNNING" in report_text(report) and "m2    leader" in report_text(report)


def test_a_replica_that_was_created_to_be_added_and_knows_nothing_is_nothing_wrong() -> None:
    """Seed 638 of a swarm: the answer to its creation was late, so it was not added, and the run was called invalid."""
    assert examine(beside_the_members()(healthy())).problems == ()


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told(name: str) -> None:
    corrupt, sentence = WRONG[name]
    report = examine(corrupt(healthy()))
    assert not report.healthy
    assert any(sentence in f"{each.subject} {each.message}" for each in report.problems), report.problems
    assert "NOT HEALTHY" in report_text(report) and sentence in report_text(report)


def test_a_master_that_was_removed_may_know_an_older_configuration() -> None:
    facts = healthy()
    for node in ("m1", "m2"):
        facts = with_group(node, "catalog", voters=("m1", "m2"), config_index=9)(facts)
    assert [problem for problem in examine(facts).problems if problem.section == "masters"] == []


def test_replicas_at_different_indices_are_not_compared() -> None:
    assert examine(with_group("t2", "tablet-0", digest=78, applied_index=8)(healthy())).healthy


def test_a_follower_may_have_yet_to_apply_a_schema_and_an_altering_table_has_tablets_of_several() -> None:
    assert examine(with_schema("t2", 1)(healthy())).healthy
    assert examine(with_schema("t1", 1, role="failed")(healthy())).problems, "but it has no leader"
    altering = with_catalog(lambda catalog: replace(catalog, tables=(changed(TABLE, state="ALTERING"),)))
    found = examine(altering(with_schema("t1", 1)(healthy()))).problems
    assert [each.section for each in found] == ["tables"]


def test_an_answer_that_was_lost_is_no_silence() -> None:
    """One look, of a network that loses every second answer."""
    facts, asked = healthy(), Counter[str]()

    async def status(name: str) -> NodeStatus | None:
        asked[name] += 1
        return facts.statuses[name] if asked[name] == 2 and name != "t2" else None

    client: Any = SimpleNamespace(catalog=SimpleNamespace(masters=AsyncMock(side_effect=DefiniteError("gone", "gone"))))
    seen = asyncio.run(collect(client, NODES, status)).statuses
    assert seen == {**facts.statuses, "t2": None}
    assert asked["t2"] > 2


class Passing:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    async def sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)


def looked(monkeypatch: pytest.MonkeyPatch, lacked: Callable[[float], int]) -> tuple[ClusterReport, float]:
    """What a look with a budget of 10 s finds, and when it ends, where t3 lacks `lacked(s)` entries after s seconds."""
    clock: Any = Passing()

    async def seen(*_: object) -> ClusterFacts:
        behind = lacked(clock.now_ns / 1e9)
        whole = with_tablet(replicas=location(1).replicas[:2])(healthy()) if behind else healthy()
        return with_group("t3", "tablet-1", last_index=9 - behind, applied_index=9 - behind)(whole)

    monkeypatch.setattr("cluster.health.check.collect", seen)
    client: Any = None
    report = asyncio.run(look(client, NODES, AsyncMock(), clock, 10))
    return report, clock.now_ns / 1e9


def test_a_replica_that_comes_nearer_is_waited_for_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs were invalid: over slow links, an entry at a time, a new replica took longer than the budget; it came."""
    report, took_s = looked(monkeypatch, lambda now_s: max(0, 9 - int(now_s / 3)))
    assert report.healthy and took_s == pytest.approx(27, abs=0.5)
    report, took_s = looked(monkeypatch, lambda now_s: 5)
    assert not report.healthy and took_s == pytest.approx(10, abs=0.5), "it stands"
    report, took_s = looked(monkeypatch, lambda now_s: 5 + int(now_s) % 2)
    assert not report.healthy and took_s == pytest.approx(10, abs=0.5), "it goes to and fro"
    report, took_s = looked(monkeypatch, lambda now_s: max(1, 9 - int(now_s / 9)))
    assert not report.healthy and took_s == pytest.approx(40, abs=0.5), "not for ever"


def test_a_report_is_read_again_as_it_was_written() -> None:
    report = examine(WRONG["orphan"][0](healthy()))
    assert msgspec.json.decode(msgspec.json.encode(report), type=ClusterReport) == report


def test_a_report_that_contradicts_itself_is_not_read() -> None:
    for healthy, problems in ((True, [{"section": "masters", "subject": "m1", "message": "is gone"}]), (False, [])):
        saved = msgspec.json.encode({"healthy": healthy, "problems": problems})
        with pytest.raises(msgspec.ValidationError, match="contradicts itself"):
            msgspec.json.decode(saved, type=ClusterReport)


def test_what_an_examination_finds_is_a_broken_invariant() -> None:
    record = InvariantsRecord({"no-panic": 3})
    assert as_checker(with_examination(record, Examination((), None)))["valid"] is True
    found = as_checker(with_examination(record, Examination(("a is odd",), None)))
    assert found["valid"] is False and found["counts"] == {END_STATE: 1}
    assert found["anomalies"][END_STATE][0]["message"] == "a is odd"

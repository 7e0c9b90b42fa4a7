"""Decisions of the leader master, pure: placement (M8), tablet reports (M9, appendix A and B), the tserver map (M3)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.master.background import place
from cluster.master.catalog import Caches
from cluster.master.ddl import lagging, settled
from cluster.master.manager import LeaderTerm
from cluster.master.records import (
    TableState,
    TabletConfig,
    TabletState,
    altered_table,
    changed_table,
    changed_tablet,
    deleted_tablet,
    new_table,
    new_tablet,
    settled_table,
)
from cluster.master.reports import Fate, dropped, fate, next_record, reported
from cluster.master.tservers import ServerEntry, ServerMap, replica_load, select_replicas
from cluster.wire.messages import LEADERLESS, Column, Heartbeat, Partition, Replica, TabletReport, encode_reports
from tests.cluster.master.catalog_records import TABLE, VOTERS, replica, tablet_record


def server(number: int, zone: str = "z1") -> ServerEntry:
    return ServerEntry(f"t{number}", f"t{number}:7050", zone, 1, 1, 0)


def report(
    leader: str | None = None, term: int = 1, config_index: int = 0, voters: tuple[str, ...] = ()
) -> TabletReport:
    replicas = tuple(map(replica, voters))
    return TabletReport("tablet", "table", "RUNNING", term, leader, replicas, (), config_index, 0)


def heartbeat(node_id: str = "t1", incarnation: int = 1, address: str = "t1:7050", sequence: int = 1) -> Heartbeat:
    return Heartbeat(node_id, incarnation, address, "z1", sequence, True, encode_reports(()))


# ---- the tserver map ----


def test_a_tserver_is_live_until_its_last_heartbeat_is_too_old() -> None:
    servers = ServerMap(live_ns=100)
    servers.observe(heartbeat(), now_ns=1_000)
    assert servers.is_live("t1", 1_100) and not servers.is_live("t1", 1_101)
    assert [entry.node_id for entry in servers.entries()] == ["t1"], "a dead one is still known"
    assert servers.live(1_101) == []


def test_a_server_that_began_anew_with_an_empty_disk_replaces_the_one_before() -> None:
    """Tables were placed on both, which are one machine, and on the one that never returns."""
    servers = ServerMap(live_ns=100)
    servers.observe(heartbeat("t1"), 1_000)
    servers.observe(heartbeat("t2", address="elsewhere"), 1_000)
    servers.observe(heartbeat("t1.anew"), 1_001)
    assert [entry.node_id for entry in servers.live(1_001)] == ["t1.anew", "t2"]
    assert not servers.is_live("t1", 1_001) and servers.lost() == ("t1",)
    assert servers.located(Replica("t1", "catalog")) == Replica("t1", heartbeat().address), "it is still known"
    servers.observe(heartbeat("t1", address="moved"), 1_002)
    assert servers.is_live("t1", 1_002) and servers.lost() == (), "it had moved"


OVERTAKEN = {
    "by a later one of its life": (heartbeat(sequence=2, address="new"), heartbeat(sequence=1, address="old")),
    "by its own later life": (heartbeat(incarnation=2, sequence=1), heartbeat(incarnation=1, sequence=9)),
    "by the life that began without a disk": (heartbeat("t1.anew", incarnation=2), heartbeat("t1", incarnation=1)),
}


@pytest.mark.parametrize("how", OVERTAKEN)
def test_a_heartbeat_that_was_overtaken_changes_nothing(how: str) -> None:
    later, late = OVERTAKEN[how]
    servers = ServerMap(live_ns=100)
    if late.node_id != later.node_id:
        servers.observe(heartbeat("t1", incarnation=1), 900)
    assert servers.observe(later, 1_000)
    before = (servers.live(1_050), servers.lost())
    assert not servers.observe(late, 1_050)
    assert (servers.live(1_050), servers.lost()) == before and servers.is_live(later.node_id, 1_050)


def test_an_unknown_tserver_is_located_where_the_catalog_says() -> None:
    assert ServerMap(1).located(VOTERS[0]) == VOTERS[0]


# ---- placement ----


def test_too_few_tservers_give_no_replicas() -> None:
    assert select_replicas([server(1), server(2)], {}, 3) is None


def test_zones_are_spread_before_loads_are_balanced() -> None:
    servers = [server(1, "a"), server(2, "a"), server(3, "b"), server(4, "c")]
    chosen = select_replicas(servers, {"t1": 9, "t2": 5, "t3": 50}, 3)
    assert chosen is not None
    assert [replica.node_id for replica in chosen] == ["t4", "t2", "t3"]


def test_data_centres_are_spread_before_zones() -> None:
    servers = [server(1, "dc1/a"), server(2, "dc1/b"), server(3, "dc1/c"), server(4, "dc2/a"), server(5, "dc2/a")]
    chosen = select_replicas(servers, {}, 4)
    assert chosen is not None
    assert [replica.node_id for replica in chosen] == ["t1", "t4", "t2", "t5"]


@settings(deadline=None)
@given(tservers=st.integers(3, 9), buckets=st.integers(1, 40))
def test_replicas_of_a_new_table_differ_by_one_at_most_between_tservers(tservers: int, buckets: int) -> None:
    records = [new_tablet(f"{bucket}", "table", Partition(bucket, buckets)) for bucket in range(buckets)]
    live = [server(number) for number in range(1, tservers + 1)]
    placements = place(TABLE, records, live, {}, lambda tablet: False, lambda: "new")
    placed = [placement.placed for placement in placements]
    assert len(placed) == buckets
    assert all(len(dict.fromkeys(each.config.node_ids)) == 3 for each in placed if each.config is not None)
    load = replica_load(placed)
    counts = [load.get(entry.node_id, 0) for entry in live]
    assert max(counts) - min(counts) <= 1


def test_a_tablet_that_never_came_up_is_replaced_by_a_new_one_with_replicas() -> None:
    live = [server(number) for number in range(2, 6)]
    (placement,) = place(TABLE, [tablet_record()], live, {}, lambda tablet: True, lambda: "fresh")
    assert placement.replaced is not None and placement.replaced.state == TabletState.REPLACED
    assert (placement.placed.tablet_id, placement.placed.revision) == ("fresh", 1)
    assert placement.placed.state == TabletState.CREATING and placement.placed.config is not None
    assert place(TABLE, [tablet_record()], live[:2], {}, lambda tablet: True, lambda: "fresh") == []


def test_replicas_of_tablets_that_are_gone_are_no_load() -> None:
    replaced = changed_tablet(tablet_record(), state=TabletState.REPLACED)
    assert replica_load([replaced]) == {}
    assert replica_load([tablet_record(), replaced]) == {"t1": 1, "t2": 1, "t3": 1}


# ---- reports ----


def test_true_orphans_are_never_deleted_and_final_records_decide_deletions() -> None:
    removed = changed_table(TABLE, state=TableState.REMOVED)
    replaced = changed_tablet(tablet_record(), state=TabletState.REPLACED)
    assert fate(None, None, "t1", reported(report())) == Fate.ORPHAN
    assert fate(TABLE, replaced, "t1", reported(report())) == Fate.DELETE
    assert fate(removed, tablet_record(), "t1", reported(report())) == Fate.DELETE
    assert fate(TABLE, tablet_record(), "t1", reported(report())) == Fate.KEEP


@pytest.mark.parametrize(
    ("node_id", "described", "awaits", "decision"),
    [
        ("t4", report(config_index=4, voters=("t1", "t2", "t4")), 0, Fate.BURY),
        ("t4", report(config_index=5, voters=("t1", "t2", "t4")), 0, Fate.BURY),
        ("t4", report(config_index=6, voters=("t1", "t2", "t4")), 0, Fate.KEEP),
        ("t4", report(), 0, Fate.BURY),
        ("t4", report(), 4, Fate.BURY),
        ("t4", report(), 5, Fate.KEEP),
        ("t4", report(config_index=5, voters=("t1", "t2", "t3")), 5, Fate.KEEP),
        ("t1", report(), 0, Fate.KEEP),
        ("t1", report(config_index=1, voters=("t1", "t4", "t5")), 0, Fate.KEEP),
    ],
)
def test_a_replica_goes_only_if_a_configuration_above_its_own_is_without_it(
    node_id: str, described: TabletReport, awaits: int, decision: Fate
) -> None:
    """Cases 3 and 4; one that is to be added to the very configuration that the catalog holds stays (M9)."""
    record = changed_tablet(tablet_record(), state=TabletState.RUNNING, config=TabletConfig(5, VOTERS))
    assert fate(TABLE, record, node_id, reported(msgspec.structs.replace(described, awaits_index=awaits))) == decision


def test_what_the_latest_configuration_has_no_more_is_dropped() -> None:
    record = changed_tablet(tablet_record(), config=TabletConfig(5, VOTERS, (replica("t9"),)))
    after = changed_tablet(record, config=TabletConfig(6, (VOTERS[0], replica("t9"))))
    assert [replica.node_id for replica in dropped(record, after)] == ["t2", "t3"]
    assert dropped(tablet_record(), record) == ()


def test_a_creating_tablet_runs_when_a_leader_is_reported_for_it() -> None:
    waiting = next_record(tablet_record(), "t1", report(leader=None), {})
    assert waiting is not None and waiting.state == TabletState.CREATING and waiting.confirmed == ("t1",)
    running = next_record(waiting, "t2", report(leader="t1"), {})
    assert running is not None and running.state == TabletState.RUNNING and running.confirmed == ("t1", "t2")
    assert [voter.node_id for voter in running.unconfirmed] == ["t3"]
    assert next_record(running, "t2", report(leader="t1"), {}) is None, "nothing new is not replicated"


def test_a_tablet_without_leaders_runs_when_all_its_replicas_were_reported() -> None:
    record, reported = tablet_record(), msgspec.structs.replace(report(leader=None), state=LEADERLESS)
    for node, state in (("t1", TabletState.CREATING), ("t3", TabletState.CREATING), ("t2", TabletState.RUNNING)):
        changed = next_record(record, node, reported, {})
        assert changed is not None and changed.state == state
        record = changed
    assert record.unconfirmed == () and next_record(record, "t2", reported, {}) is None


def test_only_a_configuration_of_a_higher_index_is_taken() -> None:
    record = changed_tablet(tablet_record(), config=TabletConfig(5, VOTERS), confirmed=("t1",))
    assert next_record(record, "t1", report(config_index=5, voters=("t1", "t9")), {}) is None
    assert next_record(record, "t1", report(config_index=6), {}) is None, "it names no voters"
    changed = next_record(record, "t1", report(config_index=6, voters=("t1", "t9")), {"t9": "t9:7"})
    assert changed is not None
    assert changed.config == TabletConfig(6, (VOTERS[0], Replica("t9", "t9:7")))


def test_a_final_record_takes_no_report() -> None:
    replaced = changed_tablet(tablet_record(), state=TabletState.REPLACED)
    assert next_record(replaced, "t1", report(leader="t1"), {}) is None


def test_the_leader_last_reported_is_the_one_of_the_highest_term() -> None:
    record = changed_tablet(tablet_record(TabletState.RUNNING), confirmed=("t1",))
    led = next_record(record, "t1", report(leader="t1", term=3), {})
    assert led is not None and (led.leader, led.leader_term, led.revision) == ("t1", 3, record.revision + 1)
    for late in (report(leader="t2", term=2), report(leader="t1", term=3), report(leader=None, term=4)):
        assert next_record(led, "t1", late, {}) is None
    later = next_record(led, "t1", report(leader="t2", term=5), {})
    assert later is not None and (later.leader, later.leader_term) == ("t2", 5)
    assert deleted_tablet(later).leader is None


# ---- alterations ----


def test_a_table_that_is_altered_again_keeps_what_every_tablet_is_known_to_have() -> None:
    more = (*TABLE.columns, Column(1, "more", "int64"))
    once = altered_table(TABLE, "a", more, 2)
    twice = altered_table(once, "b", (*more, Column(2, "most", "int64")), 3)
    assert [each.version for each in (once, twice)] == [1, 2]
    assert {(each.fully_applied_columns, each.fully_applied_version) for each in (once, twice)} == {(TABLE.columns, 0)}
    again = altered_table(settled_table(twice), "b", TABLE.columns, 3)
    assert (again.fully_applied_columns, again.fully_applied_version) == (twice.columns, 2)


def test_a_broken_replica_of_a_table_without_leaders_keeps_no_alteration_waiting() -> None:
    """It serves nobody, and whoever takes its place is made with the latest schema; if it is whole again it lags."""
    tablet = changed_tablet(tablet_record(), state=TabletState.RUNNING)
    altering = altered_table(new_table("table", "a", TABLE.columns, 3, "logged"), "b", TABLE.columns, 2)
    leadership = LeaderTerm(1, Caches((altering,), (tablet,)))
    leadership.schema_versions["tablet"] = {"t1": 1, "t2": 1, "t3": 0}
    assert lagging(leadership, altering) == [tablet]
    leadership.broken["tablet"] = {"t3": None}
    assert settled(leadership, altering)
    leadership.schema_versions["tablet"]["t2"] = 0
    assert lagging(leadership, altering) == [tablet]
    leadership.broken["tablet"] = dict.fromkeys(("t1", "t2", "t3"))
    assert lagging(leadership, altering) == [tablet], "nobody has it"


def test_a_lost_server_keeps_no_alteration_of_a_table_without_leaders_waiting() -> None:
    """Its node came back as another server: it reports no version, and never will."""
    tablet = changed_tablet(tablet_record(), state=TabletState.RUNNING)
    altering = altered_table(new_table("table", "a", TABLE.columns, 3, "logged"), "b", TABLE.columns, 2)
    leadership = LeaderTerm(1, Caches((altering,), (tablet,)), lost=lambda: ("t3",))
    leadership.schema_versions["tablet"] = {"t1": 1, "t2": 0}
    assert lagging(leadership, altering) == [tablet]
    leadership.schema_versions["tablet"]["t2"] = 1
    assert settled(leadership, altering)

"""Replicas that nobody wants go, whenever they were reported and whatever was lost (M9): decisions, and three masters
with scripted tablet servers that report each change once."""

from __future__ import annotations

import pytest

from cluster.client.client import ClusterClient
from cluster.master.catalog import Caches
from cluster.master.records import (
    TableRecord,
    TabletRecord,
    TabletState,
    deleted_tablet,
    removed_table,
)
from cluster.master.reports import Holders, ReportedReplica
from cluster.raft.types import OpId
from cluster.wire.messages import DeleteTablet, TabletReport
from tests.cluster.master.catalog_records import COLUMNS, TABLE, tablet_record
from tests.cluster.master.master_rig import MASTERS, MasterRig, play_masters
from tests.support.played import played

WAITS, JOINED = ReportedReplica(0, 5, False), ReportedReplica(6, 5, True)


def running(index: int = 5) -> TabletRecord:
    return tablet_record(TabletState.RUNNING, index, 2)


def deletions(holders: Holders, record: TabletRecord, table: TableRecord = TABLE) -> list[tuple[str, OpId | None]]:
    caches = Caches((table,), (record,))
    return [(server, request.removed_at) for server, request in holders.unwanted(caches.tables, caches.tablets)]


def reported(**held: ReportedReplica) -> Holders:
    holders = Holders()
    for name, each in held.items():
        holders.note(name, "tablet", each)
    return holders


def test_what_was_wanted_when_it_was_reported_goes_with_the_record_that_does_not() -> None:
    holders = reported(t1=JOINED, t4=WAITS)
    assert deletions(holders, running(5)) == []
    assert deletions(holders, running(7)) == [("t4", OpId(2, 7))], "it was not added after all"
    assert deletions(holders, deleted_tablet(running(5))) == [("t1", None), ("t4", None)]
    assert deletions(holders, running(5), removed_table(TABLE)) == [("t1", None), ("t4", None)]


def test_a_deletion_is_asked_for_until_it_was_acknowledged() -> None:
    holders, gone = reported(t1=JOINED, t4=WAITS), deleted_tablet(running())
    assert deletions(holders, gone) == deletions(holders, gone) != []
    holders.deleted("t1", DeleteTablet("tablet"))
    assert deletions(holders, gone) == [("t4", None)]
    holders.deleted("t4", DeleteTablet("tablet"))
    holders.deleted("t4", DeleteTablet("tablet"))
    assert deletions(holders, gone) == []


def test_who_came_back_since_is_not_forgotten_with_the_replica_that_was_buried() -> None:
    holders = reported(t4=ReportedReplica(0, 7, False))
    holders.deleted("t4", DeleteTablet("tablet", OpId(2, 7)))
    assert deletions(holders, running(7)) == [] and deletions(holders, running(8)) == [("t4", OpId(2, 8))]
    holders.deleted("t4", DeleteTablet("tablet", OpId(2, 8)))
    assert deletions(holders, running(8)) == []


async def with_learner(rig: MasterRig, client: ClusterClient) -> tuple[str, str]:
    """(Tablet, server that holds a learner of it), which was reported once, before anybody's configuration has it."""
    await client.create_table("a", COLUMNS, 1, 3)
    await rig.created(client, "a")
    (located,) = (await client.table_locations("a")).tablets
    voters = [replica.node_id for replica in located.replicas]
    spare = next(server for server in rig.servers if server.name not in voters)
    spare.extra_reports = (TabletReport(located.tablet_id, "", "RUNNING", 0, None, (), (), 0, 0, awaits_index=1),)
    await rig.sleep(0.5)
    for server in rig.servers:
        server.mute, server.extra_reports = True, ()
    return located.tablet_id, spare.name


@pytest.mark.parametrize("lost", [False, True])
@played(play_masters, tservers=4)
async def test_a_learner_that_no_record_ever_named_goes_with_its_table(
    rig: MasterRig, client: ClusterClient, /, lost: bool
) -> None:
    """A swarm's seed 17: it was reported, then the table was deleted, before its leader replica told of the learner."""
    tablet_id, name = await with_learner(rig, client)
    spare = next(server for server in rig.servers if server.name == name)
    if lost:
        for master in MASTERS:
            rig.world.network.cut(master.node_id, name)
    await client.catalog.delete_table("a")
    await rig.sleep(4)
    assert spare.deletes == [] if lost else spare.deletes == [tablet_id], "once, for it was acknowledged"
    rig.world.network.heal()
    await rig.sleep(4)
    assert dict.fromkeys(spare.deletes) == {tablet_id: None}


@played(play_masters, tservers=4)
async def test_a_learner_that_was_not_added_after_all_goes_with_the_next_configuration(
    rig: MasterRig, client: ClusterClient, /
) -> None:
    """A swarm's seed 10: it was removed before it had heard of anything, and masters were told of both at once."""
    tablet_id, name = await with_learner(rig, client)
    await rig.sleep(3)
    assert all(server.deletes == [] for server in rig.servers)
    leader = next(server for server in rig.servers if tablet_id in server.tablets)
    voters = leader.tablets[tablet_id].voters
    told = TabletReport(tablet_id, "", "RUNNING", 1, voters[0].node_id, voters, (), 3, 0)
    leader.mute, leader.tablets, leader.extra_reports = False, {}, (told,)
    await rig.sleep(3)
    assert {server.name: server.deletes for server in rig.servers if server.deletes} == {name: [tablet_id]}

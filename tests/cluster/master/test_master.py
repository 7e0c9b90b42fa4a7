"""Three masters in the simulator with scripted tablet servers (M1-M10, M14)."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from cluster.client.client import ClusterClient
from cluster.wire.messages import (
    CreateTableReply,
    ErrorReply,
    GetTableLocations,
    HeartbeatReply,
    IsCreateTableDone,
    ListTables,
    ListTablesReply,
    ListTabletServers,
    Request,
    TableLocationsReply,
    TabletReport,
)
from harness.errors import DefiniteError
from harness.ports.api import CallLost, Unreachable
from tests.cluster.master.catalog_records import COLUMNS
from tests.cluster.master.master_rig import MASTERS, MasterRig, create, play_masters
from tests.support.played import played


@played(play_masters, tservers=5)
async def test_a_created_table_comes_up_and_is_located(rig: MasterRig, client: ClusterClient, /) -> None:
    table_id = (await client.create_table("a", COLUMNS, 4, 3)).table_id
    await rig.created(client, "a")
    assert [(info.name, info.state) for info in await client.list_tables()] == [("a", "RUNNING")]
    locations = await client.table_locations("a")
    assert locations.table_id == table_id
    assert [tablet.partition.bucket for tablet in locations.tablets] == [0, 1, 2, 3]
    for tablet in locations.tablets:
        assert tablet.state == "RUNNING" and len(tablet.replicas) == 3
        assert tablet.leader_hint == tablet.replicas[0].node_id
        assert tablet.replicas[0].address.endswith(":7050")


@played(play_masters)
async def test_followers_refuse_and_name_the_leader(rig: MasterRig, client: ClusterClient, /) -> None:
    leader = await rig.leader()
    session = await rig.session()
    requests: tuple[Request, ...] = (
        create(session, "a", 1),
        ListTables(),
        GetTableLocations("a"),
        IsCreateTableDone("a"),
        ListTabletServers(),
    )
    for follower in [master.node_id for master in MASTERS if master.node_id != leader]:
        for request in requests:
            reply = await rig.ask(follower, request)
            assert isinstance(reply, ErrorReply) and reply.kind == "NOT_THE_LEADER" and reply.definite
            assert (reply.leader, reply.leader_address) == (leader, f"{leader}:7051")


@played(play_masters)
async def test_a_table_is_created_right_after_a_master_election(rig: MasterRig, client: ClusterClient, /) -> None:
    """KUDU-1358: every master hears every tserver, so a new leader's tserver map is warm."""
    session = await rig.session()
    old = await rig.leader()
    for server in rig.servers:
        server.silent_to = tuple(master.node_id for master in MASTERS)
    rig.world.node(old).kill()
    reply = await rig.ask(await rig.leader(old), create(session, "a", 1))
    assert isinstance(reply, CreateTableReply)


@played(play_masters)
async def test_a_table_needs_as_many_live_tservers_as_replicas(rig: MasterRig, client: ClusterClient, /) -> None:
    session = await rig.session()
    leader = await rig.leader()
    refused = await rig.ask(leader, create(session, "a", 1, replication_factor=5))
    assert (
        isinstance(refused, ErrorReply)
        and refused.kind == "TRY_AGAIN"
        and "3 tablet servers are live" in refused.message
    )
    rig.world.node("t1").kill()
    await rig.sleep(4)
    refused = await rig.ask(leader, create(session, "a", 2))
    assert isinstance(refused, ErrorReply) and "2 tablet servers are live" in refused.message


@played(play_masters)
async def test_a_table_of_a_design_that_is_unknown_is_refused(rig: MasterRig, client: ClusterClient, /) -> None:
    session, leader = await rig.session(), await rig.leader()
    refused = await rig.ask(leader, replace(create(session, "a", 1), design="paper"))
    assert isinstance(refused, ErrorReply) and (refused.kind, refused.definite) == ("INVALID", True)
    assert "paper" in refused.message


@played(play_masters)
async def test_tables_and_locations_survive_a_master_failover(rig: MasterRig, client: ClusterClient, /) -> None:
    await client.create_table("a", COLUMNS, 3, 3)
    await rig.created(client, "a")
    before = await client.table_locations("a")
    rig.world.node(await rig.leader()).kill()
    after = await client.table_locations("a")
    assert [tablet.replicas for tablet in after.tablets] == [tablet.replicas for tablet in before.tablets]
    assert after.table_id == before.table_id


@played(play_masters)
async def test_a_new_leader_master_tells_at_once_who_leads_a_tablet(rig: MasterRig, client: ClusterClient, /) -> None:
    """The leader last reported is replicated metadata, as the configuration is (Kudu, "Catalog manager")."""
    await client.create_table("a", COLUMNS, 3, 3)
    await rig.created(client, "a")
    old = await rig.leader()
    for server in rig.servers:
        server.silent_to = tuple(master.node_id for master in MASTERS)
    before = await client.table_locations("a")
    rig.world.node(old).kill()
    after = await client.table_locations("a")
    hints = [tablet.leader_hint for tablet in after.tablets]
    assert hints == [tablet.leader_hint for tablet in before.tablets] and None not in hints
    new = await rig.leader(old)
    follower = next(each.node_id for each in MASTERS if each.node_id not in (old, new))
    old_enough = await rig.ask(follower, GetTableLocations("a", max_staleness_ms=5_000))
    assert isinstance(old_enough, TableLocationsReply)
    assert [tablet.leader_hint for tablet in old_enough.tablets] == hints


@played(play_masters)
async def test_a_restarted_catalog_has_its_tables(rig: MasterRig, client: ClusterClient, /) -> None:
    for number in range(12):
        await client.create_table(f"table{number}", COLUMNS, 1, 3)
    for master in MASTERS:
        rig.world.node(master.node_id).kill()
    for master in MASTERS:
        rig.start_master(master.node_id)
    assert len(await client.list_tables()) == 12


@played(play_masters)
async def test_a_retried_create_is_answered_by_another_master_as_by_the_first(
    rig: MasterRig, client: ClusterClient, /
) -> None:
    session = await rig.session()
    old = await rig.leader()
    first = await rig.ask(old, create(session, "a", 1))
    assert first == await rig.ask(old, create(session, "a", 1))
    rig.world.node(old).kill()
    assert first == await rig.ask(await rig.leader(old), create(session, "a", 1))
    other = await rig.ask(await rig.leader(old), create(session, "a", 2))
    assert isinstance(other, ErrorReply) and other.kind == "ALREADY_PRESENT"


@played(play_masters)
async def test_two_creates_of_one_name_make_one_table(rig: MasterRig, client: ClusterClient, /) -> None:
    leader = await rig.leader()
    sessions = [await rig.session() for _ in range(4)]
    replies = await asyncio.gather(*(rig.ask(leader, create(each, "a", 1)) for each in sessions))
    assert sum(isinstance(reply, CreateTableReply) for reply in replies) == 1
    assert [reply.kind for reply in replies if isinstance(reply, ErrorReply)] == ["ALREADY_PRESENT"] * 3


@pytest.mark.parametrize("buckets", [11_000, 25_000, 1_000_000_000])
@played(play_masters)
async def test_a_table_too_large_for_one_batch_is_refused_and_leaves_nothing(
    rig: MasterRig, client: ClusterClient, /, buckets: int
) -> None:
    with pytest.raises(DefiniteError, match="use fewer buckets"):
        await client.create_table("a", COLUMNS, buckets, 3)
    assert await client.list_tables() == ()


@played(play_masters)
async def test_a_deposed_master_serves_nothing(rig: MasterRig, client: ClusterClient, /) -> None:
    """M2: cut off from the other masters, but not from clients, it must not answer from its caches."""
    session = await rig.session()
    old = await rig.leader()
    await client.create_table("a", COLUMNS, 1, 3)
    rig.isolate(old)
    new = await rig.leader(old)
    assert isinstance(await rig.ask(new, create(session, "b", 1)), CreateTableReply)
    for request in (ListTables(), GetTableLocations("a"), ListTabletServers()):
        reply = await rig.ask(old, request)
        assert isinstance(reply, ErrorReply) and reply.kind == "NOT_THE_LEADER"


@played(play_masters)
async def test_a_master_lives_on_when_replication_fails(rig: MasterRig, client: ClusterClient, /) -> None:
    """M10 (KUDU-495): the operation fails, the process does not."""
    session = await rig.session()
    old = await rig.leader()
    rig.isolate(old)
    reply = await rig.ask(old, create(session, "a", 1), 6)
    assert isinstance(reply, ErrorReply)
    await rig.leader(old)
    assert rig.running(old)
    rig.world.network.heal()
    await rig.sleep(2)
    again = await rig.ask(await rig.leader(), create(session, "a", 1))
    assert isinstance(again, CreateTableReply)
    assert [info.table_id for info in await client.list_tables()] == [again.table_id]


@pytest.mark.parametrize("seed", range(6))
def test_a_master_killed_during_a_create_leaves_all_of_the_table_or_nothing(seed: int) -> None:
    """M7: never a table with some of its tablets."""

    async def scenario(rig: MasterRig, client: ClusterClient) -> None:
        session = await rig.session()
        leader = await rig.leader()
        asked = asyncio.create_task(rig.ask(leader, create(session, "a", 1, buckets=50)))
        await rig.sleep(0.0015 * seed)
        rig.world.node(leader).kill()
        try:
            reply: object = await asked
        except (Unreachable, CallLost):
            reply = None
        new = await rig.leader(leader)
        locations = await rig.ask(new, GetTableLocations("a"))
        if isinstance(reply, CreateTableReply):
            assert isinstance(locations, TableLocationsReply)
        if isinstance(locations, TableLocationsReply):
            assert len(locations.tablets) == 50
        else:
            assert await rig.ask(new, ListTables()) == ListTablesReply(())

    play_masters(scenario, seed)


@played(play_masters)
async def test_a_new_leader_nudges_the_tserver_that_missed_its_tablet(rig: MasterRig, client: ClusterClient, /) -> None:
    """M8: the second master knows from the record that one replica was never reported."""
    lost = rig.servers[2]
    for master in MASTERS:
        rig.world.network.cut(master.node_id, lost.name)
    await client.create_table("a", COLUMNS, 1, 3)
    await rig.created(client, "a")
    assert lost.creates == []
    rig.world.node(await rig.leader()).kill()
    rig.world.network.heal()
    while not lost.creates:
        await rig.sleep(0.1)
    (tablet,) = (await client.table_locations("a")).tablets
    assert lost.creates[0] == tablet.tablet_id


@played(play_masters)
async def test_a_replica_reported_once_is_never_created_again(rig: MasterRig, client: ClusterClient, /) -> None:
    await client.create_table("a", COLUMNS, 1, 3)
    await rig.created(client, "a")
    await rig.sleep(1)
    for server in rig.servers:
        server.tablets.clear()
        server.creates.clear()
    rig.world.node(await rig.leader()).kill()
    await rig.sleep(5)
    assert [server.creates for server in rig.servers] == [[], [], []]


@played(play_masters)
async def test_a_tablet_without_a_leader_is_replaced_and_its_replicas_are_deleted(
    rig: MasterRig, client: ClusterClient, /
) -> None:
    for server in rig.servers:
        server.leaderless = True
    await client.create_table("a", COLUMNS, 1, 3)
    await rig.sleep(2)
    (first,) = (await client.table_locations("a")).tablets
    assert first.replicas == (), "clients are not sent to a tablet that may be replaced"
    await rig.sleep(17)
    for server in rig.servers:
        server.leaderless = False
    await rig.created(client, "a")
    (second,) = (await client.table_locations("a")).tablets
    assert second.tablet_id != first.tablet_id and second.partition == first.partition
    assert all(first.tablet_id in server.deletes for server in rig.servers)


@played(play_masters, tservers=4)
async def test_a_replaced_replica_that_missed_its_deletion_is_deleted_when_reported(
    rig: MasterRig, client: ClusterClient, /
) -> None:
    """Case 2 of appendix A: the persistent record decides."""
    for server in rig.servers:
        server.leaderless = True
    late = rig.servers[0]
    await client.create_table("a", COLUMNS, 1, 3)
    await rig.sleep(2)
    (first,) = (await client.table_locations("a")).tablets
    for master in MASTERS:
        rig.world.network.cut(late.name, master.node_id)
        rig.world.network.cut(master.node_id, late.name)
    await rig.sleep(20)
    assert first.tablet_id not in late.deletes
    rig.world.network.heal()
    await rig.sleep(2)
    assert first.tablet_id in late.deletes


@played(play_masters)
async def test_true_orphans_are_left_alone(rig: MasterRig, client: ClusterClient, /) -> None:
    """M9, case 1 of appendix A."""
    rig.servers[0].extra_reports = (TabletReport("stranger", "unknown", "RUNNING", 1, "t1", (), (), 0, 0),)
    await rig.leader()
    await rig.sleep(3)
    assert rig.servers[0].deletes == []


@played(play_masters)
async def test_only_a_leader_master_states_its_term_to_tservers(rig: MasterRig, client: ClusterClient, /) -> None:
    """M3 and M4: a tserver learns from the replies that there is a new leader."""
    old = await rig.leader()
    replies = rig.servers[0].replies
    assert {name for name, reply in replies.items() if reply.leader_term is not None} == {old}
    first_term = replies[old].leader_term
    rig.world.node(old).kill()
    new = await rig.leader(old)
    await rig.sleep(1)
    reply = replies[new]
    assert isinstance(reply, HeartbeatReply) and not reply.need_full_report
    assert reply.leader_term is not None and first_term is not None and reply.leader_term > first_term

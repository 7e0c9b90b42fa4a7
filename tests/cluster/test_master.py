"""Three masters in the simulator with scripted tablet servers (M1-M10, M14)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from master_bench import COLUMNS, MASTERS, Bench, create
from msgspec.structs import replace

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
from harness.ports import CallLost, Unreachable
from harness.sim.world import World

Scenario = Callable[[Bench], Awaitable[None]]


def play(scenario: Scenario, seed: int = 1, tservers: int = 3) -> None:
    """Run a scenario on a fresh cluster; no master may panic."""
    with World(seed) as world:
        bench = Bench(world, tservers)

        async def main() -> None:
            bench.start()
            await asyncio.wait_for(scenario(bench), 120)

        world.run(main())
        assert bench.panics() == []


def test_a_created_table_comes_up_and_is_located() -> None:
    async def scenario(bench: Bench) -> None:
        client = bench.client()
        await bench.sleep(1)
        table_id = (await client.create_table("a", COLUMNS, 4, 3)).table_id
        await bench.created(client, "a")
        assert [(info.name, info.state) for info in await client.list_tables()] == [("a", "RUNNING")]
        locations = await client.table_locations("a")
        assert locations.table_id == table_id
        assert [tablet.partition.bucket for tablet in locations.tablets] == [0, 1, 2, 3]
        for tablet in locations.tablets:
            assert tablet.state == "RUNNING" and len(tablet.replicas) == 3
            assert tablet.leader_hint == tablet.replicas[0].node_id
            assert tablet.replicas[0].address.endswith(":7050")

    play(scenario, tservers=5)


def test_followers_refuse_and_name_the_leader() -> None:
    async def scenario(bench: Bench) -> None:
        leader = await bench.leader()
        session = await bench.session()
        requests: tuple[Request, ...] = (
            create(session, "a", 1),
            ListTables(),
            GetTableLocations("a"),
            IsCreateTableDone("a"),
            ListTabletServers(),
        )
        for follower in [master.node_id for master in MASTERS if master.node_id != leader]:
            for request in requests:
                reply = await bench.ask(follower, request)
                assert isinstance(reply, ErrorReply) and reply.kind == "NOT_THE_LEADER" and reply.definite
                assert (reply.leader, reply.leader_address) == (leader, f"{leader}:7051")

    play(scenario)


def test_a_table_is_created_right_after_a_master_election() -> None:
    """KUDU-1358: every master hears every tserver, so a new leader's tserver map is warm."""

    async def scenario(bench: Bench) -> None:
        await bench.sleep(1)
        session = await bench.session()
        old = await bench.leader()
        for server in bench.servers:
            server.silent_to = tuple(master.node_id for master in MASTERS)
        bench.world.node(old).kill()
        reply = await bench.ask(await bench.leader(old), create(session, "a", 1))
        assert isinstance(reply, CreateTableReply)

    play(scenario)


def test_a_table_needs_as_many_live_tservers_as_replicas() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.sleep(1)
        session = await bench.session()
        leader = await bench.leader()
        refused = await bench.ask(leader, create(session, "a", 1, replication_factor=5))
        assert (
            isinstance(refused, ErrorReply)
            and refused.kind == "TRY_AGAIN"
            and "3 tablet servers are live" in refused.message
        )
        bench.world.node("t1").kill()
        await bench.sleep(4)
        refused = await bench.ask(leader, create(session, "a", 2))
        assert isinstance(refused, ErrorReply) and "2 tablet servers are live" in refused.message

    play(scenario)


def test_a_table_of_a_design_that_is_unknown_is_refused() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.sleep(1)
        session, leader = await bench.session(), await bench.leader()
        refused = await bench.ask(leader, replace(create(session, "a", 1), design="paper"))
        assert isinstance(refused, ErrorReply) and (refused.kind, refused.definite) == ("INVALID", True)
        assert "paper" in refused.message

    play(scenario)


def test_tables_and_locations_survive_a_master_failover() -> None:
    async def scenario(bench: Bench) -> None:
        client = bench.client()
        await bench.sleep(1)
        await client.create_table("a", COLUMNS, 3, 3)
        await bench.created(client, "a")
        before = await client.table_locations("a")
        bench.world.node(await bench.leader()).kill()
        after = await client.table_locations("a")
        assert [tablet.replicas for tablet in after.tablets] == [tablet.replicas for tablet in before.tablets]
        assert after.table_id == before.table_id

    play(scenario)


def test_a_restarted_catalog_has_its_tables() -> None:
    async def scenario(bench: Bench) -> None:
        client = bench.client()
        await bench.sleep(1)
        for number in range(12):
            await client.create_table(f"table{number}", COLUMNS, 1, 3)
        for master in MASTERS:
            bench.world.node(master.node_id).kill()
        for master in MASTERS:
            bench.start_master(master.node_id)
        assert len(await client.list_tables()) == 12

    play(scenario)


def test_a_retried_create_is_answered_by_another_master_as_by_the_first() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.sleep(1)
        session = await bench.session()
        old = await bench.leader()
        first = await bench.ask(old, create(session, "a", 1))
        assert first == await bench.ask(old, create(session, "a", 1))
        bench.world.node(old).kill()
        assert first == await bench.ask(await bench.leader(old), create(session, "a", 1))
        other = await bench.ask(await bench.leader(old), create(session, "a", 2))
        assert isinstance(other, ErrorReply) and other.kind == "ALREADY_PRESENT"

    play(scenario)


def test_two_creates_of_one_name_make_one_table() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.sleep(1)
        leader = await bench.leader()
        sessions = [await bench.session() for _ in range(4)]
        replies = await asyncio.gather(*(bench.ask(leader, create(each, "a", 1)) for each in sessions))
        assert sum(isinstance(reply, CreateTableReply) for reply in replies) == 1
        assert [reply.kind for reply in replies if isinstance(reply, ErrorReply)] == ["ALREADY_PRESENT"] * 3

    play(scenario)


@pytest.mark.parametrize("buckets", [11_000, 25_000, 1_000_000_000])
def test_a_table_too_large_for_one_batch_is_refused_and_leaves_nothing(buckets: int) -> None:
    async def scenario(bench: Bench) -> None:
        client = bench.client()
        await bench.sleep(1)
        with pytest.raises(DefiniteError, match="use fewer buckets"):
            await client.create_table("a", COLUMNS, buckets, 3)
        assert await client.list_tables() == ()

    play(scenario)


def test_a_deposed_master_serves_nothing() -> None:
    """M2: cut off from the other masters, but not from clients, it must not answer from its caches."""

    async def scenario(bench: Bench) -> None:
        client = bench.client()
        await bench.sleep(1)
        session = await bench.session()
        old = await bench.leader()
        await client.create_table("a", COLUMNS, 1, 3)
        bench.isolate(old)
        new = await bench.leader(old)
        assert isinstance(await bench.ask(new, create(session, "b", 1)), CreateTableReply)
        for request in (ListTables(), GetTableLocations("a"), ListTabletServers()):
            reply = await bench.ask(old, request)
            assert isinstance(reply, ErrorReply) and reply.kind == "NOT_THE_LEADER"

    play(scenario)


def test_a_master_lives_on_when_replication_fails() -> None:
    """M10 (KUDU-495): the operation fails, the process does not."""

    async def scenario(bench: Bench) -> None:
        await bench.sleep(1)
        session = await bench.session()
        old = await bench.leader()
        bench.isolate(old)
        reply = await bench.ask(old, create(session, "a", 1), 6)
        assert isinstance(reply, ErrorReply)
        await bench.leader(old)
        assert bench.running(old)
        bench.world.network.heal()
        await bench.sleep(2)
        client = bench.client()
        again = await bench.ask(await bench.leader(), create(session, "a", 1))
        assert isinstance(again, CreateTableReply)
        assert [info.table_id for info in await client.list_tables()] == [again.table_id]

    play(scenario)


@pytest.mark.parametrize("seed", range(6))
def test_a_master_killed_during_a_create_leaves_all_of_the_table_or_nothing(seed: int) -> None:
    """M7: never a table with some of its tablets."""

    async def scenario(bench: Bench) -> None:
        await bench.sleep(1)
        session = await bench.session()
        leader = await bench.leader()
        asked = asyncio.create_task(bench.ask(leader, create(session, "a", 1, buckets=50)))
        await bench.sleep(0.0015 * seed)
        bench.world.node(leader).kill()
        try:
            reply: object = await asked
        except (Unreachable, CallLost):
            reply = None
        new = await bench.leader(leader)
        locations = await bench.ask(new, GetTableLocations("a"))
        if isinstance(reply, CreateTableReply):
            assert isinstance(locations, TableLocationsReply)
        if isinstance(locations, TableLocationsReply):
            assert len(locations.tablets) == 50
        else:
            assert await bench.ask(new, ListTables()) == ListTablesReply(())

    play(scenario, seed)


def test_a_new_leader_nudges_the_tserver_that_missed_its_tablet() -> None:
    """M8: the second master knows from the record that one replica was never reported."""

    async def scenario(bench: Bench) -> None:
        client = bench.client()
        await bench.sleep(1)
        lost = bench.servers[2]
        for master in MASTERS:
            bench.world.network.cut(master.node_id, lost.name)
        await client.create_table("a", COLUMNS, 1, 3)
        await bench.created(client, "a")
        assert lost.creates == []
        bench.world.node(await bench.leader()).kill()
        bench.world.network.heal()
        while not lost.creates:
            await bench.sleep(0.1)
        (tablet,) = (await client.table_locations("a")).tablets
        assert lost.creates[0] == tablet.tablet_id

    play(scenario)


def test_a_replica_reported_once_is_never_created_again() -> None:
    async def scenario(bench: Bench) -> None:
        client = bench.client()
        await bench.sleep(1)
        await client.create_table("a", COLUMNS, 1, 3)
        await bench.created(client, "a")
        await bench.sleep(1)
        for server in bench.servers:
            server.tablets.clear()
            server.creates.clear()
        bench.world.node(await bench.leader()).kill()
        await bench.sleep(5)
        assert [server.creates for server in bench.servers] == [[], [], []]

    play(scenario)


def test_a_tablet_without_a_leader_is_replaced_and_its_replicas_are_deleted() -> None:
    async def scenario(bench: Bench) -> None:
        client = bench.client()
        await bench.sleep(1)
        for server in bench.servers:
            server.leaderless = True
        await client.create_table("a", COLUMNS, 1, 3)
        await bench.sleep(2)
        (first,) = (await client.table_locations("a")).tablets
        assert first.replicas == (), "clients are not sent to a tablet that may be replaced"
        await bench.sleep(17)
        for server in bench.servers:
            server.leaderless = False
        await bench.created(client, "a")
        (second,) = (await client.table_locations("a")).tablets
        assert second.tablet_id != first.tablet_id and second.partition == first.partition
        assert all(first.tablet_id in server.deletes for server in bench.servers)

    play(scenario)


def test_a_replaced_replica_that_missed_its_deletion_is_deleted_when_reported() -> None:
    """Case 2 of appendix A: the persistent record decides."""

    async def scenario(bench: Bench) -> None:
        client = bench.client()
        await bench.sleep(1)
        for server in bench.servers:
            server.leaderless = True
        late = bench.servers[0]
        await client.create_table("a", COLUMNS, 1, 3)
        await bench.sleep(2)
        (first,) = (await client.table_locations("a")).tablets
        for master in MASTERS:
            bench.world.network.cut(late.name, master.node_id)
            bench.world.network.cut(master.node_id, late.name)
        await bench.sleep(20)
        assert first.tablet_id not in late.deletes
        bench.world.network.heal()
        await bench.sleep(2)
        assert first.tablet_id in late.deletes

    play(scenario, tservers=4)


def test_true_orphans_are_left_alone() -> None:
    """M9, case 1 of appendix A."""

    async def scenario(bench: Bench) -> None:
        bench.servers[0].extra_reports = (TabletReport("stranger", "unknown", "RUNNING", 1, "t1", (), (), 0, 0),)
        await bench.leader()
        await bench.sleep(3)
        assert bench.servers[0].deletes == []

    play(scenario)


def test_only_a_leader_master_states_its_term_to_tservers() -> None:
    """M3 and M4: a tserver learns from the replies that there is a new leader."""

    async def scenario(bench: Bench) -> None:
        old = await bench.leader()
        await bench.sleep(1)
        replies = bench.servers[0].replies
        assert {name for name, reply in replies.items() if reply.leader_term is not None} == {old}
        first_term = replies[old].leader_term
        bench.world.node(old).kill()
        new = await bench.leader(old)
        await bench.sleep(1)
        reply = replies[new]
        assert isinstance(reply, HeartbeatReply) and not reply.need_full_report
        assert reply.leader_term is not None and first_term is not None and reply.leader_term > first_term

    play(scenario)

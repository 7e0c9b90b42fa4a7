"""Follower masters answer questions that allow an age, and tell it; past the bound they refuse (M13, KUDU-500)."""

from __future__ import annotations

import asyncio

import pytest

from cluster.failpoints import MASTER
from cluster.wire.messages import (
    Column,
    ErrorReply,
    GetTableLocations,
    ListMasters,
    ListTables,
    ListTablesReply,
    ListTabletServers,
    MastersReply,
    Reply,
    Request,
    TableLocationsReply,
    TabletServersReply,
    decode_reply,
    encode,
)
from harness.errors import DefiniteError
from tests.cluster.table_rig import TableRig, play

COLUMNS = [Column(0, "value", "int64")]


async def ask(rig: TableRig, master: str, request: Request) -> Reply:
    """One master alone, once."""
    ports = rig.world.harness_ports("h")
    return decode_reply(await ports.network.call(rig.database.address(master), encode(request), 3.0))


async def followers(rig: TableRig) -> tuple[str, list[str]]:
    leader, _ = await rig.leader(MASTER)
    return leader, [name for name in rig.nodes(MASTER) if name != leader]


def test_a_follower_answers_within_the_bound_with_all_that_was_committed_that_long_ago() -> None:
    async def scenario(rig: TableRig) -> None:
        await rig.begin()
        _, (first, second) = await followers(rig)
        client = rig.database.admin_client(5.0)
        refused = await ask(rig, first, ListTables())
        assert isinstance(refused, ErrorReply) and refused.kind == "NOT_THE_LEADER", "nobody allowed an age"
        for number in range(8):
            await client.create_table(f"t{number}", COLUMNS, 1, 3)
            await asyncio.sleep(0.3)
            for master in (first, second):
                reply = await ask(rig, master, ListTables(max_staleness_ms=300))
                assert isinstance(reply, ListTablesReply), reply
                assert 0 < reply.age_ms <= 300
                assert [table.name for table in reply.tables] == ["registers", *(f"t{i}" for i in range(number + 1))]
        located = await ask(rig, first, GetTableLocations("registers", max_staleness_ms=1_000))
        assert isinstance(located, TableLocationsReply) and len(located.tablets[0].replicas) == 3
        servers = await ask(rig, first, ListTabletServers(max_staleness_ms=1_000))
        assert isinstance(servers, TabletServersReply) and len(servers.live) == 4
        masters = await ask(rig, first, ListMasters(max_staleness_ms=1_000))
        assert isinstance(masters, MastersReply) and masters.leader == (await rig.leader(MASTER))[0]
        negative = await ask(rig, first, ListTables(max_staleness_ms=-1))
        assert isinstance(negative, ErrorReply) and negative.kind == "INVALID"
        assert (await rig.database.invariants()).breaches == ()

    play(scenario, seed=31)


@pytest.mark.parametrize("cut", ["to the leader", "from the leader", "both ways"])
def test_past_the_bound_a_follower_refuses_however_well_it_hears_the_leader(cut: str) -> None:
    async def scenario(rig: TableRig) -> None:
        await rig.begin(table=False)
        leader, (first, _) = await followers(rig)
        fresh = await ask(rig, first, ListTables(max_staleness_ms=1_000))
        assert isinstance(fresh, ListTablesReply)
        if cut != "from the leader":
            rig.world.network.cut(first, leader)
        if cut != "to the leader":
            rig.world.network.cut(leader, first)
        await asyncio.sleep(0.5)
        known = await ask(rig, first, ListTables(max_staleness_ms=1_000))
        assert isinstance(known, ListTablesReply) and known.age_ms >= 500, "what it knows is good for a while"
        await asyncio.sleep(0.6)
        stale = await ask(rig, first, ListTables(max_staleness_ms=1_000))
        assert isinstance(stale, ErrorReply) and stale.kind == "TOO_STALE" and stale.definite
        older = await ask(rig, first, ListTables(max_staleness_ms=60_000))
        assert isinstance(older, ListTablesReply) and older.age_ms > 1_100
        client = rig.database.admin_client(3.0)
        assert (await client.ask_any_master(ListTables(max_staleness_ms=500), ListTablesReply)).age_ms <= 500

    play(scenario, seed=32)


def test_without_a_quorum_nobody_is_fresh() -> None:
    """The leader alone goes on to say who it is for a while; its age, and everybody's, only grows."""

    async def scenario(rig: TableRig) -> None:
        await rig.begin(table=False)
        _, others = await followers(rig)
        await ask(rig, others[0], ListTables(max_staleness_ms=1_000))
        for name in others[1:]:
            await rig.database.kill(name)
        leader, _ = await rig.leader(MASTER)
        await rig.database.kill(leader)
        await asyncio.sleep(1.1)
        with pytest.raises(DefiniteError) as raised:
            await rig.database.admin_client(2.0).ask_any_master(ListTables(max_staleness_ms=1_000), ListTablesReply)
        assert raised.value.kind in ("too-stale", "unreachable")
        alone = await ask(rig, others[0], ListTables(max_staleness_ms=10_000))
        assert isinstance(alone, ListTablesReply)

    play(scenario, seed=33)


def test_caches_of_a_follower_outlive_snapshots_and_elections() -> None:
    """What it applies it has cached: from the log, from a leader's snapshot, and as a later leader (G10 compares)."""

    async def scenario(rig: TableRig) -> None:
        await rig.begin()
        leader, (behind, other) = await followers(rig)
        await ask(rig, behind, ListTables(max_staleness_ms=1_000))
        for name in (leader, other):
            rig.world.network.cut(behind, name)
            rig.world.network.cut(name, behind)
        client = rig.database.admin_client(5.0)
        for number in range(12):
            await client.create_table(f"t{number}", COLUMNS, 1, 3)
        await asyncio.sleep(1.0)
        rig.world.network.heal()
        for _ in range(100):
            reply = await ask(rig, behind, ListTables(max_staleness_ms=500))
            if isinstance(reply, ListTablesReply):
                break
            await asyncio.sleep(0.1)
        assert isinstance(reply, ListTablesReply) and len(reply.tables) == 13
        await rig.database.kill(leader)
        assert len(await client.list_tables()) == 13
        assert (await rig.database.invariants()).breaches == ()

    play(scenario, seed=34)

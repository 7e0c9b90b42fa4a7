"""Each flaw of the catalog breaks its mechanism in the steps told here, and the same steps are whole without it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.layout import Layout
from cluster.flaws import FLAWS
from cluster.wire.messages import (
    WIRE_VERSION,
    ArmFailpoint,
    CreateTableReply,
    DeleteTable,
    ErrorReply,
    GetTableLocations,
    GetTabletLocations,
    ListTables,
    ListTablesReply,
    RequestId,
    TableLocationsReply,
    TabletLocationsReply,
)
from harness.env.sim import SimEnvironment
from harness.ports.api import CallLost, Unreachable
from harness.ports.sim.world import World
from tests.cluster.master.catalog_records import COLUMNS
from tests.cluster.master.master_rig import KNOBS, MASTERS, MasterRig, create

Steps = Callable[[MasterRig], Awaitable[bool]]
"""Whether the mechanism turned out broken."""


def broken(steps: Steps, flaws: tuple[str, ...], check_quorum_ms: int = 0) -> bool:
    """Carry the steps out on three masters and three scripted tablet servers."""
    assert set(flaws) <= set(FLAWS)
    with World(1) as world:
        rig = MasterRig(world, flaws=flaws, knobs=replace(KNOBS, check_quorum_ms=check_quorum_ms))

        async def main() -> bool:
            rig.start()
            await rig.sleep(1)
            return await asyncio.wait_for(steps(rig), 120)

        return bool(world.run(main()))


def shows(flaw: str, steps: Steps, check_quorum_ms: int = 0) -> None:
    assert broken(steps, (flaw,), check_quorum_ms)
    assert not broken(steps, (), check_quorum_ms)


async def hang(rig: MasterRig, point: str) -> str:
    """Have the leader master hang at this point from now on; its name."""
    leader = await rig.leader()
    await rig.ask(leader, ArmFailpoint(point, "hang"))
    return leader


async def listed(rig: MasterRig, master: str) -> tuple[tuple[str, str], ...]:
    reply = await rig.ask(master, ListTables())
    assert isinstance(reply, ListTablesReply)
    return tuple((info.name, info.state) for info in reply.tables)


def test_create_visible_early_shows_a_table_that_never_comes_to_be() -> None:
    async def steps(rig: MasterRig) -> bool:
        session, leader = await rig.session(), await hang(rig, "master.before_commit")
        asked = asyncio.create_task(rig.ask(leader, create(session, "a", 1), 1))
        await rig.sleep(0.2)
        seen = await listed(rig, leader)
        with pytest.raises(CallLost):
            await asked
        rig.world.node(leader).kill()
        assert await listed(rig, await rig.leader(leader)) == ()
        return seen == (("a", "UNKNOWN"),)

    shows("create-visible-early", steps)


def test_delete_rpc_early_deletes_replicas_of_a_table_that_stays() -> None:
    async def steps(rig: MasterRig) -> bool:
        client = rig.client()
        await client.create_table("a", COLUMNS, 2, 3)
        await rig.created(client, "a")
        session, leader = await rig.session(), await hang(rig, "master.before_commit")
        with pytest.raises(CallLost):
            await rig.ask(leader, DeleteTable(RequestId(session, 1, 1), "a"), 1)
        rig.world.node(leader).kill()
        assert await listed(rig, await rig.leader(leader)) == (("a", "RUNNING"),)
        return any(server.deletes for server in rig.servers)

    shows("delete-rpc-early", steps)


def test_replacement_visible_early_shows_a_tablet_that_never_comes_to_be() -> None:
    async def steps(rig: MasterRig) -> bool:
        client = rig.client()
        for server in rig.servers:
            server.leaderless = True
        await client.create_table("a", COLUMNS, 1, 3)
        await rig.sleep(5)
        leader = await hang(rig, "master.before_commit")
        await rig.sleep(15)
        seen = await client.table_locations("a")
        rig.world.node(leader).kill()
        request = GetTabletLocations(tuple(tablet.tablet_id for tablet in seen.tablets))
        reply = await rig.ask(await rig.leader(leader), request)
        assert isinstance(reply, TabletLocationsReply)
        return reply.unknown != ()

    shows("replacement-visible-early", steps)


def test_unbatched_catalog_leaves_a_table_without_its_tablets() -> None:
    async def steps(rig: MasterRig) -> bool:
        session, leader = await rig.session(), await rig.leader()
        await rig.ask(leader, ArmFailpoint("master.after_commit", "crash"))
        with pytest.raises((CallLost, Unreachable)):
            await rig.ask(leader, create(session, "a", 1, buckets=3))
        locations = await rig.ask(await rig.leader(leader), GetTableLocations("a"))
        assert isinstance(locations, TableLocationsReply)
        return len(locations.tablets) < 3

    shows("unbatched-catalog", steps)


def test_abort_on_failed_replication_stops_a_deposed_master() -> None:
    async def steps(rig: MasterRig) -> bool:
        session, leader = await rig.session(), await rig.leader()
        rig.isolate(leader)
        try:
            reply = await rig.ask(leader, create(session, "a", 1), 6)
            assert isinstance(reply, ErrorReply)
        except CallLost:
            pass
        return not rig.running(leader) and rig.panics() != []

    shows("abort-on-failed-replication", steps)


def test_deposed_master_serves_tells_of_tables_as_they_were() -> None:
    async def steps(rig: MasterRig) -> bool:
        session, old = await rig.session(), await rig.leader()
        assert await listed(rig, old) == ()
        rig.isolate(old)
        new = await rig.leader(old)
        assert isinstance(await rig.ask(new, create(session, "a", 1)), CreateTableReply)
        reply = await rig.ask(old, ListTables())
        return isinstance(reply, ListTablesReply) and reply.tables == ()

    shows("deposed-master-serves", steps, check_quorum_ms=10_000)


def test_cold_replica_map_locates_no_tablet_after_an_election() -> None:
    async def steps(rig: MasterRig) -> bool:
        client = rig.client()
        await client.create_table("a", COLUMNS, 2, 3)
        await rig.created(client, "a")
        old = await rig.leader()
        for server in rig.servers:
            server.silent_to = tuple(master.node_id for master in MASTERS)
        rig.world.node(old).kill()
        reply = await rig.ask(await rig.leader(old), GetTableLocations("a"))
        assert isinstance(reply, TableLocationsReply)
        assert [tablet.state for tablet in reply.tablets] == ["RUNNING"] * 2
        return any(tablet.replicas == () for tablet in reply.tablets)

    shows("cold-replica-map", steps)


# ---- with real tablet servers ----


class Cluster:
    """Three masters and three tablet servers, which know each other."""

    def __init__(self, world: World, flaws: tuple[str, ...]) -> None:
        self.world = world
        self.environment = SimEnvironment(world)
        self.database = SimDatabase(world, Layout(3, 3), knobs=replace(KNOBS, tserver_heartbeat_ms=2_000), flaws=flaws)
        self.client = self.database.admin_client(8.0)

    async def begin(self) -> None:
        await self.environment.setup(self.database.nodes)
        await self.database.install()
        for node in self.database.nodes:
            await self.database.start(node.name)
        await self.database.await_ready(30)

    async def leader(self) -> str:
        return (await self.client.catalog.masters()).leader

    async def tablets_held(self) -> int:
        """Replicas that tablet servers have."""
        statuses = [await self.database.status(node.name) for node in self.database.nodes if node.role == "tserver"]
        return sum(len(status.groups) for status in statuses if status is not None)


def cluster_broken(steps: Callable[[Cluster], Awaitable[bool]], flaws: tuple[str, ...]) -> bool:
    with World(1, version=WIRE_VERSION) as world:
        cluster = Cluster(world, flaws)

        async def main() -> bool:
            await cluster.begin()
            return await steps(cluster)

        return bool(world.run(main()))


def test_heartbeat_leader_only_leaves_a_new_leader_without_tablet_servers() -> None:
    async def steps(cluster: Cluster) -> bool:
        await asyncio.sleep(15)  # long enough to forget whom it heard of when no master led
        cluster.world.node(await cluster.leader()).kill()
        reply = await cluster.client.catalog.tablet_servers()
        return len(reply.live) < 3

    assert cluster_broken(steps, ("heartbeat-leader-only",))
    assert not cluster_broken(steps, ())


def test_no_full_report_loses_deletions_with_the_old_leader() -> None:
    async def steps(cluster: Cluster) -> bool:
        await cluster.client.create_table("a", COLUMNS, 2, 3)
        while not await cluster.client.is_create_done("a") or await cluster.tablets_held() < 6:
            await asyncio.sleep(0.1)
        await asyncio.sleep(2)
        old = await cluster.leader()
        await cluster.database.arm(old, "master.before_call", "hang", times=0)
        await cluster.client.catalog.delete_table("a")
        cluster.world.node(old).kill()
        await cluster.client.list_tables()
        await asyncio.sleep(10)
        return await cluster.tablets_held() > 0

    assert cluster_broken(steps, ("no-full-report",))
    assert not cluster_broken(steps, ())

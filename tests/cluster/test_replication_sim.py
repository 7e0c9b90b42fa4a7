"""Replicas that are replaced and deleted in a whole cluster (M9, M11), step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

import pytest

from cluster.client import operating
from cluster.deploy.adapter import REGISTER_COLUMNS, create_for_certain
from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.layout import Layout
from cluster.health.check import Problem
from cluster.knobs import Knobs
from cluster.tserver.metadata import TABLETS_DIRECTORY
from cluster.wire.messages import WIRE_VERSION, Column, Regional
from harness.errors import DefiniteError
from harness.ports.api import node_of
from harness.ports.sim.link import LinkOptions
from harness.ports.sim.world import World
from harness.protocols import GroupStatus
from tests.cluster.table_rig import TableRig, play


async def replicas(rig: TableRig, group: str) -> dict[str, GroupStatus]:
    """Every answering replica of the group, by node."""
    found = {}
    for name, status in (await rig.database.statuses()).items():
        for each in () if status is None else status.groups:
            if each.group == group:
                found[name] = each
    return found


async def holders(rig: TableRig, group: str, expected: set[str], seconds: float = 20.0) -> None:
    """Wait until just these nodes hold a replica."""
    for _ in range(int(10 * seconds)):
        if set(await replicas(rig, group)) == expected:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{sorted(await replicas(rig, group))}, not {sorted(expected)}")


async def whole(rig: TableRig) -> None:
    assert (await rig.database.invariants()).breaches == ()


def test_replicas_that_a_configuration_drops_are_deleted_at_once_or_when_they_return() -> None:
    """Case 4 for one that is there, case 3 for one that comes back late; both may be added again."""

    async def scenario(rig: TableRig) -> None:
        await rig.begin()
        await rig.write(5)
        leader, group = await rig.leader()
        first, second = [name for name in await replicas(rig, group) if name != leader]
        await rig.change("tserver", "remove", first)
        await holders(rig, group, {leader, second})
        assert f"{TABLETS_DIRECTORY}/{group}.meta" in rig.world.node(first).disk.paths(), "a tombstone is left"
        await rig.change("tserver", "add-learner", first)
        await rig.change("tserver", "promote", first)
        await holders(rig, group, {leader, first, second})
        await rig.database.kill(second)
        await rig.change("tserver", "remove", second)
        await asyncio.sleep(2.0)
        await rig.database.start(second)
        await holders(rig, group, {leader, first})
        await rig.write(5)
        await whole(rig)

    play(scenario, seed=11)


DEAD_S = 2.0
QUICK = Knobs(replica_dead_ms=2_000, tserver_heartbeat_ms=200)


class Moving(TableRig):
    """A cluster that replaces dead replicas soon, of five tablet servers in as many zones as are told."""

    def __init__(self, world: World, zones: int = 1, flaws: tuple[str, ...] = (), knobs: Knobs = QUICK) -> None:
        super().__init__(world)
        self.database = SimDatabase(world, Layout(3, 5, zones), knobs=knobs, flaws=flaws)

    def zone(self, name: str) -> str:
        return next(node.zone for node in self.database.nodes if node.name == name)


def move(scenario: Callable[[Moving], Awaitable[None]], seed: int, zones: int = 1, knobs: Knobs = QUICK) -> None:
    with World(seed, version=WIRE_VERSION) as world:

        async def main() -> None:
            rig = Moving(world, zones, knobs=knobs)
            await asyncio.wait_for(scenario(rig), 120)
            await whole(rig)

        world.run(main())


async def three(rig: TableRig, group: str, without: Collection[str] = (), seconds: float = 20.0) -> list[str]:
    """Wait for a leader whose three voters are none of these nodes, and hold all replicas that there are."""
    for _ in range(int(10 * seconds)):
        found = await replicas(rig, group)
        leader = next((each for each in found.values() if each.role == "leader" and each.lease_valid), None)
        whole = leader is not None and len(leader.voters) == 3 and not leader.learners
        nodes = sorted(map(node_of, leader.voters)) if leader else []
        if whole and leader and nodes == sorted(found) and not set(leader.voters) & set(without):
            return sorted(found)
        await asyncio.sleep(0.1)
    raise AssertionError({name: (each.role, each.voters, each.learners) for name, each in found.items()})


@pytest.mark.parametrize("dies", ["leader", "follower"])
def test_a_dead_replica_is_replaced_and_deleted_when_it_returns(dies: str) -> None:
    async def scenario(rig: Moving) -> None:
        await rig.begin()
        await rig.write(5)
        leader, group = await rig.leader()
        before = sorted(await replicas(rig, group))
        dead = leader if dies == "leader" else next(name for name in before if name != leader)
        for master in rig.nodes("master"):
            assert await rig.database.arm(master, "master.before_change", "delay", seconds=0.001)
        await rig.database.kill(dead)
        after = await three(rig, group, [dead])
        assert len(set(after) - set(before)) == 1
        assert rig.acted("master.before_change"), "masters asked for it"
        await rig.write(5)
        await rig.database.start(dead)
        await asyncio.sleep(1.0)
        assert await three(rig, group) == after, "the late one is deleted"
        (located,) = (await rig.database.admin_client(5.0).table_locations("registers")).tablets
        assert sorted(replica.node_id for replica in located.replicas) == after

    move(scenario, seed=21)


def test_short_faults_move_nothing_and_neither_does_a_leader_in_doubt() -> None:
    async def scenario(rig: Moving) -> None:
        await rig.begin()
        leader, group = await rig.leader()
        before = await three(rig, group)
        for fault in ("kill", "pause"):
            for name in before:
                await getattr(rig.database, fault)(name)
                await asyncio.sleep(0.6 * DEAD_S)
                await getattr(rig.database, {"kill": "start", "pause": "resume"}[fault])(name)
                await asyncio.sleep(2.0)
        for name in (before[0], before[1]):
            await rig.database.kill(name)
        await asyncio.sleep(3 * DEAD_S)
        for name in (before[0], before[1]):
            await rig.database.start(name)
        assert await three(rig, group) == before, "nobody could tell who was dead"
        leader, _ = await rig.leader()
        await rig.database.pause(leader)
        await asyncio.sleep(DEAD_S / 2)
        await rig.database.resume(leader)
        await asyncio.sleep(2 * DEAD_S)
        assert await three(rig, group) == before

    move(scenario, seed=22)


def test_replicas_on_a_server_whose_node_has_begun_anew_are_replaced_at_once() -> None:
    """`catalog` with `wipe`, seed 1: a table was made with the lost server while masters took it for live, and nobody
    but its leader replica would have noticed, after a minute."""

    async def scenario(rig: Moving) -> None:
        await rig.begin()
        leader, group = await rig.leader()
        await rig.write(5)
        lost = next(name for name in await three(rig, group) if name != leader)
        await rig.database.kill(lost)
        await rig.database.wipe(lost)
        await rig.database.start(lost)
        await three(rig, group, [lost])
        (located,) = (await rig.database.admin_client(5.0).table_locations("registers")).tablets
        assert len(located.replicas) == 3 and lost not in [replica.node_id for replica in located.replicas]

    move(scenario, seed=27, knobs=Knobs(tserver_heartbeat_ms=200))


def test_the_newcomer_is_in_the_zone_that_lost_a_replica() -> None:
    """Zones z1 to z3 of t1 to t5 in turn: t1 and t4 share one, t2 and t5 another."""

    async def scenario(rig: Moving) -> None:
        await rig.begin()
        _, group = await rig.leader()
        before = await three(rig, group)
        assert sorted(map(rig.zone, before)) == ["z1", "z2", "z3"]
        dead = next(name for name in before if rig.zone(name) != "z3")
        await rig.database.kill(dead)
        after = await three(rig, group, [dead])
        assert sorted(map(rig.zone, after)) == ["z1", "z2", "z3"]

    move(scenario, seed=23, zones=3)


HOME_Z1 = Regional("z1", {"z1": 2, "z2": 1}, {"z3": 1})
HOME_Z2 = Regional("z2", {"z2": 2, "z1": 1}, {"z3": 1})


async def regional(rig: Moving, wanted: Regional) -> None:
    """Begin with a table of one tablet that is placed so."""
    await rig.begin(table=False)
    await create_for_certain(rig.database.admin_client(10.0), "registers", REGISTER_COLUMNS, 1, wanted)


async def placed(rig: Moving, seconds: float = 40.0) -> None:
    """Wait until all that a look at the cluster finds is as it should be."""
    report = await rig.database.look(seconds)
    assert not report.problems, report.problems


def test_a_learner_that_the_table_wants_stays_one_and_is_replaced_in_its_zone() -> None:
    async def scenario(rig: Moving) -> None:
        await regional(rig, HOME_Z1)
        await placed(rig)
        leader, group = await rig.leader()
        held = await replicas(rig, group)
        assert rig.zone(leader) == "z1"
        assert {name: each.role for name, each in held.items() if rig.zone(name) == "z3"} == {"t3": "learner"}
        await rig.database.kill("t3")
        await asyncio.sleep(3 * DEAD_S)
        await rig.database.start("t3")
        await placed(rig)
        await rig.write(5)

    move(scenario, seed=31, zones=3)


def test_a_table_moves_home_while_clients_work() -> None:
    async def scenario(rig: Moving) -> None:
        await regional(rig, HOME_Z1)
        await placed(rig)
        await rig.database.admin_client(10.0).catalog.place_table(HOME_Z2, "registers")
        writes = asyncio.create_task(rig.write(40))
        await placed(rig)
        await writes
        leader, _ = await rig.leader()
        assert rig.zone(leader) == "z2"

    move(scenario, seed=32, zones=3)


def test_a_quarantined_replica_is_replaced_by_the_masters() -> None:
    async def scenario(rig: Moving) -> None:
        await rig.begin()
        leader, group = await rig.leader()
        await rig.write(40)
        before = await three(rig, group)
        hurt = next(name for name in before if name != leader)
        await rig.database.kill(hurt)
        disk = rig.world.node(hurt).disk
        path = max(path for path in disk.paths() if path.startswith("log/"))
        for byte in range(len(disk.peek(path)) // 3, len(disk.peek(path)) // 3 + 900):
            disk.flip_bit(path, 8 * byte)
        await rig.database.start(hurt)
        await asyncio.sleep(0.2)
        seen = await replicas(rig, group)
        assert hurt not in seen or seen[hurt].role in ("quarantined", "learner")
        await three(rig, group)
        await asyncio.sleep(1.0)
        for name, each in (await replicas(rig, group)).items():
            assert each.role in ("leader", "follower"), (name, each.role)

    move(scenario, seed=24)


@pytest.mark.parametrize("voter", [True, False])
def test_a_member_too_many_is_reported_and_removed(voter: bool) -> None:
    """An operator added one where masters had; there were four voters for good, and nothing told it."""

    async def scenario(rig: Moving) -> None:
        await rig.begin()
        await rig.write(5)
        leader, group = await rig.leader()
        before = await three(rig, group)
        free = next(name for name in rig.nodes("tserver") if name not in before)
        await rig.change("tserver", "add-learner", free)
        if voter:
            await rig.change("tserver", "promote", free)
        reported = "has 4 replicas by the catalog" if voter else f"has the learners {free} beside enough voters"
        problems: tuple[Problem, ...] = ()
        for _ in range(10):
            problems += (await rig.database.look(0.0)).problems
            await asyncio.sleep(0.1)
        assert any(reported in problem.message for problem in problems), problems
        after = await three(rig, group)
        assert leader in after and (voter or after == before)
        assert (await rig.database.look(5.0)).healthy

    move(scenario, seed=28, knobs=Knobs(replica_dead_ms=8_000, tserver_heartbeat_ms=200))


def test_a_learner_too_many_that_its_leader_does_not_reach_is_evicted() -> None:
    """Masters wait for what is still to catch up; its server is alive and never will, for the leader can't reach it."""

    async def scenario(rig: Moving) -> None:
        await rig.begin()
        await rig.write(5)
        leader, group = await rig.leader()
        before = await three(rig, group)
        free = next(name for name in rig.nodes("tserver") if name not in before)
        rig.world.network.set_link(leader, free, LinkOptions(delay_ns=(100_000_000, 100_000_000)))
        await rig.change("tserver", "add-learner", free)
        rig.world.network.cut(leader, free)
        await asyncio.sleep(0.9 * DEAD_S)
        found = await replicas(rig, group)
        assert found[leader].learners and found[free].config_index < found[leader].config_index
        assert await three(rig, group, seconds=2 * DEAD_S) == before

    move(scenario, seed=29)


async def held(rig: TableRig, node: str) -> list[str]:
    """The tablets that a node holds replicas of."""
    status = await rig.database.status(node)
    assert status is not None
    return [each.group for each in status.groups]


def test_a_tablet_server_is_emptied_while_clients_work_and_gets_nothing_new() -> None:
    async def scenario(rig: Moving) -> None:
        await rig.begin(table=False)
        await rig.database.setup_workload("register", {"buckets": 6})
        await rig.write(12)
        client = rig.database.admin_client(5.0)
        leaving, _ = await rig.leader()
        with pytest.raises(DefiniteError, match="no tablet server t9"):
            await operating.decommission(client, "t9")
        first = await operating.decommission(client, leaving)
        assert first.leaving and first.replicas > 0
        for _ in range(300):
            state = await operating.decommission_state(client, leaving)
            if not state.replicas:
                break
            await rig.write(6)
            await asyncio.sleep(0.1)
        assert (state.leaving, state.replicas) == (True, 0)
        await asyncio.sleep(1.0)
        assert await held(rig, leaving) == []
        tablets = (await client.table_locations("registers")).tablets
        assert [len(each.replicas) for each in tablets] == [3] * 6
        counts = [len(await held(rig, name)) for name in rig.nodes("tserver") if name != leaving]
        assert max(counts) - min(counts) <= 2
        await client.create_table("more", [Column(0, "value", "int64")], 4, 3)
        while not await client.is_create_done("more"):
            await asyncio.sleep(0.1)
        assert await held(rig, leaving) == []
        await rig.database.kill(leaving)
        await rig.write(12)
        await rig.database.start(leaving)
        assert not (await operating.decommission(client, leaving, leaving=False)).leaving

    move(scenario, seed=25)


def test_a_change_of_leader_master_in_the_midst_of_a_decommission_goes_on_where_it_stopped() -> None:
    async def scenario(rig: Moving) -> None:
        await rig.begin(table=False)
        await rig.database.setup_workload("register", {"buckets": 4})
        client = rig.database.admin_client(8.0)
        await operating.decommission(client, "t1")
        for _ in range(3):
            master, _ = await rig.leader("master")
            await rig.database.kill(master)
            await asyncio.sleep(2.0)
            await rig.database.start(master)
        for _ in range(200):
            if not (await operating.decommission_state(client, "t1")).replicas:
                break
            await asyncio.sleep(0.1)
        assert await held(rig, "t1") == []

    move(scenario, seed=26)

"""The lonely leader on the simulated cluster, watching, and holding."""

from __future__ import annotations

import asyncio
from random import Random

from fake_cluster import FakeDatabase, FakeEnvironment

from assay.worlds import draw_world
from cluster.config import Knobs
from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.drawn_knobs import draw_knobs
from harness.env.sim import SimEnvironment
from harness.sim.world import World
from nemesis.elections import Lonely, leader_returns, level, make_lonely
from nemesis.faults import NetworkPartition
from nemesis.grudges import split
from nemesis.injectors import Injectors
from nemesis.observe import DatabaseObserver
from nemesis.registry import FAMILIES
from nemesis.scene import Scene
from nemesis.stage import Offer, Stage
from nemesis.view import Leader, View

ATTEMPTS = 24


class ElectionRig:
    """A simulated cluster, and a scene whose actions are carried out as soon as they are offered."""

    def __init__(self, world: World, seed: int, knobs: Knobs | None = None) -> None:
        self.database = SimDatabase(world, knobs=knobs or draw_knobs(seed))
        self.environment = SimEnvironment(world)
        observer = DatabaseObserver(self.database, self.environment)
        self.injector = Injectors(observer, (family.injector for family in FAMILIES))
        self.scene = Scene(observer, Random(seed), Stage())

    async def start(self) -> None:
        await self.environment.setup(self.database.nodes)
        await self.database.install()
        for node in self.database.nodes:
            await self.database.start(node.name)
        await self.database.await_ready(10)
        await self.database.setup_workload("register", {})

    async def obey(self) -> None:
        while True:
            await self.obey_once()

    async def obey_once(self) -> Offer:
        offer = await self.scene.stage.next_offer()
        assert offer is not None
        await self.injector.carry_out(0, offer.action)
        self.scene.stage.carried_out()
        return offer

    async def attempt(self) -> tuple[Leader, Lonely | None, View]:
        """Cut a leader off; the lonely leader, if it came to be, and what all said of themselves then."""
        old = await self.scene.group()
        assert old is not None
        cut = split([old.node], old.others)
        await self.scene.act(NetworkPartition(cut))
        born = await make_lonely(self.scene, old, old.others, cut)
        return old, born, await self.scene.view(old.voters)


def assert_nobody_heard_of(old: Leader, born: Lonely, view: View) -> None:
    replicas = view.replicas(old.group)
    assert (replicas[born.leader].role, replicas[born.leader].last_term) == ("leader", born.term)
    assert all(status.last_term < born.term for name, status in replicas.items() if name != born.leader)
    assert all(replicas[name].term >= born.term > old.term for name in born.voters)


def test_lonely_leaders_have_their_first_entry_to_themselves() -> None:
    async def scenario(rig: ElectionRig) -> list[bool]:
        await rig.start()
        obeying = asyncio.create_task(rig.obey())
        made = []
        for _ in range(ATTEMPTS // 6):
            old, born, view = await rig.attempt()
            made.append(born is not None)
            if born is not None:
                assert_nobody_heard_of(old, born, view)
            await rig.scene.act(NetworkPartition(()))
            await rig.database.await_ready(10)
            await level(rig.scene, old)
        obeying.cancel()
        return made

    made: list[bool] = []
    for seed in range(6):
        with World(seed, disk=draw_world(seed).physical.disk_options()) as world:
            made += world.run(scenario(ElectionRig(world, seed)))
    assert len(made) == ATTEMPTS
    assert sum(made) >= ATTEMPTS * 3 / 4


QUICK_ELECTIONS = Knobs(
    election_timeout_ms=300, raft_heartbeat_ms=100, max_batch_entries=1, max_inflight=4, max_queued_proposals=8
)


def test_a_leader_returns_where_others_lose_patience_before_its_tail_is_long() -> None:
    """Floods take a second, elections a third: of four episodes none reached its core (register, swarm, seed 33)."""

    async def scenario(rig: ElectionRig) -> Offer:
        await rig.start()
        script = asyncio.create_task(leader_returns(rig.scene))
        try:
            async with asyncio.timeout(12):
                while (offer := await rig.obey_once()).core is None:
                    pass
            return offer
        finally:
            script.cancel()

    for seed in range(3):
        with World(seed) as world:
            found = world.run(scenario(ElectionRig(world, seed, QUICK_ELECTIONS)))
            assert found.core is not None and found.core["leader"]


def scene_on_a_fake(database: FakeDatabase) -> Scene:
    return Scene(DatabaseObserver(database, FakeEnvironment()), Random(1), Stage(), 0.01)


async def test_watching_ends_with_what_is_seen_or_with_patience() -> None:
    scene = scene_on_a_fake(FakeDatabase())
    looks = iter(range(100))
    assert await scene.until(lambda view: "seen" if next(looks) >= 9 else None) == "seen"
    assert await scene.until(lambda view: view.leader("nobody's"), patience_s=0.5) is None


async def test_nodes_stop_where_they_are_held_or_patience_ends() -> None:
    database = FakeDatabase()
    scene = scene_on_a_fake(database)
    await database.arm("t2", "before_vote", "stop", "tablet")
    assert await scene.stopped(("t1", "t2", "t3"), 1, patience_s=0.1) == ("t2",)
    assert await scene.stopped(("t1", "t2", "t3"), 2, patience_s=0.1) == ()

"""Operators change who belongs to a group while clients work: tablets and the masters' own group (G1)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cluster.deploy.database_sim import SimDatabase
from cluster.knobs import Knobs
from cluster.wire.messages import CATALOG_GROUP
from harness.errors import IndefiniteError
from harness.ports.api import node_of
from harness.ports.sim.world import World
from harness.protocols import GroupStatus
from tests.cluster.cluster_rig import ClusterRig
from tests.support.few_seeds import few_of

KNOBS = Knobs(snapshot_entries=20, retained_entries=4, snapshot_chunk_bytes=200, snapshot_window_chunks=2)


class Operator:
    """Whoever changes configurations: by the leader's status, again where the leader is a new one."""

    def __init__(self, rig: ClusterRig, group: str) -> None:
        self.rig, self.database, self.group = rig, rig.database, group

    async def leader(self) -> tuple[str, GroupStatus]:
        """The node that leads the group, and its own view."""
        while (found := (await self.rig.leaders()).get(self.group)) is None:
            await self.rig.clock.sleep(0.1)
        view = await self.replica(found)
        return (found, view) if view is not None else await self.leader()

    async def replica(self, node: str) -> GroupStatus | None:
        status = await self.database.status(node)
        groups = () if status is None else status.groups
        return next((group for group in groups if group.group == self.group), None)

    async def once(self, change: str, server: str) -> str | None:
        leader, view = await self.leader()
        expected = (view.config_term, view.config_index)
        return await self.database.change_replicas(leader, self.group, change, server, expected, 5.0)

    async def change(self, change: str, server: str) -> None:
        """Until it is done; a leader that has just been elected, or was, refuses for a while."""
        for _ in range(50):
            try:
                if await self.once(change, server) is None:
                    return
            except IndefiniteError:
                pass
            _, view = await self.leader()
            if self.seen(view, change, server):
                return
            await self.rig.clock.sleep(0.1)
        raise AssertionError(f"{change} {server}: {await self.once(change, server)}")

    @staticmethod
    def seen(view: GroupStatus, change: str, server: str) -> bool:
        wanted = {
            "add-learner": server in view.learners,
            "promote": server in view.voters,
            "demote": server in view.learners,
            "remove": server not in (*view.voters, *view.learners),
        }
        return wanted[change]


def play(seed: int, scenario: Callable[[ClusterRig], Awaitable[None]]) -> None:
    with World(seed) as world:
        rig = ClusterRig(world, SimDatabase(world, knobs=KNOBS))

        async def main() -> None:
            await rig.start(buckets=1)
            await asyncio.wait_for(scenario(rig), 120)
            assert (await rig.database.invariants()).breaches == ()
            await rig.database.teardown()

        world.run(main())
        assert [(node.name, error) for node in world.nodes for error in node.errors] == []
        assert world.errors == []


async def tablet(rig: ClusterRig) -> str:
    return next(group for group in await rig.leaders() if group != CATALOG_GROUP)


def outside(rig: ClusterRig, view: GroupStatus) -> list[str]:
    """Tablet servers that don't vote in the group."""
    return [node.name for node in rig.database.nodes if node.role == "tserver" and node.name not in view.voters]


@pytest.mark.parametrize("seed", few_of(1, 3))
def test_a_tablet_moves_to_other_servers_one_by_one_while_clients_work(seed: int) -> None:
    """All three replicas are replaced: each newcomer learns, is promoted, and an old one goes."""

    async def scenario(rig: ClusterRig) -> None:
        operator = Operator(rig, await tablet(rig))
        _, view = await operator.leader()
        before = view.voters
        newcomers = outside(rig, view)
        load = asyncio.create_task(rig.load(3, 12.0))
        for old, new in zip(before, newcomers, strict=False):
            await operator.change("add-learner", new)
            learner = await operator.replica(new)
            assert learner is not None and learner.role == "learner"
            await operator.change("promote", new)
            await operator.change("remove", old)
        _, view = await operator.leader()
        assert sorted(view.voters) == sorted((*newcomers, *before[len(newcomers) :]))
        await load
        await rig.check_counters()
        assert rig.tally.ok("cas") > 50
        (located,) = (await rig.database.admin_client(5.0).table_locations("registers")).tablets
        assert sorted(replica.node_id for replica in located.replicas) == sorted(view.voters)

    play(seed, scenario)


def test_a_learner_that_lags_behind_the_log_gets_a_snapshot_in_chunks_and_survives_a_crash_in_it() -> None:
    async def scenario(rig: ClusterRig) -> None:
        operator = Operator(rig, await tablet(rig))
        _, view = await operator.leader()
        new = next(node.name for node in rig.database.nodes if node.role == "tserver" and node.name not in view.voters)
        await rig.load(3, 3.0, keys=40)
        await operator.change("add-learner", new)
        await rig.clock.sleep(0.02)
        await rig.database.kill(new)
        await rig.load(2, 1.0)
        await rig.database.start(new)
        await operator.change("promote", new)
        _, view = await operator.leader()
        while (joined := await operator.replica(new)) is None or joined.applied_index < view.applied_index:
            await rig.clock.sleep(0.05)

    play(5, scenario)


def test_the_leader_can_be_removed_and_what_makes_no_sense_is_refused_in_a_sentence() -> None:
    async def scenario(rig: ClusterRig) -> None:
        operator = Operator(rig, await tablet(rig))
        leader, view = await operator.leader()
        expected = (view.config_term, view.config_index)
        stale = await rig.database.change_replicas(leader, operator.group, "remove", leader, (9, 9), 2.0)
        assert stale == f"the configuration is that of term {expected[0]}, index {expected[1]}"
        (stranger, *_) = outside(rig, view)
        assert await operator.once("promote", stranger) == f"{stranger} is no learner"
        other = next(voter for voter in view.voters if voter != leader)
        assert await operator.once("add-learner", other) == f"{other} is a member already"
        elsewhere = await rig.database.change_replicas(other, operator.group, "remove", leader, expected, 2.0)
        assert elsewhere == "this replica does not lead the group"
        nowhere = await rig.database.change_replicas(leader, "nothing", "remove", leader, expected, 2.0)
        assert nowhere == "no tablet nothing here"
        assert await operator.once("remove", leader) is None
        heir, view = await operator.leader()
        assert heir != leader and leader not in view.voters
        await operator.change("remove", other)
        last, view = await operator.leader()
        assert view.voters == (last,)
        assert await operator.once("remove", last) == "the group would be left without voters"

    play(2, scenario)


def test_a_node_that_lost_its_disk_is_another_server_and_takes_the_place_of_the_old_one_as_a_learner() -> None:
    """It must not vote as the server that it was: it has forgotten whom it elected, and what it acknowledged."""

    async def scenario(rig: ClusterRig) -> None:
        operator = Operator(rig, await tablet(rig))
        leader, view = await operator.leader()
        lost = next(voter for voter in view.voters if voter != leader)
        await rig.load(2, 2.0)
        await rig.database.kill(lost)
        rig.world.node(lost).disk.wipe()
        await rig.database.start(lost)
        await rig.clock.sleep(3.0)
        status = await rig.database.status(lost)
        assert status is not None and status.groups == (), "nothing is created under the old name"
        newcomer = status.details["server_id"]
        assert newcomer != lost and node_of(newcomer) == lost
        await operator.change("add-learner", newcomer)
        await operator.change("promote", newcomer)
        await operator.change("remove", lost)
        await rig.load(2, 2.0)
        await rig.check_counters()
        _, view = await operator.leader()
        assert newcomer in view.voters and lost not in view.voters
        joined = await operator.replica(lost)
        assert joined is not None and joined.applied_index > 0

    play(6, scenario)


def test_masters_leave_and_join_their_own_group() -> None:
    """M12 stands on this; a master that was removed and comes back learns like anybody else."""

    async def scenario(rig: ClusterRig) -> None:
        operator = Operator(rig, CATALOG_GROUP)
        leader, _ = await operator.leader()
        await operator.change("remove", leader)
        _, view = await operator.leader()
        assert leader not in view.voters
        await operator.change("add-learner", leader)
        await operator.change("promote", leader)
        _, view = await operator.leader()
        assert sorted(view.voters) == ["m1", "m2", "m3"]
        assert [table.name for table in await rig.database.admin_client(5.0).list_tables()] == ["registers"]

    play(4, scenario)

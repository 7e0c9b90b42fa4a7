"""Groups whose disks are slow, hang or are full: snapshots, leases, queues and hand-overs (G5, G7)."""

from __future__ import annotations

from collections import Counter

import msgspec
from test_group_sim import KNOBS, NAMES, VOTERS, Cluster, simulate

from cluster.groups.group import NotLeader
from cluster.groups.waiters import Expired, Overloaded
from cluster.knobs import Knobs
from harness.ports.sim.disk import DiskOptions, SimDisk
from harness.ports.sim.world import World


def test_a_leader_whose_disk_hangs_loses_its_lease_and_another_one_serves() -> None:
    """G7: the lease is gone within `disk_stall_ms` and a heartbeat, whatever becomes of the hand-over."""

    async def scenario(cluster: Cluster) -> None:
        old = await cluster.started()
        group, disk = cluster.groups[old], cluster.world.node(old).disk
        disk.extra_sync_ns = 20_000_000_000
        entered = group.submit(b"entered", 2.0)
        queued = [group.submit(b"queued %d" % number, 30.0) for number in range(5)]
        await cluster.clock.sleep((KNOBS.disk_stall_ms + KNOBS.raft_heartbeat_ms + 50) / 1e3)
        assert not group.status().lease_valid
        assert all(isinstance(future.exception(), NotLeader) for future in queued)
        await cluster.until(lambda: cluster.leader() not in (None, old), "another leader", 3.0)
        assert await cluster.propose(b"served")
        await cluster.until(entered.done, "the fate of what entered the log", 3.0)
        disk.extra_sync_ns = 0
        applied = await cluster.converged()
        assert b"served" in applied
        assert not any(b"queued %d" % number in applied for number in range(5))

    simulate(4, scenario)


def test_without_anybody_to_take_over_a_hanging_disk_costs_the_lease_until_it_is_back() -> None:
    async def scenario(cluster: Cluster) -> None:
        old = await cluster.started()
        group, disk = cluster.groups[old], cluster.world.node(old).disk
        for name in NAMES:
            cluster.world.node(name).disk.extra_sync_ns = 4_000_000_000
        future = group.submit(b"x", 30.0)
        await cluster.clock.sleep(2.0)
        assert not group.status().lease_valid
        assert isinstance(group.submit(b"y", 1.0).exception(), NotLeader)
        for name in NAMES:
            cluster.world.node(name).disk.extra_sync_ns = 0
        await cluster.until(future.done, "the fate of x")
        await cluster.elected()
        assert await cluster.propose(b"z")
        assert b"y" not in await cluster.converged()
        assert disk.syncs > 0

    simulate(4, scenario)


def test_a_disk_that_was_full_while_the_group_was_idle_is_found_to_have_room_again() -> None:
    """Seed 577 of a swarm: a sole voter has nobody to hand over to, and refused for good what would have told it.

    It was the log's own frame that found the disk full, with nothing of the group in it.
    """

    async def scenario(cluster: Cluster) -> None:
        cluster.start("a")
        await cluster.elected()
        assert await cluster.propose(b"before")
        group, disk = cluster.groups["a"], cluster.world.node("a").disk
        disk.full = True
        await cluster.clock.sleep(KNOBS.log_idle_ms / 1e3 + 0.1)
        assert isinstance(group.submit(b"refused", 1.0).exception(), NotLeader)
        disk.full = False
        await cluster.clock.sleep(1.0)
        assert await group.submit(b"after", 1.0) == b"2"

    world = World(1)
    try:
        world.run(scenario(Cluster(world, founders=VOTERS[:1])))
    finally:
        world.close()


def test_a_full_queue_and_a_late_proposal_are_refused_for_certain() -> None:
    """A proposal with half a second to live isn't pending after 30: its deadline counts while it waits."""

    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.started()
        group, disk = cluster.groups[leader], cluster.world.node(leader).disk
        disk.extra_sync_ns = 3_000_000_000
        entered = group.submit(b"entered", 0.5)
        queued = [group.submit(b"queued %d" % number, 0.5) for number in range(12)]
        assert [isinstance(future.exception(), Overloaded) for future in queued if future.done()] == [True] * 4
        await cluster.clock.sleep(0.6)
        assert entered.result() == b"1"  # its two followers are a quorum
        assert [type(future.exception()) for future in queued[:8]] == [Expired] * 8
        disk.extra_sync_ns = 0
        applied = await cluster.converged()
        assert not any(command.startswith(b"queued") for command in applied)

    simulate(4, scenario, msgspec.structs.replace(KNOBS, max_queued_proposals=8, disk_stall_ms=10_000))


def test_what_no_follower_can_be_sent_yet_waits_where_its_deadline_counts() -> None:
    """Seed 887 of a swarm: the log had taken in a thousand entries over links that carried ten a second, so that
    whatever was proposed after them, also a lease's renewal, was committed two minutes later."""

    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.started()
        group = cluster.groups[leader]
        for name in {*NAMES} - {leader}:
            cluster.world.node(name).disk.extra_sync_ns = 200_000_000
        many = [group.submit(b"%d" % number, 1.0) for number in range(200)]
        await cluster.clock.sleep(2.0)
        assert all(future.done() for future in many)
        ends = Counter(type(future.exception()) for future in many)
        assert ends[type(None)] >= 4 and ends[Expired] >= 190, ends
        assert await group.submit(b"later", 1.0)
        for name in NAMES:
            cluster.world.node(name).disk.extra_sync_ns = 0
        entered = range(ends.total() - ends[Expired])
        assert await cluster.converged() == [*(b"%d" % number for number in entered), b"later"]

    simulate(4, scenario, msgspec.structs.replace(KNOBS, max_batch_entries=1, max_inflight=1, snapshot_entries=1_000))


def snapshots_on(disk: SimDisk) -> list[str]:
    return [path for path in disk.paths() if path.startswith("snapshots/")]


def test_snapshots_are_taken_beside_steady_writes_and_log_and_memory_stay_bounded() -> None:
    """2 000 proposals a second, fsyncs of 1 to 20 ms, a snapshot every 100 entries."""
    knobs = Knobs(snapshot_entries=100, log_segment_bytes=1 << 16, retained_entries=256)

    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.started()
        group, disk = cluster.groups[leader], cluster.world.node(leader).disk
        largest_log = largest_memory = 0
        for turn in range(1_000):
            for number in range(10):
                group.submit(b"%d" % (10 * turn + number) * 20, 30.0)
            await cluster.clock.sleep(0.005)
            log = sum(len(disk.peek(path)) for path in disk.paths() if path.startswith("log/"))
            largest_log = max(largest_log, log)
            largest_memory = max(largest_memory, group.status().last_index - group._raft.first_index)
        assert len(snapshots_on(disk)) <= 3, "one stands, one is written, one is removed"
        await cluster.clock.sleep(1.0)
        (snapshot,) = snapshots_on(disk)
        assert int(snapshot.split("/")[-1].split("-")[0]) > 9_000
        assert largest_log < 6 * (1 << 16)
        assert largest_memory < 2_000

    world = World(3, disk=DiskOptions(sync_ns=(1_000_000, 20_000_000)))
    try:
        world.run(scenario(Cluster(world, knobs)))
        assert world.errors == []
    finally:
        world.close()

"""Snapshots on their way between three replicas: crashes, damage, changes of the leader, two receivers at once (G5)."""

from __future__ import annotations

import random

import msgspec
import pytest
from test_group_sim import NAMES, VOTERS, Cluster, Recorder, simulate

from cluster.groups.applying import Applier
from cluster.groups.group import Group
from cluster.knobs import Knobs
from cluster.log.replay import SnapshotRef
from cluster.raft.types import ChangeKind, Member, Message, SnapshotChunk
from harness.ports.failpoints import Arming
from harness.ports.sim.world import World

KNOBS = Knobs(
    snapshot_entries=20,
    retained_entries=0,
    snapshot_chunk_bytes=200,
    snapshot_window_chunks=2,
    request_timeout_ms=1_000,
)
SLOW = msgspec.structs.replace(KNOBS, bulk_bytes_per_s=4_000, bulk_patience_ms=10_000)
"""A snapshot takes about a second."""


def command(number: int) -> bytes:
    return b"%06d" % number * 10


class Streams:
    """A cluster of which one follower, `late`, is behind what its leader's log still holds."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.proposed = 0
        self.leader = self.late = ""

    async def begin(self) -> None:
        self.leader = await self.cluster.started()
        self.late = next(name for name in NAMES if name != self.leader)

    async def leave_behind(self, count: int = 70) -> None:
        """Kill the late one, and have so much happen that it needs a snapshot."""
        self.cluster.world.node(self.late).kill()
        await self.propose(count)

    async def propose(self, count: int) -> None:
        for _ in range(count):
            while await self.cluster.propose(command(self.proposed)) is not True:
                pass
            self.proposed += 1

    def files(self, name: str) -> list[str]:
        return [path for path in self.cluster.world.node(name).disk.paths() if path.startswith("snapshots/")]

    def stored(self) -> str:
        """The file that the leader stands on."""
        ref = self.cluster.groups[self.leader]._traffic.stored.ref
        assert ref is not None
        return ref.path

    def sent(self) -> str:
        """The file that the leader sends to the late one; to a dead one it offers it again and again."""
        return self.cluster.groups[self.leader]._traffic._sources[self.late][1].path

    def offers_the_last(self) -> bool:
        source = self.cluster.groups[self.leader]._traffic._sources.get(self.late)
        return source is not None and source[1].path == self.stored()

    async def receiving(self) -> None:
        """Start the late one, and wait until a part of a snapshot has come, and not all of it."""
        before = self.files(self.late)
        self.cluster.start(self.late)
        deadline_ns = self.cluster.clock.monotonic_ns() + 10_000_000_000
        while set(self.files(self.late)) <= set(before):
            assert self.cluster.clock.monotonic_ns() < deadline_ns, "no part of a snapshot has come"
            await self.cluster.clock.sleep(0.000_1)

    async def only_one_file(self, *names: str) -> None:
        await self.cluster.until(lambda: all(len(self.files(name)) == 1 for name in names), "collection", 5.0)

    async def converged(self) -> None:
        applied = await self.cluster.converged()
        assert list(dict.fromkeys(applied)) == [command(number) for number in range(self.proposed)]
        assert self.cluster.failures == {}


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.campaign) for seed in (2, 3))])
def test_a_receiver_that_crashes_at_any_time_has_the_old_state_or_the_new_one(seed: int) -> None:
    partly = installed = 0
    entropy = random.Random(seed)

    async def scenario(cluster: Cluster) -> None:
        nonlocal partly, installed
        streams = Streams(cluster)
        await streams.begin()
        for _ in range(40):
            await streams.leave_behind(45)
            await streams.receiving()
            await cluster.clock.sleep(0.2 * entropy.random() ** 2)
            cluster.world.node(streams.late).kill()
            cluster.start(streams.late)
            await cluster.until(lambda: streams.late in cluster.groups, "its start", 5.0)
            applied = cluster.machines[streams.late].commands
            assert applied == [command(number) for number in range(len(applied))]
            installed += len(applied) > streams.proposed - 45
            partly += len(applied) <= streams.proposed - 45
        await streams.converged()
        await streams.only_one_file(*NAMES)

    simulate(seed, scenario, msgspec.structs.replace(KNOBS, snapshot_chunk_bytes=1_500))
    assert partly > 5 and installed > 5, (partly, installed)


def test_a_chunk_that_was_damaged_on_the_way_is_refused_and_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    damaged: list[int] = []

    async def scenario(cluster: Cluster) -> None:
        streams = Streams(cluster)
        await streams.begin()
        await streams.leave_behind()
        receive = Group.receive

        def corrupted(message: Message) -> Message:
            if not isinstance(message, SnapshotChunk) or len(message.data) <= 30 or len(damaged) == 3:
                return message
            data = bytearray(message.data)
            data[len(data) // (2 + len(damaged))] ^= 4
            damaged.append(message.offset)
            return msgspec.structs.replace(message, data=bytes(data))

        def spoiling(group: Group, messages: tuple[Message, ...]) -> None:
            receive(group, tuple(map(corrupted, messages)))

        monkeypatch.setattr(Group, "receive", spoiling)
        cluster.start(streams.late)
        await streams.converged()

    simulate(1, scenario, KNOBS)
    assert len(damaged) == 3


def test_a_sender_whose_file_is_damaged_takes_another_snapshot() -> None:
    async def scenario(cluster: Cluster) -> None:
        streams = Streams(cluster)
        await streams.begin()
        await streams.leave_behind()
        await cluster.until(lambda: streams.offers_the_last(), "the offer of the last snapshot")
        disk = cluster.world.node(streams.leader).disk
        path = streams.stored()
        disk.flip_bit(path, 8 * (len(disk.peek(path)) // 2))
        cluster.start(streams.late)
        await cluster.clock.sleep(2.0)
        assert cluster.groups[streams.late].applied_index < 70
        await streams.propose(1)
        await streams.converged()
        await streams.only_one_file(*NAMES)
        assert path != streams.stored()

    simulate(1, scenario, KNOBS)


def test_a_sender_that_loses_its_leadership_in_mid_stream_leaves_it_to_the_next_leader() -> None:
    async def scenario(cluster: Cluster) -> None:
        streams = Streams(cluster)
        await streams.begin()
        await streams.leave_behind()
        await streams.receiving()
        heir = next(name for name in NAMES if name not in (streams.leader, streams.late))
        cluster.groups[streams.leader].transfer_leadership(heir)
        await cluster.until(lambda: cluster.leader() == heir, "the heir's lease")
        assert cluster.groups[streams.late].applied_index < 70
        await streams.converged()
        await streams.only_one_file(streams.late)

    simulate(1, scenario, SLOW)


def test_a_receiver_that_restarts_in_mid_stream_gets_the_snapshot_from_its_start() -> None:
    async def scenario(cluster: Cluster) -> None:
        streams = Streams(cluster)
        await streams.begin()
        await streams.leave_behind()
        await streams.receiving()
        cluster.world.node(streams.late).kill()
        cluster.start(streams.late)
        await streams.converged()
        await streams.only_one_file(streams.late)

    simulate(1, scenario, SLOW)


def test_a_snapshot_that_is_replaced_while_it_is_sent_is_kept_until_it_is_sent() -> None:
    async def scenario(cluster: Cluster) -> None:
        streams = Streams(cluster)
        await streams.begin()
        await streams.leave_behind()
        await streams.receiving()
        sent = streams.sent()
        await streams.propose(50)
        await cluster.clock.sleep(0.1)
        assert sent != streams.stored() and sent in streams.files(streams.leader)
        await streams.converged()
        await streams.only_one_file(*NAMES)

    simulate(1, scenario, SLOW)


def test_a_received_snapshot_that_is_replaced_before_it_is_installed_is_kept_until_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With slow disks others are received meanwhile. Its file was removed before it was read, and the replica was
    quarantined (`assay run register --nemesis late-acks --nodes 3 --concurrency 20 --seed 8`).
    """
    restore = Applier.restore

    async def scenario(cluster: Cluster) -> None:
        async def late(applier: Applier, ref: SnapshotRef) -> None:
            await cluster.clock.sleep(0.1)
            await restore(applier, ref)

        streams = Streams(cluster)
        await streams.begin()
        await streams.leave_behind()
        monkeypatch.setattr(Applier, "restore", late)
        cluster.start(streams.late)
        await cluster.until(lambda: streams.late in cluster.groups, "its start")
        cluster.world.node(streams.late).failpoints.arm(Arming("tablet.before_fsync", "delay", times=0, seconds=4.0))
        for _ in range(5):
            await streams.propose(30)
            await cluster.clock.sleep(0.5)
        cluster.world.node(streams.late).failpoints.disarm()
        await streams.converged()
        await streams.only_one_file(*NAMES)

    simulate(1, scenario, KNOBS)


def test_two_learners_get_a_snapshot_at_once_from_one_file() -> None:
    async def scenario(cluster: Cluster) -> None:
        streams = Streams(cluster)
        for name in NAMES:
            cluster.start(name)
        await cluster.elected()
        streams.leader, learners = "a", ("b", "c")
        await streams.propose(70)
        group = cluster.groups["a"]
        for name in learners:
            await group.change_membership(
                ChangeKind.ADD_LEARNER, Member(name, f"{name}:7"), group.configuration.op_id, 5.0
            )
        await cluster.until(lambda: all(len(streams.files(name)) == 1 for name in learners), "both to receive")
        assert all(cluster.groups[name].applied_index == 0 for name in learners)
        await streams.propose(30)
        await streams.converged()
        await streams.only_one_file(*NAMES)

    world = World(1)
    try:
        world.run(scenario(Cluster(world, SLOW, VOTERS[:1])))
        assert world.errors == []
    finally:
        world.close()


def test_a_replica_tells_no_digest_and_applies_nothing_while_it_installs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state of several pieces is installed in several turns; what is committed meanwhile waits."""
    seen: list[tuple[int, int]] = []

    async def scenario(cluster: Cluster) -> None:
        streams = Streams(cluster)
        await streams.begin()
        await streams.leave_behind(10)
        for number in range(40):
            assert await cluster.propose(b"%d" % number * 10_000)
        restoring = Recorder.restoring

        def watched(machine: Recorder) -> object:
            take = restoring(machine)
            group = cluster.groups[streams.late]

            def take_part(part: bytes) -> None:
                status = group.status()
                seen.append((status.applied_index, status.digest))
                take(part)

            return take_part

        cluster.start(streams.late)
        await cluster.until(lambda: streams.late in cluster.groups, "its start")
        monkeypatch.setattr(Recorder, "restoring", watched)
        await cluster.converged()
        assert cluster.groups[streams.late].status().digest != 0

    simulate(1, scenario, msgspec.structs.replace(KNOBS, snapshot_chunk_bytes=1 << 18))
    assert len(seen) > 8
    assert {digest for _, digest in seen} == {0} and len({index for index, _ in seen}) == 1


def test_what_a_long_absence_has_left_is_applied_in_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that is brought up by the log has thousands of entries to apply at once."""
    steps: dict[int, int] = {}

    async def scenario(cluster: Cluster) -> None:
        streams = Streams(cluster)
        await streams.begin()
        await streams.leave_behind(0)
        group = cluster.groups[streams.leader]
        for _ in range(10):
            futures = [group.submit(b"%d" % number, 5.0) for number in range(400)]
            await cluster.until(lambda futures=futures: all(each.done() for each in futures), "so many")
        cluster.start(streams.late)
        await cluster.until(lambda: streams.late in cluster.groups, "its start")
        late = cluster.machines[streams.late]
        apply = Recorder.apply

        def counting(machine: Recorder, index: int, data: bytes) -> bytes:
            if machine is late:
                steps[cluster.world.loop.steps] = steps.get(cluster.world.loop.steps, 0) + 1
            return apply(machine, index, data)

        monkeypatch.setattr(Recorder, "apply", counting)
        await cluster.converged()

    simulate(1, scenario, Knobs(snapshot_entries=10_000))
    assert sum(steps.values()) == 4_000
    assert max(steps.values()) <= 512, max(steps.values())

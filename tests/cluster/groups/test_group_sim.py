"""Three replicas of a group in the simulator: crashes at every failpoint, deposed leaders, full and failing disks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import msgspec
import pytest

from cluster.groups.group import Group, GroupSpec, NotLeader, OutcomeUnknown
from cluster.groups.spec import MachineFailed
from cluster.knobs import Knobs
from cluster.log.node import NodeLog, Quarantined
from cluster.log.snapshots import gathered
from cluster.raft.types import AppendEntries, Entry, InvariantBroken, Message, SoftState
from cluster.store.cells import fingerprint
from cluster.wire.messages import Replica
from cluster.wire.peers import PeerStreams
from harness.ports.api import Disk, Peer, Ports
from harness.ports.failpoints import Arming
from harness.ports.machines import ProcessState
from harness.ports.sim.world import World

NAMES = ("a", "b", "c")
VOTERS = tuple(Replica(name, f"{name}:7") for name in NAMES)
POINTS = ("before_append", "before_fsync", "after_fsync", "before_snapshot", "after_snapshot")
POINTS += ("before_commit", "after_commit", "before_apply", "after_apply")
KNOBS = Knobs(snapshot_entries=10, request_timeout_ms=1_000)


class Recorder:
    """A state machine that keeps every command; its result is the command's place among them."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []

    def apply(self, index: int, command: bytes) -> bytes:
        if command == b"poison":
            raise RuntimeError("poisoned")
        self.commands.append(command)
        return b"%d" % len(self.commands)

    def freeze(self, part_bytes: int) -> Iterator[bytes]:
        return map(
            msgspec.msgpack.encode, chain([[]], gathered([(each, len(each)) for each in self.commands], part_bytes))
        )

    def restoring(self) -> Callable[[bytes], None]:
        self.commands = []
        return lambda part: self.commands.extend(msgspec.msgpack.decode(part, type=list[bytes]))

    @property
    def digest(self) -> int:
        return fingerprint(self.commands)


class BrokenDisk:
    """A Disk on which fsync fails from a chosen moment on."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.broken = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    async def fsync(self, path: str) -> None:
        if self.broken:
            raise OSError(5, "Input/output error")
        await self._disk.fsync(path)


class Cluster:
    """Three processes with one group each, of which all are founders unless told otherwise."""

    def __init__(self, world: World, knobs: Knobs = KNOBS, founders: tuple[Replica, ...] = VOTERS) -> None:
        self.world, self.knobs, self.founders = world, knobs, founders
        self.clock = world.harness_ports("h").clock
        self.groups: dict[str, Group] = {}
        self.machines: dict[str, Recorder] = {}
        self.disks: dict[str, BrokenDisk] = {}
        self.changes: list[tuple[str, SoftState]] = []
        self.failures: dict[str, BaseException] = {}

    def start(self, name: str) -> None:
        self.groups.pop(name, None)
        self.world.node(name).start(lambda ports: self._main(ports, name))

    def start_dead(self) -> None:
        for name in NAMES:
            if self.world.node(name).state is ProcessState.DEAD:
                self.start(name)

    async def _main(self, ports: Ports, name: str) -> None:
        machine = Recorder()
        self.disks[name] = BrokenDisk(ports.disk)
        ports = replace(ports, disk=self.disks[name])
        founds = name in [founder.node_id for founder in self.founders]
        spec = GroupSpec("g", name, self.founders if founds else (), self.knobs)

        def failed(error: BaseException) -> None:
            self.failures[name] = error

        def deliver(group_id: str, messages: tuple[Message, ...]) -> None:
            group.receive(messages)

        log = await NodeLog.open(ports, self.knobs, "tablet", ["g"], failed)
        streams = PeerStreams(ports, self.knobs, deliver, VOTERS)
        group = await Group.open(
            ports,
            spec,
            machine,
            streams,
            log.group("g"),
            lambda soft: self.changes.append((name, soft)),
            failed,
        )

        async def on_call(peer: Peer, payload: bytes) -> bytes:
            return b""

        await ports.network.listen(f"{name}:7", on_call, streams.receive)
        self.groups[name], self.machines[name] = group, machine
        await asyncio.get_running_loop().create_future()

    async def until(self, condition: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
        deadline_ns = self.clock.monotonic_ns() + int(timeout_s * 1e9)
        while not condition():
            assert self.clock.monotonic_ns() < deadline_ns, f"not in time: {what}"
            await self.clock.sleep(0.01)

    def alive(self) -> list[str]:
        return [name for name in NAMES if name in self.groups and self.world.node(name).state is ProcessState.RUNNING]

    def leader(self) -> str | None:
        leading = [name for name in self.alive() if self.groups[name].status().lease_valid]
        return leading[0] if leading else None

    async def elected(self) -> str:
        await self.until(lambda: self.leader() is not None, "a leader with a lease")
        leader = self.leader()
        assert leader is not None
        return leader

    async def started(self) -> str:
        for name in NAMES:
            self.start(name)
        return await self.elected()

    async def propose(self, command: bytes, timeout_s: float = 1.0) -> bool | None:
        """True if it took effect, False if certainly not, None if unknown."""
        leader = self.leader()
        if leader is None:
            await self.clock.sleep(0.05)
            return False
        group = self.groups[leader]
        try:
            await self._inside(leader, group.propose(command, timeout_s), timeout_s)
        except NotLeader:
            return False
        except (OutcomeUnknown, TimeoutError):
            return None
        return True

    async def _inside(self, name: str, work: Awaitable[bytes], timeout_s: float) -> bytes:
        return await asyncio.wait_for(work, timeout_s * 2)

    async def converged(self) -> list[bytes]:
        """All three have applied the same; what they applied."""
        await self.elected()
        await self.until(
            lambda: (
                len(self.alive()) == 3
                and len({self.groups[name].applied_index for name in NAMES}) == 1
                and self.leader() is not None
            ),
            "all replicas at the same index",
        )
        assert self.machines["a"].commands == self.machines["b"].commands == self.machines["c"].commands
        return self.machines["a"].commands


def simulate(seed: int, scenario: Callable[[Cluster], Coroutine[Any, Any, None]], knobs: Knobs = KNOBS) -> World:
    world = World(seed)
    try:
        world.run(scenario(Cluster(world, knobs)))
        assert world.errors == []
    finally:
        world.close()
    return world


@pytest.mark.parametrize(
    ("victim", "point"),
    [(victim, point) for victim in ("leader", "follower") for point in POINTS] + [("follower", "before_accept")],
)
def test_nothing_acknowledged_is_lost_by_a_crash_at(victim: str, point: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.started()
        fates: dict[bytes, bool | None] = {}
        for turn in range(3):
            leader = await cluster.elected()
            chosen = leader if victim == "leader" else next(name for name in NAMES if name != leader)
            node = cluster.world.node(chosen)
            node.failpoints.arm(Arming(f"tablet.{point}", skip=turn))
            for number in range(45):
                command = b"%d.%d" % (turn, number)
                await cluster.elected()
                fates[command] = await cluster.propose(command)
            assert node.failpoints.hits.get(f"tablet.{point}", 0) > turn
            await cluster.until(lambda node=node: node.state is ProcessState.DEAD, "the crash")
            cluster.start_dead()
        applied = await cluster.converged()
        assert len(set(applied)) == len(applied)
        for command, fate in fates.items():
            assert fate is None or (command in applied) is fate, command
        assert sum(fate is True for fate in fates.values()) > 30

    simulate(7, scenario)


def test_all_replicas_crash_again_and_again_and_keep_what_they_acknowledged() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.started()
        fates: dict[bytes, bool | None] = {}
        for turn in range(6):
            for number in range(12):
                command = b"%d.%d" % (turn, number)
                fates[command] = await cluster.propose(command)
            for name in NAMES:
                cluster.world.node(name).kill()
            cluster.start_dead()
            await cluster.elected()
        applied = await cluster.converged()
        for command, fate in fates.items():
            assert fate is None or (command in applied) is fate, command
        assert len(set(applied)) == len(applied)

    for seed in range(3):
        simulate(seed, scenario)


def test_a_follower_that_missed_everything_is_brought_up_by_a_snapshot() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.started()
        late = next(name for name in NAMES if name != leader)
        cluster.world.node(late).kill()
        for number in range(400):
            assert await cluster.propose(b"%d" % number)
        cluster.start_dead()
        applied = await cluster.converged()
        assert applied == [b"%d" % number for number in range(400)]

    simulate(3, scenario)


def test_proposals_of_a_deposed_leader_are_refused_for_certain_once_another_term_is_applied() -> None:
    async def scenario(cluster: Cluster) -> None:
        old = await cluster.started()
        others = [name for name in NAMES if name != old]
        for other in others:
            cluster.world.network.cut(old, other)
            cluster.world.network.cut(other, old)
        future = cluster.groups[old].submit(b"lost", 30.0)
        await cluster.until(lambda: cluster.leader() in others, "another leader")
        assert await cluster.propose(b"kept")
        assert not future.done()
        cluster.world.network.heal()
        await cluster.until(future.done, "the fate of the proposal")
        error = future.exception()
        assert isinstance(error, NotLeader)
        assert error.leader in others
        assert await cluster.converged() == [b"kept"]

    simulate(5, scenario)


def test_a_proposal_that_outlives_its_leader_and_is_committed_by_the_next_gets_its_result() -> None:
    async def scenario(cluster: Cluster) -> None:
        old = await cluster.started()
        others = [name for name in NAMES if name != old]
        for other in others:
            cluster.world.network.cut(other, old)
        future = cluster.groups[old].submit(b"carried", 30.0)
        await cluster.until(lambda: cluster.leader() in others, "another leader")
        assert not future.done()
        cluster.world.network.heal()
        await cluster.until(future.done, "the fate of the proposal")
        assert future.result() == b"1"
        assert await cluster.converged() == [b"carried"]

    simulate(5, scenario)


def test_without_a_quorum_a_proposal_and_a_read_end_unknown_at_their_deadline() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.started()
        for name in NAMES:
            if name != leader:
                cluster.world.node(name).kill()
        group = cluster.groups[leader]
        before_ns = cluster.clock.monotonic_ns()
        assert await cluster.propose(b"x", 1.5) is None
        waited_ns = cluster.clock.monotonic_ns() - before_ns
        assert 1_500_000_000 <= waited_ns < 1_700_000_000
        with pytest.raises(NotLeader if not group.is_leader else OutcomeUnknown):
            await group.read_barrier(0.2)
        await cluster.until(lambda: not group.is_leader, "stepping down")
        with pytest.raises(NotLeader):
            await group.propose(b"y", 1.0)
        with pytest.raises(NotLeader):
            await group.read_barrier(1.0)

    simulate(4, scenario)


def test_a_read_with_a_lease_sends_nothing_and_one_without_asks_a_quorum() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.started()
        group = cluster.groups[leader]
        with pytest.raises(StopIteration):
            group.read_barrier(1.0).send(None)
        cluster.world.node(leader).pause()
        await cluster.clock.sleep(0.3)
        cluster.world.node(leader).resume()
        await cluster.clock.sleep(0.05)
        await group.read_barrier(1.0)

    simulate(4, scenario)


def test_a_full_disk_refuses_proposals_and_recovers() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.started()
        disk = cluster.world.node(leader).disk
        disk.full = True
        outcomes = [await cluster.propose(b"full %d" % number) for number in range(4)]
        assert False in outcomes
        disk.full = False
        await cluster.clock.sleep(0.5)
        await cluster.elected()
        assert await cluster.propose(b"after")
        applied = await cluster.converged()
        for number, fate in enumerate(outcomes):
            assert fate is None or (b"full %d" % number in applied) is fate
        assert b"after" in applied

    simulate(6, scenario)


@pytest.mark.parametrize("cut_off", [0, 1])
def test_a_leader_whose_disk_is_full_tries_every_voter_until_one_takes_over(cut_off: int) -> None:
    """G7: it tried one voter once, and led for good if that one could not be reached for 2 s."""

    async def scenario(cluster: Cluster) -> None:
        full = await cluster.started()
        assert await cluster.propose(b"before")
        followers = [name for name in NAMES if name != full]
        unreachable = followers[cut_off]
        cluster.world.network.cut(full, unreachable)
        cluster.world.network.cut(unreachable, full)
        cluster.world.node(full).disk.full = True
        fate = await cluster.propose(b"into the full disk")
        await cluster.until(lambda: cluster.leader() in followers, "a healthy leader", timeout_s=4.0)
        cluster.world.network.heal()
        assert await cluster.propose(b"after")
        cluster.world.node(full).disk.full = False
        applied = await cluster.converged()
        assert b"after" in applied
        assert fate is None or (b"into the full disk" in applied) is fate

    for seed in range(3):
        simulate(seed, scenario)


def test_a_follower_that_is_to_truncate_what_is_committed_stops_and_tells_its_node() -> None:
    """R1: it did so silently."""

    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.started()
        assert await cluster.propose(b"kept")
        await cluster.converged()
        victim = next(name for name in NAMES if name != leader)
        group = cluster.groups[victim]
        liar = AppendEntries(leader, victim, group.term + 1, 0, 0, (Entry(group.term + 1, 1, 1, b"x"),), 0, 0, 0)
        group.receive((liar,))
        assert isinstance(cluster.failures[victim], InvariantBroken)
        assert cluster.machines[victim].commands == [b"kept"]
        with pytest.raises(NotLeader):
            await group.propose(b"y", 1.0)

    simulate(3, scenario)


def test_after_a_failed_fsync_a_replica_acknowledges_nothing_and_stops() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.started()
        for name in NAMES:
            if name != leader:
                cluster.disks[name].broken = True
        assert await cluster.propose(b"nowhere durable") is None
        await cluster.until(lambda: len(cluster.failures) == 2, "both followers to stop")
        assert all(isinstance(error, OSError) for error in cluster.failures.values())
        assert cluster.machines[leader].commands == []
        with pytest.raises(NotLeader):
            await cluster.groups[next(iter(cluster.failures))].propose(b"x", 1.0)

    simulate(8, scenario)


def test_a_state_machine_that_raises_stops_its_replica_and_tells_the_node() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.started()
        assert await cluster.propose(b"poison") is None
        await cluster.until(lambda: len(cluster.failures) >= 1, "the failure")
        assert isinstance(next(iter(cluster.failures.values())), MachineFailed)

    world = World(9)
    try:
        world.run(scenario(Cluster(world)))
    finally:
        world.close()


def test_a_damaged_log_keeps_the_node_from_starting() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.started()
        for number in range(5):
            assert await cluster.propose(b"%d" % number)
        node = cluster.world.node(leader)
        node.kill()
        segment = next(path for path in node.disk.paths() if "segment-" in path)
        for byte in range(600):
            node.disk.flip_bit(segment, 8 * byte)
        cluster.start(leader)
        await cluster.until(lambda: node.state is ProcessState.DEAD, "the refusal to start")
        assert isinstance(node.error, Quarantined)

    simulate(2, scenario)


def test_leadership_can_be_handed_over() -> None:
    async def scenario(cluster: Cluster) -> None:
        old = await cluster.started()
        target = next(name for name in NAMES if name != old)
        cluster.groups[old].transfer_leadership(target)
        await cluster.until(lambda: cluster.leader() == target, "the target to lead")
        assert await cluster.propose(b"x")
        assert any(name == target and soft.leader == target for name, soft in cluster.changes)

    simulate(2, scenario)


def test_a_closed_group_gives_its_callers_an_answer() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.started()
        group = cluster.groups[leader]
        future = group.submit(b"x", 5.0)
        await group.close()
        assert isinstance(future.exception(), OutcomeUnknown | NotLeader)
        with pytest.raises(NotLeader):
            await group.propose(b"y", 1.0)

    simulate(2, scenario)


def test_the_same_seed_gives_the_same_run() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.started()
        for number in range(40):
            await cluster.propose(b"%d" % number)

    assert simulate(11, scenario).trace_digest() == simulate(11, scenario).trace_digest()
    assert simulate(11, scenario).trace_digest() != simulate(12, scenario).trace_digest()

"""A cluster of pure Raft nodes with a network, disks and clocks that a test steers, and Raft's invariants as checks.

Real time is `now_ns`; every node has a monotonic clock of its own rate and origin. A test either runs time forward
(`run`), or picks every delivery, fsync, tick and crash itself. After each step the invariants of figure 3.2 and of the
lease (§6.4.1) are checked; what is broken is added to `violations`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from raft_flights import Beat, Flight, RigEnds
from raft_invariants import Invariants
from raft_streams import MemoryStreams, Snapshot
from raft_transcript import describe, describe_configuration, describe_entry, describe_persist

from cluster.raft.core import Raft, RaftConfig
from cluster.raft.log import bootstrap, configuration_of
from cluster.raft.snapshots import StreamOptions
from cluster.raft.types import (
    ChangeKind,
    ChangeMembership,
    ChangeResult,
    Compact,
    Configuration,
    Entry,
    EntryKind,
    Event,
    HandOver,
    HandOverTo,
    HardState,
    InvariantBroken,
    Member,
    Message,
    OpId,
    Persist,
    Persisted,
    PersistentState,
    Propose,
    Quiescence,
    ReadIndex,
    Ready,
    Receive,
    Role,
    Silence,
    SnapshotAck,
    SnapshotChunk,
    SnapshotReceived,
    Tick,
    Wake,
)
from cluster.wire.liveness import NodeLiveness
from cluster.wire.messages import GroupMessages
from cluster.wire.peers import spoken

MS = 1_000_000
encode = msgspec.msgpack.encode
decode_entries = msgspec.msgpack.Decoder(list[Entry]).decode

STREAMS = StreamOptions(chunk_bytes=64, window_chunks=2, retry_ns=200 * MS, give_up_ns=1_000 * MS)


def members(names: Iterable[str]) -> tuple[Member, ...]:
    return tuple(Member(name, f"{name}:7") for name in names)


def founded(names: Iterable[str]) -> Configuration:
    """What the founding voters of a group are bootstrapped with."""
    return configuration_of(bootstrap(members(names))[1])


@dataclass
class Node:
    """One node: `disk_*` survives a crash, the rest doesn't. `staged` is a received snapshot that isn't stored yet."""

    name: str
    streams: MemoryStreams
    liveness: NodeLiveness
    raft: Raft | None = None
    disk_hard: HardState = field(default_factory=HardState)
    disk_snapshot: Snapshot | None = None
    disk_entries: list[Entry] = field(default_factory=list)
    queue: deque[tuple[int, Persist]] = field(default_factory=deque)
    applied: list[Entry] = field(default_factory=list)
    staged: Snapshot | None = None
    wake_ns: int = 0
    paused: bool = False
    rate: float = 1.0
    clock_origin_ns: int = 0
    clock_since_ns: int = 0
    fsync_ns: int = MS // 2
    starts: int = 0

    def clock_ns(self, now_ns: int) -> int:
        return self.clock_origin_ns + int((now_ns - self.clock_since_ns) * self.rate)

    def holds(self, entry: Entry) -> bool:
        """Whether the entry would survive a crash of this node."""
        if self.disk_snapshot is not None and entry.index <= self.disk_snapshot.meta.index:
            return True
        return any(each.index == entry.index and each.term == entry.term for each in self.disk_entries)

    def write(self, persist: Persist) -> None:
        if persist.hard_state is not None:
            self.disk_hard = persist.hard_state
        if persist.snapshot is not None:
            assert self.staged is not None and self.staged.meta == persist.snapshot
            self.disk_snapshot = self.staged
            self.disk_entries = []
        if persist.entries:
            first = persist.entries[0].index
            base = self.disk_snapshot.meta.index if self.disk_snapshot else 0
            assert first <= base + len(self.disk_entries) + 1, "a gap in the stored log"
            kept = [entry for entry in self.disk_entries if entry.index < first]
            self.disk_entries = kept + [entry for entry in persist.entries if entry.index > base]


class RaftRig:
    """Nodes `a`, `b`, … under the test's control: `size` founding voters, then `spares` with empty disks."""

    def __init__(
        self, size: int = 3, seed: int = 0, flaws: Iterable[str] = (), spares: int = 0, **options: Any
    ) -> None:
        self.names = tuple("abcdefg"[: size + spares])
        self.options: dict[str, Any] = {"flaws": frozenset(flaws), **options}
        self.entropy = random.Random(seed)
        self.now_ns = 0
        self.delay_ns: Callable[[], int] = lambda: MS
        self.flights: list[Flight] = []
        self.cuts: list[tuple[str, str]] = []
        self.asleep: list[str] = []
        self.lives = 0
        self.nodes = {name: Node(name, MemoryStreams(name, STREAMS), self.new_liveness()) for name in self.names}
        for name in self.names[:size]:
            self.nodes[name].disk_hard, first = bootstrap(members(self.names[:size]))
            self.nodes[name].disk_entries = [first]
        self.sent = 0
        self.contexts = 0
        self.reads: dict[int, int | None] = {}
        self.changes: dict[int, ChangeResult] = {}
        self.configured: list[tuple[str, ...]] = []
        self.installed = 0
        self.quiesced: list[tuple[str, str]] = []
        self.proposed: dict[tuple[str, int, int], bytes] = {}
        self.acknowledged: list[tuple[int, int, bytes]] = []
        self.transcript: list[str] | None = None
        self.invariants = Invariants(self)
        for name in self.names:
            self.start(name)

    @property
    def violations(self) -> list[str]:
        return self.invariants.violations

    def raft(self, name: str) -> Raft:
        raft = self.nodes[name].raft
        assert raft is not None, f"{name} is down"
        return raft

    def alive(self) -> list[str]:
        return [name for name in self.names if self.nodes[name].raft is not None]

    def leader(self) -> str:
        """The leader of the highest term."""
        leaders = [name for name in self.alive() if self.raft(name).role is Role.LEADER]
        return max(leaders, key=lambda name: self.raft(name).term)

    def commands(self, name: str) -> list[bytes]:
        """What the state machine of a node has been given."""
        return [entry.data for entry in self.nodes[name].applied if entry.kind == EntryKind.COMMAND]

    # ---- processes ----

    def start(self, name: str) -> None:
        node = self.nodes[name]
        node.clock_origin_ns = self.entropy.randrange(10**6) * MS
        node.clock_since_ns = self.now_ns
        restarted = node.starts > 0
        node.starts += 1
        node.applied = decode_entries(node.disk_snapshot.data) if node.disk_snapshot else []
        node.raft = Raft(
            RaftConfig(name, **self.options),
            PersistentState(
                node.disk_hard, node.disk_snapshot.meta if node.disk_snapshot else None, tuple(node.disk_entries)
            ),
            node.clock_ns(self.now_ns),
            random.Random(self.entropy.getrandbits(64)),
            restarted,
            node.liveness,
        )
        self.step(name, Tick())

    def new_liveness(self) -> NodeLiveness:
        config = RaftConfig("", **self.options)
        self.lives += 1
        ends = RigEnds(lambda: self.now_ns, self.lives % 3 == 0)
        return NodeLiveness(config.heartbeat_ns, config.election_timeout_ns, lambda server: None, ends)

    def crash(self, *names: str) -> None:
        """Lose everything that isn't durable; what has left for the network stays under way."""
        for name in names:
            node = self.nodes[name]
            node.raft = None
            node.staged = None
            node.streams = MemoryStreams(name, STREAMS)
            node.liveness = self.new_liveness()
            node.queue.clear()
            node.paused = False
            self.invariants.forget(name)
            self.note(f"{name} crashes")

    def set_rate(self, name: str, rate: float) -> None:
        node = self.nodes[name]
        node.clock_origin_ns = node.clock_ns(self.now_ns)
        node.clock_since_ns = self.now_ns
        node.rate = rate

    # ---- network ----

    def cut(self, source: str, target: str) -> None:
        """Drop what `source` sends to `target` and what is under way, one way; what is due has arrived already."""
        self.cuts.append((source, target))
        self.flights = [each for each in self.flights if each.due_ns <= self.now_ns or not self.is_cut(each.message)]

    def isolate(self, *names: str) -> None:
        """Cut the named nodes off from all others, both ways."""
        for inside in names:
            for outside in self.names:
                if outside not in names:
                    self.cut(inside, outside)
                    self.cut(outside, inside)

    def heal(self) -> None:
        self.cuts.clear()

    def is_cut(self, message: Message | Beat) -> bool:
        return (message.source, message.target) in self.cuts

    def send(self, messages: Iterable[Message | Beat]) -> None:
        for message in messages:
            if not self.is_cut(message):
                self.sent += 1
                sender = self.nodes[message.source]
                stamp = (sender.starts, sender.liveness.withdrawals(message.target))
                self.flights.append(Flight(self.now_ns + self.delay_ns(), self.sent, message, *stamp))

    def deliver(self, flight: Flight, keep: bool = False) -> None:
        """Deliver one message, any time after it was sent; `keep` leaves a duplicate under way."""
        if not keep:
            self.flights.remove(flight)
        message, node = flight.message, self.nodes[flight.message.target]
        if node.raft is None:
            return
        current = node.liveness.take_in(message.source, flight.epoch, flight.withdrawals)
        if isinstance(message, Beat):
            if current:
                self.take_beat(node, message)
            return
        self.note(f"{message.source} -> {message.target}: {describe(message)}")
        self.take_in(node.name, message if current else spoken(GroupMessages("", (message,))).messages[0])

    def take_beat(self, node: Node, beat: Beat) -> None:
        now_ns = node.clock_ns(self.now_ns)
        if beat.heartbeat_ns:
            node.liveness.on_heartbeat(beat.source, now_ns, beat.until)
            self.send((Beat(node.name, beat.source, echo_ns=beat.heartbeat_ns, until=beat.until),))
        else:
            node.liveness.on_echo(beat.source, beat.echo_ns, now_ns, beat.until)

    def beat(self, name: str) -> None:
        """What a node's timer of heartbeats to other nodes does."""
        now_ns, node = self.nodes[name].clock_ns(self.now_ns), self.nodes[name].liveness
        self.send([Beat(name, each, heartbeat_ns=now_ns, until=node.next_end()) for each in node.poll(now_ns)])

    def take_in(self, name: str, message: Message) -> None:
        """What a driver does with a message: those of snapshots are its own."""
        node = self.nodes[name]
        if isinstance(message, SnapshotChunk):
            ack, snapshot = node.streams.on_chunk(message, self.raft(name).commit_index)
            self.send((ack,))
            if snapshot is not None:
                self.persist(name, len(node.queue))
                node.staged = snapshot
                self.step(name, SnapshotReceived(message.source, message.term, snapshot.meta))
        elif isinstance(message, SnapshotAck):
            node.streams.on_ack(message, node.clock_ns(self.now_ns))
            self.poll_streams(name)
        else:
            self.step(name, Receive(message))

    def poll_streams(self, name: str) -> None:
        node = self.nodes[name]
        chunks, ended = node.streams.poll(node.clock_ns(self.now_ns))
        self.send(chunks)
        for event in ended:
            self.step(name, event)

    def withdraw(self, name: str, server: str) -> None:
        """End what a node supports of another, as some other group between the two does."""
        node, ignore = self.nodes[name], lambda: None
        for silence in (Silence.FOLLOWS, Silence.WITHDRAWN):
            node.liveness.changed("other", Quiescence(silence, (server,)), ignore, node.clock_ns(self.now_ns))

    # ---- events ----

    def step(self, name: str, event: Event) -> Ready:
        node = self.nodes[name]
        try:
            ready = self.raft(name).step(event, node.clock_ns(self.now_ns))
        except InvariantBroken as error:
            self.invariants.broken("committed prefix", f"{name} stops: {error}")
            self.crash(name)
            return Ready()
        node.wake_ns = ready.wake_ns
        if ready.quiescence is not None:
            self.quiesced.append((name, str(ready.quiescence.silence)))
            wake = partial(self.step, name, Wake())
            node.liveness.changed("group", ready.quiescence, wake, node.clock_ns(self.now_ns))
        if ready.soft_state is not None:
            soft = ready.soft_state
            self.note(f"{name}: {soft.role} in term {soft.term}, leader {soft.leader}")
        self.send(ready.send_now)
        if ready.persist is not None:
            self.note(f"{name} persists {describe_persist(ready.persist)}")
            node.queue.append((self.now_ns + node.fsync_ns, ready.persist))
        if ready.configuration is not None:
            self.configured.append(ready.configuration.voter_ids)
            self.note(f"{name} uses {describe_configuration(ready.configuration)}")
        if ready.install is not None:
            assert node.staged is not None and node.staged.meta == ready.install
            node.applied = decode_entries(node.staged.data)
            self.installed += 1
            self.note(f"{name} installs the snapshot up to {ready.install.index}")
        for entry in ready.apply:
            self.apply(node, entry)
        for read in ready.reads:
            self.reads[read.context] = read.index
            self.invariants.read_served(name, read.context, read.index)
        for context in ready.failed_reads:
            self.reads[context] = None
        for result in ready.changes:
            self.changes[result.context] = result
            if result.position is None:
                self.note(f"{name} refuses: {result.message}")
            else:
                self.invariants.members_change(name)
        self.invariants.after_step(name)
        self.stream(node, ready)
        return ready

    def stream(self, node: Node, ready: Ready) -> None:
        """The driver's part in snapshots: send what Raft asks for while this node leads."""
        if ready.soft_state is not None and ready.soft_state.role is not Role.LEADER:
            node.streams.stop()
        for order in ready.send_snapshots:
            assert node.disk_snapshot is not None and node.disk_snapshot.meta == order.meta
            node.streams.begin(order, node.disk_snapshot, node.clock_ns(self.now_ns))
        if ready.send_snapshots:
            self.poll_streams(node.name)

    def apply(self, node: Node, entry: Entry) -> None:
        node.applied.append(entry)
        self.note(f"{node.name} applies {describe_entry(entry)}")
        command = self.proposed.pop((node.name, entry.term, entry.index), None)
        if command is not None:
            self.acknowledged.append((entry.term, entry.index, command))

    def tick(self, name: str) -> None:
        self.step(name, Tick())
        if self.nodes[name].raft is not None:
            self.poll_streams(name)
            self.beat(name)

    def persist(self, name: str, count: int = 1) -> None:
        """Make the oldest `count` writes of a node durable."""
        node = self.nodes[name]
        for _ in range(min(count, len(node.queue))):
            _, persist = node.queue.popleft()
            node.write(persist)
            self.send(persist.then_send)
            self.step(name, Persisted(persist.sequence))
            if node.raft is None:
                return

    def propose(self, name: str, command: bytes) -> bool:
        ready = self.step(name, Propose((command,)))
        if ready.proposed is not None:
            ((term, index),) = ready.proposed
            self.proposed[name, term, index] = command
        return ready.proposed is not None

    def read(self, name: str) -> int:
        """Ask for a linearizable read; the result will be in `reads` under the context returned."""
        self.contexts += 1
        self.invariants.read_asked(self.contexts)
        self.step(name, ReadIndex(self.contexts))
        return self.contexts

    def transfer(self, name: str, target: str) -> None:
        self.step(name, HandOverTo(target))

    def hand_over(self, name: str, wanted: bool = True) -> None:
        self.step(name, HandOver(wanted))

    def change(self, name: str, kind: ChangeKind, server_id: str, expected: OpId | None = None) -> int:
        """Ask for a change of the configuration; the result will be in `changes` under the context returned."""
        self.contexts += 1
        expected = self.raft(name).configuration.op_id if expected is None else expected
        (member,) = members((server_id,))
        self.step(name, ChangeMembership(self.contexts, kind, member, expected))
        return self.contexts

    def compact(self, name: str) -> None:
        """Snapshot what is applied, durably, and compact."""
        node = self.nodes[name]
        self.persist(name, len(node.queue))
        if node.raft is None or not node.applied:
            return
        meta = node.raft.snapshot_meta(node.applied[-1].index)
        if meta is None or (node.disk_snapshot is not None and node.disk_snapshot.meta.index >= meta.index):
            return
        node.disk_snapshot = Snapshot(meta, encode(node.applied))
        node.disk_entries = [entry for entry in node.disk_entries if entry.index > meta.index]
        self.step(name, Compact(meta))

    # ---- time ----

    def run(self, milliseconds: float) -> None:
        """Let time pass: messages arrive, writes become durable and timers fire when they are due."""
        end_ns = self.now_ns + int(milliseconds * MS)
        while True:
            due = [each for each in self.flights if not self.nodes[each.message.target].paused]
            flight = min(due, default=None)
            writer = min(self.running(lambda node: bool(node.queue)), key=lambda n: n.queue[0][0], default=None)
            timer = min(self.running(lambda node: node.name not in self.asleep), key=self.wake_real_ns, default=None)
            times = [
                flight.due_ns if flight else end_ns + 1,
                writer.queue[0][0] if writer else end_ns + 1,
                self.wake_real_ns(timer) if timer else end_ns + 1,
            ]
            first = min(times)
            if first > end_ns:
                break
            self.now_ns = max(self.now_ns, first)
            if flight and first == times[0]:
                self.deliver(flight)
            elif writer and first == times[1]:
                self.persist(writer.name)
            elif timer:
                self.tick(timer.name)
        self.now_ns = end_ns

    def run_until(self, condition: Callable[[], bool], milliseconds: float = 5_000, grain: float = 0.25) -> bool:
        """Let time pass until `condition()` holds; False if it doesn't come true in time."""
        end_ns = self.now_ns + int(milliseconds * MS)
        while not condition():
            if self.now_ns >= end_ns:
                return False
            self.run(grain)
        return True

    def running(self, condition: Callable[[Node], bool]) -> list[Node]:
        return [n for n in self.nodes.values() if n.raft is not None and not n.paused and condition(n)]

    def wake_real_ns(self, node: Node) -> int:
        beat_ns = node.liveness.next_ns()
        wake_ns = node.wake_ns if beat_ns is None else min(node.wake_ns, beat_ns)
        return node.clock_since_ns + int((wake_ns - node.clock_origin_ns) / node.rate) + 1

    def stand(self, name: str) -> None:
        """Let the election timer of `name` alone run out; timers of others but leaders stand still until `wake_all`."""
        self.asleep = [other for other in self.alive() if other != name and self.raft(other).role is not Role.LEADER]
        self.run_until(lambda: self.raft(name).role is not Role.FOLLOWER, grain=0.5)

    def elect(self, name: str) -> None:
        """Make `name` the leader; its first entry is committed and known everywhere it can reach."""
        self.stand(name)
        self.run_until(lambda: self.raft(name).role is Role.LEADER)
        self.run(250)
        self.wake_all()

    def wake_all(self) -> None:
        self.asleep = []

    def lost_acknowledged(self) -> list[bytes]:
        """Acknowledged commands that the present leader's state machine lacks."""
        applied = [entry.data for entry in self.nodes[self.leader()].applied]
        return [command for _, _, command in self.acknowledged if command not in applied]

    # ---- transcripts ----

    def note(self, line: str) -> None:
        if self.transcript is not None:
            self.transcript.append(line)

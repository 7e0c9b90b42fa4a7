"""Snapshots on their way to and from one replica of a group: the driver's part of `cluster.raft.snapshots` (G5).

A chunk is a piece of a snapshot's file (`cluster.log.snapshots`). The sender reads each one from the file when its turn
comes, the receiver writes each one to a file as it comes, so that neither ever holds more than a window of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from cluster.knobs import Knobs
from cluster.log.envelope import CorruptLog
from cluster.log.replay import SnapshotRef
from cluster.log.snapshots import Contents, SnapshotFile
from cluster.log.view import GroupLog
from cluster.nodelog import node_logger
from cluster.raft.snapshots import IncomingSnapshot, ReadChunk, SnapshotStreams, StreamOptions
from cluster.raft.types import (
    Event,
    Message,
    SendSnapshot,
    SnapshotAck,
    SnapshotChunk,
    SnapshotReceived,
    SnapshotSent,
)
from harness.ports.api import Clock

_MS = 1_000_000
_CHEAP_BYTES = 1 << 20
"""A snapshot up to here costs next to nothing."""

_LONG_LOG_BYTES = 8 << 20
"""More of a group's log is never kept for want of a snapshot: it is held in memory, and stated anew in one piece."""

Send: TypeAlias = Callable[[tuple[Message, ...]], None]
Step: TypeAlias = Callable[[Event], None]


def stream_options(knobs: Knobs) -> StreamOptions:
    """A stream is asked about again after an election timeout, and given up as a leadership without a quorum is."""
    election_ns = knobs.election_timeout_ms * _MS
    give_up_ns = knobs.check_quorum_ms * _MS or 4 * election_ns
    return StreamOptions(knobs.snapshot_chunk_bytes, knobs.snapshot_window_chunks, election_ns, give_up_ns)


@dataclass(slots=True)
class _Receipt:
    """The file that a snapshot is received into."""

    incoming: IncomingSnapshot
    file: SnapshotFile
    contents: Contents


@dataclass(slots=True)
class StoredSnapshot:
    """The snapshot that a replica stands on, up to `index`; `damaged` once its file could not be read."""

    ref: SnapshotRef | None = None
    damaged: bool = False
    index: int = 0

    def due(self, applied_index: int, log_bytes: int, entries: int) -> bool:
        """Whether a new one is due: `entries` after this one; a large state's when the log is worth it, or long."""
        behind = applied_index - self.index
        if self.damaged or log_bytes >= _LONG_LOG_BYTES:
            return behind > 0
        size = 0 if self.ref is None else self.ref.size
        return behind >= entries and (size <= _CHEAP_BYTES or log_bytes >= size // 4)

    def replace(self, ref: SnapshotRef) -> None:
        """A newer one takes its place."""
        self.ref, self.damaged, self.index = ref, False, ref.meta.index


@dataclass(slots=True)
class SnapshotTraffic:
    """Sends chunks and acknowledgements with `send`, and tells Raft with `step` what came of a stream.

    `stored` is what is sent. `commit_index` says what needs no snapshot; `rearm` is called where `next_wake_ns` moved.
    """

    node_id: str
    knobs: Knobs
    clock: Clock
    log: GroupLog
    send: Send
    step: Step
    commit_index: Callable[[], int]
    rearm: Callable[[], None]
    stored: StoredSnapshot = field(default_factory=StoredSnapshot)
    sends: Mapping[str, object] = field(init=False)
    _streams: SnapshotStreams = field(init=False)
    _sources: dict[str, tuple[SendSnapshot, SnapshotRef]] = field(default_factory=dict)
    _receipt: _Receipt | None = None
    _received: SnapshotRef | None = None
    _arrived: deque[SnapshotChunk] = field(default_factory=deque)
    _writing: bool = False
    _tasks: dict[asyncio.Task[None], None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._streams = SnapshotStreams(self.node_id, stream_options(self.knobs))
        self.sends = self._streams.outgoing

    @property
    def next_wake_ns(self) -> int | None:
        """When `poll` is due next."""
        return self._streams.next_wake_ns()

    def close(self) -> None:
        """Send, read and write nothing any more."""
        self.stop()
        for task in list(self._tasks):
            task.cancel()
        self._drop_receipt()

    def take(self, message: SnapshotChunk | SnapshotAck) -> None:
        """Take in a chunk or an acknowledgement; chunks are taken in one after another."""
        if isinstance(message, SnapshotAck):
            now_ns = self.clock.monotonic_ns()
            self._streams.on_ack(message, now_ns)
            self.poll(now_ns)
        elif not self._writing:
            self._consider(message)
        elif len(self._arrived) < 2 * self.knobs.snapshot_window_chunks:
            self._arrived.append(message)

    def take_received(self) -> SnapshotRef:
        """The snapshot that Raft installs: from now on it is the one to send, if this replica comes to lead."""
        received, self._received = self._received, None
        if received is None:
            raise RuntimeError("Raft installs a snapshot that was not received")
        self.stored.replace(received)
        return received

    # ---- sending ----

    def begin(self, orders: tuple[SendSnapshot, ...]) -> None:
        """Stream the stored snapshot to whom Raft says; one that a newer one has just replaced can't be sent."""
        now_ns = self.clock.monotonic_ns()
        for order in orders:
            ref = self.stored.ref
            if ref is not None and ref.meta == order.meta and not self.stored.damaged:
                self.log.pin(ref)
                self._let_go(order.target)
                self._sources[order.target] = (order, ref)
                self._streams.begin(order, ref.size, now_ns)
            else:
                self.step(SnapshotSent(order.target, order.meta.index, delivered=False))
        self.poll(now_ns)

    def stop(self) -> None:
        """This replica does not lead any more."""
        self._streams.stop()
        for target in list(self._sources):
            self._let_go(target)

    def poll(self, now_ns: int) -> None:
        """Send what is due."""
        offers, reads, ended = self._streams.poll(now_ns)
        if offers:
            self.send(tuple(offers))
        for read in reads:
            self._spawn(self._read(read, self._sources[read.order.target][1]))
        self._end(ended)

    async def _read(self, read: ReadChunk, ref: SnapshotRef) -> None:
        """Read one chunk of a file and send it."""
        self.log.pin(ref)
        try:
            piece = await self.log.read_snapshot(ref, read.offset, self.knobs.snapshot_chunk_bytes)
        except CorruptLog as error:
            node_logger(self.node_id).error("%s: the snapshot can't be sent: %s", self.log.group, error)
            self.stored.damaged = self.stored.damaged or ref == self.stored.ref
            self._end(self._streams.unreadable(read))
            return
        finally:
            self.log.unpin(ref)
        chunk = self._streams.chunk(read, piece)
        if chunk is not None:
            self.send((chunk,))
        self.poll(self.clock.monotonic_ns())
        self.rearm()

    def _end(self, ended: list[SnapshotSent]) -> None:
        for event in ended:
            self._let_go(event.target)
            self.step(event)

    def _let_go(self, target: str) -> None:
        source = self._sources.pop(target, None)
        if source is not None:
            self.log.unpin(source[1])

    # ---- receiving ----

    def _consider(self, chunk: SnapshotChunk) -> None:
        ack = self._streams.on_chunk(chunk, self.commit_index())
        if self._receipt is not None and self._receipt.incoming is not self._streams.incoming:
            self._drop_receipt()
        if ack is not None:
            self.send((ack,))
        else:
            self._writing = True
            self._spawn(self._write(chunk))

    async def _write(self, chunk: SnapshotChunk) -> None:
        """Write a chunk to the file that it continues, and acknowledge it; then take in what has come meanwhile."""
        receipt = self._receipt = self._receipt or self._new_receipt(chunk)
        try:
            receipt.contents.take(chunk.data)
        except CorruptLog as error:
            node_logger(self.node_id).warning("%s: a chunk of %s is refused: %s", self.log.group, chunk.source, error)
            self.send((self._streams.written(chunk, kept=False, whole=False),))
        else:
            await receipt.file.write(chunk.data)
            if receipt.contents.whole:
                ref = await receipt.file.finish()
                self._receipt = None
                ack = self._streams.written(chunk, kept=True, whole=True)
                self._complete(chunk, ref)
            else:
                ack = self._streams.written(chunk, kept=True, whole=False)
            self.send((ack,))
        self._writing = False
        while self._arrived and not self._writing:
            self._consider(self._arrived.popleft())

    def _new_receipt(self, chunk: SnapshotChunk) -> _Receipt:
        if self._streams.incoming is None:
            raise RuntimeError("a chunk is written that belongs to nothing")
        return _Receipt(self._streams.incoming, self.log.snapshot_file(chunk.meta), Contents(chunk.meta))

    def _complete(self, chunk: SnapshotChunk, ref: SnapshotRef) -> None:
        """All is here and durable: Raft decides whether to use it (see `take_received`)."""
        self._received = ref
        self.step(SnapshotReceived(chunk.source, chunk.term, ref.meta))
        if self._received is not None:
            self._received = None
            self.log.discard(ref.path)

    def _drop_receipt(self) -> None:
        """What was received of a snapshot is of no use any more."""
        receipt, self._receipt = self._receipt, None
        if receipt is not None:
            self.log.discard(receipt.file.path)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self.log.spawn(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

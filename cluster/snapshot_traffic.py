"""Snapshots on their way to and from one replica of a group: the driver's part of `cluster.raft.snapshots` (G5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from cluster.config import Knobs
from cluster.raft.snapshots import SnapshotStreams, StreamOptions
from cluster.raft.types import (
    Event,
    Message,
    SendSnapshot,
    Snapshot,
    SnapshotAck,
    SnapshotChunk,
    SnapshotReceived,
    SnapshotSent,
)

_MS = 1_000_000

Send: TypeAlias = Callable[[tuple[Message, ...]], None]
Step: TypeAlias = Callable[[Event], None]


def stream_options(knobs: Knobs) -> StreamOptions:
    """A stream is asked about again after an election timeout, and given up as a leadership without a quorum is."""
    election_ns = knobs.election_timeout_ms * _MS
    give_up_ns = knobs.check_quorum_ms * _MS or 4 * election_ns
    return StreamOptions(knobs.snapshot_chunk_bytes, knobs.snapshot_window_chunks, election_ns, give_up_ns)


class SnapshotTraffic:
    """Sends chunks and acknowledgements with `send`, and tells Raft with `step` what came of a stream."""

    def __init__(self, node_id: str, knobs: Knobs, send: Send, step: Step) -> None:
        self._streams = SnapshotStreams(node_id, stream_options(knobs))
        self._send, self._step = send, step
        self.received: Snapshot | None = None

    @property
    def next_wake_ns(self) -> int | None:
        """When `poll` is due next."""
        return self._streams.next_wake_ns()

    def begin(self, orders: tuple[SendSnapshot, ...], stored: Snapshot | None, now_ns: int) -> None:
        """Stream the stored snapshot to whom Raft says; one that a newer one has just replaced can't be sent."""
        for order in orders:
            if stored is not None and stored.meta == order.meta:
                self._streams.begin(order, stored, now_ns)
            else:
                self._step(SnapshotSent(order.target, order.meta.index, delivered=False))
        self.poll(now_ns)

    def stop(self) -> None:
        """This replica does not lead any more."""
        self._streams.stop()

    def take(self, message: SnapshotChunk | SnapshotAck, commit_index: int, now_ns: int) -> None:
        """Take in a chunk or an acknowledgement; a complete snapshot is in `received` while Raft decides."""
        if isinstance(message, SnapshotAck):
            self._streams.on_ack(message, now_ns)
            self.poll(now_ns)
            return
        ack, snapshot = self._streams.on_chunk(message, commit_index)
        if snapshot is not None:
            self.received = snapshot
            self._step(SnapshotReceived(message.source, message.term, snapshot.meta))
            self.received = None
        self._send((ack,))

    def poll(self, now_ns: int) -> None:
        """Send what is due."""
        chunks, ended = self._streams.poll(now_ns)
        if chunks:
            self._send(tuple(chunks))
        for event in ended:
            self._step(event)

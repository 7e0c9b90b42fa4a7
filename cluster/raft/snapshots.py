"""Snapshots on their way, in chunks (§5, figure 5.3), as pure state: what a leader sends and a follower puts together.

A stream begins with an offer; the acknowledgement says from where on the receiver wants bytes. A window of chunks is
under way. Where nothing new is acknowledged for a while the offer is made again, so that a stream goes on where it
was cut, or from the start if the receiver has crashed. A receiver keeps one snapshot at a time: one of a later term or
index replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cluster.raft.types import NodeId, SendSnapshot, Snapshot, SnapshotAck, SnapshotChunk, SnapshotMeta, SnapshotSent


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Sizes of chunks and windows; `retry_ns` without progress asks anew, `give_up_ns` without an answer ends it."""

    chunk_bytes: int
    window_chunks: int
    retry_ns: int
    give_up_ns: int


@dataclass(slots=True)
class OutgoingSnapshot:
    """One snapshot being sent to one follower: `acked` bytes are there (None: the offer is open), `sent` have left."""

    order: SendSnapshot
    size: int
    answered_ns: int
    retry_at_ns: int
    acked: int | None = None
    sent: int = 0
    done: bool = False

    def on_ack(self, ack: SnapshotAck, now_ns: int, options: StreamOptions) -> None:
        """Go on from where the receiver stands; an acknowledgement that tells nothing new is a sign of life only."""
        self.answered_ns = now_ns
        self.done = self.done or ack.done
        if self.acked is None or ack.offset > self.acked:
            self.acked = ack.offset
            self.sent = max(self.sent, ack.offset)
            self.retry_at_ns = now_ns + options.retry_ns

    def due(self, now_ns: int, options: StreamOptions) -> list[tuple[int, int]]:
        """The (offset, size) of each chunk to send now; (0, 0) is the offer."""
        if now_ns >= self.retry_at_ns:
            self.retry_at_ns = now_ns + options.retry_ns
            self.acked = None
            self.sent = 0
            return [(0, 0)]
        if self.acked is None:
            return []
        chunks = []
        while self.sent < min(self.size, self.acked + options.window_chunks * options.chunk_bytes):
            size = min(options.chunk_bytes, self.size - self.sent)
            chunks.append((self.sent, size))
            self.sent += size
        return chunks


@dataclass(slots=True)
class IncomingSnapshot:
    """What has come of one snapshot from one sender, in order and without gaps."""

    source: NodeId
    term: int
    meta: SnapshotMeta
    size: int = 0
    parts: list[bytes] = field(default_factory=list)

    def is_of(self, chunk: SnapshotChunk) -> bool:
        """Bytes of two senders are never mixed: equal states may be written down in two ways."""
        return (self.source, self.meta) == (chunk.source, chunk.meta)

    def outranks(self, chunk: SnapshotChunk) -> bool:
        """Whether the chunk is a late one: of a deposed leader, or of a snapshot that a newer one has replaced."""
        return (chunk.term, chunk.meta.index) < (self.term, self.meta.index)

    def add(self, chunk: SnapshotChunk) -> bool:
        """Take a chunk if it is the next one; True if it completes the snapshot."""
        if chunk.offset != self.size or (not chunk.data and not chunk.last):
            return False
        self.parts.append(chunk.data)
        self.size += len(chunk.data)
        return chunk.last


class SnapshotStreams:
    """The streams of one group at one node: any number out while it leads, one in."""

    def __init__(self, node_id: NodeId, options: StreamOptions) -> None:
        self._node_id, self._options = node_id, options
        self._outgoing: dict[NodeId, tuple[OutgoingSnapshot, Snapshot]] = {}
        self._incoming: IncomingSnapshot | None = None

    def begin(self, order: SendSnapshot, snapshot: Snapshot, now_ns: int) -> None:
        """Stream a snapshot; it is kept until the stream ends, also when a newer one replaces it in storage."""
        outgoing = OutgoingSnapshot(order, max(1, len(snapshot.data)), now_ns, retry_at_ns=now_ns)
        self._outgoing[order.target] = (outgoing, snapshot)

    def stop(self) -> None:
        """Leadership is over: nothing is sent any more."""
        self._outgoing.clear()

    def on_ack(self, ack: SnapshotAck, now_ns: int) -> None:
        """Take an acknowledgement in; one for another stream than the present one means nothing."""
        outgoing, _ = self._outgoing.get(ack.source, (None, None))
        if outgoing is None:
            return
        order = outgoing.order
        if (order.term, order.meta.index, order.meta.term) == (ack.term, ack.index, ack.meta_term):
            outgoing.on_ack(ack, now_ns, self._options)

    def poll(self, now_ns: int) -> tuple[list[SnapshotChunk], list[SnapshotSent]]:
        """Chunks to send now, and the streams that have ended."""
        chunks: list[SnapshotChunk] = []
        ended: list[SnapshotSent] = []
        for target, (outgoing, snapshot) in list(self._outgoing.items()):
            silent = now_ns - outgoing.answered_ns >= self._options.give_up_ns
            if outgoing.done or silent:
                del self._outgoing[target]
                ended.append(SnapshotSent(target, outgoing.order.meta.index, outgoing.done))
            else:
                due = outgoing.due(now_ns, self._options)
                chunks.extend(self._chunk(outgoing, snapshot, offset, size) for offset, size in due)
        return chunks, ended

    def next_wake_ns(self) -> int | None:
        """When `poll` has something to do without any event, if ever."""
        if not self._outgoing:
            return None
        times = [
            min(outgoing.retry_at_ns, outgoing.answered_ns + self._options.give_up_ns)
            for outgoing, _ in self._outgoing.values()
        ]
        return min(times)

    def on_chunk(self, chunk: SnapshotChunk, commit_index: int) -> tuple[SnapshotAck, Snapshot | None]:
        """Take a chunk in; the acknowledgement to send, and the snapshot if this chunk completes it.

        `commit_index` is what this node knows to be committed: it needs no snapshot of that.
        """
        if chunk.meta.index <= commit_index:
            return self._ack(chunk, 0, done=True), None
        incoming = self._incoming
        if incoming is not None and incoming.outranks(chunk):
            return self._ack(chunk, 0, done=False), None
        if incoming is None or not incoming.is_of(chunk):
            incoming = self._incoming = IncomingSnapshot(chunk.source, chunk.term, chunk.meta)
        incoming.term = chunk.term
        if not incoming.add(chunk):
            return self._ack(chunk, incoming.size, done=False), None
        self._incoming = None
        return self._ack(chunk, incoming.size, done=True), Snapshot(incoming.meta, b"".join(incoming.parts))

    def _chunk(self, outgoing: OutgoingSnapshot, snapshot: Snapshot, offset: int, size: int) -> SnapshotChunk:
        order = outgoing.order
        last = size > 0 and offset + size >= outgoing.size
        data = snapshot.data[offset : offset + size]
        return SnapshotChunk(self._node_id, order.target, order.term, order.meta, offset, data, last)

    def _ack(self, chunk: SnapshotChunk, offset: int, done: bool) -> SnapshotAck:
        meta = chunk.meta
        return SnapshotAck(self._node_id, chunk.source, chunk.term, meta.index, meta.term, offset, done)

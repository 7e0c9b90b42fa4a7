"""Snapshots on their way, in chunks (§5, figure 5.3), as pure state: what a leader sends and a follower takes in.

A stream begins with an offer; the acknowledgement says from where on the receiver wants bytes. A window of chunks is
under way. Where nothing new is acknowledged for a while the offer is made again, so that a stream goes on where it
was cut, or from the start if the receiver has crashed. A receiver takes one snapshot in at a time: one of a later term
or index replaces it. The bytes are at the rim: the driver reads a chunk when it is asked for one, and says what it has
written.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.raft.types import NodeId, SendSnapshot, SnapshotAck, SnapshotChunk, SnapshotMeta, SnapshotSent


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Sizes of chunks and windows; `retry_ns` without progress asks anew, `give_up_ns` without an answer ends it."""

    chunk_bytes: int
    window_chunks: int
    retry_ns: int
    give_up_ns: int


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """The driver is to read the chunk at `offset` of the snapshot that is streamed by this order."""

    order: SendSnapshot
    offset: int


@dataclass(slots=True)
class OutgoingSnapshot:
    """One snapshot being sent to one follower. Invariant: acked <= sent <= size, all in bytes of its file."""

    order: SendSnapshot
    size: int
    # When the follower answered last, and when the offer is made again unless something new is acknowledged.
    answered_ns: int
    retry_at_ns: int
    # So much is there, and so much has left; None: the offer is open.
    acked: int | None = None
    sent: int = 0
    # The driver reads the next chunk: one at a time, as only then it is known where it ends.
    reading: bool = False
    # The follower has all it needs.
    done: bool = False

    def on_ack(self, ack: SnapshotAck, now_ns: int, options: StreamOptions) -> None:
        """Go on from where the receiver stands; an acknowledgement that tells nothing new is a sign of life only."""
        self.answered_ns = now_ns
        self.done = self.done or ack.done
        if self.acked is None or ack.offset > self.acked:
            self.acked = ack.offset
            self.sent = max(self.sent, ack.offset)
            self.retry_at_ns = now_ns + options.retry_ns

    def offers(self, now_ns: int, options: StreamOptions) -> bool:
        """Whether the offer is to be made now, for the first time or again."""
        if now_ns < self.retry_at_ns:
            return False
        self.retry_at_ns = now_ns + options.retry_ns
        self.acked = None
        self.sent = 0
        return True

    def wants_chunk(self, options: StreamOptions) -> bool:
        """Whether the window allows for one more chunk."""
        if self.acked is None or self.reading:
            return False
        return self.sent < min(self.size, self.acked + options.window_chunks * options.chunk_bytes)


@dataclass(slots=True)
class IncomingSnapshot:
    """One snapshot from one sender, of which `size` bytes are written, in order and without gaps."""

    source: NodeId
    term: int
    meta: SnapshotMeta
    size: int = 0

    def is_of(self, chunk: SnapshotChunk) -> bool:
        """Bytes of two senders are never mixed: equal states may be written down in two ways."""
        return (self.source, self.meta) == (chunk.source, chunk.meta)

    def outranks(self, chunk: SnapshotChunk) -> bool:
        """Whether the chunk is a late one: of a deposed leader, or of a snapshot that a newer one has replaced."""
        return (chunk.term, chunk.meta.index) < (self.term, self.meta.index)


class SnapshotStreams:
    """The streams of one group at one node: any number out while it leads, one in."""

    def __init__(self, node_id: NodeId, options: StreamOptions) -> None:
        self._node_id, self._options = node_id, options
        self.outgoing: dict[NodeId, OutgoingSnapshot] = {}
        self.incoming: IncomingSnapshot | None = None

    # ---- sending ----

    def begin(self, order: SendSnapshot, size: int, now_ns: int) -> None:
        """Stream a snapshot of `size` bytes; it replaces the stream to the same follower."""
        self.outgoing[order.target] = OutgoingSnapshot(order, size, now_ns, retry_at_ns=now_ns)

    def stop(self) -> None:
        """Leadership is over: nothing is sent any more."""
        self.outgoing.clear()

    def streams(self, order: SendSnapshot) -> bool:
        """Whether what was ordered is still under way."""
        outgoing = self.outgoing.get(order.target)
        return outgoing is not None and outgoing.order is order

    def on_ack(self, ack: SnapshotAck, now_ns: int) -> None:
        """Take an acknowledgement in; one for another stream than the present one means nothing."""
        outgoing = self.outgoing.get(ack.source)
        if outgoing is None:
            return
        order = outgoing.order
        if (order.term, order.meta.index, order.meta.term) == (ack.term, ack.index, ack.meta_term):
            outgoing.on_ack(ack, now_ns, self._options)

    def poll(self, now_ns: int) -> tuple[list[SnapshotChunk], list[ReadChunk], list[SnapshotSent]]:
        """Offers to send now, chunks to read now (see `chunk`), and the streams that have ended."""
        offers: list[SnapshotChunk] = []
        reads: list[ReadChunk] = []
        ended: list[SnapshotSent] = []
        for target, outgoing in list(self.outgoing.items()):
            order = outgoing.order
            silent = now_ns - outgoing.answered_ns >= self._options.give_up_ns
            if outgoing.done or silent:
                del self.outgoing[target]
                ended.append(SnapshotSent(target, order.meta.index, outgoing.done))
            elif outgoing.offers(now_ns, self._options):
                offers.append(self._chunk(order, 0, b"", last=False))
            elif outgoing.wants_chunk(self._options):
                outgoing.reading = True
                reads.append(ReadChunk(order, outgoing.sent))
        return offers, reads, ended

    def chunk(self, read: ReadChunk, data: bytes) -> SnapshotChunk | None:
        """What was read, to be sent now; None if the stream has ended or gone on from elsewhere meanwhile."""
        outgoing = self.outgoing.get(read.order.target)
        if outgoing is None or outgoing.order is not read.order:
            return None
        outgoing.reading = False
        if outgoing.acked is None or outgoing.sent != read.offset:
            return None
        outgoing.sent += len(data)
        return self._chunk(read.order, read.offset, data, last=outgoing.sent >= outgoing.size)

    def unreadable(self, read: ReadChunk) -> list[SnapshotSent]:
        """The chunk can't be read: its stream, if it is still under way, has ended."""
        if not self.streams(read.order):
            return []
        del self.outgoing[read.order.target]
        return [SnapshotSent(read.order.target, read.order.meta.index, delivered=False)]

    def next_wake_ns(self) -> int | None:
        """When `poll` has something to do without any event, if ever."""
        if not self.outgoing:
            return None
        times = [
            min(outgoing.retry_at_ns, outgoing.answered_ns + self._options.give_up_ns)
            for outgoing in self.outgoing.values()
        ]
        return min(times)

    # ---- receiving ----

    def on_chunk(self, chunk: SnapshotChunk, commit_index: int) -> SnapshotAck | None:
        """Take a chunk in: the acknowledgement to send, or None if its bytes are to be written now (see `written`).

        `commit_index` is what this node knows to be committed: it needs no snapshot of that. `incoming` is what the
        bytes belong to.
        """
        incoming = self.incoming
        if incoming is not None and incoming.meta.index <= commit_index:
            incoming = self.incoming = None
        if chunk.meta.index <= commit_index:
            return self._ack(chunk, 0, done=True)
        if incoming is not None and incoming.outranks(chunk):
            return self._ack(chunk, 0, done=False)
        if incoming is None or not incoming.is_of(chunk):
            incoming = self.incoming = IncomingSnapshot(chunk.source, chunk.term, chunk.meta)
        incoming.term = chunk.term
        if not chunk.data or chunk.offset != incoming.size:
            return self._ack(chunk, incoming.size, done=False)
        return None

    def written(self, chunk: SnapshotChunk, kept: bool, whole: bool) -> SnapshotAck:
        """The acknowledgement to send once the bytes of a chunk are written and `kept`, or were found damaged.

        `whole` if the snapshot is complete and durable with it: the next one is taken in from its start.
        """
        incoming = self.incoming
        if incoming is None or not incoming.is_of(chunk):
            return self._ack(chunk, 0, done=False)
        if kept:
            incoming.size += len(chunk.data)
        if whole:
            self.incoming = None
        return self._ack(chunk, incoming.size, done=whole)

    def _chunk(self, order: SendSnapshot, offset: int, data: bytes, last: bool) -> SnapshotChunk:
        return SnapshotChunk(self._node_id, order.target, order.term, order.meta, offset, data, last)

    def _ack(self, chunk: SnapshotChunk, offset: int, done: bool) -> SnapshotAck:
        meta = chunk.meta
        return SnapshotAck(self._node_id, chunk.source, chunk.term, meta.index, meta.term, offset, done)

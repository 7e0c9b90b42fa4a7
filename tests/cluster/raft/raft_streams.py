"""`SnapshotStreams` over bytes in memory, driven as `cluster.groups.snapshot_traffic` drives them over files."""

from __future__ import annotations

from typing import NamedTuple

from cluster.raft.snapshots import SnapshotStreams, StreamOptions
from cluster.raft.types import SendSnapshot, SnapshotAck, SnapshotChunk, SnapshotMeta, SnapshotSent


class Snapshot(NamedTuple):
    """A snapshot with its bytes."""

    meta: SnapshotMeta
    data: bytes


class MemoryStreams:
    """The streams of one node; every chunk is as large as the options allow."""

    def __init__(self, name: str, options: StreamOptions) -> None:
        self._streams, self._options = SnapshotStreams(name, options), options
        self._sources: dict[str, bytes] = {}
        self._written = b""

    def begin(self, order: SendSnapshot, snapshot: Snapshot, now_ns: int) -> None:
        self._sources[order.target] = snapshot.data
        self._streams.begin(order, len(snapshot.data), now_ns)

    def stop(self) -> None:
        self._streams.stop()

    def on_ack(self, ack: SnapshotAck, now_ns: int) -> None:
        self._streams.on_ack(ack, now_ns)

    def next_wake_ns(self) -> int | None:
        return self._streams.next_wake_ns()

    def poll(self, now_ns: int) -> tuple[list[SnapshotChunk], list[SnapshotSent]]:
        chunks: list[SnapshotChunk] = []
        ended: list[SnapshotSent] = []
        while True:
            offers, reads, over = self._streams.poll(now_ns)
            chunks += offers
            ended += over
            for read in reads:
                data = self._sources[read.order.target][read.offset : read.offset + self._options.chunk_bytes]
                chunk = self._streams.chunk(read, data)
                assert chunk is not None
                chunks.append(chunk)
            if not reads:
                return chunks, ended

    def on_chunk(self, chunk: SnapshotChunk, commit_index: int) -> tuple[SnapshotAck, Snapshot | None]:
        """The acknowledgement to send, and the snapshot if this chunk completes it."""
        ack = self._streams.on_chunk(chunk, commit_index)
        if ack is not None:
            return ack, None
        self._written = self._written[: chunk.offset] + chunk.data
        ack = self._streams.written(chunk, kept=True, whole=chunk.last)
        return ack, Snapshot(chunk.meta, self._written) if chunk.last else None

"""Snapshot files of groups: written, read and sent piece by piece, of no account until the node's log names them (G5).

A file is a head record (its `SnapshotMeta`), a record for each part of the state, and an end record (their number),
each with its checksum. A piece is some whole records that follow each other. It is what is read at once and sent at
once, so that a receiver's file is byte for byte the sender's, and each side checks every record that it passes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from cluster.log.envelope import HEADER, CorruptLog, frame, unframe
from cluster.log.paced import Pace, PacedFile
from cluster.log.replay import SnapshotRef
from cluster.raft.types import SnapshotMeta
from harness.ports.api import Clock, Disk

T = TypeVar("T")

SNAPSHOTS_PATH = "snapshots"
FILES_PATH = "sorted"

PIECE_BYTES = 1 << 18
"""How much of a snapshot is written or read in one go."""

_HEAD, _PART, _END = 3, 4, 5
_encode = msgspec.msgpack.Encoder().encode
_decode_meta = msgspec.msgpack.Decoder(SnapshotMeta).decode
_decode_count = msgspec.msgpack.Decoder(int).decode


def group_prefix(group: str) -> str:
    """What the paths of a group's snapshots begin with."""
    return f"{SNAPSHOTS_PATH}/{group}/"


def files_prefix(group: str) -> str:
    """What the paths of files begin with that a group keeps beside its log, such as those of its store."""
    return f"{FILES_PATH}/{group}/"


def snapshot_path(group: str, meta: SnapshotMeta, attempt: str) -> str:
    """A path that was never used before: `attempt` is unique on this node."""
    return f"{group_prefix(group)}{meta.index:016d}-{meta.term:08d}-{attempt}"


# ---- what a file says (pure) ----


def pieces(meta: SnapshotMeta, parts: Iterable[bytes]) -> Iterator[bytes]:
    """A whole file in pieces; a part is encoded when its piece is taken."""
    for records in gathered(((record, len(record)) for record in _records(meta, parts)), PIECE_BYTES):
        yield b"".join(records)


def _records(meta: SnapshotMeta, parts: Iterable[bytes]) -> Iterator[bytes]:
    yield frame(_HEAD, _encode(meta))
    count = 0
    for part in parts:
        yield frame(_PART, part)
        count += 1
    yield frame(_END, _encode(count))


class Contents:
    """Takes the pieces of one snapshot file in, in order, and gives the parts in them; `whole` once all have come."""

    def __init__(self, meta: SnapshotMeta) -> None:
        self._meta = meta
        self._expects_head = True
        self._parts = 0
        self.whole = False

    def take(self, piece: bytes) -> list[bytes]:
        """The parts in the next piece; raises CorruptLog, after which the same piece may be taken again."""
        records = [_kind_and_payload(record) for record in split(piece)]
        expects_head, whole, parts = self._expects_head, self.whole, []
        for kind, payload in records:
            if whole or (kind == _HEAD) != expects_head:
                raise CorruptLog("a record is out of place")
            expects_head = False
            if kind == _HEAD and _decode_meta(payload) != self._meta:
                raise CorruptLog("it is another snapshot than was named")
            if kind == _PART:
                parts.append(payload)
            if kind == _END:
                whole = True
                if _decode_count(payload) != self._parts + len(parts):
                    raise CorruptLog("parts are missing")
        self._expects_head, self.whole = expects_head, whole
        self._parts += len(parts)
        return parts


def split(piece: bytes) -> Iterator[bytes]:
    """The records of a piece, unchecked; raises CorruptLog where the last one isn't whole."""
    offset = 0
    while offset < len(piece):
        size = _record_bytes(piece, offset)
        if size is None or offset + size > len(piece):
            raise CorruptLog("it is cut short")
        yield piece[offset : offset + size]
        offset += size


def check(piece: bytes) -> None:
    """Raises CorruptLog unless every record of a piece is whole."""
    for record in split(piece):
        _kind_and_payload(record)


def _record_bytes(data: bytes, offset: int) -> int | None:
    """The size of the record that begins there, as it says itself; None where even its header isn't whole."""
    if len(data) - offset < HEADER.size:
        return None
    size: int = HEADER.unpack_from(data, offset)[3]
    return HEADER.size + size


def _kind_and_payload(record: bytes) -> tuple[int, bytes]:
    kind: int = HEADER.unpack_from(record)[2]
    if kind not in (_HEAD, _PART, _END):
        raise CorruptLog(f"a record of kind {kind} is no part of a snapshot")
    return kind, unframe(kind, record)


def _whole_records(data: bytes) -> int:
    """How many bytes of what was read from a record's begin on are whole records."""
    end = 0
    while (size := _record_bytes(data, end)) is not None and end + size <= len(data):
        end += size
    return end


# ---- files ----


class SnapshotFile:
    """One snapshot being written piece by piece; `finish` makes it durable. One that is given up is to be removed.

    `passing` is awaited at the failpoints `before_snapshot` and `after_snapshot`.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        path: str,
        meta: SnapshotMeta,
        pace: Pace,
        passing: Callable[[str], Awaitable[None]],
    ) -> None:
        self._file, self._meta, self._passing = PacedFile(disk, clock, path, pace), meta, passing
        self.path = path

    @property
    def size(self) -> int:
        """How much was written."""
        return self._file.size

    async def write(self, piece: bytes) -> None:
        """Append a piece; while the disk is full it waits."""
        if not self._file.size:
            await self._passing("before_snapshot")
        await self._file.append_now(piece)

    async def write_all(self, file_pieces: Iterable[bytes]) -> SnapshotRef:
        """Write a whole file below the pace, letting others run between two pieces, and make it durable."""
        for piece in file_pieces:
            if not self._file.size:
                await self._passing("before_snapshot")
            await self._file.append(piece)
        return await self.finish()

    async def finish(self) -> SnapshotRef:
        """Sync the file: from now on the log may name it."""
        await self._file.sync()
        await self._passing("after_snapshot")
        return SnapshotRef(self.path, self._meta, self.size)


async def read_piece(disk: Disk, ref: SnapshotRef, offset: int, limit: int) -> bytes:
    """Whole records from `offset` on, unchecked: as many as fit in `limit` bytes, one at least. Raises CorruptLog."""
    try:
        data = await disk.read_at(ref.path, offset, max(limit, HEADER.size))
        end = _whole_records(data)
        if end == 0:
            needed = _record_bytes(data, 0)
            if needed is None or offset + needed > ref.size:
                raise CorruptLog(f"{ref.path}: it is cut short")
            data += await disk.read_at(ref.path, offset + len(data), needed - len(data))
            end = _whole_records(data)
    except FileNotFoundError as error:
        raise CorruptLog(f"{ref.path}: the file is missing") from error
    if end == 0:
        raise CorruptLog(f"{ref.path}: it is cut short")
    return data[:end]


async def load(disk: Disk, clock: Clock, ref: SnapshotRef, take: Callable[[bytes], None]) -> None:
    """Hand every part of a snapshot to `take`, letting others run between two pieces; raises CorruptLog."""
    contents = Contents(ref.meta)
    offset = 0
    while not contents.whole:
        if offset:
            await clock.sleep(0)
        piece = await read_piece(disk, ref, offset, PIECE_BYTES)
        offset += len(piece)
        try:
            parts = contents.take(piece)
        except CorruptLog as error:
            raise CorruptLog(f"{ref.path}: {error}") from error
        for part in parts:
            take(part)


def gathered(sized: Iterable[tuple[T, int]], limit: int) -> Iterator[list[T]]:
    """Items, each with its size, in lists of at most `limit` together; an item above it is alone. None is empty.

    For what is too large for one message, one write or one turn of the event loop (G5).
    """
    items: list[T] = []
    total = 0
    for item, size in sized:
        if items and total + size > limit:
            yield items
            items, total = [], 0
        items.append(item)
        total += size
    if items:
        yield items

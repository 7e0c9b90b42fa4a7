"""Sorted files on the disk: written once, whole, and read block by block; and mutations set aside beside them.

A file is of no account until the manifest names it, and it is named only when it is durable (`live.py`). So a crash
leaves no half file in use, and a file that is in use and doesn't check was damaged (G7).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from cluster.log.envelope import CorruptLog, frame, unframe
from cluster.log.paced import PacedFile
from cluster.quorum.ids import MutationId
from cluster.quorum.keys import KeyBytes, place_of, token_at
from cluster.quorum.partition_store import StoreStats
from cluster.quorum.sorted.blocks import (
    BlockPacker,
    Chunk,
    Footer,
    PackedChunk,
    Place,
    ending,
    may_hold,
    read_block,
    read_footer,
    unpack,
)
from harness.ports.api import Disk

T = TypeVar("T")

_WRITE_BYTES = 1 << 18
"""How many bytes of blocks are written to the disk at a time."""


class FileRef(msgspec.Struct, frozen=True, array_like=True):
    """A file as the manifest names it; the record of its footer begins at `footer_at` and ends at `size`."""

    path: str
    size: int
    footer_at: int


class SortedFile:
    """One file that is in use, or was lately; made by `open_file` and by `FileWriter.finish`."""

    def __init__(self, disk: Disk, ref: FileRef, footer: Footer, stats: StoreStats) -> None:
        self._disk, self._stats, self.ref, self.footer = disk, stats, ref, footer
        self._begins: list[Place] = [(place_of(entry.partition), entry.start) for entry in footer.blocks]
        self._last = place_of(footer.last)

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return len(self._begins)

    def begin(self, number: int) -> Place:
        """Where a block begins."""
        return self._begins[number]

    def may_hold(self, place: bytes) -> bool:
        """False only if nothing is known here of the partition at a place."""
        if not self._begins[0][0] <= place <= self._last:
            return False
        return may_hold(self.footer.filter, token_at(place))

    def first_block(self, low: Place) -> int:
        """The block that holds what lies at a place, if any does."""
        return max(bisect_right(self._begins, low) - 1, 0)

    async def read(self, number: int) -> list[PackedChunk]:
        """The chunks of a block; raises CorruptLog."""
        entry = self.footer.blocks[number]
        part = (self.ref.path, entry.offset, entry.length)
        return await _read_checked(self._disk, part, self._stats, read_block, f"the block at {entry.offset}")


class FileCursor:
    """Goes through a file's chunks from `low` to `high` (`cluster.quorum.sorted.reading.Cursor`)."""

    def __init__(self, file: SortedFile, low: Place, high: Place) -> None:
        self._file, self._low, self._high = file, low, high
        self._block = file.first_block(low)
        self._chunks: list[PackedChunk] = []
        self._at = 0
        self.place: bytes | None = None
        self.chunk: Chunk | None = None

    async def advance(self) -> None:
        """Go to the next chunk, reading a block if it is in none that was read; raises CorruptLog."""
        while await self._fill():
            packed = self._chunks[self._at]
            place = place_of(packed.partition)
            if (place, packed.start) >= self._high:
                break
            self._at += 1
            self.place, self.chunk = place, unpack(packed)
            return
        self.place = self.chunk = None

    async def _fill(self) -> bool:
        """Whether there is a chunk at `_at`, maybe of a block that is read now."""
        if self._at < len(self._chunks):
            return True
        if self._block >= self._file.blocks or self._file.begin(self._block) >= self._high:
            return False
        self._chunks = await self._file.read(self._block)
        self._at = bisect_right(self._chunks, self._low, key=ending)
        self._block += 1
        return await self._fill()


class FileWriter:
    """Writes one file from chunks that come in order, below a pace; `paced` is where, and makes it durable."""

    def __init__(self, disk: Disk, paced: PacedFile, packer: BlockPacker, stats: StoreStats) -> None:
        self._disk, self._paced, self._packer, self._stats = disk, paced, packer, stats
        self._blocks: list[bytes] = []
        self._bytes = 0

    async def add(self, chunk: Chunk) -> None:
        """Take the next chunk; others run meanwhile. While the disk is full it waits."""
        await self._write(self._packer.add(chunk))

    async def finish(self) -> SortedFile | None:
        """The file, durable; None, and nothing on the disk, if there was nothing to write."""
        await self._write(self._packer.finish())
        if self._packer.empty:
            return None
        footer, record = self._packer.footer()
        footer_at = self._packer.size
        self._blocks.append(record)
        await self._flush()
        await self._paced.sync()
        ref = FileRef(self._paced.path, footer_at + len(record), footer_at)
        return SortedFile(self._disk, ref, footer, self._stats)

    async def _write(self, blocks: Iterable[bytes]) -> None:
        for block in blocks:
            self._blocks.append(block)
            self._bytes += len(block)
            if self._bytes >= _WRITE_BYTES:
                await self._flush()

    async def _flush(self) -> None:
        data, self._blocks, self._bytes = b"".join(self._blocks), [], 0
        await self._paced.append(data)
        self._stats.written_bytes += len(data)


async def open_file(disk: Disk, ref: FileRef, stats: StoreStats) -> SortedFile:
    """A file that the manifest names; raises CorruptLog, OtherVersion."""
    part = (ref.path, ref.footer_at, ref.size - ref.footer_at)
    return SortedFile(disk, ref, await _read_checked(disk, part, stats, read_footer, "the footer"), stats)


async def _read_checked(
    disk: Disk, part: tuple[str, int, int], stats: StoreStats, decode: Callable[[bytes], T], what: str
) -> T:
    """What is at a path, an offset and a length of a file that must be there; raises CorruptLog, OtherVersion."""
    path = part[0]
    try:
        data = await disk.read_at(*part)
    except FileNotFoundError as error:
        raise CorruptLog(f"{path}: the file is missing") from error
    stats.read_bytes += len(data)
    try:
        return decode(data)
    except (CorruptLog, msgspec.MsgspecError) as error:
        raise CorruptLog(f"{path}: {what}: {error}") from error


# ---- mutations set aside ----
# The log is the preferred source of a mutation. Where some stay unreconciled for long, as while a replica is away, the
# log would grow without end; so what the ledger still needs of it is written once to a file of its own, with the ids
# (Q3). Such an *aside* goes when every id in it lies below the low bound. Its index is read when the store is opened,
# the mutations one by one as they are asked for.


_MUTATION, _INDEX = 14, 15


class AsideRef(msgspec.Struct, frozen=True, array_like=True):
    """A file as the manifest names it: its index lies from `index_at` to `size`, and all its ids below `above`."""

    path: str
    size: int
    index_at: int
    above: int


class SetAside(msgspec.Struct, frozen=True, array_like=True):
    """A mutation in such a file: its number in the log, its id and partition, and where its record lies."""

    number: int
    id: MutationId
    partition: KeyBytes
    offset: int
    length: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[SetAside]).decode


class Aside:
    """One file that is in use."""

    def __init__(self, disk: Disk, ref: AsideRef, entries: Iterable[SetAside], stats: StoreStats) -> None:
        self._disk, self.ref, self._stats = disk, ref, stats
        self._entries = {each.number: each for each in entries}

    def __iter__(self) -> Iterator[SetAside]:
        return iter(self._entries.values())

    def __contains__(self, number: int) -> bool:
        return number in self._entries

    async def read(self, number: int) -> bytes:
        """The mutation, encoded; raises CorruptLog."""
        entry = self._entries[number]
        part = (self.ref.path, entry.offset, entry.length)
        what = f"the mutation at {entry.offset}"
        return await _read_checked(self._disk, part, self._stats, lambda data: unframe(_MUTATION, data), what)


async def write_aside(
    paced: PacedFile,
    disk: Disk,
    mutations: Iterable[tuple[int, MutationId, KeyBytes, bytes]],
    stats: StoreStats,
) -> Aside | None:
    """Write mutations, which come by number; the file, durable. None, and nothing on the disk, if there are none."""
    entries: list[SetAside] = []
    waiting: list[bytes] = []
    at = size = 0
    for number, each, partition, encoded in mutations:
        record = frame(_MUTATION, encoded)
        entries.append(SetAside(number, each, partition, at, len(record)))
        waiting.append(record)
        at, size = at + len(record), size + len(record)
        if size >= _WRITE_BYTES:
            await paced.append(b"".join(waiting))
            waiting, size = [], 0
    if not entries:
        return None
    index = frame(_INDEX, _encode(entries))
    await paced.append(b"".join([*waiting, index]))
    await paced.sync()
    stats.written_bytes += at + len(index)
    above = 1 + max(each.id.time for each in entries)
    return Aside(disk, AsideRef(paced.path, at + len(index), at, above), entries, stats)


async def open_aside(disk: Disk, ref: AsideRef, stats: StoreStats) -> Aside:
    """A file that the manifest names; raises CorruptLog."""
    part = (ref.path, ref.index_at, ref.size - ref.index_at)
    entries = await _read_checked(disk, part, stats, lambda data: _decode(unframe(_INDEX, data)), "the index")
    return Aside(disk, ref, entries, stats)

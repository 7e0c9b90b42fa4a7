"""Mutations that are not reconciled, kept beside sorted files, so that the log may forget them (Q3).

The log is the preferred source of a mutation. Where some stay unreconciled for long, as while a replica is away, the
log would grow without end; so what the ledger still needs of it is written once to a file of its own, with the ids.
Such an *aside* goes when every id in it lies below the low bound. Its index is read when the store is opened, the
mutations one by one as they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from cluster.log.envelope import CorruptLog, frame, unframe
from cluster.log.paced import PacedFile
from cluster.quorum.ids import MutationId
from cluster.quorum.keys import KeyBytes
from cluster.quorum.partition_store import StoreStats
from cluster.quorum.sorted.files import read_part
from harness.ports.api import Disk

_MUTATION, _INDEX = 14, 15

_WRITE_BYTES = 1 << 18


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
        data = await read_part(self._disk, self.ref.path, entry.offset, entry.length)
        self._stats.read_bytes += len(data)
        try:
            return unframe(_MUTATION, data)
        except CorruptLog as error:
            raise CorruptLog(f"{self.ref.path}: the mutation at {entry.offset}: {error}") from error


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
    data = await read_part(disk, ref.path, ref.index_at, ref.size - ref.index_at)
    stats.read_bytes += len(data)
    try:
        return Aside(disk, ref, _decode(unframe(_INDEX, data)), stats)
    except (CorruptLog, msgspec.MsgspecError) as error:
        raise CorruptLog(f"{ref.path}: the index: {error}") from error

"""Durable state of one Raft group on the Disk port: a write-ahead log in segments, and snapshot files.

A segment `wal-N` starts as an atomically written base (hard state, the snapshot it stands on, all entries after that)
and grows by one record per `Persist`. The highest segment is the whole truth: switching to the next one is the single
point where a snapshot takes effect, so a crash leaves either the old pair of snapshot and log or the new one.

Record: magic (2 bytes), format version (1), kind (1), payload length (4, little-endian), CRC-32 (4) of version, kind,
length and payload, payload (MessagePack). A bad record with nothing valid behind it is a torn tail and is cut; with a
valid record behind it, it is damage (`CorruptLog`), and the node must not start.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from cluster.raft.types import Entry, HardState, Persist, Snapshot
from harness.ports import Disk

FORMAT_VERSION = 2

_MAGIC = b"\xa5\x57"
_HEADER = struct.Struct("<2sBBII")
_CHECKED = struct.Struct("<BBI")
_BASE = 1
_BATCH = 2
_SNAPSHOT = 3


class CorruptLog(Exception):
    """Stored data is damaged where no crash can have damaged it; starting would lose what was acknowledged."""


class _Base(msgspec.Struct, frozen=True, array_like=True):
    """First record of a segment; `snapshot` names the file of the snapshot that the entries follow."""

    hard_state: HardState
    snapshot: str | None
    snapshot_index: int
    entries: tuple[Entry, ...]


class _Batch(msgspec.Struct, frozen=True, array_like=True):
    """One `Persist`: entries replace everything from the first one's index on."""

    hard_state: HardState | None
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a group finds on its disk; `fresh` if it never ran here."""

    hard_state: HardState
    snapshot: Snapshot | None
    entries: tuple[Entry, ...]
    fresh: bool

    @property
    def blank(self) -> bool:
        """Whether this replica has taken part in nothing: it has no term, no log and no snapshot."""
        return self.hard_state == HardState() and self.snapshot is None and not self.entries


_encode = msgspec.msgpack.Encoder().encode
_decode_base = msgspec.msgpack.Decoder(_Base).decode
_decode_batch = msgspec.msgpack.Decoder(_Batch).decode
_decode_snapshot = msgspec.msgpack.Decoder(Snapshot).decode


def frame(kind: int, payload: bytes) -> bytes:
    """One record, ready to be appended."""
    size = len(payload)
    crc = zlib.crc32(payload, zlib.crc32(_CHECKED.pack(FORMAT_VERSION, kind, size)))
    return _HEADER.pack(_MAGIC, FORMAT_VERSION, kind, size, crc) + payload


def unframe(kind: int, data: bytes) -> bytes:
    """The payload of a file that is one record of this kind; raises CorruptLog."""
    record = _record_at(data, 0)
    if record is None or record[0] != kind:
        raise CorruptLog("the record is damaged")
    return record[1]


def _record_at(data: bytes, offset: int) -> tuple[int, bytes, int] | None:
    """The valid record at `offset` as (kind, payload, end), or None."""
    start = offset + _HEADER.size
    if start > len(data):
        return None
    magic, version, kind, size, crc = _HEADER.unpack_from(data, offset)
    payload = data[start : start + size]
    if magic != _MAGIC or len(payload) != size:
        return None
    if zlib.crc32(payload, zlib.crc32(_CHECKED.pack(version, kind, size))) != crc:
        return None
    if version != FORMAT_VERSION:
        raise CorruptLog(f"record of format version {version} at byte {offset}; this program reads {FORMAT_VERSION}")
    return kind, payload, start + size


def scan(data: bytes) -> tuple[list[tuple[int, bytes]], int]:
    """All records of a segment and the length they take; what follows is a torn tail. Raises CorruptLog."""
    records: list[tuple[int, bytes]] = []
    offset = 0
    while (record := _record_at(data, offset)) is not None:
        records.append(record[:2])
        offset = record[2]
    probe = data.find(_MAGIC, offset + 1)
    while probe >= 0:
        if _record_at(data, probe) is not None:
            raise CorruptLog(f"damaged record at byte {offset}, with a valid one behind it at byte {probe}")
        probe = data.find(_MAGIC, probe + 1)
    return records, offset


class GroupStorage:
    """Log, hard state and snapshot of one group; one operation at a time, in the order of the `Persist`s.

    After an OSError other than DiskFull what is durable is unknown: the caller must stop using it.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._segment = 0
        self._hard_state = HardState()
        self._snapshot_file: str | None = None
        self._snapshot_index = 0
        self._entries: list[Entry] = []

    async def recover(self) -> Recovered:
        """Read everything back, cut a torn tail, drop leftovers; starts a first segment where there is none."""
        segments = [path for path in self._disk.list(f"{self._directory}/wal-") if _number(path) is not None]
        if not segments:
            await self._start_segment(1)
            return Recovered(HardState(), None, (), fresh=True)
        path = max(segments)
        self._segment = _number(path) or 0
        await self._read_segment(path)
        snapshot = await self._read_snapshot()
        await self._remove_leftovers()
        return Recovered(self._hard_state, snapshot, tuple(self._entries), fresh=False)

    async def append(self, batch: Sequence[Persist]) -> None:
        """Append each `Persist` (none with a snapshot) as one record; durable after `sync`. Raises DiskFull."""
        records = [frame(_BATCH, _encode(_Batch(item.hard_state, item.entries))) for item in batch]
        await self._disk.append(self._path(), b"".join(records))
        for item in batch:
            self._note(item.hard_state, item.entries)

    async def sync(self, _: None = None) -> None:
        """Make everything appended durable; raises DiskFull where the write was put off until now."""
        await self._disk.fsync(self._path())

    async def found(self, hard_state: HardState, first: Entry) -> Recovered:
        """Begin a group here with its first entry, durably (`cluster.raft.configurations.bootstrap`)."""
        self._hard_state, self._entries = hard_state, [first]
        await self._start_segment(self._segment + 1)
        await self._remove_leftovers()
        return Recovered(hard_state, None, (first,), fresh=True)

    async def install(self, received: tuple[Snapshot, Persist]) -> None:
        """Make a `Persist` and the snapshot that it names durable, whole: the snapshot replaces the log (§5.1)."""
        snapshot, item = received
        if item.snapshot != snapshot.meta:
            raise ValueError("the Persist names another snapshot")
        kept = self._after_match(snapshot.meta.index, snapshot.meta.term)
        await self._roll(snapshot, item.hard_state or self._hard_state, _spliced(kept, item.entries))

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Make a snapshot of applied entries durable and drop the log up to it; a no-op if a newer one stands."""
        if snapshot.meta.index > self._snapshot_index:
            kept = [entry for entry in self._entries if entry.index > snapshot.meta.index]
            await self._roll(snapshot, self._hard_state, kept)

    async def destroy(self) -> None:
        """Remove every file of the group."""
        for path in self._disk.list(f"{self._directory}/"):
            await self._disk.remove(path)

    def _after_match(self, index: int, term: int) -> list[Entry]:
        """Entries after `index` if the log agrees with (index, term), else none (§7: the log is discarded)."""
        matches = any(entry.index == index and entry.term == term for entry in self._entries)
        return [entry for entry in self._entries if entry.index > index] if matches else []

    def _note(self, hard_state: HardState | None, entries: tuple[Entry, ...]) -> None:
        if hard_state is not None:
            self._hard_state = hard_state
        if not entries:
            return
        keep = entries[0].index - self._snapshot_index - 1
        if keep > len(self._entries):
            raise CorruptLog(f"{self._path()}: the log misses entries before index {entries[0].index}")
        if keep == len(self._entries):
            self._entries.extend(entries)
        else:
            new = [entry for entry in entries if entry.index > self._snapshot_index]
            self._entries = _spliced(self._entries, new)

    async def _roll(self, snapshot: Snapshot, hard_state: HardState, entries: list[Entry]) -> None:
        path = f"{self._directory}/snap-{snapshot.meta.index:016d}-{snapshot.meta.term:016d}"
        await self._disk.write_atomic(path, frame(_SNAPSHOT, _encode(snapshot)))
        base = _Base(hard_state, path, snapshot.meta.index, tuple(entries))
        await self._disk.write_atomic(self._path(self._segment + 1), frame(_BASE, _encode(base)))
        self._segment += 1
        self._hard_state, self._entries = hard_state, entries
        self._snapshot_file, self._snapshot_index = path, snapshot.meta.index
        await self._remove_leftovers()

    async def _start_segment(self, number: int) -> None:
        base = _Base(self._hard_state, self._snapshot_file, self._snapshot_index, tuple(self._entries))
        await self._disk.write_atomic(self._path(number), frame(_BASE, _encode(base)))
        self._segment = number

    async def _read_segment(self, path: str) -> None:
        data = await self._disk.read(path)
        try:
            records, length = scan(data)
        except CorruptLog as error:
            raise CorruptLog(f"{path}: {error}") from error
        if not records or records[0][0] != _BASE:
            raise CorruptLog(f"{path}: the segment has no valid base record")
        base = _decode_base(records[0][1])
        self._hard_state, self._entries = base.hard_state, list(base.entries)
        self._snapshot_file, self._snapshot_index = base.snapshot, base.snapshot_index
        for _, payload in records[1:]:
            batch = _decode_batch(payload)
            self._note(batch.hard_state, batch.entries)
        if length < len(data):
            await self._disk.truncate(path, length)
        await self._disk.fsync(path)

    async def _read_snapshot(self) -> Snapshot | None:
        if self._snapshot_file is None:
            return None
        try:
            return _decode_snapshot(unframe(_SNAPSHOT, await self._disk.read(self._snapshot_file)))
        except FileNotFoundError as error:
            raise CorruptLog(f"{self._snapshot_file}: the snapshot that the log stands on is missing") from error
        except CorruptLog as error:
            raise CorruptLog(f"{self._snapshot_file}: {error}") from error

    async def _remove_leftovers(self) -> None:
        keep = (self._path(), self._snapshot_file)
        for prefix in ("wal-", "snap-"):
            for path in self._disk.list(f"{self._directory}/{prefix}"):
                if path not in keep:
                    await self._disk.remove(path)

    def _path(self, number: int | None = None) -> str:
        return f"{self._directory}/wal-{self._segment if number is None else number:016d}"


def _spliced(log: list[Entry], entries: Sequence[Entry]) -> list[Entry]:
    """`log` with everything from the first new entry's index on replaced by `entries`."""
    if not entries:
        return log
    return [entry for entry in log if entry.index < entries[0].index] + list(entries)


def _number(path: str) -> int | None:
    """The segment number in a path, or None for files that are not segments (such as unfinished atomic writes)."""
    digits = path.rsplit("wal-", 1)[1]
    return int(digits) if len(digits) == 16 and digits.isdigit() else None

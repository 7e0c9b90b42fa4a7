"""Snapshot files of groups: written and read chunk by chunk, and of no account until the node's log names them (G5).

A file is a head record (its `SnapshotMeta`), chunk records and an end record (their number), each with its checksum.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import msgspec

from cluster.log.envelope import HEADER, CorruptLog, frame, unframe
from cluster.log.replay import SnapshotRef
from cluster.raft.types import SnapshotMeta
from harness.ports import Clock, Disk, DiskFull

T = TypeVar("T")

SNAPSHOTS_PATH = "snapshots"

_HEAD, _CHUNK, _END = 3, 4, 5
_encode = msgspec.msgpack.Encoder().encode
_decode_meta = msgspec.msgpack.Decoder(SnapshotMeta).decode
_decode_count = msgspec.msgpack.Decoder(int).decode


def group_prefix(group: str) -> str:
    """What the paths of a group's snapshots begin with."""
    return f"{SNAPSHOTS_PATH}/{group}/"


def snapshot_path(group: str, meta: SnapshotMeta, attempt: str) -> str:
    """A path that was never used before: `attempt` is unique on this node."""
    return f"{group_prefix(group)}{meta.index:016d}-{meta.term:08d}-{attempt}"


class SnapshotWriter:
    """Assembles one snapshot file; `finish` makes it durable. Raises DiskFull; a file given up is to be removed."""

    def __init__(self, disk: Disk, path: str, meta: SnapshotMeta) -> None:
        self._disk, self._path, self._meta = disk, path, meta
        self._chunks = 0
        self._ended = False

    async def begin(self) -> None:
        """Write the head."""
        await self._disk.append(self._path, frame(_HEAD, _encode(self._meta)))

    async def add(self, chunk: bytes) -> None:
        """Write the next chunk."""
        await self._disk.append(self._path, frame(_CHUNK, chunk))
        self._chunks += 1

    async def finish(self) -> SnapshotRef:
        """Write the end and sync the file: from now on the log may name it."""
        if not self._ended:
            await self._disk.append(self._path, frame(_END, _encode(self._chunks)))
            self._ended = True
        await self._disk.fsync(self._path)
        return SnapshotRef(self._path, self._meta)


async def write_snapshot(
    disk: Disk, clock: Clock, path: str, meta: SnapshotMeta, chunks: Iterator[bytes], retry_s: float
) -> SnapshotRef:
    """Write a whole snapshot, letting others run between two chunks; while the disk is full it waits."""
    writer = SnapshotWriter(disk, path, meta)
    await _until_space(writer.begin, clock, retry_s)
    for chunk in chunks:
        await _until_space(lambda chunk=chunk: writer.add(chunk), clock, retry_s)  # type: ignore[misc]
        await clock.sleep(0)
    return await _until_space(writer.finish, clock, retry_s)


async def _until_space(write: Callable[[], Awaitable[T]], clock: Clock, retry_s: float) -> T:
    while True:
        try:
            return await write()
        except DiskFull:
            await clock.sleep(retry_s)


class SnapshotReader:
    """Reads the chunks of one snapshot file in order; raises CorruptLog."""

    def __init__(self, disk: Disk, ref: SnapshotRef) -> None:
        self._disk, self._ref = disk, ref
        self._offset = 0
        self._chunks = 0

    async def next(self) -> bytes | None:
        """The next chunk, or None at the end."""
        if self._offset == 0:
            await self._check_head()
        header, record = await self._record()
        if header == _END:
            if _decode_count(unframe(_END, record)) != self._chunks:
                raise self._damaged("chunks are missing")
            return None
        self._chunks += 1
        return self._checked(_CHUNK, record)

    async def _check_head(self) -> None:
        meta = _decode_meta(self._checked(_HEAD, (await self._record())[1]))
        if meta != self._ref.meta:
            raise self._damaged("it is another snapshot than the log names")

    async def _record(self) -> tuple[int, bytes]:
        """The next record's kind and its bytes, unchecked."""
        path = self._ref.path
        try:
            start = await self._disk.read_at(path, self._offset, HEADER.size)
            if len(start) < HEADER.size:
                raise self._damaged("it is cut short")
            _, _, kind, size, _ = HEADER.unpack(start)
            body = await self._disk.read_at(path, self._offset + HEADER.size, size)
        except FileNotFoundError as error:
            raise self._damaged("the file is missing") from error
        self._offset += HEADER.size + size
        return kind, start + body

    def _checked(self, kind: int, record: bytes) -> bytes:
        try:
            return unframe(kind, record)
        except CorruptLog as error:
            raise self._damaged(str(error)) from error

    def _damaged(self, why: str) -> CorruptLog:
        return CorruptLog(f"{self._ref.path}: {why}")


async def read_snapshot(disk: Disk, ref: SnapshotRef) -> list[bytes]:
    """All chunks; raises CorruptLog."""
    reader = SnapshotReader(disk, ref)
    chunks: list[bytes] = []
    while (chunk := await reader.next()) is not None:
        chunks.append(chunk)
    return chunks

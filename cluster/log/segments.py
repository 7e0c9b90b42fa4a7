"""The files of a node's log: appended to at the end, removed from the front (G5).

A segment's name holds its number and its salt, which takes part in every checksum: neither stale pages nor bytes that a
client chose can pass for a frame. A segment begins as an atomically written first frame.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from cluster.log.frames import HEAD_BYTES, LogRecord, OtherVersion, Scan, begins, build, build_in_turns, scan
from harness.ports.api import Clock, Disk, DiskFull

DIRECTORY_PATH = "log"
ASIDE_PATH = "aside"
"""Damaged segments and snapshots are kept here for whoever wants to look at them; nothing reads them."""
_PREFIX = f"{DIRECTORY_PATH}/segment-"
_LARGE_BYTES = 1 << 20
"""A frame of more is built in several turns of the event loop."""


@dataclass(slots=True)
class Segment:
    """One file; `size` bytes of it are synced or on their way."""

    path: str
    number: int
    salt: int
    size: int


def parse_path(path: str) -> Segment | None:
    """The segment that a path names; None for other files (such as unfinished atomic writes)."""
    number, _, salt = path.removeprefix(_PREFIX).partition("-")
    if not path.startswith(_PREFIX) or len(number) != 16 or len(salt) != 8:
        return None
    try:
        return Segment(path, int(number), int(salt, 16), 0)
    except ValueError:
        return None


def segments_on(disk: Disk) -> list[Segment]:
    """The segments that are there, the oldest first; their sizes are not known yet."""
    found = (parse_path(path) for path in disk.list(_PREFIX))
    return sorted((each for each in found if each is not None), key=lambda each: each.number)


async def check_version(disk: Disk) -> None:
    """Raise OtherVersion for a log of another version, as the first bytes of each segment tell; nothing is changed.

    Where those are damaged the whole segment is looked at.
    """
    for segment in segments_on(disk):
        try:
            if not begins(await disk.read_at(segment.path, 0, HEAD_BYTES), segment.salt):
                scan(await disk.read(segment.path), segment.salt, sealed=True)
        except OtherVersion as error:
            raise OtherVersion(f"{segment.path}: {error}") from error


class Segments:
    """The segments of one log; one operation at a time, but for `remove_first`, which may run beside appends."""

    def __init__(self, disk: Disk, clock: Clock, entropy: random.Random) -> None:
        self._disk, self._clock, self._entropy = disk, clock, entropy
        self._segments: list[Segment] = []

    @property
    def current(self) -> Segment:
        """The one that is appended to."""
        return self._segments[-1]

    @property
    def exist(self) -> bool:
        """Whether there is any."""
        return bool(self._segments)

    @property
    def first(self) -> int:
        """The number of the oldest one."""
        return self._segments[0].number

    def bytes_from(self, number: int) -> int:
        """The size of the log from segment `number` on."""
        return sum(segment.size for segment in self._segments if segment.number >= number)

    async def read(self, take: Callable[[Segment, Scan, bytes], None], flaws: Collection[str] = ()) -> None:
        """Read all segments in order, cut a torn tail, and make what is left durable; raises OtherVersion."""
        self._segments = segments_on(self._disk)
        for segment in self._segments:
            data = await self._disk.read(segment.path)
            try:
                contents = scan(data, segment.salt, sealed=segment is not self.current, flaws=flaws)
            except OtherVersion as error:
                raise OtherVersion(f"{segment.path}: {error}") from error
            segment.size = contents.length
            take(segment, contents, data)
            if segment is self.current:
                if contents.length < len(data):
                    await self._disk.truncate(segment.path, contents.length)
                await self._disk.fsync(segment.path)

    async def append(self, records: list[LogRecord]) -> None:
        """Append one frame; the caller syncs it before it appends another. Raises DiskFull, with nothing appended."""
        segment = self._segments[-1]
        size = 0
        for record in records:
            size += len(record.body)
        if size < _LARGE_BYTES:
            data = build(records, segment.size, segment.salt)
        else:
            data = await self._build_in_turns(records, segment)
        await self._disk.append(segment.path, data)
        segment.size += len(data)

    async def _build_in_turns(self, records: list[LogRecord], segment: Segment) -> bytes:
        """A frame that would keep the event loop for long; others go on meanwhile, and only one is built at a time."""
        building = build_in_turns(records, segment.size, segment.salt)
        while True:
            try:
                next(building)
            except StopIteration as built:
                data: bytes = built.value
                return data
            await self._clock.sleep(0)

    def sync(self) -> Awaitable[None]:
        """Make what was appended durable; raises DiskFull where the write was put off until now."""
        return self._disk.fsync(self._segments[-1].path)

    async def roll(self, records: list[LogRecord]) -> None:
        """Begin a new segment with one frame, durable when this returns; raises DiskFull, with nothing begun."""
        number = self._segments[-1].number + 1 if self._segments else 1
        salt = self._entropy.getrandbits(32)
        data = build(records, 0, salt)
        path = f"{_PREFIX}{number:016d}-{salt:08x}"
        await self._disk.write_atomic(path, data)
        self._segments.append(Segment(path, number, salt, len(data)))

    async def remove_first(self) -> None:
        """Remove the oldest segment; in this order a crash leaves no gap."""
        await self._disk.remove(self._segments[0].path)
        self._segments.pop(0)


async def keep_aside(disk: Disk, path: str, data: bytes) -> str:
    """Put a copy of a damaged segment aside; says so in words."""
    copy = f"{ASIDE_PATH}/{path.rpartition('/')[2]}"
    try:
        await disk.write_atomic(copy, data)
    except DiskFull:
        return "there is no room for a copy of it"
    return f"a copy of it is {copy}"

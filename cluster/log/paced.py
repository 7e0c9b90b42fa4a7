"""A file written beside everything else: below a rate, synced every few megabytes, waiting while the disk is full."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from harness.ports.api import Clock, Disk, DiskFull

T = TypeVar("T")

_SYNC_BYTES = 4 << 20
"""A long file is synced this often, so that no fsync is long and the log's own wait for none."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How bytes that can wait are written: below a rate, and tried again after `retry_s` while the disk is full."""

    bytes_per_s: int
    retry_s: float


class PacedFile:
    """One file being appended to; `sync` makes it durable. `size` is how much was appended."""

    def __init__(self, disk: Disk, clock: Clock, path: str, pace: Pace) -> None:
        self._disk, self._clock, self._pace, self.path = disk, clock, pace, path
        self.size = 0
        self._unsynced = 0
        self._wait_s: float | None = None

    async def append(self, data: bytes) -> None:
        """Append once the pace allows it, letting others run before; while the disk is full it waits."""
        if self._wait_s is not None:
            await self._clock.sleep(self._wait_s)
        self._wait_s = len(data) / self._pace.bytes_per_s
        await self.append_now(data)

    async def append_now(self, data: bytes) -> None:
        """Append, whatever the pace."""
        if self._unsynced >= _SYNC_BYTES:
            await self.sync()
        await until_space(lambda: self._disk.append(self.path, data), self._clock, self._pace.retry_s)
        self.size += len(data)
        self._unsynced += len(data)

    async def sync(self) -> None:
        """Make it durable."""
        await until_space(lambda: self._disk.fsync(self.path), self._clock, self._pace.retry_s)
        self._unsynced = 0


async def until_space(store: Callable[[], Awaitable[T]], clock: Clock, retry_s: float) -> T:
    """What storing gives; while the disk is full it is tried again."""
    while True:
        try:
            return await store()
        except DiskFull:
            await clock.sleep(retry_s)

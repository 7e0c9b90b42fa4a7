"""The one task that writes a group's log: `Persist`s that gather while an fsync runs go out together after it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cluster.config import Knobs
from cluster.log.storage import GroupStorage
from cluster.raft.types import Persist, Snapshot
from harness.ports import DiskFull, Ports

T = TypeVar("T")


class LogWriter:
    """Makes `Persist`s and snapshots durable in order; `run` is its task and ends only by an error or cancellation.

    While the disk is full it tries again and again: nothing is reported durable, and `full` is set. Any other OSError
    ends `run`, since what is durable is then unknown.
    """

    def __init__(
        self,
        ports: Ports,
        storage: GroupStorage,
        kind: str,
        knobs: Knobs,
        on_durable: Callable[[list[Persist]], None],
        on_saved: Callable[[Snapshot], None],
        on_full: Callable[[], None],
    ) -> None:
        self._clock, self._storage, self._retry_s = ports.clock, storage, knobs.disk_retry_ms / 1e3
        self._hit = ports.failpoints.hit
        self._before_append, self._before_fsync = f"{kind}.before_append", f"{kind}.before_fsync"
        self._after_fsync = f"{kind}.after_fsync"
        self._before_snapshot, self._after_snapshot = f"{kind}.before_snapshot", f"{kind}.after_snapshot"
        self._on_durable, self._on_saved, self._on_full = on_durable, on_saved, on_full
        self._unsynced: list[Persist] = []
        self._received: dict[int, Snapshot] = {}
        self._writing = False
        self._snapshot: tuple[int, Snapshot] | None = None
        self._queued_sequence = 0
        self._wakes: asyncio.Future[None] | None = None
        self.durable_sequence = 0
        self.full = False

    @property
    def busy(self) -> bool:
        """Whether something is waiting to be durable."""
        return self._writing or bool(self._unsynced)

    @property
    def snapshot_pending(self) -> bool:
        """Whether a snapshot is waiting to be stored."""
        return self._snapshot is not None

    def put(self, persist: Persist, received: Snapshot | None = None) -> None:
        """Queue a `Persist`, with the snapshot that it names; `on_durable` tells."""
        self._unsynced.append(persist)
        if received is not None:
            self._received[persist.sequence] = received
        self._queued_sequence = persist.sequence
        self._wake()

    def put_snapshot(self, snapshot: Snapshot) -> None:
        """Queue a snapshot of applied entries, stored once every `Persist` queued so far is durable."""
        self._snapshot = (self._queued_sequence, snapshot)
        self._wake()

    async def run(self) -> None:
        """Write what is queued, for ever; raises OSError when the disk fails."""
        loop = asyncio.get_running_loop()
        while True:
            if self._unsynced:
                await self._write_batch()
            elif self._snapshot is not None and self._snapshot[0] <= self.durable_sequence:
                await self._write_snapshot(self._snapshot[1])
            else:
                self._wakes = loop.create_future()
                await self._wakes

    def _wake(self) -> None:
        if self._wakes is not None and not self._wakes.done():
            self._wakes.set_result(None)

    async def _write_batch(self) -> None:
        batch, self._unsynced = self._unsynced, []
        self._writing = True
        begin = 0
        for position, item in enumerate(batch):
            if item.snapshot is not None:
                await self._append(batch[begin:position])
                received = self._received.pop(item.sequence)
                await self._until_space(self._storage.install, (received, item))
                begin = position + 1
        await self._append(batch[begin:])
        self._writing = False
        self.durable_sequence = batch[-1].sequence
        self._on_durable(batch)

    async def _append(self, batch: list[Persist]) -> None:
        if not batch:
            return
        self._hit(self._before_append)
        await self._until_space(self._storage.append, batch)
        self._hit(self._before_fsync)
        await self._until_space(self._storage.sync, None)
        self._hit(self._after_fsync)

    async def _write_snapshot(self, snapshot: Snapshot) -> None:
        self._hit(self._before_snapshot)
        await self._until_space(self._storage.save_snapshot, snapshot)
        self._hit(self._after_snapshot)
        self._snapshot = None
        self._on_saved(snapshot)

    async def _until_space(self, store: Callable[[T], Awaitable[None]], work: T) -> None:
        """Nothing of a write that found the disk full was kept, also when it was put off until the fsync."""
        while True:
            try:
                await store(work)
            except DiskFull:
                if not self.full:
                    self.full = True
                    self._on_full()
                await self._clock.sleep(self._retry_s)
            else:
                self.full = False
                return

"""What must be durable before a quorum replica says so, as records in the node's shared log (G5).

Unlike a Raft group's, this log is one node's own: records are numbered here, durable in that order, and kept until what
they say is in files of its own. One fsync serves everything on the node that waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from cluster.log.replay import SnapshotRef
from cluster.log.view import GroupLog
from cluster.raft.types import Configuration, Entry, EntryKind, Persist, SnapshotMeta

_TERM = 1

OnRecord: TypeAlias = Callable[[int, bytes], None]
"""Takes one durable record: its number and what it says. Called in order."""


class JournalFull(Exception):
    """The disk is full: nothing was taken."""


class Journal:
    """Records of one owner in the node's log; `on_durable` is handed each as soon as a crash can't take it away."""

    def __init__(self, log: GroupLog, on_durable: OnRecord) -> None:
        self._log, self._on_durable = log, on_durable
        self._waiting: dict[int, asyncio.Future[None]] = {}
        """By the number of the first record of each `put` that is not durable: what is done when all of it is."""
        self._next, self._durable = 1, 0
        """The number of the next record, and of the last that is durable; those between are on their way."""
        self._saving = False
        """Whether a cut is under way."""
        self._closed = False
        """Whether nothing is taken any more."""

    async def recover(self, take_base: Callable[[bytes], None]) -> None:
        """Hand what is stored to `take_base` and then to `on_durable`, record by record; raises Quarantined."""
        recovered = self._log.recover()
        if recovered.snapshot is not None:
            await self._log.load_snapshot(recovered.snapshot, take_base)
            self._durable = recovered.snapshot.meta.index
        for entry in recovered.entries:
            self._durable = entry.index
            self._on_durable(entry.index, entry.data)
        self._next = self._durable + 1
        self._log.attach(self._on_durable_entries, self._disk_full)

    @property
    def durable(self) -> int:
        """The number of the last record that `on_durable` has had."""
        return self._durable

    @property
    def log_bytes(self) -> int:
        """About how much of the log the records take that are kept."""
        return self._log.log_bytes

    def read(self, number: int) -> bytes | None:
        """A record that is kept; None for one that a cut has taken, or that never was."""
        entry = self._log.entry(number)
        return None if entry is None else entry.data

    async def put(self, records: Sequence[bytes]) -> None:
        """Make records durable, all together, and return once `on_durable` has had them; raises JournalFull."""
        # Whoever waits may give up; the records stay, and are told of when they are durable.
        await asyncio.shield(self.begin(records))

    def begin(self, records: Sequence[bytes]) -> asyncio.Future[None]:
        """Take records, of which `put` would return when what comes back is done; raises JournalFull."""
        if self._log.full or self._closed:
            raise JournalFull
        first, self._next = self._next, self._next + len(records)
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entries = tuple([Entry(_TERM, first + at, EntryKind.COMMAND, data) for at, data in enumerate(records)])
        self._waiting[first] = durable
        self._log.put(Persist(first, None, entries, None, ()))
        return durable

    def cut(self, number: int, base: Iterator[bytes], then: Callable[[], None] = lambda: None) -> None:
        """Let records up to `number` go once `base`, which stands for them, is durable; one cut at a time."""
        if self._saving or self._closed:
            return
        self._saving = True

        def saved(_: SnapshotRef) -> None:
            self._saving = False
            then()

        self._log.save_snapshot(SnapshotMeta(number, _TERM, Configuration()), base, saved)

    def close(self, error: Exception | None = None) -> None:
        """Nobody is told any more; those who wait get the error, or are cancelled."""
        self._closed = True
        self._log.close()
        for durable in self._waiting.values():
            if error is None:
                durable.cancel()
            elif not durable.done():
                durable.set_exception(error)

    def _on_durable_entries(self, persists: list[Persist]) -> None:
        for persist in persists:
            for entry in persist.entries:
                self._durable = entry.index
                self._on_durable(entry.index, entry.data)
            durable = self._waiting.pop(persist.sequence)
            if not durable.done():
                durable.set_result(None)

    def _disk_full(self, full: bool) -> None:
        """What was put waits for room; what comes now is refused."""

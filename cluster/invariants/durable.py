"""What one member of a group has on its disk, as far as it was told to be durable: terms by index, in runs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from cluster.raft.types import Entry, Persist, SnapshotMeta


class DurableLog:
    """The terms of a stored log; what a snapshot covers counts as being there. Terms rarely change, so runs are few."""

    __slots__ = ("_base", "_firsts", "_terms", "last")

    def __init__(self) -> None:
        self.last = 0
        self._base = 0
        self._firsts: list[int] = []
        self._terms: list[int] = []

    def recover(self, snapshot: SnapshotMeta | None, entries: Sequence[Entry]) -> None:
        """What a restart finds."""
        if snapshot is not None:
            self._replace(snapshot)
        self._append([entry for entry in entries if entry.index > self._base])

    def persist(self, persist: Persist) -> None:
        """One write is durable."""
        if persist.snapshot is not None:
            self._replace(persist.snapshot)
        self._append(persist.entries)

    def has(self, index: int, term: int) -> bool:
        """Whether the entry (index, term) is there, or a snapshot that covers it."""
        if index <= self._base:
            return True
        at = bisect_right(self._firsts, index) - 1
        return index <= self.last and at >= 0 and self._terms[at] == term

    def _replace(self, meta: SnapshotMeta) -> None:
        self._base = self.last = meta.index
        self._firsts.clear()
        self._terms.clear()

    def _append(self, entries: Sequence[Entry]) -> None:
        """Entries replace everything from the first one's index on."""
        if not entries:
            return
        first, last = entries[0], entries[-1]
        if first.index == self.last + 1 and self._terms and self._terms[-1] == first.term == last.term:
            self.last = last.index  # what nearly every write does
            return
        if first.index <= self.last:
            keep = bisect_right(self._firsts, first.index - 1)
            del self._firsts[keep:], self._terms[keep:]
        for entry in (first, last) if first.term == last.term else entries:
            if not self._terms or self._terms[-1] != entry.term:
                self._firsts.append(entry.index)
                self._terms.append(entry.term)
        self.last = last.index

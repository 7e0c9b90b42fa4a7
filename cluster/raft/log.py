"""The in-memory log: a list of entries behind a compacted base (§3.5, §5.1)."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.raft.types import Entry


class Log:
    """Entries `offset + 1 ..= last_index`; everything up to `offset` is compacted and known to be committed."""

    __slots__ = ("_entries", "base_term", "last_index", "offset")

    def __init__(self, offset: int, base_term: int, entries: Sequence[Entry]) -> None:
        self.offset = offset
        self.base_term = base_term
        self._entries = list(entries)
        self.last_index = offset + len(self._entries)

    @property
    def last_term(self) -> int:
        return self._entries[-1].term if self._entries else self.base_term

    def term(self, index: int) -> int:
        """The term at `offset <= index <= last_index`."""
        return self.base_term if index == self.offset else self._entries[index - self.offset - 1].term

    def between(self, first: int, last: int) -> tuple[Entry, ...]:
        """Entries `first ..= last`, all of them above the offset."""
        return tuple(self._entries[first - self.offset - 1 : last - self.offset])

    def batch(self, first: int, max_entries: int, max_bytes: int) -> tuple[Entry, ...]:
        """Entries from `first` on, within both limits but at least one (if there is one)."""
        start = first - self.offset - 1
        entries = self._entries[start : start + max_entries]
        if len(entries) == 1:
            return (entries[0],)
        size = 0
        for count, entry in enumerate(entries):
            size += len(entry.data)
            if size > max_bytes:
                return tuple(entries[: max(count, 1)])
        return tuple(entries)

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries that follow the last one."""
        self._entries.extend(entries)
        self.last_index += len(entries)

    def truncate(self, last: int) -> None:
        """Drop everything above `last >= offset`."""
        del self._entries[last - self.offset :]
        self.last_index = self.offset + len(self._entries)

    def compact(self, index: int, term: int) -> None:
        """Drop everything up to `index`, whose term is `term`; a log that ends before it becomes empty."""
        if index <= self.offset:
            return
        del self._entries[: index - self.offset]
        self.offset = index
        self.last_index = max(self.last_index, index)
        self.base_term = term

    def last_index_at_or_below(self, index: int, term: int) -> int:
        """The last index up to `index` whose term is at most `term`, or the offset: where two logs may first agree.

        Skips whole terms after a refused AppendEntries (§3.5 "If desired, the protocol can be optimized").
        """
        index = min(index, self.last_index)
        while index > self.offset and self.term(index) > term:
            index -= 1
        return index

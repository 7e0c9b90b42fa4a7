"""The in-memory log, a list of entries behind a compacted base (§3.5, §5.1), and the configurations along it (§4.1)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cluster.raft.types import Configuration, Entry, EntryKind, HardState, Member


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


_Members = tuple[tuple[Member, ...], tuple[Member, ...]]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Members).decode


FOUNDING_INDEX = 1
"""Where the founding voters' configuration stands in every log of a group."""


def configuration_entry(configuration: Configuration) -> Entry:
    """The CONFIG entry that sets this configuration."""
    data = _encode((configuration.voters, configuration.learners))
    return Entry(configuration.term, configuration.index, EntryKind.CONFIG, data)


def configuration_of(entry: Entry) -> Configuration:
    """The configuration that a CONFIG entry sets."""
    voters, learners = _decode(entry.data)
    return Configuration(voters, learners, entry.index, entry.term)


def bootstrap(voters: Sequence[Member]) -> tuple[HardState, Entry]:
    """What the founding voters of a group begin with on their disks: one entry, committed by decree.

    All of them write the very same one, so their logs agree; nobody else ever does (G1). Later servers get it from
    the leader, with the rest of the log or in a snapshot.
    """
    founding = Configuration(tuple(voters), (), index=FOUNDING_INDEX, term=1)
    return HardState(founding.term, None, commit=founding.index), configuration_entry(founding)


class Configurations:
    """The configuration at the log's base and every one that an entry above it set, by rising index."""

    __slots__ = ("_known",)

    def __init__(self, base: Configuration) -> None:
        self._known = [base]

    @property
    def in_force(self) -> Configuration:
        """The last one in the log: a server uses it as soon as it is appended, committed or not (§4.1)."""
        return self._known[-1]

    @property
    def before(self) -> Configuration:
        """The one before the last one, as far as the log still holds it; else the last one."""
        return self._known[-2] if len(self._known) > 1 else self._known[-1]

    def at(self, index: int) -> Configuration:
        """The one in force at `index`, which the log holds or stands on."""
        for configuration in reversed(self._known):
            if configuration.index <= index:
                return configuration
        return self._known[0]

    def append(self, entries: Sequence[Entry]) -> bool:
        """Take in what was appended to the log; True if it holds a configuration."""
        found = False
        for entry in entries:
            if entry.kind == EntryKind.CONFIG:
                self._known.append(configuration_of(entry))
                found = True
        return found

    def truncate(self, last: int) -> bool:
        """Entries above `last` are gone: back to the configuration before them. True if that changed anything."""
        count = len(self._known)
        while len(self._known) > 1 and self._known[-1].index > last:
            self._known.pop()
        return len(self._known) < count

    def compact(self, index: int) -> None:
        """Forget those that a later one up to `index` has replaced for good."""
        while len(self._known) > 1 and self._known[1].index <= index:
            del self._known[0]

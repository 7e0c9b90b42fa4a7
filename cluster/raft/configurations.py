"""Configurations of a group along its log (§4.1): as entries, and the history that truncation goes back in."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cluster.raft.types import Configuration, Entry, EntryKind, HardState, Member

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

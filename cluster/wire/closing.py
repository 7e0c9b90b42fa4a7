"""The side transport's streams (R4): what a node closes for its quiet ranges, told to each other node by deltas. Pure.

Between two nodes there is one stream each way. A message has one time for each group of ranges, those of one policy,
and the ranges that have come to a group or left it since the message before: "使通信的规模不再和 range 的数量相关，
而仅和变更的数量相关" (its size follows what changes, not the number of ranges). A range comes with its write index: a
replica that has applied that much finds at the group's time what the leaseholder finds.

A stream has an epoch: the sender's incarnation, and how often it began afresh. Within it messages are numbered. Who
misses one, or hears of a new epoch, forgets what it knew of the stream and asks for everything; it drops what is of
an older one. What was told stays true, whoever leads by now: forgotten is only that it goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice
from typing import NamedTuple, TypeAlias

import msgspec

MARK = b"\x01"
"""Begins a message of the side transport among those between nodes: no envelope begins so."""

MOST_ADDED = 4_096
"""The most ranges that come with one message, so that it stays small; the others come with the next ones."""

Policy: TypeAlias = int
"""Ranges with one policy are closed together; it is their lag, ns, or below 0 how far ahead of the clock they are."""


class ClosedUpdate(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """`times` are of the groups, by policy. The ranges of `removed` were closed up to the time before this message's;
    those that are `added`, each with its policy and write index, are closed up to this message's and go on with it.
    """

    source: str
    incarnation: int
    generation: int
    sequence: int
    times: tuple[tuple[Policy, int], ...]
    removed: tuple[str, ...]
    added: tuple[tuple[str, Policy, int], ...]


class AskAfresh(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The stream from the node that this goes to is broken: it has to begin anew."""

    source: str


SideMessage: TypeAlias = ClosedUpdate | AskAfresh

decode_side = msgspec.msgpack.Decoder(SideMessage).decode


class QuietAt(NamedTuple):
    """A range that is closed with others: its group, and the write index at which it is."""

    policy: Policy
    write_index: int


class ClosedAt(NamedTuple):
    """A range is closed up to this time, at this write index: true for ever."""

    range_id: str
    write_index: int
    closed: int


class ClosedOut:
    """The stream to one node, at its sender."""

    def __init__(self, source: str, incarnation: int) -> None:
        self._source, self._incarnation = source, incarnation
        self._generation = self._sequence = 0
        self._ranges: dict[str, QuietAt] = {}
        self._added: dict[str, None] = {}
        self._removed: dict[str, None] = {}
        self._afresh = True

    def join(self, range_id: str, quiet: QuietAt) -> None:
        """A range is closed with its group from the next message on."""
        self._ranges[range_id] = quiet
        self._added[range_id] = None

    def leave(self, range_id: str) -> None:
        """A range was closed with its group up to the message before the next one, if it was in that."""
        self._ranges.pop(range_id, None)
        if range_id in self._added:
            del self._added[range_id]  # it was in none, and left the one before, if any, when it joined
        else:
            self._removed[range_id] = None

    def afresh(self) -> None:
        """The receiver knows nothing: the next message says everything."""
        self._afresh = True

    def message(self, times: Mapping[Policy, int]) -> ClosedUpdate | None:
        """What to send now that the groups are closed so far; None as long as there is nothing to tell."""
        if not (self._ranges or self._removed):
            return None
        if self._afresh:
            self._generation, self._sequence, self._afresh = self._generation + 1, 0, False
            self._added, self._removed = dict.fromkeys(self._ranges), {}
        added = tuple((each, *self._ranges[each]) for each in islice(self._added, MOST_ADDED))
        # A dict that was emptied key by key is as long to go through as it was when it was full: it is made anew.
        self._added = dict.fromkeys(islice(self._added, len(added), None))
        update = ClosedUpdate(
            self._source,
            self._incarnation,
            self._generation,
            self._sequence,
            tuple(times.items()),
            tuple(self._removed),
            added,
        )
        self._sequence += 1
        self._removed = {}
        return update


class ClosedIn:
    """The stream from one node, at its receiver."""

    def __init__(self, flaws: frozenset[str] = frozenset()) -> None:
        self._flaws = flaws
        self._epoch = (-1, 0)
        self._next = 0
        self._whole = False
        """Whether nothing of this epoch was missed."""
        self._times: dict[Policy, int] = {}
        self._ranges: dict[str, QuietAt] = {}

    def known(self, range_id: str) -> ClosedAt | None:
        """How far the range is closed now by this stream, if it is in it."""
        quiet = self._ranges.get(range_id)
        return None if quiet is None else ClosedAt(range_id, quiet.write_index, self._times.get(quiet.policy, 0))

    def take(self, update: ClosedUpdate) -> tuple[list[ClosedAt], bool]:
        """Take a message in: what has to be kept of ranges that the stream goes on without, and whether it is broken,
        so that its sender has to be asked for everything."""
        epoch = (update.incarnation, update.generation)
        if epoch < self._epoch:
            return (self._carry_out(update) if "old-epoch-counts" in self._flaws else []), False
        if epoch != self._epoch or (update.sequence > self._next and "side-transport-delta-lost" not in self._flaws):
            kept = self._void()
            self._epoch, self._next, self._whole = epoch, 0, True
        elif update.sequence < self._next:
            return [], not self._whole
        else:
            kept = []
        self._whole &= update.sequence == self._next or "side-transport-delta-lost" in self._flaws
        if not self._whole:
            return kept, True
        self._next = update.sequence + 1
        return kept + self._carry_out(update), False

    def _carry_out(self, update: ClosedUpdate) -> list[ClosedAt]:
        """Invariant: a removed range was closed up to the time of the message before, and no further. By the time of
        this one it may have been written to."""
        if "removed-takes-new-time" in self._flaws:
            self._times.update(update.times)
        kept = self._taken_out(update.removed)
        self._times.update(update.times)
        # One that comes again, at a later write index, without having been told to leave, has left too.
        kept += self._taken_out([range_id for range_id, _, _ in update.added])
        for range_id, policy, write_index in update.added:
            self._ranges[range_id] = QuietAt(policy, write_index)
        return kept

    def _taken_out(self, range_ids: Collection[str]) -> list[ClosedAt]:
        found = [self.known(each) for each in range_ids]
        for each in range_ids:
            self._ranges.pop(each, None)
        return [each for each in found if each is not None]

    def _void(self) -> list[ClosedAt]:
        """Know nothing of the stream any more, but for what it has told."""
        kept = self._taken_out(list(self._ranges))
        self._times.clear()
        return kept

"""Hints: mutations that a replica missed, kept durably by their coordinator until it takes them (Q2).

A hint names the replica, the tablet and the mutation as it was sent, timestamps included, so that replaying it twice or
late changes nothing that it should not. Hints are kept for a replica up to a number, and until deletions of what they
say may be forgotten; beyond that repair has to help.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from cluster.quorum.journal import Journal
from cluster.quorum.replica_sets import Endpoint

MOST_FOR_ONE = 10_000
"""Hints kept for one node; more are dropped, and counted."""

_CUT_RECORDS = 2_000
_PART = 256


class Hint(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """A mutation, encoded, that the server `target` may lack; `number` names the hint at this coordinator.

    `address` is where the target listened then, `taken_ms` its coordinator's clock when that took the mutation.
    """

    number: int
    target: str
    address: str
    tablet_id: str
    mutation: bytes
    taken_ms: int


class HintsDelivered(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Hints that are over: the target took them, or never will."""

    numbers: tuple[int, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Hint | HintsDelivered).decode


class Hints:
    """The hints of one coordinator, over a journal of its own in the node's log.

    `written_bytes` counts what was ever stored for hints here, `dropped` what found no room.
    """

    def __init__(self) -> None:
        self._by_target: dict[str, dict[int, Hint]] = {}
        self._targets: dict[int, str] = {}
        self._next = 1
        self._records = 0
        self.written_bytes = self.dropped = 0

    def take(self, number: int, record: bytes) -> None:
        """Take a durable record in (`cluster.quorum.journal.OnRecord`)."""
        self._records += 1
        self.restore(record)

    def restore(self, record: bytes) -> None:
        """Take a record in that stands in a base of the journal."""
        change = _decode(record)
        if isinstance(change, HintsDelivered):
            for each in change.numbers:
                self._by_target.get(self._targets.pop(each, ""), {}).pop(each, None)
            return
        self._by_target.setdefault(change.target, {})[change.number] = change
        self._targets[change.number] = change.target
        self._next = max(self._next, change.number + 1)

    async def store(self, journal: Journal, target: Endpoint, tablet_id: str, mutation: bytes, taken_ms: int) -> bool:
        """Make a hint durable; False if there are too many for this target. Raises JournalFull."""
        if len(self._by_target.get(target.node_id, ())) >= MOST_FOR_ONE:
            self.dropped += 1
            return False
        hint = Hint(self._next, target.node_id, target.address, tablet_id, mutation, taken_ms)
        self._next += 1
        record = _encode(hint)
        self.written_bytes += len(record)
        await journal.put((record,))
        self._shorten(journal)
        return True

    async def delivered(self, journal: Journal, numbers: tuple[int, ...]) -> None:
        """These are over. Raises JournalFull: then they are sent once more, which changes nothing."""
        await journal.put((_encode(HintsDelivered(numbers)),))
        self._shorten(journal)

    def pending(self, target: str, most: int) -> list[Hint]:
        """The oldest hints for a server."""
        hints = self._by_target.get(target, {})
        return [hint for hint, _ in zip(hints.values(), range(most), strict=False)]

    @property
    def waiting(self) -> Mapping[str, int]:
        """How many hints wait for each server that any wait for."""
        return {target: len(hints) for target, hints in self._by_target.items() if hints}

    def _shorten(self, journal: Journal) -> None:
        """State what is left anew where most of the journal is over."""
        alive = sum(map(len, self._by_target.values()))
        if self._records > _CUT_RECORDS + 2 * alive:
            self._records = alive
            journal.cut(journal.durable, self._freeze())

    def _freeze(self) -> Iterator[bytes]:
        hints = [hint for each in self._by_target.values() for hint in each.values()]
        return map(_encode, hints)

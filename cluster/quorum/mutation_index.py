"""Mutations of a logged replica that are not reconciled, by id and by partition key (Q3): where the bytes are. Pure.

It is rebuilt at a restart from what is stored. Ids of one partition are kept apart, for reads compare partitions; ids
of all are kept sorted, for reconciliation goes by time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from cluster.quorum.ids import MutationId
from cluster.quorum.keys import KeyBytes

P = TypeVar("P")


class Indexed(NamedTuple, Generic[P]):
    """Of what partition a mutation is, and where its bytes are."""

    partition: KeyBytes
    place: P


class MutationIndex(Generic[P]):
    """Ids in any order of arrival; costs of lookups are those of a bisection."""

    def __init__(self) -> None:
        self._found: dict[MutationId, Indexed[P]] = {}
        self._sorted: list[MutationId] = []
        self._partitions: dict[KeyBytes, dict[MutationId, None]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, each: MutationId) -> bool:
        return each in self._found

    def add(self, each: MutationId, partition: KeyBytes, place: P) -> bool:
        """A mutation is stored there; False where it is known already, which stays as it is."""
        indexed = Indexed(partition, place)
        if self._found.setdefault(each, indexed) is not indexed:
            return False
        self._insert(each)
        self._partitions.setdefault(partition, {})[each] = None
        return True

    def get(self, each: MutationId) -> Indexed[P] | None:
        """What is known of an id."""
        return self._found.get(each)

    def place(self, each: MutationId) -> P:
        """Where its bytes are; raises KeyError."""
        return self._found[each].place

    def of_partition(self, partition: KeyBytes) -> tuple[MutationId, ...]:
        """The ids of a partition, in the order in which they were added."""
        return tuple(self._partitions.get(partition, ()))

    def between(self, low: int, high: int) -> list[MutationId]:
        """Ids with times from `low` on and below `high`, rising."""
        return self._sorted[self._first(low) : self._first(high)]

    def partitions(self) -> Iterator[KeyBytes]:
        """Every partition of which an id is known."""
        return iter(list(self._partitions))

    def forget_below(self, bound: int) -> list[tuple[MutationId, Indexed[P]]]:
        """Forget the ids below a bound; what was known of them."""
        end = self._first(bound)
        gone = [(each, self._found.pop(each)) for each in self._sorted[:end]]
        del self._sorted[:end]
        for each, (partition, _) in gone:
            left = self._partitions[partition]
            del left[each]
            if not left:
                del self._partitions[partition]
        return gone

    def _insert(self, each: MutationId) -> None:
        # Ids come nearly in order, so that most of them belong at the end.
        if not self._sorted or self._sorted[-1] < each:
            self._sorted.append(each)
        else:
            insort(self._sorted, each)

    def _first(self, bound: int) -> int:
        return bisect_left(self._sorted, bound, key=_time)


def _time(each: MutationId) -> int:
    return each.time

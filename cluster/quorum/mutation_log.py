"""The addressable log of a replica: which mutations it has applied, by id and by partition, and summaries (Q3, Q4).

It is fed by the replica's store in the turn in which a mutation becomes visible, so that what it says and what a read
that begins in the same turn shows are one snapshot (Q5). Numbers are places in the node's log, and rise. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from cluster.quorum.ids import LOWEST_TIME, MutationId
from cluster.quorum.keys import KeyBytes
from cluster.quorum.observer import UNOBSERVED, QuorumObserver
from cluster.quorum.summaries import SetHash, Summary, summarize

P = TypeVar("P")

_time = attrgetter("time")


class Indexed(NamedTuple, Generic[P]):
    """Of what partition a mutation is, and where its bytes are."""

    partition: KeyBytes
    place: P


class MutationIndex(Generic[P]):
    """Mutations that are not reconciled, by id and by partition (Q3): ids in any order of arrival, found by bisection.

    It is rebuilt at a restart from what is stored.
    """

    def __init__(self) -> None:
        self._found: dict[MutationId, Indexed[P]] = {}
        """What is known of each id."""
        self._sorted: list[MutationId] = []
        """All ids, rising: reconciliation goes by time."""
        self._partitions: dict[KeyBytes, dict[MutationId, None]] = {}
        """All ids by partition, in the order in which they came: reads compare partitions."""

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


class MutationLog:
    """Implements `cluster.quorum.partition_store.Ledger`. Ids below `low_bound` are forgotten: every replica has them.

    `observer` is told what happens to the log of `group`, which these nodes, `replicas`, hold.
    """

    def __init__(self, group: str = "", replicas: Collection[str] = (), observer: QuorumObserver = UNOBSERVED) -> None:
        self._group, self._replicas, self._observer = group, replicas, observer
        self.index: MutationIndex[int] = MutationIndex()
        """The mutations with ids from the low bound on, each at its place in the node's log."""
        self.low_bound = LOWEST_TIME
        """Every replica has all mutations below this time; only rises."""
        self.last = 0
        """The place of the last mutation that is visible: the moment of a snapshot that is taken now."""
        self._numbers: dict[int, MutationId] = {}
        """Places that the node's log must keep, rising: those of `index` but for what was set aside."""
        self._hashes: dict[KeyBytes, SetHash] = {}
        """By partition the set hash of its ids in `index`; no entry for a partition without any."""
        self._forgotten = 0
        """The highest place of what was forgotten: of an earlier moment nobody can tell what came since."""

    # ---- what the store tells ----

    def stored(self, number: int, each: MutationId, partition: KeyBytes) -> None:
        """A mutation is visible; one that every replica has is not counted again."""
        self.last = number
        self._observer.mutation_stored(self._group, self._replicas, each, number)
        if each.time < self.low_bound or not self.index.add(each, partition, number):
            return
        self._numbers[number] = each
        hashed = self._hashes.get(partition)
        if hashed is None:
            hashed = self._hashes[partition] = SetHash()
        hashed.add(each)

    def recovered(self, number: int) -> None:
        """The log ended with this place when its node restarted. Of an earlier moment nobody can tell what came since:
        some of it may have been forgotten before the restart, and left no trace here."""
        self.last = self._forgotten = number

    @property
    def needs_from(self) -> int | None:
        """The lowest number of a mutation that somebody may still ask for."""
        return next(iter(self._numbers), None)

    def forget_below(self, bound: int) -> None:
        """Every replica has everything below a bound: nobody asks for it any more."""
        self.low_bound = max(self.low_bound, bound)
        gone: dict[KeyBytes, list[MutationId]] = {}
        for each, (partition, number) in self.index.forget_below(bound):
            self._numbers.pop(number, None)
            self._forgotten = max(self._forgotten, number)
            gone.setdefault(partition, []).append(each)
        for partition, ids in gone.items():
            left = self.index.of_partition(partition)
            # A set hash takes ids out as cheaply as in: whichever are fewer, the gone or the left, are hashed.
            if not left:
                del self._hashes[partition]
            elif len(left) < len(ids):
                self._hashes[partition] = SetHash(left)
            else:
                self._hashes[partition].remove(ids)

    def needed(self, last: int) -> list[tuple[int, MutationId, KeyBytes]]:
        """The mutations that the log must keep, of places up to `last`, rising."""
        found = ((number, each) for number, each in self._numbers.items() if number <= last)
        return [(number, each, indexed.partition) for number, each in found if (indexed := self.index.get(each))]

    def set_aside(self, numbers: Iterable[int]) -> None:
        """The log need not keep these places any more."""
        gone = list(numbers)
        for number in gone:
            self._numbers.pop(number, None)
        self._observer.mutations_set_aside(self._group, gone)

    def collected(self, number: int) -> None:
        """The log keeps nothing up to this place."""
        self._observer.log_collected(self._group, number)

    # ---- what coordinators ask ----

    def summary(self, partition: KeyBytes) -> Summary:
        """The plain summary of a partition now, from the low bound on."""
        return self._hashes.get(partition, _NOTHING).summary(self.low_bound)

    def summary_of(self, partition: KeyBytes, bound: int, detail: int, as_of: int | None) -> Summary | None:
        """A summary from a bound on, or the low bound if that is higher, of what was there when `as_of` was the last.

        None where a snapshot of that moment can't be compared from that bound on: it lacked something below it.
        """
        bound = max(bound, self.low_bound)
        if as_of is None and detail == 0 and bound == self.low_bound:
            return self.summary(partition)
        ids = self.index.of_partition(partition)
        if as_of is None:
            return summarize(ids, bound, detail)
        later = [each for each in ids if self.index.place(each) > as_of]
        if self._forgotten > as_of or any(each.time < bound for each in later):
            return None
        gone = dict.fromkeys(later)
        return summarize((each for each in ids if each not in gone), bound, detail)

    def newer(self, partition: KeyBytes, as_of: int) -> tuple[MutationId, ...] | None:
        """The partition's ids that were added since `as_of` was the last; None where some may be forgotten."""
        if self._forgotten > as_of:
            return None
        return tuple([each for each in self.index.of_partition(partition) if self.index.place(each) > as_of])


_NOTHING = SetHash()

"""What the holder of one lease has promised about timestamps: reads served, writes in flight, what is closed. Pure.

In memory only, and made afresh for each lease: what earlier holders promised lies below the new lease's low water.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Any, Protocol

import msgspec

from cluster.ranges.timestamp_cache import CAPACITY, TimestampCache
from cluster.store.cells import Span


class Bucket:
    """Evaluations that are counted together: their lowest timestamp, and how many there are."""

    __slots__ = ("count", "lowest")

    def __init__(self) -> None:
        self.lowest: int | None = None
        self.count = 0

    def join(self, timestamp: int) -> None:
        """One more; may lower the minimum."""
        if self.lowest is None or timestamp < self.lowest:
            self.lowest = timestamp
        self.count += 1


class WriteTracker(Protocol):
    """A bound below the timestamps of all evaluations in flight, `t_eval` (R5)."""

    def enter(self, timestamp: int) -> Any:
        """Track an evaluation; what is returned is its ticket for `leave`."""

    def leave(self, ticket: Any) -> None:
        """An evaluation's log position is fixed, or it will never have one."""

    @property
    def bound(self) -> int | None:
        """At most the lowest timestamp tracked; None if nothing is."""


class HeapTracker:
    """The write tracker that is exact: a heap, from which what has left goes when it comes to the top."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._left: dict[int, None] = {}
        self._entered = 0

    def enter(self, timestamp: int) -> int:
        """Track an evaluation; what is returned is its ticket."""
        self._entered += 1
        heappush(self._heap, (timestamp, self._entered))
        return self._entered

    def leave(self, ticket: int) -> None:
        """An evaluation's log position is fixed, or it will never have one."""
        self._left[ticket] = None
        while self._heap and self._heap[0][1] in self._left:
            del self._left[heappop(self._heap)[1]]

    @property
    def bound(self) -> int | None:
        """The lowest timestamp tracked; None if nothing is."""
        return self._heap[0][0] if self._heap else None


class BucketTracker:
    """The write tracker: a bound below the timestamps of all evaluations in flight, `t_eval` (R5).

    A closed timestamp that is assigned now must stay below every write whose log position is still open. This is the
    approximation of the source ("两个桶": two buckets with a minimum and a reference count each), which needs no lock
    where evaluations run in parallel. B1 always lies below B2: the bound is B1's minimum, and rises when all of B1 have
    left.
    """

    def __init__(self, flaws: frozenset[str] = frozenset()) -> None:
        self._first, self._second = Bucket(), Bucket()
        self._keeps_order = "tracker-wrong-bucket" not in flaws

    def enter(self, timestamp: int) -> Bucket:
        """Track an evaluation; the bucket returned is its ticket for `leave`.

        It joins B2 if it can, also where it lowers B2's minimum: joining B1 would keep B1, and with it the bound,
        alive for longer. What lies at or below B1's minimum has to join B1.
        """
        first = self._first
        below = first.lowest is None or (timestamp <= first.lowest and self._keeps_order)
        bucket = first if below else self._second
        bucket.join(timestamp)
        return bucket

    def leave(self, bucket: Bucket) -> None:
        """An evaluation's log position is fixed, or it will never have one."""
        bucket.count -= 1
        if self._second.count == 0:
            self._second.lowest = None
        if self._first.count == 0:
            self._first.lowest = None
            self._first, self._second = self._second, self._first

    @property
    def bound(self) -> int | None:
        """At most the lowest timestamp tracked; None if nothing is."""
        return self._first.lowest


class InFlight(msgspec.Struct):
    """An evaluation whose log position is open; it will write at or above `timestamp`."""

    timestamp: int
    ticket: Any
    left: bool = False


class SharedClosed(msgspec.Struct):
    """What quiet ranges of one policy have closed together, each of them since it joined: C of all at once (R4)."""

    closed: int = 0


class Promises:
    """Promises under the lease with this `sequence`.

    C, the closed timestamp that was *assigned* last, binds from then on, applied or not (R4). It begins at the highest
    that is applied or that earlier holders promised: what they closed stays closed. While the range is quiet C is that
    of the ranges that it shares it with; in the step in which a write enters it leaves them with it, and `on_leave` is
    called.
    """

    def __init__(
        self,
        sequence: int,
        low_water: int,
        closed: int,
        flaws: frozenset[str] = frozenset(),
        read_spans: int = CAPACITY,
        exact: bool = False,
    ) -> None:
        self.sequence = sequence
        self._closed = max(closed, low_water)
        self._shared: SharedClosed | None = None
        self.on_leave: Callable[[], None] = _nothing
        self._reads = TimestampCache(low_water, read_spans, flaws)
        self._tracker: WriteTracker = HeapTracker() if exact else BucketTracker(flaws)
        self._heeds_in_flight = "closed-ignores-inflight" not in flaws
        self._goes_back = "closed-goes-back" in flaws

    @property
    def closed(self) -> int:
        """C, the closed timestamp that was assigned last."""
        return self._closed if self._shared is None else max(self._closed, self._shared.closed)

    def share(self, shared: SharedClosed, on_leave: Callable[[], None]) -> bool:
        """Close what these ranges have closed, and with them from now on; C may lie above that already. False where
        something is tracked: it will write above C, and what is closed together goes on rising."""
        if self._shared is not None:
            return False
        if self._tracker.bound is not None and self._heeds_in_flight:
            return False
        self._shared, self.on_leave = shared, on_leave
        return True

    def leave_shared(self) -> None:
        """Close by itself again, from what was closed together on; nothing where it does already."""
        if self._shared is not None:
            self._closed, self._shared = self._closed if self._goes_back else self.closed, None
            self.on_leave()

    def enter(self, requested: int) -> InFlight:
        """Track a write from now on, above C; that C is read in the same step is what keeps C below it."""
        if self._shared is not None:
            self.leave_shared()
        closed = self._closed
        timestamp = requested if requested > closed else closed + 1
        return InFlight(timestamp, self._tracker.enter(timestamp))

    def leave(self, write: InFlight) -> None:
        """Its log position is fixed, or it will never have one; a second time does nothing."""
        if not write.left:
            write.left = True
            self._tracker.leave(write.ticket)

    def close(self, target: int) -> int:
        """Assign a closed timestamp to the log position that is fixed now: as near to `target` as what is in flight
        allows, and never below C.
        """
        bound = self._tracker.bound
        if bound is not None and bound <= target and self._heeds_in_flight:
            target = bound - 1
        if self._shared is not None:
            self.leave_shared()
        if target > self._closed:
            self._closed = target
        return self._closed

    def served(self, spans: Iterable[Span], timestamp: int) -> None:
        """A read of these spans was served at `timestamp`."""
        for span in spans:
            self._reads.record(span, timestamp)

    def highest_read(self, spans: Iterable[Span]) -> int:
        """No read of these spans was served above this, by this holder or an earlier one."""
        return max(map(self._reads.highest, spans))

    def summary(self) -> tuple[int, int]:
        """(C, highest read of anything): what a successor must stay above (G3)."""
        return self.closed, self._reads.summary()


def _nothing() -> None:
    return None

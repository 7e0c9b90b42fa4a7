"""What the holder of one lease has promised about timestamps: reads served, writes in flight, what is closed. Pure.

In memory only, and made afresh for each lease: what earlier holders promised lies below the new lease's low water.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cluster.ranges.timestamp_cache import TimestampCache
from cluster.ranges.tracker import Bucket, BucketTracker
from cluster.store.cells import Span


class InFlight(msgspec.Struct):
    """An evaluation whose log position is open; it will write at or above `timestamp`."""

    timestamp: int
    ticket: Bucket
    left: bool = False


class Promises:
    """Promises under the lease with this `sequence`.

    `closed` is C, the closed timestamp that was *assigned* last: it binds from then on, applied or not (R4).
    """

    def __init__(self, sequence: int, low_water: int, closed: int, flaws: frozenset[str] = frozenset()) -> None:
        self.sequence = sequence
        self.closed = closed
        self._reads = TimestampCache(low_water)
        self._tracker = BucketTracker()
        self._heeds_in_flight = "closed-ignores-inflight" not in flaws

    def enter(self, requested: int) -> InFlight:
        """Track a write from now on, above C; that C is read in the same step is what keeps C below it."""
        timestamp = requested if requested > self.closed else self.closed + 1
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
        if target > self.closed:
            self.closed = target
        return self.closed

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

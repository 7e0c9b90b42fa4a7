"""The write tracker: a bound below the timestamps of all evaluations in flight, `t_eval` (R5). Pure.

A closed timestamp that is assigned now must stay below every write whose log position is still open. `BucketTracker`
is the approximation of the source ("两个桶": two buckets with a minimum and a reference count each), which needs no
lock where evaluations run in parallel.
"""

from __future__ import annotations


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


class BucketTracker:
    """Two buckets, B1 always below B2: the bound is B1's minimum, and rises when all of B1 have left."""

    def __init__(self) -> None:
        self._first, self._second = Bucket(), Bucket()

    def enter(self, timestamp: int) -> Bucket:
        """Track an evaluation; the bucket returned is its ticket for `leave`.

        It joins B2 if it can, also where it lowers B2's minimum: joining B1 would keep B1, and with it the bound,
        alive for longer. What lies at or below B1's minimum has to join B1.
        """
        first = self._first
        bucket = first if first.lowest is None or timestamp <= first.lowest else self._second
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

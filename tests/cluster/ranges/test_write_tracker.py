from __future__ import annotations

from heapq import heappop, heappush

from hypothesis import given
from hypothesis import strategies as st

from cluster.ranges.promises import Bucket, BucketTracker


class Tracked:
    """One entry of the heap."""

    __slots__ = ("gone", "timestamp")

    def __init__(self, timestamp: int) -> None:
        self.timestamp = timestamp
        self.gone = False

    def __lt__(self, other: Tracked) -> bool:
        return self.timestamp < other.timestamp


class ExactTracker:
    """The minimum itself: a heap whose entries are removed when they come up."""

    def __init__(self) -> None:
        self._heap: list[Tracked] = []

    def enter(self, timestamp: int) -> Tracked:
        """Track an evaluation; what is returned is its ticket for `leave`."""
        tracked = Tracked(timestamp)
        heappush(self._heap, tracked)
        return tracked

    def leave(self, tracked: Tracked) -> None:
        """An evaluation's log position is fixed, or it will never have one."""
        tracked.gone = True
        while self._heap and self._heap[0].gone:
            heappop(self._heap)

    @property
    def bound(self) -> int | None:
        """The lowest timestamp tracked; None if nothing is."""
        return self._heap[0].timestamp if self._heap else None


@given(data=st.data())
def test_the_buckets_bound_is_never_above_the_exact_one_and_falls_only_for_what_enters_below(
    data: st.DataObject,
) -> None:
    buckets, exact = BucketTracker(), ExactTracker()
    tickets: list[tuple[Bucket, Tracked]] = []
    for _ in range(data.draw(st.integers(1, 60))):
        before = buckets.bound
        if tickets and data.draw(st.booleans()):
            bucket, tracked = tickets.pop(data.draw(st.integers(0, len(tickets) - 1)))
            buckets.leave(bucket)
            exact.leave(tracked)
            assert before is not None and (buckets.bound is None or buckets.bound >= before)
        else:
            timestamp = data.draw(st.integers(1, 30))
            tickets.append((buckets.enter(timestamp), exact.enter(timestamp)))
            assert buckets.bound is not None
            assert buckets.bound == (timestamp if before is None else min(before, timestamp))
        live = [tracked.timestamp for _, tracked in tickets]
        assert exact.bound == min(live, default=None)
        assert (buckets.bound is None) == (not live)
        assert buckets.bound is None or buckets.bound <= min(live)


def test_the_three_cases_of_the_source() -> None:
    """B1 at 10 and B2 at 20; 25 and 15 join B2, 5 has to join B1."""
    for timestamp, after_first_bucket in ((25, 20), (15, 15), (5, 20)):
        tracker = BucketTracker()
        first, second = tracker.enter(10), tracker.enter(20)
        third = tracker.enter(timestamp)
        assert tracker.bound == min(10, timestamp)
        tracker.leave(first)
        if timestamp == 5:
            assert tracker.bound == 5
            tracker.leave(third)
        assert tracker.bound == after_first_bucket
        tracker.leave(second)


def test_a_stream_that_overlaps_without_end_does_not_hold_the_bound_back() -> None:
    tracker = BucketTracker()
    live = [tracker.enter(at) for at in range(1, 6)]
    for at in range(6, 1_000):
        live.append(tracker.enter(at))
        tracker.leave(live.pop(0))
    assert tracker.bound is not None and tracker.bound > 980

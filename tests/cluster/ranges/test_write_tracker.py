from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.ranges.promises import Bucket, BucketTracker, HeapTracker


@given(data=st.data())
def test_the_buckets_bound_is_never_above_the_exact_one_and_falls_only_for_what_enters_below(
    data: st.DataObject,
) -> None:
    buckets, exact = BucketTracker(), HeapTracker()
    tickets: list[tuple[Bucket, int, int]] = []
    for _ in range(data.draw(st.integers(1, 60))):
        before = buckets.bound
        if tickets and data.draw(st.booleans()):
            bucket, ticket, _ = tickets.pop(data.draw(st.integers(0, len(tickets) - 1)))
            buckets.leave(bucket)
            exact.leave(ticket)
            assert before is not None and (buckets.bound is None or buckets.bound >= before)
        else:
            timestamp = data.draw(st.integers(1, 30))
            tickets.append((buckets.enter(timestamp), exact.enter(timestamp), timestamp))
            assert buckets.bound is not None
            assert buckets.bound == (timestamp if before is None else min(before, timestamp))
        live = [timestamp for _, _, timestamp in tickets]
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


def test_with_the_flaw_tracker_wrong_bucket_what_is_lowest_does_not_count() -> None:
    tracker = BucketTracker(frozenset({"tracker-wrong-bucket"}))
    tracker.enter(10)
    tracker.enter(5)
    assert tracker.bound == 10

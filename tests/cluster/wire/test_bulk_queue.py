"""Bytes that can wait: bounds, deadlines and the rate, as pure state."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.wire.peers import BulkQueue

MS = 1_000_000
SECOND = 1_000 * MS


def test_it_releases_in_order_and_below_the_rate() -> None:
    queue: BulkQueue[int] = BulkQueue(rate_bytes_per_s=1_000, limit_bytes=10_000, patience_ns=100 * SECOND)
    for number in range(10):
        queue.put(number, 100, 0)
    left = [(now_ns, each) for now_ns in range(0, 2 * SECOND, 10 * MS) for each in queue.release(now_ns)]
    assert [number for _, number in left] == list(range(10))
    assert left[-1][0] >= 800 * MS
    assert queue.next_ns is None


def test_it_refuses_what_finds_no_room_and_drops_what_waits_too_long() -> None:
    queue: BulkQueue[int] = BulkQueue(rate_bytes_per_s=100, limit_bytes=250, patience_ns=SECOND)
    for number in range(4):
        queue.put(number, 100, 0)
    assert queue.dropped == 2
    assert queue.release(0) == [0]
    assert queue.release(5 * SECOND) == []
    assert queue.dropped == 3
    queue.put(9, 1_000_000, 5 * SECOND)
    assert queue.release(5 * SECOND) == [9], "one alone is taken whatever its size"


@settings(deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(0, 300 * MS), st.integers(0, 500)), max_size=40),
    rate=st.integers(100, 5_000),
    limit=st.integers(1, 2_000),
)
def test_nothing_is_lost_unless_it_is_counted_and_no_stretch_exceeds_the_rate(
    steps: list[tuple[int, int]], rate: int, limit: int
) -> None:
    queue: BulkQueue[tuple[int, int]] = BulkQueue(rate, limit, SECOND)
    now_ns, left = 0, []
    for number, (passed_ns, size) in enumerate(steps):
        now_ns += passed_ns
        queue.put((number, size), size, now_ns)
        left += [(now_ns, size) for _, size in queue.release(now_ns)]
    while queue.next_ns is not None:
        assert queue.next_ns > now_ns
        now_ns = queue.next_ns
        left += [(now_ns, size) for _, size in queue.release(now_ns)]
    assert len(left) + queue.dropped == len(steps)
    for first in range(len(left)):
        for last in range(first + 1, len(left)):
            stretch_s = (left[last][0] - left[first][0]) / SECOND
            assert sum(size for _, size in left[first:last]) <= rate * (stretch_s + 0.05) + 1 + left[first][1]

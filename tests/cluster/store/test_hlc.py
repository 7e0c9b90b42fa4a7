from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.store.hlc import LOGICAL_BITS, ClockOffsetTooLarge, ClockReading, Hlc, Timestamp, physical, shown_at

SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND


@settings(deadline=None)
@given(walls=st.lists(st.integers(NOW - 10 * SECOND, NOW + 10 * SECOND), min_size=1, max_size=50))
def test_timestamps_rise_whatever_the_wall_clock_does(walls: list[int]) -> None:
    clock = Hlc(SECOND)
    given_out = [clock.now(wall) for wall in walls]
    assert given_out == sorted(set(given_out))
    assert all(stamp >= physical(wall) for stamp, wall in zip(given_out, walls, strict=True))
    assert given_out[-1] <= physical(max(walls)) + len(walls)
    assert given_out[-1] < 1 << 63


def test_a_stopped_wall_clock_overflows_into_the_next_step() -> None:
    clock = Hlc(SECOND)
    first = clock.now(NOW)
    for _ in range(1 << LOGICAL_BITS):
        last = clock.now(NOW)
    assert last == first + (1 << LOGICAL_BITS)


def test_a_remote_reading_beyond_the_maximum_offset_is_refused_and_leaves_no_trace() -> None:
    clock = Hlc(SECOND)
    before = clock.now(NOW)
    with pytest.raises(ClockOffsetTooLarge):
        clock.observe(ClockReading(NOW + 2 * SECOND), NOW)
    assert clock.last == before
    clock.observe(ClockReading(NOW + SECOND), NOW)
    assert clock.now(NOW) > NOW + SECOND


@given(st.integers(1, 2**62))
def test_a_clock_shows_a_timestamp_with_a_counter_from_its_next_step_on(nanos: int) -> None:
    """Who slept until the timestamp itself found it not yet shown, and slept for as many ns again, and again."""
    timestamp = Timestamp(nanos)
    due_ns = shown_at(timestamp)
    assert physical(due_ns) >= timestamp > physical(due_ns - 1)

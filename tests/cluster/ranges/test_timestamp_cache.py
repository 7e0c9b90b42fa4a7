from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.ranges.timestamp_cache import TimestampCache
from cluster.store.cells import Span, overlap, point, rows

SPANS: list[Span] = [
    *(point((p, r, c)) for p in (0, 1) for r in range(4) for c in (0, 1)),
    rows(0, 1, 3),
    rows(1, 0, None),
]


@settings(deadline=None)
@given(
    reads=st.lists(st.tuples(st.sampled_from(SPANS), st.integers(1, 100)), max_size=60),
    capacity=st.integers(1, 12),
    low=st.integers(0, 50),
)
def test_the_cache_never_forgets_a_read_downwards(reads: list[tuple[Span, int]], capacity: int, low: int) -> None:
    cache = TimestampCache(low, capacity)
    highest = low
    for number, (span, at) in enumerate(reads):
        cache.record(span, at)
        highest = max(highest, at)
        for asked in SPANS:
            exact = max((at for other, at in reads[: number + 1] if overlap(asked, other)), default=0)
            assert max(low, exact) <= cache.highest(asked) <= highest
        assert cache.summary() == highest


@settings(deadline=None)
@given(reads=st.lists(st.tuples(st.sampled_from(SPANS), st.integers(1, 100)), max_size=40))
def test_a_cache_that_holds_everything_is_exact(reads: list[tuple[Span, int]]) -> None:
    cache = TimestampCache(5)
    for span, at in reads:
        cache.record(span, at)
    for asked in SPANS:
        assert cache.highest(asked) == max([5, *(at for other, at in reads if overlap(asked, other))])


def test_the_cache_is_bounded_whatever_is_read() -> None:
    cache = TimestampCache(0, capacity=10)
    for row in range(1_000):
        cache.record(point((0, row, 0)), row + 1)
    assert cache.highest(point((0, 999, 0))) == 1_000
    assert 980 <= cache.highest(point((5, 5, 5))) < 1_000


def test_with_the_flaw_cache_low_water_back_what_earlier_holders_served_is_forgotten() -> None:
    cache = TimestampCache(50, 2, frozenset({"cache-low-water-back"}))
    for row in (1, 2):
        cache.record(point((0, row, 0)), 60)
    assert cache.highest(point((0, 3, 0))) == 0

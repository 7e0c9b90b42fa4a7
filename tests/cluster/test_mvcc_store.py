from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.store.mvcc import LATEST, BelowThreshold, Key, MvccStore, TimestampCache

KEYS: list[Key] = [(0, 0, 0), (0, 1, 0), (7, 0, 2)]
WRITES = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(1, 5), st.none() | st.integers(0, 9)), max_size=40)


def rising(writes: list[tuple[Key, int, int | None]]) -> list[tuple[Key, int, int | None]]:
    at = 0
    result = []
    for key, step, value in writes:
        at += step
        result.append((key, at, value))
    return result


@settings(deadline=None)
@given(writes=WRITES, retention=st.integers(0, 60), as_of=st.integers(0, 250))
def test_a_read_gives_the_newest_version_at_its_time_or_is_refused(
    writes: list[tuple[Key, int, int | None]], retention: int, as_of: int
) -> None:
    store = MvccStore(retention)
    for key, at, value in rising(writes):
        store.write(key, at, value)
    copy = MvccStore.from_rows(store.rows(), retention, store.threshold)
    for key in KEYS:
        versions = [(at, value) for other, at, value in rising(writes) if other == key and at <= as_of]
        for candidate in (store, copy):
            if as_of < candidate.threshold:
                with pytest.raises(BelowThreshold):
                    candidate.read(key, as_of)
            else:
                assert candidate.read(key, as_of) == (versions[-1] if versions else None)


def test_old_versions_are_collected_but_never_the_one_in_force() -> None:
    store = MvccStore(retention_ns=10)
    for at in (1, 2, 3, 20):
        store.write(KEYS[0], at, at)
    assert store.rows() == [(KEYS[0], [(3, 3), (20, 20)])]
    assert store.threshold == 10
    assert store.read(KEYS[0], 10) == (3, 3)
    assert store.read(KEYS[0], LATEST) == (20, 20)


def test_a_version_that_is_not_the_newest_of_its_cell_is_refused() -> None:
    store = MvccStore(10)
    store.write(KEYS[0], 5, 1)
    with pytest.raises(ValueError, match="not above"):
        store.write(KEYS[0], 5, 2)


@settings(deadline=None)
@given(
    reads=st.lists(st.tuples(st.integers(0, 20), st.integers(1, 100)), max_size=60),
    capacity=st.integers(1, 8),
    low=st.integers(0, 50),
)
def test_the_cache_never_forgets_a_read_downwards(reads: list[tuple[int, int]], capacity: int, low: int) -> None:
    cache = TimestampCache(low, capacity)
    highest: dict[int, int] = {}
    for row, at in reads:
        cache.record((0, row, 0), at)
        highest[row] = max(highest.get(row, 0), at)
        assert all(cache.highest((0, row, 0)) >= at for row, at in highest.items())
    bound = max([low, *(at for _, at in reads)])
    assert all(low <= cache.highest((0, row, 0)) <= bound for row in range(21))


def test_a_cache_that_holds_everything_is_exact() -> None:
    cache = TimestampCache(5)
    cache.record(KEYS[0], 9)
    cache.record(KEYS[0], 7)
    assert cache.highest(KEYS[0]) == 9
    assert cache.highest(KEYS[1]) == 5

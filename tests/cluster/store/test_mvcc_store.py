from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.store.cells import Key, Value, overlap, point, rows, same_value
from cluster.store.mvcc import LATEST, BelowThreshold, FrozenCells, MvccStore, NotNewest, StoreRow
from cluster.wire.messages import encode
from tests.cluster.frozen import store_of, store_rows

KEYS: list[Key] = [(0, 0, 0), (0, 1, 0), (0, 1, 1), (7, 0, 2)]
SPANS = [*(point(key) for key in KEYS), rows(0, 0, None), rows(0, 1, 2), rows(7, -5, 9), rows(3, 0, None)]
WRITES = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(1, 60), st.none() | st.integers(0, 9)), max_size=40)

Written = list[tuple[Key, int, int | None]]
STEPS = st.lists(
    st.tuples(st.sampled_from([*KEYS, None]), st.integers(1, 60), st.none() | st.integers(0, 9)), max_size=40
)


class Model:
    """A store beside every version it ever took."""

    def __init__(self) -> None:
        self.store = MvccStore()
        self.writes: Written = []

    def write(self, key: Key, at: int, value: int | None) -> None:
        """In any order over the cells; a cell's own versions have to rise, and lie above the threshold."""
        newest = max((other_at for other, other_at, _ in self.writes if other == key), default=0)
        if at <= max(newest, self.store.threshold):
            with pytest.raises(NotNewest):
                self.store.write(key, at, value)
        else:
            self.store.write(key, at, value)
            self.writes.append((key, at, value))

    def in_force(self, key: Key, as_of: int) -> tuple[int, int | None] | None:
        versions = [(at, value) for other, at, value in self.writes if other == key and at <= as_of]
        return versions[-1] if versions else None


@settings(deadline=None)
@given(steps=STEPS, as_of=st.integers(0, 70))
def test_a_read_gives_the_newest_version_at_its_time_or_is_refused(
    steps: list[tuple[Key | None, int, int | None]], as_of: int
) -> None:
    model = Model()
    for key, at, value in steps:
        if key is None:
            model.store.raise_threshold(at // 2)
        else:
            model.write(key, at, value)
    for store in (model.store, store_of(store_rows(model.store), model.store.threshold)):
        for key in KEYS:
            if as_of < store.threshold:
                with pytest.raises(BelowThreshold):
                    store.read(key, as_of)
            else:
                assert store.read(key, as_of) == model.in_force(key, as_of)


@settings(deadline=None)
@given(writes=WRITES, as_of=st.integers(0, 70))
def test_a_scan_is_the_reads_of_its_cells_in_order(writes: Written, as_of: int) -> None:
    model = Model()
    for key, at, value in writes:
        model.write(key, at, value)
    store = model.store
    for span in SPANS:
        expected = [
            (key, store.read(key, as_of))
            for key in sorted(KEYS)
            if overlap(span, point(key)) and store.read(key, as_of)
        ]
        assert store.scan(span, as_of) == [
            (key, version) for key, version in expected if version and version[1] is not None
        ]
        times = [version.timestamp for key in KEYS if overlap(span, point(key)) and (version := store.read(key))]
        assert store.newest(span) == max(times, default=0)
        assert store.newest_by(span, as_of) == max((each[1].timestamp for each in expected if each[1]), default=0)


def test_old_versions_are_collected_but_never_the_one_in_force() -> None:
    store = MvccStore()
    for at in (1, 2, 3):
        store.write(KEYS[0], at, at)
    store.raise_threshold(10)
    store.raise_threshold(4)
    store.write(KEYS[0], 20, 20)
    assert store_rows(store) == [(KEYS[0], [(3, 3), (20, 20)])]
    assert store.read(KEYS[0], 10) == (3, 3)
    assert store.read(KEYS[0], LATEST) == (20, 20)
    with pytest.raises(BelowThreshold):
        store.read(KEYS[0], 9)


def test_a_write_that_is_not_its_cells_newest_or_lies_under_what_is_collected_is_refused_loudly() -> None:
    store = MvccStore()
    store.write(KEYS[0], 5, 1)
    store.write(KEYS[1], 3, 1)
    with pytest.raises(NotNewest, match="not above 5"):
        store.write(KEYS[0], 5, 2)
    store.raise_threshold(9)
    with pytest.raises(NotNewest, match="threshold"):
        store.write(KEYS[2], 9, 2)


def test_values_of_every_type_come_back_as_they_were() -> None:
    values: list[Value] = [1, 1.0, True, None, "one", b"one", -(1 << 63), 2.5, False, 0, ""]
    store = MvccStore()
    for row, value in enumerate(values):
        store.write((0, row, 0), 1, value)
    copy = store_of(msgspec.msgpack.decode(encode(store_rows(store)), type=list[StoreRow]))
    for row, value in enumerate(values):
        version = copy.read((0, row, 0))
        assert version is not None and same_value(version.value, value)
    assert not same_value(1, True) and not same_value(1, 1.0) and not same_value("a", b"a")


@settings(deadline=None)
@given(steps=STEPS, more=STEPS, row_bytes=st.sampled_from((1, 40, 1 << 20)))
def test_a_frozen_view_shows_nothing_of_what_is_written_collected_or_frozen_later(
    steps: list[tuple[Key | None, int, int | None]], more: list[tuple[Key | None, int, int | None]], row_bytes: int
) -> None:
    store = MvccStore()
    views: list[tuple[FrozenCells, list[StoreRow], int]] = []
    for time, (key, at, value) in enumerate([*steps, *more], 1):
        if key is None:
            views.append((store.freeze(), store_rows(store), store.digest))
            store.raise_threshold(time - at % 3)
        elif time > store.threshold:
            store.write(key, time, value)
    for view, expected, digest in views:
        rows = [row for row, _ in view.rows(row_bytes)]
        copy = store_of(rows)
        assert (store_rows(copy), copy.digest) == (expected, digest)
        assert row_bytes > 1 or all(len(versions) == 1 for _, versions in rows)

"""Room in versions (G6): intents of open transactions, and the clock times at which versions were written."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.store.cells import Key, point, rows
from cluster.store.intents import Intent, IntentRow, OpenIntent
from cluster.store.mvcc import LATEST, LocalTimeRow, MvccStore, NotNewest
from tests.cluster.frozen import store_of, store_rows

KEYS: list[Key] = [(0, 0, 0), (0, 1, -1), (0, 1, 1), (7, 0, 2)]
KEY, OTHER = KEYS[0], KEYS[1]

STEP = st.tuples(
    st.sampled_from(["write", "lay", "commit", "abort", "threshold"]),
    st.sampled_from(KEYS),
    st.sampled_from(["t", "u"]),
    st.integers(1, 40),
    st.integers(0, 45),
)


def laid(transaction: str = "t", timestamp: int = 10, value: int = 7, key: Key = KEY) -> MvccStore:
    """A store whose cells had a version each, and then an intent in one."""
    store = MvccStore()
    for each in KEYS:
        store.write(each, 5, 1)
    store.lay(key, Intent(transaction, timestamp, value, 4))
    return store


def all_of(store: MvccStore) -> tuple[object, ...]:
    """What a snapshot holds of it."""
    frozen = store.freeze()
    beside = [row for row, _ in frozen.local_times], [row for row, _ in frozen.intents]
    return store.threshold, store_rows(store), *map(sorted, beside)  # type: ignore[type-var]


def copied(store: MvccStore) -> MvccStore:
    """The store as a snapshot of it brings it back."""
    frozen = store.freeze()
    copy = store_of([row for row, _ in frozen.rows(1)], store.threshold)
    for time in msgspec.msgpack.decode(encoded([row for row, _ in frozen.local_times]), type=list[LocalTimeRow]):
        copy.restore_local_time(time)
    for intent in msgspec.msgpack.decode(encoded([row for row, _ in frozen.intents]), type=list[IntentRow]):
        copy.restore_intent(intent)
    return copy


def encoded(found: object) -> bytes:
    return msgspec.msgpack.encode(found)


def test_reads_below_an_intent_are_served_and_those_at_or_above_it_meet_it() -> None:
    store = laid()
    assert store.read(KEY, 9) == (5, 1)
    assert store.read(OTHER) == (5, 1)
    assert len(store.scan(rows(0, 0, None), 9)) == 3
    assert len(store.scan(rows(0, 1, None))) == 2
    for meets in (lambda: store.read(KEY, 10), lambda: store.read(KEY), lambda: store.scan(rows(0, 0, None), 10)):
        with pytest.raises(OpenIntent, match=r"\(0, 0, 0\) has an intent of t at 10") as met:
            meets()
        assert met.value.intent.value == 7
    assert store.newest(point(KEY)) == 5, "an intent is no version"


def test_a_cell_without_versions_may_have_an_intent() -> None:
    store = MvccStore()
    store.lay(KEY, Intent("t", 10, 7, 4))
    assert (store.read(KEY, 9), store.newest(point(KEY))) == (None, 0)
    with pytest.raises(OpenIntent):
        store.scan(rows(0, 0, None))
    assert store.resolve(KEY, "t", 10)
    assert store.read(KEY) == (10, 7)


def test_nobody_else_writes_a_cell_with_an_intent_and_its_own_transaction_may_lay_another() -> None:
    store = laid()
    for spoils in (
        lambda: store.write(KEY, 20, 2),
        lambda: store.lay(KEY, Intent("u", 20, 2, 4)),
        lambda: store.check_intents((point(OTHER), point(KEY))),
    ):
        with pytest.raises(OpenIntent):
            spoils()
    store.check_intents((point(OTHER),))
    store.lay(KEY, Intent("t", 12, 8, 4))
    assert store.read(KEY, 11) == (5, 1)
    assert store.resolve(KEY, "t", 15)
    assert (store.read(KEY), store.read(KEY, 14)) == ((15, 8), (5, 1))


@pytest.mark.parametrize("committed", [10, 30, None])
def test_an_intent_becomes_a_version_or_goes_once_however_often_it_is_resolved(committed: int | None) -> None:
    store = laid()
    assert not store.resolve(KEY, "u", committed), "another transaction's is left alone"
    assert store.intents.by_key
    assert store.resolve(KEY, "t", committed)
    assert not store.resolve(KEY, "t", committed)
    assert not store.intents.by_key
    assert store.read(KEY) == ((5, 1) if committed is None else (committed, 7))


def test_what_was_read_stays_true_beside_intents() -> None:
    store = laid()
    early: list[Callable[[], object]] = [
        lambda: store.lay(OTHER, Intent("t", 5, 2, 4)),
        lambda: store.resolve(KEY, "t", 9),
    ]
    store.raise_threshold(8)
    early.append(lambda: store.lay((3, 0, 0), Intent("t", 8, 2, 4)))
    for breaks in early:
        with pytest.raises(NotNewest):
            breaks()


def test_a_commit_may_lie_below_the_threshold_by_now_as_nobody_has_read_past_the_intent() -> None:
    store = laid()
    store.raise_threshold(30)
    with pytest.raises(OpenIntent):
        store.read(KEY, 30)
    assert store.resolve(KEY, "t", 12)
    assert store.read(KEY, 30) == (12, 7)


def test_a_local_time_is_kept_only_below_the_versions_timestamp() -> None:
    store = MvccStore()
    for timestamp, written_at in ((10, 4), (20, 20), (30, 31)):
        store.write(KEY, timestamp, timestamp, written_at)
    assert [store.written_at(KEY, timestamp) for timestamp in (10, 20, 30)] == [4, 20, 30]
    assert [row for row, _ in store.freeze().local_times] == [(KEY, 10, 4)]
    store.raise_threshold(25)
    store.write(KEY, 40, 40)
    assert store.written_at(KEY, 10) == 10, "the version is collected, and its time with it"
    assert [row for row, _ in store.freeze().local_times] == []


def test_a_version_of_an_intent_was_written_when_the_intent_was_laid() -> None:
    store = laid()
    assert store.resolve(KEY, "t", 15)
    assert store.written_at(KEY, 15) == 4


@settings(deadline=None)
@given(st.lists(STEP, max_size=40), st.integers(0, 40))
def test_a_snapshot_holds_intents_and_local_times_and_the_digest_is_of_them(
    steps: list[tuple[str, Key, str, int, int]], cut: int
) -> None:
    store, frozen = MvccStore(), MvccStore().freeze()
    seen: dict[int, tuple[object, ...]] = {}
    for number, (kind, key, transaction, timestamp, written_at) in enumerate(steps):
        before, was = all_of(store), store.digest
        try:
            if kind == "write":
                store.write(key, timestamp, timestamp, written_at)
            elif kind == "lay":
                store.lay(key, Intent(transaction, timestamp, timestamp, written_at))
            elif kind == "threshold":
                store.raise_threshold(timestamp // 2)
            else:
                store.resolve(key, transaction, timestamp if kind == "commit" else None)
        except (NotNewest, OpenIntent):
            assert (all_of(store), store.digest) == (before, was)
        after = all_of(store)
        assert (store.digest == was) == (after[1:] == before[1:])
        assert seen.setdefault(store.digest, after[1:]) == after[1:]
        copy = copied(store)
        assert (all_of(copy), copy.digest) == (after, store.digest)
        if number == cut:
            frozen, expected = store.freeze(), after
    if cut < len(steps):
        assert sorted(row for row, _ in frozen.intents) == expected[3]
        assert sorted(row for row, _ in frozen.local_times) == expected[2]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KEYS), st.integers(1, 40)), max_size=6), st.integers(0, 45))
def test_a_scan_meets_an_intent_iff_one_of_its_cells_has_one_at_or_below_its_time(
    intents: list[tuple[Key, int]], as_of: int
) -> None:
    store = MvccStore()
    for key, timestamp in intents:
        store.lay(key, Intent("t", timestamp, 1, 1))
    held = dict(intents)
    for span in [*map(point, KEYS), rows(0, 0, None), rows(0, 1, 2), rows(7, -5, 9), rows(3, 0, None)]:
        expected = any(span[0] <= key < span[1] and timestamp <= as_of for key, timestamp in held.items())
        try:
            store.scan(span, as_of)
        except OpenIntent as met:
            assert expected and held[met.key] == met.intent.timestamp
        else:
            assert not expected
    assert store.intents.by_key.keys() == held.keys()
    store.check_intents((), LATEST)

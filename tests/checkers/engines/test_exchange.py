"""Rows as bytes between workers: nothing is lost or changed, and equal keys meet."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkers.columns.mops import Columns
from checkers.engines.exchange import buckets_of, split, united

EXTREMES = st.sampled_from([-(2**63), -1, 0, 1, 255, 256, 2**16, 2**32, 2**62, 2**63 - 1])
NUMBERS = st.one_of(EXTREMES, st.integers(-(2**63), 2**63 - 1), st.integers(0, 3))
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=60)


def columns(rows: list[tuple[int, int, int]]) -> Columns:
    names = ("kind", "key", "value")
    return {name: np.array([row[i] for row in rows], np.int64) for i, name in enumerate(names)}


def as_rows(columns: Columns) -> list[tuple[int, ...]]:
    return list(zip(*(columns[name].tolist() for name in ("kind", "key", "value")), strict=True))


@given(st.lists(ROWS, max_size=4), st.integers(1, 9))
def test_rows_arrive_whole_in_order_and_with_their_keys(pieces: list[list[tuple[int, int, int]]], buckets: int) -> None:
    parts: dict[int, list[bytes]] = {}
    for piece in pieces:
        for bucket, data in split(columns(piece), ("key",), buckets):
            parts.setdefault(bucket, []).append(data)
    arrived = {bucket: as_rows(united(mine, ("kind", "key", "value"))) for bucket, mine in parts.items()}
    sent = [row for piece in pieces for row in piece]
    assert sorted(row for rows in arrived.values() for row in rows) == sorted(sent)
    for key in {row[1] for row in sent}:
        homes = [rows for rows in arrived.values() if any(row[1] == key for row in rows)]
        assert len(homes) == 1
        assert [row for row in homes[0] if row[1] == key] == [row for row in sent if row[1] == key]


def test_a_constant_column_is_kept_once_and_takes_the_bucket_of_a_plain_one() -> None:
    plain = columns([(0, 7, 1), (0, 7, 2)])
    short = plain | {"key": np.broadcast_to(np.int64(7), 2)}
    assert buckets_of(plain, ("key",), 97).tolist() == buckets_of(short, ("key",), 97).tolist()
    ((_, data),) = split(short, ("key",), 1)
    assert united([data, data], ("key",))["key"].strides == (0,)


@pytest.mark.parametrize("buckets", [2, 40])
def test_buckets_of_many_keys_are_of_a_size(buckets: int) -> None:
    keys = np.arange(100_000)
    sizes = np.bincount(buckets_of({"kind": keys, "key": keys}, ("key",), buckets), minlength=buckets)
    assert sizes.min() > 0.8 * sizes.mean()


def test_every_key_tells_rows_apart() -> None:
    """However many there are: one queue's elements have the sixth."""
    names = [f"key{number}" for number in range(7)]
    for name in names:
        rows = {other: np.zeros(1_000, np.int64) for other in (*names, "kind")} | {name: np.arange(1_000)}
        assert len(np.unique(buckets_of(rows, names, 10))) == 10, name

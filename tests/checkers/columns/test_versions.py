"""Rows in order within their groups."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from checkers.columns.codes import NEVER, NIL
from checkers.columns.versions import grouped_order

keys = st.one_of(st.integers(0, 5), st.sampled_from([NIL, NIL + 1, NEVER]))


@given(st.lists(st.tuples(st.integers(0, 4), keys), max_size=60), st.integers(0, 3))
def test_rows_are_in_order_within_their_groups_and_equal_ones_stay_as_they_were(
    rows: list[tuple[int, int]], empty: int
) -> None:
    ids, by = np.array([i for i, _ in rows], np.int64), np.array([b for _, b in rows], np.int64)
    order, begin = grouped_order(ids, 5 + empty, by)
    assert order.tolist() == sorted(range(len(rows)), key=rows.__getitem__)
    assert begin.tolist() == [int((ids < one).sum()) for one in range(6 + empty)]


def test_rows_that_are_far_from_their_places_are_sorted_too() -> None:
    by = np.arange(10_000)[::-1].copy()
    order, begin = grouped_order(by % 3, 3, by)
    assert order.tolist() == sorted(range(10_000), key=lambda row: (by[row] % 3, by[row]))
    assert begin.tolist() == [0, 3_334, 6_667, 10_000]

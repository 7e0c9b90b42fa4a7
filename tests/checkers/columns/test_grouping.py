"""Sorted operations are handed to kernels a slice of whole keys at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from checkers.columns.codes import RegisterColumns
from checkers.columns.projection import KeyedOps, slices


@given(st.lists(st.integers(1, 9), max_size=30), st.integers(1, 20))
def test_slices_are_whole_keys_in_order_and_no_larger_than_asked(sizes: list[int], rows: int) -> None:
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    many = int(offsets[-1])
    numbers = np.arange(many)
    columns = RegisterColumns(offsets, numbers.astype(np.uint8), numbers, numbers, numbers, numbers)
    parts = list(slices(KeyedOps(np.arange(4 * len(sizes)).reshape(-1, 4), columns), rows))
    assert np.concatenate([part.columns.invoke for part in parts]).tolist() == numbers.tolist()
    assert np.concatenate([part.addresses for part in parts])[:, 0].tolist() == list(range(0, 4 * len(sizes), 4))
    found = [size for part in parts for size in np.diff(part.columns.offsets).tolist()]
    assert found == sizes
    assert all(len(part.columns.invoke) <= rows or len(part.addresses) == 1 for part in parts)

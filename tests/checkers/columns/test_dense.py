"""Small numbers for values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from checkers.columns.dense import ranked

_ENDS = st.sampled_from([-(2**62), -5000, -4097, -1, 0, 1, 4095, 4096, 10**9, 2**62])


@given(arrays(np.int64, st.integers(0, 200), elements=st.tuples(_ENDS, st.integers(-9000, 9000)).map(sum)))
def test_values_are_ranked_as_numpy_ranks_them_wherever_they_lie(values: np.ndarray) -> None:
    distinct, places = ranked(values)
    wanted = np.unique(values, return_inverse=True)
    assert distinct.tolist() == wanted[0].tolist()
    assert places.tolist() == wanted[1].tolist()
    assert places.dtype == np.int32


@pytest.mark.parametrize("distance", (0, 10**6, -(10**12)))
def test_many_values_in_two_places(distance: int) -> None:
    values = np.random.default_rng(distance & 7).integers(0, 50_000, 40_000)
    values[::2] += distance
    distinct, places = ranked(values)
    assert (distinct[places] == values).all()
    assert (np.diff(distinct) > 0).all()
    assert sorted(set(places.tolist())) == list(range(len(distinct)))

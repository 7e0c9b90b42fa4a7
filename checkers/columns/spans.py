"""Spans of numbers, spread out."""

from __future__ import annotations

import numpy as np

from checkers.columns.codes import Ints


def spread(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """All numbers from each `low` to each `high` (excluded), and whose each is."""
    sizes = high - low
    of = np.repeat(np.arange(len(low)), sizes)
    before = np.cumsum(sizes) - sizes
    return np.repeat(low - before, sizes) + np.arange(len(of)), of

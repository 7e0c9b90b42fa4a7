"""Small numbers for what is the same in several columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from checkers.kernels.columns import Ints


def dense(values: Ints) -> tuple[Ints, int]:
    """Small ids, equal for equal values and in their order, and how many ids there may be; linear if values are."""
    if not len(values):
        return values.astype(np.int64), 0
    lowest, highest = int(values.min()), int(values.max())
    if highest - lowest < 4 * len(values) + 1024:
        return values - lowest, highest - lowest + 1
    distinct, ids = np.unique(values, return_inverse=True)
    return ids.astype(np.int64), len(distinct)


def packed(ids: Ints, count: int) -> tuple[Ints, int]:
    """The same without gaps: every id below the count is used."""
    used = np.zeros(count, np.bool_)
    used[ids] = True
    numbers = np.cumsum(used) - 1
    return numbers[ids], int(used.sum())


def together(columns: Sequence[Ints]) -> tuple[Ints, int]:
    """One id for each combination of values that occurs, in the order of the columns, without gaps."""
    ids, count = np.zeros(len(columns[0]), np.int64), min(1, len(columns[0]))
    for column in columns:
        if len(column) and (column == column[0]).all():
            continue
        more, width = dense(column)
        if count * width >= 2**62:
            more, width = packed(more, width)
        ids, count = dense(ids * width + more)
    return packed(ids, count) if len(ids) else (ids, 0)

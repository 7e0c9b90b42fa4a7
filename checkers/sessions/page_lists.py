"""Partition writes that append to several lists, or several elements to one, of which one read shows a part only.

A write is seen in a list if its element is within what was read of it. For each pair of lists that are written
together, the writes are sorted by their place in the first list; the latest place in the second among those seen in
the first must have been read of the second as well. Of a write that appends to a list several times the second is the
first itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from checkers.columns.codes import NEVER, Ints
from checkers.columns.dense import spread, together

_PAIRS_AT_ONCE = 4_000_000
"""Memory only: what is left of the visits is searched next."""


class Appends(NamedTuple):
    """Elements of partition writes: the visit that wrote each, its cell, its place in the cell's longest list (from 1;
    NEVER if it is not there), and its row."""

    visit: Ints
    cell: Ints
    place: Ints
    row: Ints


class Lengths(NamedTuple):
    """Lists read: the visit, the cell, how many elements, and the row."""

    visit: Ints
    cell: Ints
    length: Ints
    row: Ints


class TornLists(NamedTuple):
    """By torn read: the rows that show and do not show a write, and the rows of the write there."""

    shown: Ints
    lacking: Ints
    written: Ints
    unwritten: Ints

    def without(self, dropped: np.ndarray) -> TornLists:
        """Those that are not flagged."""
        return TornLists(*(column[~dropped] for column in self))


def _pairs(visit: Ints) -> tuple[Ints, Ints]:
    """All ordered pairs of different rows of equal visits (which are sorted)."""
    begins = np.flatnonzero(np.diff(visit, prepend=-1))
    sizes = np.diff(np.append(begins, len(visit)))
    second, first = spread(np.repeat(begins, sizes), np.repeat(begins + sizes, sizes))
    keep = first != second
    return first[keep], second[keep]


class _LatestPlaces(NamedTuple):
    """By pair of cells (coded) and place in the first: the latest place in the second so far, and by which write."""

    code: Ints
    place: Ints
    latest: Ints
    by: Ints
    first: Ints


def _latest(appends: Appends, cells: int, end: int) -> _LatestPlaces:
    first, second = _pairs(appends.visit)
    seen = appends.place[first] != NEVER
    first, second = first[seen], second[seen]
    code = appends.cell[first] * cells + appends.cell[second]
    place, other = appends.place[first], np.minimum(appends.place[second], end)
    order = np.lexsort((place, code))
    code, place, other, first, second = code[order], place[order], other[order], first[order], second[order]
    begin = np.flatnonzero(np.diff(code, prepend=-1))
    rank = np.cumsum(np.diff(code, prepend=-1) != 0) if len(code) else code
    latest = np.maximum.accumulate(other + rank * (end + 1)) - rank * (end + 1) if len(code) else other
    is_new = np.ones(len(code), np.bool_)
    is_new[1:] = latest[1:] != latest[:-1]
    is_new[begin] = True
    at = np.maximum.accumulate(np.where(is_new, np.arange(len(code)), 0)) if len(code) else code
    return _LatestPlaces(code, place, latest, second[at], first[at])


def cells_twice(appends: Appends) -> Ints:
    """Cells to which some write appended several times: one list may show a part of it."""
    ids, _ = together((appends.visit, appends.cell))
    return np.unique(appends.cell[np.bincount(ids)[ids] > 1]) if len(ids) else appends.cell


def read_twice(appends: Appends, lengths: Lengths) -> Ints:
    """Visits that read one list with what a partition write appended to it, and without."""
    ids, count = together((lengths.visit, lengths.cell))
    if count == len(ids):
        return np.empty(0, np.int64)
    least, most, row = np.full(count, NEVER), np.zeros(count, np.int64), np.empty(count, np.int64)
    np.minimum.at(least, ids, lengths.length)
    np.maximum.at(most, ids, lengths.length)
    row[ids] = np.arange(len(ids))
    end = int(most.max()) + 1
    known = np.sort(appends.cell * (end + 1) + np.minimum(appends.place, end))
    begin, stop = (np.searchsorted(known, lengths.cell[row] * (end + 1) + length, "right") for length in (least, most))
    return np.unique(lengths.visit[row[begin < stop]])


def torn_lists(appends: Appends, lengths: Lengths, cells: int, alone: Ints) -> TornLists:
    """Reads that show a part of a write, one finding a visit; rows are sorted by visit, and a list of the cells `alone`
    (see `cells_twice`) is compared with itself too."""
    end = int(max(lengths.length.max(initial=0), 0)) + 1
    table = _latest(appends, cells, end)
    found: list[tuple[Ints, Ints, Ints, Ints]] = []
    step = 0
    while len(table.code) and step < len(lengths.visit):
        stop = min(len(lengths.visit), step + _PAIRS_AT_ONCE // 64)
        while stop < len(lengths.visit) and lengths.visit[stop] == lengths.visit[stop - 1]:
            stop += 1
        found.append(_search(table, lengths, np.arange(step, stop), cells, end, alone))
        step = stop
    if not found:
        nothing = np.empty(0, np.int64)
        return TornLists(nothing, nothing, nothing, nothing)
    shown, lacking, by, first = (np.concatenate([part[i] for part in found]) for i in range(4))
    return TornLists(lengths.row[shown], lengths.row[lacking], appends.row[first], appends.row[by])


def _search(
    table: _LatestPlaces, lengths: Lengths, chosen: Ints, cells: int, end: int, alone: Ints
) -> tuple[Ints, Ints, Ints, Ints]:
    first, second = _pairs(lengths.visit[chosen])
    itself = chosen[np.isin(lengths.cell[chosen], alone)]
    first, second = np.concatenate((chosen[first], itself)), np.concatenate((chosen[second], itself))
    code = lengths.cell[first] * cells + lengths.cell[second]
    begin = np.searchsorted(table.code, code)
    rank = np.cumsum(np.diff(table.code, prepend=-1) != 0)
    known = (begin < len(table.code)) & (table.code[np.minimum(begin, len(table.code) - 1)] == code)
    mine = rank[np.minimum(begin, len(table.code) - 1)]
    keys = rank * (end + 1) + np.minimum(table.place, end)
    at = np.searchsorted(keys, mine * (end + 1) + lengths.length[first], side="right") - 1
    torn = known & (at >= begin)
    torn &= table.latest[np.maximum(at, 0)] > lengths.length[second]
    rows = np.flatnonzero(torn)
    _, once = np.unique(lengths.visit[first[rows]], return_index=True)
    rows = rows[once]
    return first[rows], second[rows], table.by[at[rows]], table.first[at[rows]]

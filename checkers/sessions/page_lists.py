"""Partition writes that append to several lists, or several elements to one, of which one read shows a part only.

A write is seen in a list if its element is within what was read of it. For each pair of lists that are written
together, the writes are sorted by their place in the first list; the latest place in the second among those seen in the
first must have been read of the second as well. Of a write that appends to a list several times the second is the first
itself.

Where the lengths of lists do not tell enough, writes are looked for by their elements (`torn_by_elements`): in pages
that read a list which is no prefix of the longest, or a list several times, or that append themselves. A write is seen
in a list that has its element, wherever that stands, and the page's lists must have what the write appended to them.
Cost is the sum of the lists' lengths of such pages, times the cells that a page and a write have in common, or the
fewer of those that one of them has.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from checkers.columns.chains import Chains, chain_of
from checkers.columns.codes import NEVER, Ints
from checkers.columns.dense import spread, together
from checkers.columns.mops import Columns
from checkers.columns.versions import LIST_READ

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
        """The torn reads that are not flagged."""
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


class _Writes(NamedTuple):
    """Rows of appends: by cell and element, and by visit and cell."""

    of_element: dict[tuple[int, int], int]
    of_visit: dict[int, dict[int, list[int]]]


class _PageOfLists(NamedTuple):
    """One visit's lists: its rows by cell, and the elements by row, in order."""

    visit: int
    rows: dict[int, list[int]]
    lists: dict[int, dict[int, None]]


def torn_by_elements(
    rows: Columns, visit: Ints, cell: Ints, chains: Chains, appends: Appends, reads: Ints
) -> TornLists:
    """Torn reads among the rows `reads` of lists (sorted by visit), one finding a visit."""
    found: list[tuple[int, int, int, int]] = []
    if len(reads):
        writes = _look_up(rows, visit, cell, appends.row[np.isin(appends.cell, np.unique(cell[reads]))])
        for page in _pages(rows, visit, cell, chains, reads):
            if torn := _torn(rows, visit, cell, writes, page):
                found.append(torn)
    return TornLists(*np.array(found, np.int64).reshape(-1, 4).T)


def _look_up(rows: Columns, visit: Ints, cell: Ints, appends: Ints) -> _Writes:
    writes = _Writes({}, {})
    for row in appends.tolist():
        writes.of_element[int(cell[row]), int(rows["value"][row])] = row
        writes.of_visit.setdefault(int(visit[row]), {}).setdefault(int(cell[row]), []).append(row)
    return writes


def _pages(rows: Columns, visit: Ints, cell: Ints, chains: Chains, reads: Ints) -> list[_PageOfLists]:
    length = np.where(rows["kind"][reads] == LIST_READ, rows["value"][reads], 0)
    chain = chain_of(chains, cell[reads], rows["chain"][reads])
    first = chains.begin[chain]
    pages: dict[int, _PageOfLists] = {}
    for row, start, size in zip(reads.tolist(), first.tolist(), length.tolist(), strict=True):
        page = pages.setdefault(int(visit[row]), _PageOfLists(int(visit[row]), {}, {}))
        page.rows.setdefault(int(cell[row]), []).append(row)
        page.lists[row] = dict.fromkeys(chains.items[start : start + size].tolist())
    return list(pages.values())


def _torn(
    rows: Columns, visit: Ints, cell: Ints, writes: _Writes, page: _PageOfLists
) -> tuple[int, int, int, int] | None:
    """The rows that show and do not show a write, and the rows of the write there."""
    met: set[int] = set()
    for shown, elements in page.lists.items():
        for element in elements:
            written = writes.of_element.get((int(cell[shown]), element), -1)
            if written < 0 or int(visit[written]) in met:
                continue
            met.add(int(visit[written]))
            wrote = writes.of_visit[int(visit[written])]
            few, many = sorted((wrote, page.rows), key=len)
            for common in (number for number in few if number in many):
                for lacking in page.rows[common]:
                    # What an operation read before it appended there lacks that by right.
                    own = int(visit[written]) == page.visit
                    due = (row for row in wrote[common] if not own or rows["place"][row] < rows["place"][lacking])
                    for unwritten in due:
                        if int(rows["value"][unwritten]) not in page.lists[lacking]:
                            return shown, lacking, written, unwritten
    return None

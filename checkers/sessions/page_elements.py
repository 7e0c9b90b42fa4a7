"""Pages of which the lengths of lists do not tell enough: partition writes are looked for by their elements.

Those are pages that read a list which is no prefix of the longest, or a list several times, or that append themselves.
A write is seen in a list that has its element, wherever that stands, and the page's lists must have what the write
appended to them. Cost is the sum of the lists' lengths of such pages, times the cells that a page and a write
have in common, or the fewer of those that one of them has.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from checkers.columns.chains import Chains, chain_of
from checkers.columns.codes import Ints
from checkers.columns.mops import Columns
from checkers.columns.versions import LIST_READ
from checkers.sessions.page_lists import Appends, TornLists


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

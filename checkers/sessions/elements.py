"""Lists whose elements have no certain order: what sessions appended and read is looked up in every list of its own.

Where some read is no prefix of the longest list, or an element was appended more than once, places in the longest list
decide nothing. But each list speaks for itself: it must have what its own session had appended, and what it shows of a
session's appends must stand behind all that this session had appended, or read, before. Every list is a prefix of one
of the few chains (see `columns.chains`), so appends are looked for in these. Cost is the sum of the lists' lengths in
such cells, for `writes-follow-reads` times the sessions whose appends a chain shows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from heapq import nsmallest
from itertools import islice, takewhile
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np

from checkers.columns.chains import Chains
from checkers.columns.codes import NEVER, NIL, OK, READ, Ints
from checkers.columns.mops import Columns, key_of
from checkers.columns.versions import APPEND, LIST_READ, Bools
from checkers.sessions.lists import OddRows
from checkers.sessions.session_order import MONOTONIC_WRITES, READ_YOUR_WRITES, WRITES_FOLLOW_READS, Events


class Misplaced(NamedTuple):
    """A violation of the guarantee `code`: `element`, which the session appended or read in row `earlier`, is not where
    row `late` needs it, be that a read or an append; `reader` is the first read that shows the latter."""

    code: int
    late: int
    earlier: int
    element: int
    reader: int


class _Known(NamedTuple):
    """An element that a session had appended or read when the operation of a row completed."""

    complete: int
    row: int
    element: int


class _List(NamedTuple):
    """A prefix of a chain, which has first places (from 1) of elements, in order."""

    places: dict[int, int]
    length: int

    def has(self, element: int) -> bool:
        return self.places.get(element, NEVER) <= self.length

    def elements(self) -> Iterator[int]:
        return takewhile(lambda element: self.places[element] <= self.length, self.places)


class _CellLists(NamedTuple):
    """One cell's lists: by chain the longest that was read, and by row of a read. Then the appends of elements that
    were appended once, and by session what it appended and what it read, by completion."""

    chains: dict[int, _List]
    reads: dict[int, _List]
    appends: dict[int, int]
    appended: dict[int, list[_Known]]
    read: dict[int, list[_Known]]


def misplaced(
    rows: Columns, events: Events, chains: Chains, odd: OddRows, wanted: Bools, explain: int
) -> tuple[Ints, list[Misplaced]]:
    """How often the wanted guarantees (flags by code) but monotonic reads are violated in cells without order, at most
    once a read or append, and the first `explain` violations of each. What shows a repeated element tells nothing of
    its writers; what lacks it does."""
    counts = np.zeros(len(wanted), np.int64)
    kept: list[list[Misplaced]] = [[] for _ in wanted]
    cells, repeated = odd.cells, set(odd.doubled.tolist())
    firsts = np.searchsorted(chains.cell, cells)
    stops = np.searchsorted(chains.cell, cells, side="right")
    for number, first, stop in zip(cells.tolist(), firsts.tolist(), stops.tolist(), strict=True):
        cell = _look_up(rows, events, chains, range(first, stop), number, repeated)
        for code in (code for code in _LACKING if wanted[code]):
            lacking = _LACKING[code](events, cell)
            counts[code] += len(lacking)
            kept[code] += (_misplaced(rows, cell, code, late, lacking[late]) for late in nsmallest(explain, lacking))

    # As `earliest` orders findings.
    return counts, [
        one
        for mine in kept
        for one in nsmallest(explain, mine, key=lambda one: (int(rows["invoke"][one.late]), key_of(rows, one.late)))
    ]


def _look_up(rows: Columns, events: Events, chains: Chains, mine: range, number: int, repeated: set[int]) -> _CellLists:
    places: dict[int, dict[int, int]] = {}
    for chain in mine:
        items = chains.items[chains.begin[chain] : chains.begin[chain + 1]].tolist()
        # Of an element that stands there twice the first place counts.
        first = places.setdefault(int(chains.name[chain]), {})
        for place, item in enumerate(items, 1):
            first.setdefault(item, place)
    cell = _CellLists({}, {}, {}, {}, {})
    rows_of_cell = range(int(events.begin[number]), int(events.begin[number + 1]))
    for row in rows_of_cell:
        kind, name, value = (int(rows[column][row]) for column in ("kind", "chain", "value"))
        if kind == LIST_READ:
            cell.reads[row] = _List(places.get(name, {}), value)
            cell.chains[name] = max(cell.reads[row], cell.chains.get(name, cell.reads[row]), key=attrgetter("length"))
        elif kind == READ and value == NIL:
            cell.reads[row] = _List({}, 0)
        elif kind == APPEND and row not in repeated:
            cell.appends[value] = row
    _fill_sessions(rows, events, cell, rows_of_cell)
    return cell


def _fill_sessions(rows: Columns, events: Events, cell: _CellLists, rows_of_cell: range) -> None:
    shown: dict[int, set[int]] = {}
    for row in sorted(rows_of_cell, key=lambda row: (int(events.complete[row]), row)):
        session, complete = int(events.session[row]), int(events.complete[row])
        if row in cell.reads:
            seen = shown.setdefault(session, set())
            fresh = [element for element in cell.reads[row].elements() if element not in seen]
            seen.update(fresh)
            cell.read.setdefault(session, []).extend(_Known(complete, row, element) for element in fresh)
        elif rows["kind"][row] == APPEND and rows["status"][row] == OK:
            cell.appended.setdefault(session, []).append(_Known(complete, row, int(rows["value"][row])))


def _due(events: Events, known: list[_Known], row: int) -> int:
    """How many of them the session knew of when a row began."""
    return bisect_left(known, int(events.invoke[row]), key=attrgetter("complete"))


def _missed(events: Events, cell: _CellLists) -> dict[int, _Known]:
    """By read the first that its session had appended and that it lacks. The search ends there, so that it is no longer
    than the list."""
    lacking = {}
    for row, shown in cell.reads.items():
        appended = cell.appended.get(int(events.session[row]), [])
        for known in islice(appended, _due(events, appended, row)):
            if not shown.has(known.element):
                lacking[row] = known
                break
    return lacking


def _before(events: Events, cell: _CellLists, known: dict[int, list[_Known]]) -> dict[int, _Known]:
    """By append the first that its session knew of when it began, and that some list shows after it or not at all."""
    lacking: dict[int, int] = {}
    asking: dict[int, tuple[int, int, int]] = {}
    for element, row in cell.appends.items():
        session = int(events.session[row])
        if due := _due(events, known.get(session, []), row):
            asking[element] = row, session, due
    for chain in cell.chains.values():
        passed: dict[int, int] = {}
        for element in chain.elements():
            if element not in asking:
                continue
            row, session, due = asking[element]
            place, mine, at = chain.places[element], known[session], passed.get(session, 0)
            # All of `mine` before `at` stands in the chain before this place.
            while at < due and (mine[at].element == element or chain.places.get(mine[at].element, NEVER) < place):
                at += 1
            passed[session] = at
            if at < due:
                lacking[row] = min(at, lacking.get(row, at))
    return {row: known[int(events.session[row])][at] for row, at in lacking.items()}


_LACKING: Final[dict[int, Callable[[Events, _CellLists], dict[int, _Known]]]] = {
    READ_YOUR_WRITES: _missed,
    MONOTONIC_WRITES: lambda events, cell: _before(events, cell, cell.appended),
    WRITES_FOLLOW_READS: lambda events, cell: _before(events, cell, cell.read),
}


def _misplaced(rows: Columns, cell: _CellLists, code: int, late: int, known: _Known) -> Misplaced:
    reader = late if late in cell.reads else _first_reader(cell, int(rows["value"][late]), known.element)
    return Misplaced(code, late, known.row, known.element, reader)


def _first_reader(cell: _CellLists, late: int, earlier: int) -> int:
    """The first read that shows an element and does not show another before it."""
    return next(
        row
        for row, shown in cell.reads.items()
        if shown.has(late) and shown.places.get(earlier, NEVER) > shown.places[late]
    )

"""Appended lists: what tells nothing of the guarantees and what verdict that leaves, and lists in no certain order.

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

from checkers.columns.chains import Chains, chain_of, find_chains, first_shown
from checkers.columns.codes import NEVER, NIL, OK, READ, WRITE, Bools, Ints
from checkers.columns.dense import together
from checkers.columns.mops import Columns, key_of
from checkers.columns.versions import APPEND, ELEMENT, LIST_READ
from checkers.findings import Findings
from checkers.sessions.session_order import MONOTONIC_WRITES, READ_YOUR_WRITES, WRITES_FOLLOW_READS, Events
from checkers.verdict import NO_READS, Validity, reads_of_several, values_of_nobody, writes_of_two_orders

UNDECIDED: Final = "lists_undecided"
"""The figure that counts those on lists."""

READS_UNCLEAR: Final = "reads_unclear"
"""The figure that counts reads of values that several operations wrote."""

UNWRITTEN: Final = "values_unwritten"
"""The figure that counts values, and elements of lists, that were read and that nobody had begun to write by then."""


UNTIMELY: Final = "writes_untimely"
"""The figure that counts writes whose timestamps contradict real time where others state none."""


class OddRows(NamedTuple):
    """Rows of lists that places in the longest list do not order: reads of what is no prefix of it, appends of elements
    that were appended more than once, reads and writes of whole values; and the cells in which one of the first two
    is."""

    off_chain: Ints
    doubled: Ints
    whole: Ints
    cells: Ints


def listed_cells(rows: Columns, cell: Ints, cells: int) -> Bools:
    """By cell, whether it is a list: something was appended, or a list was read."""
    listed = np.zeros(cells, np.bool_)
    listed[cell[(rows["kind"] == LIST_READ) | (rows["kind"] == APPEND)]] = True
    return listed


def written_over(rows: Columns, cell: Ints, listed: Bools) -> Bools:
    """By cell, whether it is a list that somebody wrote as a whole or deleted: what reads lack may be gone by right."""
    over = np.zeros(len(listed), np.bool_)
    over[cell[rows["kind"] == WRITE]] = True
    over &= listed
    return over


def without_elements(rows: Columns, cell: Ints, cells: int) -> tuple[Chains, Bools]:
    """The chains of elements that lists show, and which rows are no elements but operations."""
    elements = rows["kind"] == ELEMENT
    name, place, item = (rows[column][elements] for column in ("chain", "place", "value"))
    return find_chains(cell[elements], name, place, item, cells), ~elements


class ListRows(NamedTuple):
    """Rows of lists that nobody wrote as a whole: by row whether it is of one, the reads of nothing, the reads of
    elements, and which of these have no more elements than the longest list has in common with them."""

    inside: Bools
    empty: Ints
    read: Ints
    fits: Bools


def list_rows(rows: Columns, cell: Ints, listed: Bools, chains: Chains) -> ListRows:
    """The reads of lists (flags `listed` by cell), and whether their lengths tell what they show."""
    inside = (listed & ~written_over(rows, cell, listed))[cell]
    empty = np.flatnonzero(inside & (rows["kind"] == READ) & (rows["value"] == NIL))
    read = np.flatnonzero(inside & (rows["kind"] == LIST_READ))
    chain = chain_of(chains, cell[read], rows["chain"][read])
    common = np.where(chain >= 0, chains.common[chain] if len(chains.common) else 0, 0)
    return ListRows(inside, empty, read, rows["value"][read] <= common)


def whole_values(rows: Columns) -> Bools:
    """By row, whether it reads or writes one value as a whole, which has no place in a list."""
    kind = rows["kind"]
    whole: Bools = (kind == WRITE) | ((kind == READ) & (rows["value"] != NIL))
    return whole


def repeated(cell: Ints, item: Ints) -> Bools:
    """By append, whether its element was appended more than once: which of them a list shows is not known."""
    ids, count = together((cell, item))
    several: Bools = np.bincount(ids, minlength=count)[ids] > 1
    return several


def elements_unwritten(rows: Columns, cell: Ints, chains: Chains) -> int:
    """How many elements of lists were read that nobody appended, or had begun to append by then, or more often than
    they were appended."""
    if not len(chains.items):
        return 0
    append, read = np.flatnonzero(rows["kind"] == APPEND), np.flatnonzero(rows["kind"] == LIST_READ)
    of_read = chain_of(chains, cell[read], rows["chain"][read])
    at = first_shown(chains, of_read, rows["value"][read], rows["complete"][read])
    shown = np.repeat(chains.cell, np.diff(chains.begin))
    cells, items = np.concatenate((shown, cell[append])), np.concatenate((chains.items, rows["value"][append]))
    ids, count = together((cells, items))
    first, begun = np.full((2, count), NEVER)
    np.minimum.at(first, ids[: len(at)], at)
    np.minimum.at(begun, ids[len(at) :], rows["invoke"][append])
    in_chain, _ = together((np.repeat(np.arange(len(chains.cell)), np.diff(chains.begin)), ids[: len(at)]))
    often = np.bincount(in_chain)[in_chain] > np.bincount(ids[len(at) :], minlength=count)[ids[: len(at)]]
    unwritten = first < begun
    unwritten[ids[: len(at)][often]] = True
    unwritten[_of_own_future(rows, cell, (read, of_read), append, chains, ids)] = True
    return int(unwritten.sum())


def _of_own_future(
    rows: Columns, cell: Ints, reads: tuple[Ints, Ints], append: Ints, chains: Chains, ids: Ints
) -> Ints:
    """Elements that their own operation read before it appended them. `reads` are rows and their chains; `ids` number
    the elements of the chains, then those of the appends."""
    read, of_read = reads
    both = np.concatenate((read, append))
    op, count = together((rows["invoke"][both], cell[both]))
    first = np.full(count, -1)
    later = np.argsort(-rows["place"][read], kind="stable")
    first[op[: len(read)][later]] = later  # of an operation's reads of a list the first one stays
    by = first[op[len(read) :]]
    chosen = np.flatnonzero((by >= 0) & (rows["place"][append] > rows["place"][read[by]]))
    chosen = chosen[of_read[by[chosen]] >= 0]
    if not len(chosen):
        return chosen
    of_item = np.repeat(np.arange(len(chains.cell)), np.diff(chains.begin))
    element = ids[len(chains.items) :][chosen]
    pairs = (np.concatenate((of_item, of_read[by[chosen]])), np.concatenate((ids[: len(chains.items)], element)))
    number, count = together(pairs)
    place = np.full(count, NEVER)
    np.minimum.at(place, number[: len(of_item)], np.arange(len(of_item)) - chains.begin[of_item])
    return element[place[number[len(of_item) :]] < rows["value"][read[by[chosen]]]]


def verdict_of(found: Findings) -> tuple[Validity, str | None]:
    """Whether the guarantees hold, and if that is unknown, why: nothing was read, or something is not judged in full.

    What the order of versions leaves open (`comparisons_undecided`, `orders_undecided`) is no such reason: whether one
    order fits all reads, or fulfils all demands, is decided (`contradictory-reads`, `torn-whichever-order`).
    """
    if found.counts:
        return False, None
    if not found.figures.get("reads"):
        return "unknown", NO_READS
    told = (
        (reads_of_several, READS_UNCLEAR),
        (_of_lists, UNDECIDED),
        (values_of_nobody, UNWRITTEN),
        (writes_of_two_orders, UNTIMELY),
    )
    doubts = [doubt for say, figure in told if (doubt := say(found.figures.get(figure, 0)))]
    return ("unknown", " ".join(doubts)) if doubts else (True, None)


def _of_lists(undecided: int) -> str | None:
    if not undecided:
        return None
    return (
        f"{undecided} operation{'s' if undecided > 1 else ''} on appended lists can't be judged: appends of an element "
        "that was appended more than once, values read or written as a whole, or appends in one write with such."
    )


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

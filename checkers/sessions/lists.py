"""What operations tell nothing of the guarantees, most of them on appended lists, and what verdict that leaves."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.columns.chains import Chains, chain_of, first_shown
from checkers.columns.codes import NEVER, NIL, READ, WRITE, Ints
from checkers.columns.dense import together
from checkers.columns.mops import Columns
from checkers.columns.versions import APPEND, LIST_READ, Bools
from checkers.findings import Findings
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

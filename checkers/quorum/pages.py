"""Pages of quorum tables that show a part of a mutation where the rest within their bounds is older.

A page is whole if some set of mutations that began before the page was read, each of them entire, merged by timestamps,
gives just what the page shows. This decides it exactly:

- a set must hold the mutations whose values are shown. Each of them tears the page if a cell that it touches shows a
  value with a lower timestamp;
- a cell that it gave a value, but which is absent, must have been deleted at a higher timestamp. A deletion can be in
  the set if no cell that it touches shows a lower timestamp, and if each cell that it gave a value itself, but which is
  absent, was deleted at a still higher one by a mutation that can be in the set. Timestamps rise, so this ends;
- mutations that can be in the set can be so together: an absent cell stays absent, for the last to touch it among all
  of them deletes it, and a cell with a value is touched by none that is later.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from checkers.columns.codes import Ints
from checkers.columns.instances import Instances, record
from checkers.compiled import kernel, lean, lean_inline
from checkers.quorum.table import Bools, Deletions, Mutations, Pages


class _Memo(NamedTuple):
    """By cell: the page that named it last, and what it showed. By mutation: the page it was last looked at for, and
    whether it can be in that page's set. `stack` has the mutations that are being looked at: each, the touch it is at,
    and the deletion (its place) that may cover that, or -1."""

    page_of_cell: Ints
    shown: Ints
    page_of_mutation: Ints
    fits: Bools
    stack: Ints


@lean
def in_bounds(pages, page, cell):
    """Whether a page covers a cell by its bounds."""
    for bound in range(pages.bound_begin[page], pages.bound_begin[page + 1]):
        if pages.low[bound] <= cell < pages.high[bound]:
            return True
    return False


@lean
def first_above(deletions, cell, timestamp):
    """The place of the first deletion of a cell at a higher timestamp."""
    low, high = deletions.begin[cell], deletions.begin[cell + 1]
    while low < high:
        middle = (low + high) // 2
        if deletions.timestamp[middle] > timestamp:
            high = middle
        else:
            low = middle + 1
    return low


@lean_inline
def _shown_there(pages, memo, page, cell):
    """What a page shows of a cell: a mutation, ABSENT, or -2 where that tells nothing or the page does not cover it."""
    if memo.page_of_cell[cell] == page:
        return memo.shown[cell]
    return np.int64(-1) if in_bounds(pages, page, cell) else np.int64(-2)


@lean
def _can_be(pages, mutations, deletions, memo, page, wanted):
    """Whether a mutation can be in the page's set. Those on the stack wait for the one above them, which has a higher
    timestamp; so none is there twice."""
    depth = 0
    memo.stack[0, 0], memo.stack[0, 1], memo.stack[0, 2] = wanted, mutations.begin[wanted], -1
    while depth >= 0 and memo.page_of_mutation[wanted] != page:
        m, touch, place = memo.stack[depth, 0], memo.stack[depth, 1], memo.stack[depth, 2]
        if touch == mutations.begin[m + 1]:
            memo.page_of_mutation[m], memo.fits[m] = page, True
            depth -= 1
            continue
        cell = mutations.cell[touch]
        shown = _shown_there(pages, memo, page, cell)
        if shown >= 0 and mutations.timestamp[shown] < mutations.timestamp[m]:
            memo.page_of_mutation[m], memo.fits[m] = page, False
            depth -= 1
            continue
        if shown != -1 or not mutations.value[touch]:
            memo.stack[depth, 1], memo.stack[depth, 2] = touch + 1, -1
            continue
        # The cell is absent although this mutation gave it a value: some later deletion must be in the set as well.
        if place < 0:
            place = first_above(deletions, cell, mutations.timestamp[m])
        while place < deletions.begin[cell + 1]:
            other = deletions.mutation[place]
            began = mutations.invoke[other] < pages.complete[page]
            if began and (memo.page_of_mutation[other] != page or memo.fits[other]):
                break
            place += 1
        if place == deletions.begin[cell + 1]:
            memo.page_of_mutation[m], memo.fits[m] = page, False
            depth -= 1
            continue
        other = deletions.mutation[place]
        if memo.page_of_mutation[other] == page:
            memo.stack[depth, 1], memo.stack[depth, 2] = touch + 1, -1
            continue
        memo.stack[depth, 2] = place
        depth += 1
        memo.stack[depth, 0], memo.stack[depth, 1], memo.stack[depth, 2] = other, mutations.begin[other], -1
    return memo.fits[wanted]


@lean
def _is_deleted(pages, mutations, deletions, memo, page, cell, timestamp):
    """Whether a mutation that can be in the page's set deletes a cell at a higher timestamp."""
    for place in range(first_above(deletions, cell, timestamp), deletions.begin[cell + 1]):
        m = deletions.mutation[place]
        if mutations.invoke[m] < pages.complete[page] and _can_be(pages, mutations, deletions, memo, page, m):
            return True
    return False


@lean
def _lacks(pages, mutations, deletions, memo, page, writer):
    """A touch of the writer's where the page shows something older, or -1."""
    mine = mutations.timestamp[writer]
    for touch in range(mutations.begin[writer], mutations.begin[writer + 1]):
        cell = mutations.cell[touch]
        shown = _shown_there(pages, memo, page, cell)
        if shown >= 0 and mutations.timestamp[shown] < mine:
            return touch
        # It deletes the cell, or a later deletion must account for its absence.
        lost = shown == -1 and mutations.value[touch]
        if lost and not _is_deleted(pages, mutations, deletions, memo, page, cell, mine):
            return touch
    return -1


@lean
def _name(pages, memo, page, unwritten):
    """Take note of what a page shows; a place where it shows a cell a second time and otherwise, or -1."""
    twice = -1
    for place in range(pages.begin[page], pages.begin[page + 1]):
        # What nobody wrote is an anomaly of its own, and tells nothing about its cell.
        cell, shown = pages.cell[place], np.int64(-2) if unwritten[place] else pages.shown[place]
        if memo.page_of_cell[cell] == page and memo.shown[cell] != shown and memo.shown[cell] != -2 and shown != -2:
            twice = place
        memo.page_of_cell[cell], memo.shown[cell] = page, shown
    return twice


@kernel
def _judge(pages, mutations, deletions, memo, unwritten, out):
    seen = np.full(mutations.invoke.shape[0], -1)
    for page in range(pages.invoke.shape[0]):
        twice = _name(pages, memo, page, unwritten)
        if twice >= 0:
            record(out, 1, pages.invoke[page], page, (twice, -1, -1, -1))
            continue
        for place in range(pages.begin[page], pages.begin[page + 1]):
            # Each mutation of which a page shows something has to be there as a whole; `seen` has who was looked at
            # for this page.
            writer = -1 if unwritten[place] else pages.shown[place]
            if writer < 0 or seen[writer] == page:
                continue
            seen[writer] = page
            lacking = _lacks(pages, mutations, deletions, memo, page, writer)
            if lacking >= 0:
                record(out, 0, pages.invoke[page], page, (place, lacking, -1, -1))
                break


def torn_pages(pages: Pages, mutations: Mutations, deletions: Deletions, unwritten: Bools, out: Instances) -> None:
    """Record pages that are not whole: of class 0 (place in `pages.cell` that shows a mutation, touch of it that is
    lacking), of class 1 pages that show one cell twice and differently (place). Cells that are `unwritten` show what
    nobody wrote."""
    cells, count = len(deletions.begin) - 1, len(mutations.invoke)
    memo = _Memo(
        np.full(cells, -1),
        np.zeros(cells, np.int64),
        np.full(count, -1),
        np.zeros(count, np.bool_),
        np.zeros((count + 1, 3), np.int64),
    )
    _judge(pages, mutations, deletions, memo, unwritten, out)

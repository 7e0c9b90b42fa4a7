"""Where a search was a while ago, so that a beam that found no way is tried again from near there, not from the start.

A mark is the cursor, the open operations by slot, and the configurations followed. Marks are kept at distances that
double: of those at multiples of `EVERY` completions the last odd one, the last odd multiple of two of them, and so on.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.columns.codes import Ints
from checkers.compiled import lean

EVERY: Final = 16
LEVELS: Final = 16
KEPT: Final = 256
"""A mark holds at most so many configurations; where more are followed none is made."""

FARTHEST: Final = 6
"""From a try to the next one the way back doubles, so many times at most."""

_UNUSED: Final = -1


class Marks(NamedTuple):
    """By level: the cursor's `next_invoke`, `next_complete` (-1: no mark) and `dropped`; the row in each slot; how many
    configurations were followed, and these."""

    next_invoke: Ints
    next_complete: Ints
    dropped: Ints
    row: Ints
    size: Ints
    state: npt.NDArray[np.int32]
    available: npt.NDArray[np.uint64]
    owed: npt.NDArray[np.uint64]


def make_marks(slots: int) -> Marks:
    """No marks yet, of searches with so many slots (a multiple of 64)."""
    next_invoke, dropped, size = (np.zeros(LEVELS, np.int64) for _ in range(3))
    next_complete, row = np.full(LEVELS, _UNUSED), np.full((LEVELS, slots), -1)
    state = np.full((LEVELS, KEPT), -1, np.int32)
    available, owed = (np.zeros((LEVELS, KEPT, slots // 64), np.uint64) for _ in range(2))
    return Marks(next_invoke, next_complete, dropped, row, size, state, available, owed)


@lean
def forget(marks):
    """Another key begins."""
    marks.next_complete[:] = _UNUSED


@lean
def mark(marks, cursor, window, frontier):
    """Note where the search is, at every so many completions."""
    if cursor.next_complete % EVERY != 0 or cursor.beam == 0 or frontier.tally.used > KEPT:
        return
    # The level is how often two divides the number of this multiple of EVERY: a level's marks lie twice as far apart as
    # those of the level below, and a new one takes the place of its last.
    level, number = 0, cursor.next_complete // EVERY
    while level < LEVELS - 1 and number & 1 == 0:
        level, number = level + 1, number >> 1
    marks.next_invoke[level] = cursor.next_invoke
    marks.next_complete[level] = cursor.next_complete
    marks.dropped[level] = cursor.dropped
    for slot in range(marks.row.shape[1]):
        marks.row[level, slot] = window.row[slot]
    marks.size[level] = frontier.tally.used
    for place in range(frontier.tally.used):
        marks.state[level, place] = frontier.state[place]
        for word in range(frontier.owed.shape[1]):
            marks.available[level, place, word] = frontier.available[place, word]
            marks.owed[level, place, word] = frontier.owed[place, word]


@lean
def go_back(marks, cursor, frontier, beam):
    """After a beam that found no way, try another (0: all is followed, from the beginning) from a mark. Returns the
    mark's level, for the operations in `marks.row[level]` are to be opened again, or -1 for the beginning."""
    level = _turn_back(marks, cursor)
    cursor.beam = beam
    if beam == 0 or level < 0:
        cursor.fresh = 1
        return -1
    _recall(marks, level, cursor, frontier)
    return level


@lean
def _turn_back(marks, cursor):
    """The level of the mark from which a beam that is stuck should be tried again, or -1 for the beginning; later marks
    are forgotten."""
    cursor.reached = max(cursor.reached, cursor.next_complete)
    cursor.tries += 1
    # What has to be done otherwise may lie long before the place where that shows: each try goes back twice as far.
    most = cursor.next_complete - (EVERY << min(cursor.tries - 1, FARTHEST))
    best = -1
    for level in range(LEVELS):
        if marks.next_complete[level] > most:
            marks.next_complete[level] = _UNUSED
        elif marks.next_complete[level] >= 0 and (best < 0 or marks.next_complete[level] > marks.next_complete[best]):
            best = level
    return best


@lean
def _recall(marks, level, cursor, frontier):
    """Put cursor and configurations back to a mark."""
    cursor.next_invoke = marks.next_invoke[level]
    cursor.next_complete = marks.next_complete[level]
    cursor.dropped = marks.dropped[level]
    for place in range(marks.size[level]):
        frontier.state[place] = marks.state[level, place]
        for word in range(frontier.owed.shape[1]):
            frontier.available[place, word] = marks.available[level, place, word]
            frontier.owed[place, word] = marks.owed[level, place, word]
    frontier.tally.used = marks.size[level]
    frontier.tally.live = marks.size[level]

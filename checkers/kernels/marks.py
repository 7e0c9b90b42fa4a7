"""Where a search was a while ago, so that a beam that found no way is tried again from near there, not from the start.

A mark is the cursor, the open operations by slot, and the configurations followed. Marks are kept at distances that
double: of those at multiples of `EVERY` completions the last odd one, the last odd multiple of two of them, and so on.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.kernels.columns import Ints
from checkers.kernels.compiled import lean

KEY, NEXT_INVOKE, NEXT_COMPLETE, FRESH, WORK, BEAM, DROPPED, REACHED, TRIES = range(9)
"""The cursor of a search: the key, its next invocation's row, its next place in `order`, whether it is still to begin,
the work done so far, the beam's width (0: everything is followed), whether anything was dropped; the farthest place at
which a beam of this key was stuck, and how often one was there."""

CURSOR: Final = 9

EVERY: Final = 16
LEVELS: Final = 16
KEPT: Final = 256
"""A mark holds at most so many configurations; where more are followed none is made."""

FARTHEST: Final = 6
"""From a try to the next one the way back doubles, so many times at most."""

_UNUSED: Final = -1


class Marks(NamedTuple):
    """By level: next invocation, next completion (-1: no mark) and whether anything was dropped; the row in each slot;
    how many configurations, and these."""

    cursor: Ints
    row: Ints
    size: Ints
    state: npt.NDArray[np.int32]
    available: npt.NDArray[np.uint64]
    owed: npt.NDArray[np.uint64]


def make_marks(slots: int) -> Marks:
    """No marks yet, of searches with so many slots (a multiple of 64)."""
    cursor, row = np.full((LEVELS, 3), _UNUSED), np.full((LEVELS, slots), -1)
    available, owed = (np.zeros((LEVELS, KEPT, slots // 64), np.uint64) for _ in range(2))
    return Marks(cursor, row, np.zeros(LEVELS, np.int64), np.full((LEVELS, KEPT), -1, np.int32), available, owed)


@lean
def forget(marks):
    """Another key begins."""
    marks.cursor[:, 1] = _UNUSED


@lean
def mark(marks, at, window, frontier):
    """Note where the search is, at every so many completions."""
    if at[NEXT_COMPLETE] % EVERY != 0 or at[BEAM] == 0 or frontier.meta[0] > KEPT:
        return
    level, number = 0, at[NEXT_COMPLETE] // EVERY
    while level < LEVELS - 1 and number & 1 == 0:
        level, number = level + 1, number >> 1
    marks.cursor[level, 0] = at[NEXT_INVOKE]
    marks.cursor[level, 1] = at[NEXT_COMPLETE]
    marks.cursor[level, 2] = at[DROPPED]
    for slot in range(marks.row.shape[1]):
        marks.row[level, slot] = window.row[slot]
    marks.size[level] = frontier.meta[0]
    for place in range(frontier.meta[0]):
        marks.state[level, place] = frontier.state[place]
        for word in range(frontier.owed.shape[1]):
            marks.available[level, place, word] = frontier.available[place, word]
            marks.owed[level, place, word] = frontier.owed[place, word]


@lean
def go_back(marks, at, frontier, beam):
    """After a beam that found no way, try another (0: all is followed, from the beginning) from a mark. Returns the
    mark's level, for the operations in `marks.row[level]` are to be opened again, or -1 for the beginning."""
    level = _turn_back(marks, at)
    at[BEAM] = beam
    if beam == 0 or level < 0:
        at[FRESH] = 1
        return -1
    _recall(marks, level, at, frontier)
    return level


@lean
def _turn_back(marks, at):
    """The level of the mark from which a beam that is stuck should be tried again, or -1 for the beginning; later marks
    are forgotten."""
    at[REACHED] = max(at[REACHED], at[NEXT_COMPLETE])
    at[TRIES] += 1
    most = at[NEXT_COMPLETE] - (EVERY << min(at[TRIES] - 1, FARTHEST))
    best = -1
    for level in range(LEVELS):
        if marks.cursor[level, 1] > most:
            marks.cursor[level, 1] = _UNUSED
        elif marks.cursor[level, 1] >= 0 and (best < 0 or marks.cursor[level, 1] > marks.cursor[best, 1]):
            best = level
    return best


@lean
def _recall(marks, level, at, frontier):
    """Put cursor and configurations back to a mark."""
    at[NEXT_INVOKE] = marks.cursor[level, 0]
    at[NEXT_COMPLETE] = marks.cursor[level, 1]
    at[DROPPED] = marks.cursor[level, 2]
    for place in range(marks.size[level]):
        frontier.state[place] = marks.state[level, place]
        for word in range(frontier.owed.shape[1]):
            frontier.available[place, word] = marks.available[level, place, word]
            frontier.owed[place, word] = marks.owed[level, place, word]
    frontier.meta[0] = marks.size[level]
    frontier.meta[1] = marks.size[level]

"""Where a search was a while ago, so that a beam that found no way is tried again from near there, not from the start.

A checkpoint is the cursor, the open operations by slot, and the configurations followed. Checkpoints are kept at
distances that double: of those at multiples of `EVERY` completions the last odd one, the last odd multiple of two of
them, and so on.
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
"""A checkpoint holds at most so many configurations; where more are followed none is made."""

FARTHEST: Final = 6
"""From a try to the next one the way back doubles, so many times at most."""

_UNUSED: Final = -1


class Checkpoints(NamedTuple):
    """By level: the cursor's `next_invoke`, `next_complete` (-1: no checkpoint) and `dropped`; the row in each slot;
    how many configurations were followed, and these."""

    next_invoke: Ints
    next_complete: Ints
    dropped: Ints
    row: Ints
    size: Ints
    state: npt.NDArray[np.int32]
    available: npt.NDArray[np.uint64]
    owed: npt.NDArray[np.uint64]


def make_checkpoints(slots: int) -> Checkpoints:
    """No checkpoints yet, of searches with so many slots (a multiple of 64)."""
    next_invoke, dropped, size = (np.zeros(LEVELS, np.int64) for _ in range(3))
    next_complete, row = np.full(LEVELS, _UNUSED), np.full((LEVELS, slots), -1)
    state = np.full((LEVELS, KEPT), -1, np.int32)
    available, owed = (np.zeros((LEVELS, KEPT, slots // 64), np.uint64) for _ in range(2))
    return Checkpoints(next_invoke, next_complete, dropped, row, size, state, available, owed)


@lean
def forget(checkpoints):
    """Another key begins."""
    checkpoints.next_complete[:] = _UNUSED


@lean
def checkpoint(checkpoints, cursor, window, frontier):
    """Note where the search is, at every so many completions."""
    if cursor.next_complete % EVERY != 0 or cursor.beam == 0 or frontier.tally.used > KEPT:
        return
    # The level is how often two divides the number of this multiple of EVERY: a level's checkpoints lie twice as far
    # apart as those of the level below, and a new one takes the place of its last.
    level, number = 0, cursor.next_complete // EVERY
    while level < LEVELS - 1 and number & 1 == 0:
        level, number = level + 1, number >> 1
    checkpoints.next_invoke[level] = cursor.next_invoke
    checkpoints.next_complete[level] = cursor.next_complete
    checkpoints.dropped[level] = cursor.dropped
    for slot in range(checkpoints.row.shape[1]):
        checkpoints.row[level, slot] = window.row[slot]
    checkpoints.size[level] = frontier.tally.used
    for place in range(frontier.tally.used):
        checkpoints.state[level, place] = frontier.state[place]
        for word in range(frontier.owed.shape[1]):
            checkpoints.available[level, place, word] = frontier.available[place, word]
            checkpoints.owed[level, place, word] = frontier.owed[place, word]


@lean
def backtrack(checkpoints, cursor, frontier, beam):
    """After a beam that found no way, try another (0: all is followed, from the beginning) from a checkpoint. Returns
    its level, for the operations in `checkpoints.row[level]` are to be opened again, or -1 for the beginning."""
    level = _target(checkpoints, cursor)
    cursor.beam = beam
    if beam == 0 or level < 0:
        cursor.fresh = 1
        return -1
    _recall(checkpoints, level, cursor, frontier)
    return level


@lean
def _target(checkpoints, cursor):
    """The level of the checkpoint from which a beam that is stuck should be tried again, or -1 for the beginning; later
    ones are forgotten."""
    cursor.reached = max(cursor.reached, cursor.next_complete)
    cursor.tries += 1
    # What has to be done otherwise may lie long before the place where that shows: each try goes back twice as far.
    most = cursor.next_complete - (EVERY << min(cursor.tries - 1, FARTHEST))
    best = -1
    reached = checkpoints.next_complete
    for level in range(LEVELS):
        if reached[level] > most:
            reached[level] = _UNUSED
        elif reached[level] >= 0 and (best < 0 or reached[level] > reached[best]):
            best = level
    return best


@lean
def _recall(checkpoints, level, cursor, frontier):
    """Put cursor and configurations back to a checkpoint."""
    cursor.next_invoke = checkpoints.next_invoke[level]
    cursor.next_complete = checkpoints.next_complete[level]
    cursor.dropped = checkpoints.dropped[level]
    for place in range(checkpoints.size[level]):
        frontier.state[place] = checkpoints.state[level, place]
        for word in range(frontier.owed.shape[1]):
            frontier.available[place, word] = checkpoints.available[level, place, word]
            frontier.owed[place, word] = checkpoints.owed[level, place, word]
    frontier.tally.used = checkpoints.size[level]
    frontier.tally.live = checkpoints.size[level]

"""Where a search is in a key's history, how wide its beam is, and how a stretch of it ends: for searches of all kinds.

A search takes the completions of a key in order while a set of configurations (`frontier`) says all that may be true.
Where the sets grow a *beam* comes first: only so many configurations are followed. What is left at the end of a key is
a witness that it is valid, however much was dropped; where nothing is left the search is taken up again a while before
(`checkpoints`), and ever longer before, with another beam (`wider`). Only a search from the beginning that dropped
nothing refutes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from checkers.columns.codes import NEVER
from checkers.compiled import lean_inline, make_record

DONE: Final = 0
"""A stretch of search ended with its key, or its keys."""
PAUSED: Final = 1
"""... because its budget of work is spent."""
FULL: Final = 2
"""... because a set of configurations is."""
STORE_FULL: Final = 3
"""... because there is no room for another state."""

OUT_OF_WORK: Final = -2
"""Instead of the work done: the budget is spent."""
NO_ROOM: Final = -3
"""Instead of the work done, or of a state: the store of states is full."""

FIRST_BEAM: Final = 16
WIDER: Final = 8
SPREAD: Final = 4
"""So many times its width of configurations a choosy beam chooses from."""
WIDEST_BEAM: Final = 1 << 16
"""Past this the whole set is followed."""
PAST: Final = 64
"""So many completions past the farthest place a wider beam goes on."""

CURSOR: Final = (
    "key",  # the key at hand
    "next_invoke",  # the row that begins next
    "next_complete",  # the place in `order` of the row that completes next
    "fresh",  # 1 while the key is still to begin
    "work",  # done so far, over all keys, in configurations compared
    "beam",  # its width; 0: everything is followed
    "dropped",  # 1 once anything was left out, so that an empty set says nothing
    "reached",  # the farthest place at which a beam of this key was stuck, or -1
    "tries",  # how often one was
)


def make_cursor(beam: int) -> np.record:
    """At the first key, which is still to begin; its fields are those of CURSOR."""
    cursor = make_record(CURSOR)
    cursor.fresh, cursor.beam, cursor.reached = 1, beam, -1
    return cursor


@lean_inline
def enter_key(ops, cursor):
    """The key at hand begins: nothing of it has happened."""
    cursor.next_invoke = ops.offsets[cursor.key]
    cursor.next_complete = ops.offsets[cursor.key]
    cursor.fresh, cursor.dropped = 0, 0


@lean_inline
def next_key(cursor):
    """The key at hand is through: the next one is to begin."""
    cursor.key += 1
    cursor.fresh, cursor.beam, cursor.reached, cursor.tries = 1, FIRST_BEAM, -1, 0


@lean_inline
def completing(ops, cursor):
    """The row that completes next in the key at hand, or -1: those of unknown outcome come last and need not."""
    if cursor.next_complete >= ops.offsets[cursor.key + 1]:
        return np.int64(-1)
    row = ops.order[cursor.next_complete]
    return row if ops.complete[row] != NEVER else np.int64(-1)


@lean_inline
def begins_before(ops, cursor, event):
    """Whether the row that begins next in the key at hand does so before an event."""
    row = cursor.next_invoke
    return row < ops.offsets[cursor.key + 1] and ops.invoke[row] < event


@lean_inline
def outcome(cost):
    """How a stretch ends in which a completion could not be dealt with."""
    return STORE_FULL if cost == NO_ROOM else PAUSED if cost == OUT_OF_WORK else FULL


@lean_inline
def is_choosy(beam):
    """Whether a beam takes those of the configurations found that leave most open, not the first ones: odd ones do. The
    first ones take the fewest steps; where operations of unknown outcome stay open these use them up."""
    return beam & 1 == 1


@lean_inline
def enough(beam):
    """How many configurations a beam looks for."""
    return SPREAD * beam if is_choosy(beam) else beam


@lean_inline
def followed(beam):
    """How many of the configurations found a beam goes on with; 0: with all."""
    return beam if is_choosy(beam) else 0


@lean_inline
def wider(beam):
    """The beam to try after one that found no way: the choosy one of its width, then wider ones; in the end all."""
    if not is_choosy(beam):
        return beam + 1
    return (beam - 1) * WIDER if beam < WIDEST_BEAM else 0


@lean_inline
def relax(cursor):
    """The first beam does again where others led past the place that it did not pass."""
    if cursor.tries > 0 and cursor.beam > 0 and cursor.next_complete > cursor.reached + PAST:
        cursor.beam, cursor.tries = FIRST_BEAM, 0

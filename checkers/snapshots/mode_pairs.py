"""Which of two operations of a session on one cell has to be at the later time, by how they were asked for.

Every read is right at the time that it was served at, so what sessions are promised is about times alone: read your
writes, monotonic reads, writes that follow reads and writes are one rule. It holds of operations that say where clocks
can have been when they completed (`latest_ts`): the times of others may be of different clocks.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from checkers.columns.codes import NIL, OK, WRITE, Bools, Ints
from checkers.columns.mops import Columns, TextCodes

STRONG, EXACT, AGO, STALENESS, NEAREST, MINIMUM, ANYWHERE, CHANGE = range(8)
MODES: Final[TextCodes] = (
    ("mode",),
    {
        (None,): STRONG,
        ("exact",): EXACT,
        ("ago",): AGO,
        ("staleness",): STALENESS,
        ("nearest",): NEAREST,
        ("minimum",): MINIMUM,
        ("anywhere",): ANYWHERE,
    },
)
"""By code how a read was asked for; changes are a mode of their own."""

_ALL: Final = frozenset(range(8))

PROMISED: Final = {
    STRONG: _ALL,
    ANYWHERE: _ALL,
    CHANGE: _ALL,
    MINIMUM: _ALL,
    EXACT: frozenset[int](),
    AGO: frozenset[int](),
    STALENESS: frozenset[int](),
    NEAREST: frozenset[int](),
}
"""By the later mode, the earlier ones that it is never behind: of a least time only those that lie at or below it. A
change comes after what was read; what is as of a time, or within a bound, may be as old as that says."""


def behind(rows: Columns, cell: Ints) -> tuple[Ints, Ints]:
    """The rows that are behind what their session knew of the cell, and for each the row that it knew it by."""
    mode = np.where(rows["kind"] == WRITE, CHANGE, rows["asked"])
    told = (rows["status"] == OK) & (rows["latest_ts"] != NIL) & (rows["served_ts"] != NIL) & (mode >= 0)
    at = np.flatnonzero(told)
    at = at[np.lexsort((rows["invoke"][at], cell[at], rows["session"][at]))]
    late, known = np.zeros(len(at), np.bool_), np.full(len(at), -1)
    for earlier in sorted(_ALL):
        highest = _highest_before(rows, cell, at, mode[at] == earlier)
        after = np.isin(mode[at], [later for later, first in PROMISED.items() if earlier in first]) & (highest >= 0)
        reached = rows["served_ts"][at[highest]]
        mine, least = rows["served_ts"][at], rows["min_ts"][at]
        wrong = after & np.where(mode[at] == CHANGE, mine <= reached, mine < reached)
        wrong &= (mode[at] != MINIMUM) | ((least != NIL) & (reached <= least))
        known = np.where(wrong & ~late, at[highest], known)
        late |= wrong
    return at[late], known[late]


def _highest_before(rows: Columns, cell: Ints, at: Ints, chosen: Bools) -> Ints:
    """By place in `at` the place, before it and of the same session and cell, of the chosen row of the highest time."""
    found = np.full(len(at), -1)
    best, group = -1, (-1, -1)
    session, time = rows["session"], rows["served_ts"]
    for place, row in enumerate(at.tolist()):
        if (mine := (int(session[row]), int(cell[row]))) != group:
            best, group = -1, mine
        found[place] = best
        if chosen[place] and (best < 0 or time[row] > time[at[best]]):
            best = place
    return found

"""Which versions sessions read after others that they had read or written, in few edges.

A session orders version a before b if some read of a completed before some read of b was invoked, so where the first
read of a completed before the last read of b was invoked: reads of one version count together, as a visit. So does the
session's own write of a version, if its reads must not miss that (`read-your-writes`): what counts is which of these
completed first. Visits that
overlap come in no order; if the visits of a session are sorted by their first completion, what comes before each of
them is a prefix of the others, though drawn pair by pair that may be the square of their number.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.columns.codes import NEVER, NIL, Ints
from checkers.columns.dense import together
from checkers.columns.versions import grouped_order
from checkers.compiled import kernel, lean
from checkers.sessions.session_order import Events


class ReadOrder(NamedTuple):
    """Edges from what was read or written before to what was read after. A node is a version, or behind all versions a
    helper, of which `helper_cell` tells the cells."""

    source: Ints
    target: Ints
    helper_cell: Ints


class _Visits(NamedTuple):
    """Sorted by session and cell, each of which owns `begin[s]:begin[s + 1]`, and by `shown`, when the first of
    what counts completed; `asked` is when their last read began, and `by_asked` sorts each session's visits by that."""

    begin: Ints
    version: Ints
    shown: Ints
    asked: Ints
    by_asked: Ints


@lean
def _find_prefixes(visits, session, until):
    """How far the visits go that were shown before a visit was asked for last (itself may be one of them)."""
    place, end = visits.begin[session], visits.begin[session + 1]
    for position in range(visits.begin[session], end):
        visit = visits.by_asked[position]
        while place < end and visits.shown[place] < visits.asked[visit]:
            place += 1
        until[visit] = place


@kernel
def _draw(visits, until, top, versions, helper_of, source, target):
    """Write the edges; returns how many edges and helpers there are, and sets the sessions of the latter.

    `top[v]` is a node that v and all visits sorted before it lead to: v's own version if all of them come before it,
    else a helper. Of what comes before a visit the part sorted before it has such a node. The rest, shown between its
    first read and its last, is drawn one by one, up to a visit that comes after it too, for then there is no order. So
    none of the rest was itself read again, and each visit is drawn once at most.
    """
    count, helpers = 0, 0
    for session in range(visits.begin.shape[0] - 1):
        begin, end = visits.begin[session], visits.begin[session + 1]
        _find_prefixes(visits, session, until)
        for visit in range(begin, end):
            version, prefix = visits.version[visit], min(until[visit], visit)
            if prefix > begin:
                source[count], target[count] = top[prefix - 1], version
                count += 1
            top[visit] = version
            if prefix < visit:
                top[visit] = versions + helpers
                source[count], target[count] = top[visit - 1], top[visit]
                source[count + 1], target[count + 1] = version, top[visit]
                helper_of[helpers] = session
                helpers += 1
                count += 2
            for later in range(visit + 1, until[visit]):
                source[count], target[count] = visits.version[later], version
                count += 1
                if visits.asked[later] > visits.shown[visit]:
                    break
    return count, helpers


def read_order(
    events: Events, chosen: npt.NDArray[np.bool_], versions: int, before: npt.NDArray[np.bool_]
) -> ReadOrder:
    """What sessions say of the order of versions in the chosen cells; `before` flags the rows of which later reads must
    not be older: reads, writes that were acknowledged, or both."""
    cell = np.repeat(np.arange(len(chosen)), np.diff(events.begin))
    rows = np.flatnonzero(chosen[cell] & (events.read | before) & events.judged)
    session, sessions = together((cell[rows], events.session[rows].astype(np.int64)))
    version = events.version[rows].astype(np.int64)
    visit, count = together((session, version))
    shown, asked = np.full(count, NEVER), np.full(count, NIL)
    np.minimum.at(shown, visit, np.where(before[rows], events.complete[rows], NEVER))
    np.maximum.at(asked, visit, np.where(events.read[rows], events.invoke[rows], NIL))
    row_of = np.empty(count, np.int64)
    row_of[visit] = np.arange(len(rows))
    order, begin = grouped_order(session[row_of], sessions, shown)
    shown, asked, row_of = shown[order], asked[order], row_of[order]
    by_asked, _ = grouped_order(session[row_of], sessions, asked)
    visits = _Visits(begin, version[row_of], shown, asked, by_asked)
    source, target = np.empty(4 * count, np.int64), np.empty(4 * count, np.int64)
    helper_of = np.empty(count, np.int64)
    scratch = np.empty(count, np.int64), np.empty(count, np.int64)
    drawn, helpers = _draw(visits, *scratch, versions, helper_of, source, target)
    first = row_of[begin[helper_of[:helpers]]]
    return ReadOrder(source[:drawn], target[:drawn], cell[rows[first]])

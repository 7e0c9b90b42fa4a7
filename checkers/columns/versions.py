"""Which version of a cell is certainly older than which other, as far as a history tells.

Every version has two numbers: `since`, before which it certainly was not there, and `settled`, at which it certainly
was. Version a is certainly older than b if `settled[a] < since[b]`. Where every version of a cell that matters has a
commit timestamp both numbers are that timestamp; else they are event indices: a version comes into being after its
write's invocation and is there when the write, or the first read that shows it, completes, and versions that follow one
another in that way are ordered so. (A version that was read before its write began has no `since`.) The initial state
is older than everything.

A value with several writers (or nil where nil was written) is an unclear version: who reads it may have read any of
them. So its `since` is the least and its `settled` the greatest of its writers'; each of these writes has numbers of
its own (`order_by_row`). More is not concluded from a read of it, and a judge that compares it has to say so.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.columns.codes import FAIL, NEVER, NIL, OK, READ, WRITE, Ints
from checkers.columns.dense import dense, packed, together
from checkers.columns.mops import ADDRESS, Columns, selected
from checkers.compiled import kernel

APPEND: Final = 2
LIST_READ: Final = 3
ELEMENT: Final = 4

_MOVES: Final = 8
"""Rows count as nearly sorted while insertion moves them by no more places than this on average."""

Int32s = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


class Versions(NamedTuple):
    """By version: see above; `writer` is the row of its write (-1: none, -2: several), `seen` whether it was
    read. `untimely` are the writes whose timestamps contradict real time in groups that do not go by timestamps."""

    since: Ints
    settled: Ints
    writer: Ints
    unclear: Bools
    seen: Bools
    untimely: Ints


@kernel
def _count(ids, begin):
    for i in range(ids.shape[0]):
        begin[ids[i] + 1] += 1


@kernel
def _place(order, ids, fill, out):
    for row in order:
        out[fill[ids[row]]] = row
        fill[ids[row]] += 1


@kernel
def _insert(begin, key, order, most):
    """Sort the rows of each id by their keys; False if that takes more than `most` moves."""
    moves = 0
    for one in range(begin.shape[0] - 1):
        for place in range(begin[one] + 1, begin[one + 1]):
            mine, row, at = key[place], order[place], place
            while at > begin[one] and key[at - 1] > mine:
                key[at], order[at] = key[at - 1], order[at - 1]
                at -= 1
            key[at], order[at] = mine, row
            moves += place - at
            if moves > most:
                return False
    return True


def grouped_order(ids: Ints, count: int, by: Ints) -> tuple[Ints, Ints]:
    """Rows sorted by id and then by `by`, and where each id begins; linear where each id's rows are nearly sorted."""
    begin = np.zeros(count + 1, np.int64)
    _count(ids, begin)
    np.cumsum(begin, out=begin)
    order = np.empty(len(ids), np.int64)
    _place(np.arange(len(ids)), ids, begin[:-1].copy(), order)
    # Insertion stops early where rows lie far from their places; half of a sort is no order to go on from.
    if not _insert(begin, by[order], order, _MOVES * len(ids)):
        _place(np.argsort(by, kind="stable"), ids, begin[:-1].copy(), order)
    return order, begin


def sorted_cells(rows: Columns, within: tuple[str, ...] = ADDRESS) -> tuple[Columns, Ints, Ints]:
    """The rows by group (of equal `within`) and invocation, the group of each and where groups begin."""
    ids, count = together([rows[name] for name in within])
    order, begin = grouped_order(ids, count, rows["invoke"])
    return selected(rows, order), ids[order], begin


def ordered_versions(
    rows: Columns, cell: Ints, cells: int, version: Ints, count: int, group: Ints
) -> tuple[Versions, Bools]:
    """What is known of the versions' order, and which groups (of cells; `group` by row) go by timestamps."""
    reads, writes = rows["kind"] == READ, np.flatnonzero((rows["kind"] == WRITE) & (rows["status"] != FAIL))
    writer, several = np.full(count, -1), np.zeros(count, np.bool_)
    _find_writers(writes, version, rows["invoke"], writer, several)
    nil_of = np.full(cells, -1)
    nil = np.flatnonzero(rows["value"] == NIL)
    nil_of[cell[nil]] = version[nil]
    nil_of = nil_of[nil_of >= 0]
    unclear = several.copy()
    unclear[nil_of] = writer[nil_of] >= 0
    since, settled = np.full(count, NIL + 1), np.full(count, NEVER)
    wrote = np.flatnonzero(writer >= 0)
    since[wrote], settled[wrote] = rows["invoke"][writer[wrote]], rows["complete"][writer[wrote]]
    seen = np.zeros(count, np.bool_)
    seen[version[reads]] = True
    np.minimum.at(settled, version[reads], rows["complete"][reads])
    since[settled < since] = NIL + 1
    known = Versions(since, settled, writer, unclear, seen, np.empty(0, np.int64))
    timed = _timed(rows, writes, version, group, known)
    untimely = _untimely(rows, writes, group, timed)
    _by_timestamps(rows, version, timed[group], known)
    _span_unclear(rows, writes, version, timed[group], known)
    if len(untimely):
        # There neither real time nor some timestamps tell which version is older.
        open_ones = version[np.isin(group, group[untimely])]
        since[open_ones], settled[open_ones] = NIL + 1, NEVER
    since[nil_of] = NIL
    settled[nil_of[~unclear[nil_of]]] = NIL
    return known._replace(writer=np.where(several, -2, writer), untimely=untimely), timed


def order_by_row(rows: Columns, version: Ints, group: Ints, versions: Versions, timed: Bools) -> tuple[Ints, Ints]:
    """`since` and `settled` of the version that each row reads or writes; a write of an unclear one has its own."""
    since, settled = versions.since[version], versions.settled[version]
    own = np.flatnonzero((rows["kind"] == WRITE) & versions.unclear[version])
    since[own], settled[own] = _own_order(rows, own, timed[group[own]])
    if len(versions.untimely):
        open_ones = own[np.isin(group[own], group[versions.untimely])]
        since[open_ones], settled[open_ones] = NIL + 1, NEVER
    return since, settled


def _own_order(rows: Columns, write: Ints, timed: Bools) -> tuple[Ints, Ints]:
    """`since` and `settled` of what these writes alone brought about."""
    stamp = rows["served_ts"][write]
    since = np.where(timed, np.where(stamp == NIL, NIL + 1, stamp), rows["invoke"][write])
    settled = np.where(timed, np.where(stamp == NIL, NEVER, stamp), rows["complete"][write])
    return since, settled


class Replaced(NamedTuple):
    """Versions that their own operation wrote over (`every` of them), and which of an operation's versions come before
    which: `older` before `newer`, without those that are unclear or were read before they were written."""

    every: Ints
    older: Ints
    newer: Ints


def replaced_versions(rows: Columns, cell: Ints, version: Ints, versions: Versions) -> Replaced:
    """What operations wrote several times to one cell, by which rows are sorted; a version that one of them came back
    to becomes unclear."""
    write = np.flatnonzero((rows["kind"] == WRITE) & (rows["status"] != FAIL))
    older, newer = _neighbours(rows, cell, version, write)
    if not len(older):
        return Replaced(older, older, newer)
    row = np.union1d(older, newer)
    ids, _ = together((version[row], rows["invoke"][row]))
    versions.unclear[version[row[np.bincount(ids)[ids] > 1]]] = True
    every = version[older]
    clear = ~versions.unclear[version[write]]
    early = versions.since[version[write]] <= NIL + 1
    older, newer = _neighbours(rows, cell, version, write[clear & ~early])
    return Replaced(np.unique(every[~versions.unclear[every]]), version[older], version[newer])


def _neighbours(rows: Columns, cell: Ints, version: Ints, write: Ints) -> tuple[Ints, Ints]:
    """Pairs of these rows that are next to each other, and of one operation and cell but not of one version."""
    one, other = write[:-1], write[1:]
    pairs = (cell[one] == cell[other]) & (rows["invoke"][one] == rows["invoke"][other])
    pairs &= version[one] != version[other]
    return one[pairs], other[pairs]


def values_unwritten(rows: Columns, version: Ints | Int32s, versions: Versions) -> int:
    """How many values were read that nobody wrote, or had begun to write by then, be it later in the same operation.
    They are older than nothing and newer than nothing: what stood there before the history began, what somebody else
    wrote, or nothing that ever was."""
    read = np.flatnonzero((rows["kind"] == READ) & (rows["value"] != NIL))
    writer = versions.writer[version[read]]
    begun = rows["invoke"][np.maximum(writer, 0)]
    several = writer == -2
    if several.any():
        begun = np.where(several, _first_begun(rows, version, len(versions.writer))[version[read]], begun)
    early = (writer != -1) & (rows["complete"][read] < begun)
    early[_of_own_future(rows, version, read, writer)] = True
    return len(np.unique(version[read[(writer == -1) | early]]))


def _of_own_future(rows: Columns, version: Ints | Int32s, read: Ints, writer: Ints) -> Ints:
    """Places among reads of those that show what their own operation alone wrote, and only later."""
    own = np.flatnonzero((writer >= 0) & (rows["invoke"][np.maximum(writer, 0)] == rows["invoke"][read]))
    if not len(own):
        return own
    write = np.flatnonzero((rows["kind"] == WRITE) & (rows["status"] != FAIL))
    first = np.full(int(version.max()) + 1, NEVER)
    np.minimum.at(first, version[write], rows["place"][write])
    return own[rows["place"][read[own]] < first[version[read[own]]]]


def _first_begun(rows: Columns, version: Ints | Int32s, count: int) -> Ints:
    """By version when the first of its writes was invoked."""
    write = np.flatnonzero((rows["kind"] == WRITE) & (rows["status"] != FAIL))
    begun = np.full(count, NEVER)
    np.minimum.at(begun, version[write], rows["invoke"][write])
    return begun


@kernel
def _find_writers(rows, version, invoke, writer, several):
    for row in rows:
        known = writer[version[row]]
        if known >= 0 and invoke[known] != invoke[row]:
            several[version[row]] = True
        writer[version[row]] = row


def _timed(rows: Columns, writes: Ints, version: Ints, group: Ints, known: Versions) -> Bools:
    """Which groups go by timestamps: every write that matters states one, and somebody wrote whatever is read."""
    read_value = known.seen[version] & (rows["value"] != NIL)
    matters = writes[(rows["status"][writes] == OK) | read_value[writes]]
    timed = np.zeros(int(group.max(initial=-1)) + 1, np.bool_)
    timed[group[matters]] = True
    timed[group[matters[rows["served_ts"][matters] == NIL]]] = False
    timed[group[read_value & (known.writer[version] < 0)]] = False
    return timed


def _untimely(rows: Columns, writes: Ints, group: Ints, timed: Bools) -> Ints:
    """Acknowledged writes with a lower timestamp than one that had completed when they began, in groups that do not go
    by timestamps."""
    chosen = writes[(rows["status"][writes] == OK) & (rows["served_ts"][writes] != NIL)]
    chosen = chosen[~timed[group[chosen]]]
    ids, count = together((group[chosen],))
    by_invoke, begin = grouped_order(ids, count, rows["invoke"][chosen])
    by_complete, _ = grouped_order(ids, count, rows["complete"][chosen])
    times = tuple(np.ascontiguousarray(rows[name][chosen]) for name in ("invoke", "complete", "served_ts"))
    return chosen[_contradicted(by_invoke, by_complete, begin, *times)]


@kernel
def _contradicted(by_invoke, by_complete, begin, invoke, complete, stamp):
    found = np.zeros(len(invoke), np.bool_)
    for group in range(begin.shape[0] - 1):
        done, latest = begin[group], NIL
        for place in range(begin[group], begin[group + 1]):
            row = by_invoke[place]
            while done < begin[group + 1] and complete[by_complete[done]] < invoke[row]:
                latest = max(latest, stamp[by_complete[done]])
                done += 1
            found[row] = stamp[row] < latest
    return found


def _by_timestamps(rows: Columns, version: Ints, timed: Bools, known: Versions) -> None:
    """Replaces event indices by timestamps (`timed` by row), or by none where a write that may not have been states
    none. `known` names the last writer even of versions with several."""
    chosen = np.flatnonzero((known.writer[version] >= 0) & timed)
    of = version[chosen]
    stamp = rows["served_ts"][known.writer[of]]
    known.since[of] = np.where(stamp == NIL, NIL + 1, stamp)
    known.settled[of] = np.where(stamp == NIL, NEVER, stamp)


def _span_unclear(rows: Columns, writes: Ints, version: Ints, timed: Bools, known: Versions) -> None:
    """Gives unclear versions the numbers of all their writers together (`timed` by row)."""
    write = writes[known.unclear[version[writes]]]
    if not len(write):
        return
    known.since[known.unclear], known.settled[known.unclear] = NEVER, NIL
    since, settled = _own_order(rows, write, timed[write])
    np.minimum.at(known.since, version[write], since)
    np.maximum.at(known.settled, version[write], settled)
    # Who reads a value before anybody began to write it has read none of them.
    read = np.flatnonzero((rows["kind"] == READ) & known.unclear[version] & ~timed)
    early = version[read[(rows["complete"][read] < known.since[version[read]]) & (rows["value"][read] != NIL)]]
    known.since[early], known.settled[early] = NIL + 1, NEVER


def dense_sessions(rows: Columns) -> tuple[Int32s, int]:
    """Sessions as small numbers."""
    numbers, count = packed(*dense(rows["session"]))
    return numbers.astype(np.int32), count

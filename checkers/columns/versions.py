"""Which version of a cell is certainly older than which other, as far as a history tells.

Every version has two numbers: `since`, before which it certainly was not there, and `settled`, at which it certainly
was. Version a is certainly older than b if `settled[a] < since[b]`. Where every version of a cell that matters has a
commit timestamp both numbers are that timestamp; else they are event indices: a version comes into being after its
write's invocation and is there when the write, or the first read that shows it, completes, and versions that follow one
another in that way are ordered so. (A version that was read before its write began has no `since`.) The initial state
is older than everything. A version with several writers (or nil where nil was written) is unclear, and nothing is
concluded from it.
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

Int32s = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


class Versions(NamedTuple):
    """By version: see above; `writer` is the row of its write (-1: none, -2: several), `seen` whether it was read."""

    since: Ints
    settled: Ints
    writer: Ints
    unclear: Bools
    seen: Bools


@kernel
def _count(ids, begin):
    for i in range(ids.shape[0]):
        begin[ids[i] + 1] += 1


@kernel
def _place(order, ids, fill, out):
    for row in order:
        out[fill[ids[row]]] = row
        fill[ids[row]] += 1


def grouped_order(ids: Ints, count: int, by: Ints) -> tuple[Ints, Ints]:
    """Rows sorted by id and then by `by`, and where each id begins; fast where `by` is nearly sorted."""
    begin = np.zeros(count + 1, np.int64)
    _count(ids, begin)
    np.cumsum(begin, out=begin)
    order = np.empty(len(ids), np.int64)
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
    reads, writes = rows["kind"] == READ, (rows["kind"] == WRITE) & (rows["status"] != FAIL)
    writer, several = np.full(count, -1), np.zeros(count, np.bool_)
    _find_writers(np.flatnonzero(writes), version, rows["invoke"], writer, several)
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
    since[nil_of], settled[nil_of] = NIL, NIL
    known = Versions(since, settled, writer, unclear, seen)
    timed = _by_timestamps(rows, version, group, known, nil_of)
    return known._replace(writer=np.where(several, -2, writer)), timed


@kernel
def _find_writers(rows, version, invoke, writer, several):
    for row in rows:
        known = writer[version[row]]
        if known >= 0 and invoke[known] != invoke[row]:
            several[version[row]] = True
        writer[version[row]] = row


def _by_timestamps(rows: Columns, version: Ints, group: Ints, known: Versions, nil_of: Ints) -> Bools:
    """Replaces event indices by timestamps in groups in which every version that matters has one, and returns which.
    `known` names the last writer even of versions with several."""
    writer = known.writer
    groups = int(group.max(initial=-1)) + 1
    group_of = np.zeros(len(writer), np.int64)
    group_of[version] = group
    wrote = writer >= 0
    stamp = np.where(wrote, rows["served_ts"][np.maximum(writer, 0)] if len(version) else NIL, NIL)
    acknowledged = wrote & (rows["status"][np.maximum(writer, 0)] == OK) if len(version) else wrote
    matters = (known.seen | acknowledged) & ~known.unclear
    matters[nil_of] = False
    timed = np.ones(groups, np.bool_)
    timed[group_of[matters & (stamp == NIL)]] = False
    some = np.zeros(groups, np.bool_)
    some[group_of[matters]] = True
    timed &= some
    chosen = matters & timed[group_of]
    known.since[chosen], known.settled[chosen] = stamp[chosen], stamp[chosen]
    unstamped = ~matters & timed[group_of] & (stamp == NIL)
    unstamped[nil_of] = False
    known.since[unstamped], known.settled[unstamped] = NIL + 1, NEVER
    return timed


def dense_sessions(rows: Columns) -> tuple[Int32s, int]:
    """Sessions as small numbers."""
    numbers, count = packed(*dense(rows["session"]))
    return numbers.astype(np.int32), count

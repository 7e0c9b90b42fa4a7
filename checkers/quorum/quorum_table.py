"""Mutations and pages of partitions as the judges of quorum tables read them.

A mutation is all that one operation writes and deletes in one partition, a page all that one operation read there. The
versions of a cell are ordered by the timestamps that clients chose (last write wins). Cells are those that any
operation names; a deletion touches those of them that lie within its bounds. Failed mutations touch nothing, and are
known only by their values. An absent cell is in its initial state or was deleted, nobody says by whom.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from checkers.columns.codes import FAIL, NEVER, NIL, OK, READ, WRITE, Bools, Ints
from checkers.columns.dense import spread, together
from checkers.columns.mops import ADDRESS, Columns, selected, unsupported_rows
from checkers.findings import NO_KEY, Finding, Findings, Key

DELETE: Final = 2
PAGE: Final = 3

_NOT_OF_A_QUORUM_TABLE: Final = "not reads, writes, deletions or pages of integers"

ABSENT: Final = -1
UNWRITTEN: Final = -2
"""Of what a read shows, instead of a mutation: nothing, or a value that nobody had written."""

MOST_TOUCHES: Final = 1 << 24
"""Cells that ranges and partitions may delete, all deletions together; see `judge_table`."""

_TOO_MANY: Final = f"Ranges and partitions delete more than {MOST_TOUCHES} cells, so some partitions were not judged."


class Mutations(NamedTuple):
    """In order of partition and invocation. `acknowledged` and `failed` are flags; mutation m touches the cells
    `cell[begin[m]:begin[m + 1]]` and gives them a value where `value` is set, else deletes them."""

    group: Ints
    invoke: Ints
    complete: Ints
    timestamp: Ints
    level: Ints
    session: Ints
    acknowledged: Bools
    failed: Bools
    begin: Ints
    cell: Ints
    value: Bools


class Deletions(NamedTuple):
    """Cell c was deleted by the mutations `mutation[begin[c]:begin[c + 1]]`, in order of their timestamps."""

    begin: Ints
    timestamp: Ints
    mutation: Ints


class Pages(NamedTuple):
    """In order of partition and invocation. Page p names the cells `cell[begin[p]:begin[p + 1]]` and shows of each what
    mutation `shown` wrote (or ABSENT or UNWRITTEN); it covers besides all cells `low[b]` to `high[b]` (excluded) for b
    in `bound_begin[p]:bound_begin[p + 1]`, which are absent. `row` is where a cell stands in the rows."""

    group: Ints
    invoke: Ints
    complete: Ints
    level: Ints
    session: Ints
    node: Ints
    final: Ints
    begin: Ints
    cell: Ints
    shown: Ints
    row: Ints
    bound_begin: Ints
    low: Ints
    high: Ints


class Cells(NamedTuple):
    """In order of partition, row and column; partition g has cells `begin[g]:begin[g + 1]`."""

    address: tuple[Ints, Ints, Ints, Ints]
    begin: Ints


class QuorumTable(NamedTuple):
    """The partitions of some rows. `refused` is why they can't be judged (a key of REFUSALS) and the operations that
    show it; `undecided` says that there are more deleted cells than can be looked at."""

    rows: Columns
    cells: Cells
    mutations: Mutations
    deletions: Deletions
    pages: Pages
    refused: tuple[str, tuple[int, ...]] | None = None
    undecided: bool = False


REFUSALS: Final = {
    "untimed": "it writes, but its invocation states no write timestamp, while others' do or levels are stated",
    "tie": "two writes of one partition have the same timestamp, which would be decided cell by cell",
    "twice": "it writes or deletes one cell twice, at the same timestamp",
    "again": "two writes give one cell the same value, so nobody can say which one a read shows",
}
"""What makes a history one that can't be judged, in words."""


def _group_begins(ids: Ints, count: int) -> Ints:
    return np.searchsorted(ids, np.arange(count + 1))


class _Ops(NamedTuple):
    """Operations within partitions: the rows of each begin at `begin`."""

    of_row: Ints
    begin: Ints


def _sorted(rows: Columns) -> tuple[Columns, Ints, int]:
    """Rows by partition and invocation, without pages that were not read; the partition of each; how many."""
    if len(rows["kind"]):
        unread = (rows["kind"] == PAGE) & (rows["status"] != OK)
        rows = selected(rows, ~unread) if unread.any() else rows
    group, groups = together([rows["table"], rows["partition"]])
    order = np.lexsort((rows["place"], rows["invoke"], group))
    return selected(rows, order), group[order], groups


def _operations(rows: Columns, group: Ints) -> _Ops:
    fresh = np.ones(len(group), np.bool_)
    fresh[1:] = (group[1:] != group[:-1]) | (rows["invoke"][1:] != rows["invoke"][:-1])
    return _Ops(np.cumsum(fresh) - 1, np.append(np.flatnonzero(fresh), len(group)))


class _CellIds(NamedTuple):
    """Numbers cells, and finds which numbers lie within bounds of rows."""

    cells: Cells
    of_row: Ints
    """By row of the table, -1 for deletions and pages."""
    lines: Ints
    line_key: Ints

    def within(self, group: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints]:
        """The cells of partitions from row `first` to `last`, both included: numbers from, to (excluded)."""
        width = len(self.lines) + 1
        low = group * width + np.searchsorted(self.lines, first, "left")
        high = group * width + np.searchsorted(self.lines, last, "right")
        begin = np.searchsorted(self.line_key, low)
        return begin, np.maximum(begin, np.searchsorted(self.line_key, high))


def _number_cells(rows: Columns, group: Ints, groups: int) -> _CellIds:
    named = np.flatnonzero((rows["kind"] == READ) | (rows["kind"] == WRITE))
    line, column, of = rows["row"][named], rows["column"][named], group[named]
    order = np.lexsort((column, line, of))
    fresh = np.ones(len(order), np.bool_)
    line, column, of = line[order], column[order], of[order]
    fresh[1:] = (of[1:] != of[:-1]) | (line[1:] != line[:-1]) | (column[1:] != column[:-1])
    of_row = np.full(len(group), -1)
    of_row[named[order]] = np.cumsum(fresh) - 1
    first = named[order][fresh]
    table, partition, row, column_of = (rows[name][first] for name in ADDRESS)
    cells = Cells((table, partition, row, column_of), _group_begins(group[first], groups))
    lines = np.unique(row)
    key = group[first] * (len(lines) + 1) + np.searchsorted(lines, row)
    return _CellIds(cells, of_row, lines, key)


class _Touch(NamedTuple):
    mutation: Ints
    cell: Ints
    value: Bools


def _touches(rows: Columns, ids: _CellIds, mutation: Ints, group: Ints) -> _Touch | None:
    """What mutations touch (`mutation` by row, -1: none that matters), in their order; None if it is too much."""
    write = np.flatnonzero((rows["kind"] == WRITE) & (mutation >= 0))
    delete = np.flatnonzero((rows["kind"] == DELETE) & (mutation >= 0))
    low, high = ids.within(group[delete], rows["first"][delete], rows["last"][delete])
    if int((high - low).sum()) > MOST_TOUCHES:
        return None
    cell, of = spread(low, high)
    found = _Touch(
        np.concatenate((mutation[write], mutation[delete[of]])),
        np.concatenate((ids.of_row[write], cell)),
        np.concatenate((rows["value"][write] != NIL, np.zeros(len(cell), np.bool_))),
    )
    written = np.concatenate((np.ones(len(write), np.bool_), np.zeros(len(cell), np.bool_)))
    order = np.lexsort((~written, found.cell, found.mutation))
    found, written = _Touch(found.mutation[order], found.cell[order], found.value[order]), written[order]
    same = (found.mutation[1:] == found.mutation[:-1]) & (found.cell[1:] == found.cell[:-1])
    # Deletions of one mutation may overlap each other, but not what it writes: that would be a tie.
    if (same & written[:-1]).any():
        raise _Refused("twice", (int(found.mutation[:-1][same & written[:-1]][0]),))
    keep = np.append(True, ~same) if len(order) else np.ones(0, np.bool_)
    return _Touch(found.mutation[keep], found.cell[keep], found.value[keep])


class _Refused(Exception):
    """The rows can't be judged: a key of REFUSALS and the mutations that show it."""


def _mutations(rows: Columns, group: Ints, ops: _Ops, writing: Ints) -> Mutations:
    """Of the operations that write, without what they touch; raises `_Refused`."""
    at = ops.begin[writing]
    status = rows["status"][at]
    nothing = np.empty(0, np.int64)
    invoke, complete, timestamp, level, session = (
        rows[name][at] for name in ("invoke", "complete", "write_ts", "level", "session")
    )
    found = Mutations(
        group[at],
        invoke,
        complete,
        timestamp,
        level,
        session,
        status == OK,
        status == FAIL,
        nothing,
        nothing,
        np.empty(0, np.bool_),
    )
    untimed = np.flatnonzero(found.timestamp == NIL)
    if len(untimed):
        raise _Refused("untimed", (int(untimed[0]),))
    tried = np.flatnonzero(~found.failed)
    order = tried[np.lexsort((found.timestamp[tried], found.group[tried]))]
    same = found.group[order[1:]] == found.group[order[:-1]]
    tied = np.flatnonzero(same & (found.timestamp[order[1:]] == found.timestamp[order[:-1]]))
    if len(tied):
        raise _Refused("tie", (int(order[tied[0]]), int(order[tied[0] + 1])))
    return found


def _shown(rows: Columns, ids: _CellIds, mutation: Ints, failed: Bools) -> Ints:
    """By row of a read with a value, the mutation that wrote it: one that may have taken effect if there is one, else
    one that failed, else UNWRITTEN. Raises `_Refused` where several wrote it."""
    valued = np.flatnonzero(((rows["kind"] == WRITE) | (rows["kind"] == READ)) & (rows["value"] != NIL))
    version, count = together([ids.of_row[valued], rows["value"][valued]])
    writer, write = np.full(count, UNWRITTEN), rows["kind"][valued] == WRITE
    of = mutation[valued]
    lost = write & failed[of] if len(failed) else np.zeros(len(valued), np.bool_)
    writer[version[lost]] = of[lost]
    kept = write & ~lost
    writer[version[kept]] = of[kept]
    again = np.flatnonzero(kept & (writer[version] != of))
    if len(again):
        raise _Refused("again", (int(of[again[0]]), int(writer[version[again[0]]])))
    shown = np.full(len(rows["kind"]), ABSENT)
    shown[valued] = writer[version]
    return shown


def _pages(rows: Columns, group: Ints, ops: _Ops, ids: _CellIds, reading: Ints, shown: Ints) -> Pages:
    page = np.full(len(ops.begin) - 1, -1)
    page[reading] = np.arange(len(reading))
    at = ops.begin[reading]
    read = np.flatnonzero(rows["kind"] == READ)
    bound = np.flatnonzero(rows["kind"] == PAGE)
    low, high = ids.within(group[bound], rows["first"][bound], rows["last"][bound])
    invoke, complete, level, session, node, final = (
        rows[name][at] for name in ("invoke", "complete", "level", "session", "node", "final")
    )
    return Pages(
        group[at],
        invoke,
        complete,
        level,
        session,
        node,
        final,
        _group_begins(page[ops.of_row[read]], len(reading)),
        ids.of_row[read],
        shown[read],
        read,
        _group_begins(page[ops.of_row[bound]], len(reading)),
        low,
        high,
    )


def _deletions(touch: _Touch, timestamp: Ints, cells: int) -> Deletions:
    deleted = np.flatnonzero(~touch.value)
    order = deleted[np.lexsort((timestamp[touch.mutation[deleted]], touch.cell[deleted]))]
    mutation = touch.mutation[order]
    return Deletions(_group_begins(touch.cell[order], cells), timestamp[mutation], mutation)


def judge_table(rows: Columns, judge: Callable[[QuorumTable, int], Findings]) -> Findings:
    """What `judge` finds in the table of some rows and its number of partitions. `refused:…` among the classes says
    that rows can't be judged, `undecided` counts partitions."""
    unsupported = unsupported_rows(rows, _NOT_OF_A_QUORUM_TABLE)
    if unsupported:
        return Findings(ops=len(rows["kind"]), unsupported=unsupported)
    table = make_table(rows)
    if table.refused is not None:
        key, ops = table.refused
        finding = Finding(f"refused:{key}", min(ops), NO_KEY, ops)
        return Findings(len(table.rows["kind"]), counts={finding.anomaly: 1}, kept=(finding,))
    partitions = len(table.cells.begin) - 1
    if table.undecided:
        return Findings(len(table.rows["kind"]), partitions, undecided=partitions, reasons=(_TOO_MANY,))
    return judge(table, partitions)


def make_table(rows: Columns) -> QuorumTable:
    """Sort the rows, find mutations and pages, and what they touch and show."""
    rows, group, groups = _sorted(rows)
    ops = _operations(rows, group)
    ids = _number_cells(rows, group, groups)
    count = len(ops.begin) - 1
    writes = (rows["kind"] == WRITE) | (rows["kind"] == DELETE)
    writing = np.flatnonzero(np.bincount(ops.of_row[writes], minlength=count))
    reading = np.flatnonzero(np.bincount(ops.of_row[~writes], minlength=count))
    number = np.full(count, -1)
    number[writing] = np.arange(len(writing))
    mutation = np.where(writes, number[ops.of_row], -1) if count else np.empty(0, np.int64)
    try:
        mutations = _mutations(rows, group, ops, writing)
        shown = _shown(rows, ids, mutation, mutations.failed)
        touch = _touches(rows, ids, _tried(mutation, mutations.failed), group)
    except _Refused as refused:
        key, of = refused.args
        return _nothing(rows, ids.cells, (key, tuple(int(rows["invoke"][ops.begin[writing[m]]]) for m in of)), False)
    if touch is None:
        return _nothing(rows, ids.cells, None, True)
    begin = _group_begins(touch.mutation, len(writing))
    mutations = mutations._replace(begin=begin, cell=touch.cell, value=touch.value)
    deletions = _deletions(touch, mutations.timestamp, len(ids.cells.address[0]))
    return QuorumTable(rows, ids.cells, mutations, deletions, _pages(rows, group, ops, ids, reading, shown))


def _tried(mutation: Ints, failed: Bools) -> Ints:
    """The mutation of each row, -1 where it failed."""
    return np.where(failed[mutation], -1, mutation) if len(failed) else mutation


def _nothing(rows: Columns, cells: Cells, refused: tuple[str, tuple[int, ...]] | None, undecided: bool) -> QuorumTable:
    """Partitions that are not judged."""
    none, false = np.empty(0, np.int64), np.empty(0, np.bool_)
    zero = np.zeros(1, np.int64)
    mutations = Mutations(none, none, none, none, none, none, false, false, zero, none, false)
    pages = Pages(none, none, none, none, none, none, none, zero, none, none, none, zero, none, none)
    return QuorumTable(rows, cells, mutations, Deletions(zero, none, none), pages, refused, undecided)


def cell_key(cells: Cells, cell: int) -> Key:
    """The address of a cell."""
    return Key.of(part[cell] for part in cells.address)


def garbage(table: QuorumTable) -> Ints:
    """The cells of pages (places in `pages.cell`) with values that nobody can have written: of no write, of one that
    failed, of one that had not begun when the read ended, or of one that the same operation did later."""
    pages, mutations = table.pages, table.mutations
    of = np.repeat(np.arange(len(pages.invoke)), np.diff(pages.begin))
    known = np.flatnonzero(pages.shown >= 0)
    problems: Any = pages.shown == UNWRITTEN
    writer = pages.shown[known]
    problems[known] = mutations.failed[writer] | (mutations.invoke[writer] >= pages.complete[of[known]])
    own = known[mutations.invoke[writer] == pages.invoke[of[known]]]
    problems[own[_of_own_future(table.rows, pages.row[own])]] = True
    return np.flatnonzero(problems)


def _of_own_future(rows: Columns, read: Ints) -> Bools:
    """Which of some rows, reads of what their own operation writes, stand before that write."""
    write = np.flatnonzero((rows["kind"] == WRITE) & np.isin(rows["invoke"], rows["invoke"][read]))
    version, count = together([rows[name][np.concatenate((read, write))] for name in (*ADDRESS, "invoke", "value")])
    written = np.full(count, NEVER)
    np.minimum.at(written, version[len(read) :], rows["place"][write])
    return rows["place"][read] < written[version[: len(read)]]

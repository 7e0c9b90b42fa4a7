"""Partition writes of which one read shows a part only.

Biswas and Enea's axiom of read atomic, for one page: if a read shows what write W left in one row, and in another row
that W wrote too something of another write V, then W comes before V. It is torn if V is certainly older than W (see
`versions`; a write's numbers are those of all its versions together), and if the demands of all reads of a partition
and what is certain go round in a circle, some read is torn whichever way the writes are ordered.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.columns.codes import Bools, Ints
from checkers.columns.dense import together
from checkers.columns.instances import Instances, record
from checkers.compiled import kernel, lean, lean_inline

_LARGE: Final = 64
"""Writes of more rows than this are searched by cell."""

UNCLEAR: Final = -3
"""Instead of a writer: one of several."""


class PageVisits(NamedTuple):
    """Rows sorted by partition and operation: visit v, one operation in one partition, owns `begin[v]:begin[v + 1]`.
    `writer` is by version the visit that wrote it (-1: none, -2: the initial state, UNCLEAR), and `latest` when it
    was certainly there, `replaced` whether its writer wrote over it (empty: none did); `since` and `settled` are by
    visit; `cells` says by visit how many cells it wrote; `by_cell` sorts the rows of large writes by cell."""

    begin: Ints
    cell: Ints
    version: Ints
    read: Bools
    write: Bools
    writer: Ints
    latest: Ints
    replaced: Bools
    since: Ints
    settled: Ints
    cells: Ints
    by_cell: Ints
    invoke: Ints


class Demands(NamedTuple):
    """Edges between visits that write, with the rows of the read that demand them."""

    source: Ints
    target: Ints
    shown: Ints
    other: Ints


@kernel
def _sort_large(begin, cell, by_cell):
    for visit in range(begin.shape[0] - 1):
        first, last = begin[visit], begin[visit + 1]
        if last - first > _LARGE:
            by_cell[first:last] = first + np.argsort(cell[first:last], kind="mergesort")


def cell_order(begin: Ints, cell: Ints) -> Ints:
    """Rows as they are, those of large visits by cell."""
    by_cell = np.arange(len(cell))
    _sort_large(begin, cell, by_cell)
    return by_cell


@kernel
def _count_cells(begin, cell, write, met, counts):
    for visit in range(begin.shape[0] - 1):
        for row in range(begin[visit], begin[visit + 1]):
            if write[row] and met[cell[row]] != visit:
                met[cell[row]] = visit
                counts[visit] += 1


def cells_written(begin: Ints, cell: Ints, write: Bools) -> Ints:
    """How many cells each visit writes."""
    counts = np.zeros(len(begin) - 1, np.int64)
    _count_cells(begin, cell, write, np.full(int(cell.max(initial=0)) + 1, -1), counts)
    return counts


@lean
def _writes_cell(pages, visit, cell):
    """The first row in which a visit writes a cell, or -1."""
    low, high = pages.begin[visit], pages.begin[visit + 1]
    end = high
    # Rows of visits that are not large are in no order of cells.
    if end - low <= _LARGE:
        for row in range(low, end):
            if pages.write[row] and pages.cell[row] == cell:
                return row
        return -1
    while low < high:
        middle = (low + high) // 2
        if pages.cell[pages.by_cell[middle]] < cell:
            low = middle + 1
        else:
            high = middle
    while low < end and pages.cell[pages.by_cell[low]] == cell:
        if pages.write[pages.by_cell[low]]:
            return pages.by_cell[low]
        low += 1
    return -1


@lean_inline
def _compare(pages, visit, writer, row, other, edges, count):
    """One row shows `writer`, and `other` a version of a cell that it wrote too: 1 torn, 2 demanded, 0 nothing."""
    origin = pages.writer[pages.version[other]]
    if origin in (writer, visit, -1):
        return 0
    # Whoever of several wrote it, it is older if all of their writes are.
    if origin == UNCLEAR:
        return 1 if pages.latest[pages.version[other]] < pages.since[writer] else 0
    if origin == -2 or pages.settled[origin] < pages.since[writer]:
        return 1
    if pages.settled[writer] < pages.since[origin]:
        return 0
    edges[count, 0], edges[count, 1], edges[count, 2], edges[count, 3] = writer, origin, row, other
    return 2


@kernel
def _grown(edges):
    larger = np.empty((2 * edges.shape[0], 4), np.int64)
    larger[: edges.shape[0]] = edges
    return larger


class _Marks(NamedTuple):
    """By cell the last row of a read, and of which visit."""

    row: Ints
    visit: Ints


@kernel
def _against(pages, visit, row, twice, marks, edges, count):
    """Compares the other rows of a read with the writer that one of its rows shows; returns edges, their number, and a
    row that tears the write or -1. `twice`: the read shows several versions of a cell; `marks` has the last."""
    writer = pages.writer[pages.version[row]]
    first, last = pages.begin[writer], pages.begin[writer + 1]
    # The cells of a large write are not passed for each read: there the rows of the read are looked up among them.
    by_reads = twice or last - first > _LARGE
    if by_reads:
        first, last = pages.begin[visit], pages.begin[visit + 1]
    for place in range(first, last):
        if by_reads:
            written = _writes_cell(pages, writer, pages.cell[place]) if pages.read[place] else -1
            other = place if written >= 0 else -1
        else:
            written = place
            marked = pages.write[place] and marks.visit[pages.cell[place]] == visit
            other = marks.row[pages.cell[place]] if marked else -1
        # What an operation read before it wrote there lacks that by right.
        if other < 0 or (writer == visit and other < written):
            continue
        if count == edges.shape[0]:
            edges = _grown(edges)
        found = _compare(pages, visit, writer, row, other, edges, count)
        if found == 1:
            return edges, count, other
        count += found == 2
    return edges, count, -1


@lean_inline
def _read_rows(pages, visit, marks):
    """Marks the rows of a visit's reads by their cells; returns how many they are, and whether they show several
    versions of a cell."""
    reads, twice = 0, False
    for row in range(pages.begin[visit], pages.begin[visit + 1]):
        if pages.read[row]:
            cell = pages.cell[row]
            twice |= marks.visit[cell] == visit and pages.version[marks.row[cell]] != pages.version[row]
            marks.row[cell], marks.visit[cell] = row, visit
            reads += 1
    return reads, twice


@kernel
def _judge(pages, marks, out):
    met = np.full(pages.begin.shape[0], -1)
    edges, count, pages_read = np.empty((1024, 4), np.int64), 0, 0
    for visit in range(pages.begin.shape[0] - 1):
        reads, twice = _read_rows(pages, visit, marks)
        pages_read += reads > 1
        for row in range(pages.begin[visit], pages.begin[visit + 1]):
            if not pages.read[row]:
                continue
            writer = pages.writer[pages.version[row]]
            if writer >= 0 and writer != visit and pages.replaced.shape[0] > 0 and pages.replaced[pages.version[row]]:
                record(out, 0, pages.invoke[row], 0, (row, row, pages.begin[writer], -1))
                break
            # What shows one cell else can't be torn. A writer is compared once with a read.
            if reads < 2 or writer < 0 or pages.cells[writer] < 2 or met[writer] == visit:
                continue
            met[writer] = visit
            edges, count, torn = _against(pages, visit, row, twice, marks, edges, count)
            if torn >= 0:
                record(out, 0, pages.invoke[row], 0, (row, torn, pages.begin[writer], -1))
                break
    return edges[:count], pages_read


def replaced(visit: Ints, cell: Ints, version: Ints, writer: Ints, write: Bools, cells: Ints) -> Bools:
    """By version whether the visit that wrote it (`writer`) wrote over it; empty if no visit writes a cell twice."""
    row = np.flatnonzero(write)
    row = row[(np.bincount(visit[row], minlength=len(cells)) > cells)[visit[row]]]
    found = np.zeros(len(writer) if len(row) else 0, np.bool_)
    if len(row):
        ids, count = together((visit[row], cell[row]))
        last = np.full(count, -1)
        np.maximum.at(last, ids, row)
        over = row[version[row] != version[last[ids]]]
        found[version[over[writer[version[over]] == visit[over]]]] = True
    return found


def torn_reads(pages: PageVisits, cells: int, out: Instances) -> tuple[Demands, int]:
    """Record torn reads (row that shows the write, row that does not, first row of the write); returns what other reads
    demand of the order of writes that is not certain already, and how many reads of several cells there were."""
    edges, reads = _judge(pages, _Marks(np.empty(cells, np.int64), np.full(cells, -1)), out)
    return Demands(*(edges[:, i].copy() for i in range(4))), int(reads)

"""Follows each element of sets through all reads: when it was known, last shown, last missed.

Columns in, columns out. What reads show is looked at where it lies, list by list (`checkers.jepsen.shown`): beside it
only the elements themselves need room.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from checkers.columns.batches import Bools
from checkers.columns.codes import NEVER, OK, Ints
from checkers.columns.rows import OBJECT, column, group_starts
from checkers.jepsen.shown import ADD, READ, Met, SetOps, Sought, Traces, last_missed, meet_adds, meet_reads, new_traces


@dataclass(frozen=True, slots=True)
class Stray:
    """A value that the read at `row` shows so many times although its last add had not begun."""

    row: int
    value: int
    times: int


@dataclass(frozen=True, slots=True)
class Elements:
    """One entry an element (the last add of a value of a set), in order of set and value.

    `place`, `known_by`, `present`, `absent` and `most_by` are rows of the table (-1 for none): its last add, what made
    it known first (an acknowledged add or a read), the latest-begun reads that show and that miss it, and the read that
    shows it `most` times. Latencies are in ns, 0 where there is none. `strays` has one entry a value; `unexpected`
    counts all that reads show of what no add had begun.
    """

    object: Ints
    value: Ints
    place: Ints
    known_by: Ints
    present: Ints
    absent: Ints
    stable: Bools
    lost: Bools
    stale: Bools
    stable_latency: Ints
    lost_latency: Ints
    most: Ints
    most_by: Ints
    objects: int
    strays: tuple[Stray, ...]
    unexpected: int


def follow(table: pa.Table) -> Elements:
    """What became of every element of a table sorted by object, `share` (each is an object by itself) and `invoke`.

    Its rows are adds and successful reads (`kind`), with an add's `value` and `outcome`, what a read shows in `items`,
    and moments in ns in `began` and `ended`.
    """
    starts = group_starts([column(table, name) for name in (*OBJECT, "share")])
    owner = np.zeros(table.num_rows, np.int64)
    owner[starts] = 1
    owner = np.cumsum(owner) - 1
    ops = SetOps(column(table, "kind"), owner, column(table, "invoke"), column(table, "complete"))
    adds, reads = np.flatnonzero(ops.kind == ADD), np.flatnonzero(ops.kind == READ)
    element, place = _elements(owner[adds], column(table, "value")[adds])
    place = adds[place]
    value = column(table, "value")[place]
    read_first = np.searchsorted(owner[reads], np.arange(len(starts) + 1))
    sought = _sought(ops, owner[place], value, ops.invoke[place], reads, read_first)
    traces = new_traces(len(place), table.num_rows)
    of_row = np.full(table.num_rows, -1)
    of_row[adds] = element
    meet_adds(ops, of_row, column(table, "outcome") == OK, sought, traces)
    _meet(table, ops, sought, traces)
    absent = last_missed(ops, owner[place], sought, traces, read_first, reads)
    begun = np.full(len(place), NEVER)
    np.minimum.at(begun, element, ops.invoke[adds])
    return _judged(table, ops, place, traces, absent, _early(table, ops, sought, traces, begun), len(starts))


def _elements(owner: Ints, value: Ints) -> tuple[Ints, Ints]:
    """Each add's element, and each element's last add, in order of owner and value."""
    order = np.lexsort((value, owner))
    if not len(order):
        return order, order
    starts = group_starts([owner[order], value[order]])
    sizes = np.diff(np.append(starts, len(order)))
    element = np.empty(len(order), np.int64)
    element[order] = np.repeat(np.arange(len(starts)), sizes)
    return element, order[starts + sizes - 1]


def _sought(ops: SetOps, owner: Ints, value: Ints, added: Ints, reads: Ints, read_first: Ints) -> Sought:
    objects = len(read_first) - 1
    latest = np.full(objects, NEVER)
    some = read_first[1:] > read_first[:-1]
    latest[some] = ops.invoke[reads[read_first[1:][some] - 1]]
    late_reads = reads[ops.complete[reads] > latest[ops.owner[reads]]]
    late_first = np.searchsorted(ops.owner[late_reads], np.arange(objects + 1))
    first = np.searchsorted(owner, np.arange(objects + 1))
    return Sought(first, value, added, added > latest[owner], late_first, late_reads)


def _meet(table: pa.Table, ops: SetOps, sought: Sought, traces: Traces) -> None:
    """Meet all reads, the last chunk of the table first."""
    objects = len(sought.first) - 1
    met = Met(np.zeros(objects, np.int64), np.zeros(objects, np.int64))
    stop = table.num_rows
    for chunk in reversed(table.column("items").chunks):
        stop -= len(chunk)
        meet_reads(ops, stop, *_lists(chunk), sought, traces, met)


def _lists(chunk: pa.ListArray) -> tuple[Any, Any]:
    """Offsets and elements of lists, where they lie."""
    return chunk.offsets.to_numpy(), chunk.values.to_numpy()


def _judged(
    table: pa.Table, ops: SetOps, place: Ints, traces: Traces, absent: Ints, early: _Early, objects: int
) -> Elements:
    present, known_by = traces.present, traces.known_by
    known = np.where(known_by >= 0, ops.complete[known_by], NEVER)
    missed, seen = (np.where(row >= 0, ops.invoke[row], -1) for row in (absent, present))
    stable = (seen >= 0) & (missed < seen)
    lost = (known < missed) & (seen < missed)
    began = column(table, "began")
    known_at = np.where(known_by >= 0, column(table, "ended")[known_by], 0)
    until = [np.where(row >= 0, began[row] + 1, 0) for row in (absent, present)]
    return Elements(
        ops.owner[place],
        column(table, "value")[place],
        place,
        known_by,
        present,
        absent,
        stable,
        lost,
        stable & (missed > known),
        np.where(stable, np.maximum(until[0] - known_at, 0), 0),
        np.where(lost, np.maximum(until[1] - known_at, 0), 0),
        traces.most,
        traces.most_by,
        objects,
        early.strays,
        early.unexpected,
    )


class _Early(NamedTuple):
    """What reads show of values before their last adds began: see `Elements`."""

    strays: tuple[Stray, ...]
    unexpected: int


def _early(table: pa.Table, ops: SetOps, sought: Sought, traces: Traces, begun: Ints) -> _Early:
    """What one read shows twice although its last add had not begun, by set and value the first of them; not what
    another read shows twice after that. And how much no add had begun to put there, the first of which is `begun`."""
    found: dict[tuple[int, int], Stray] = {}
    unexpected = 0
    for row in np.flatnonzero(traces.unexpected).tolist():
        shown = table.column("items")[row].values.to_numpy()
        value, times = np.unique(shown, return_counts=True)
        owner = ops.owner[row]
        first, stop = sought.first[owner], sought.first[owner + 1]
        place = first + np.searchsorted(sought.value[first:stop], value)
        added, first_added = np.full((2, len(value)), NEVER)
        told = np.zeros(len(value), np.bool_)
        here = place < stop
        here[here] = sought.value[place[here]] == value[here]
        added[here], first_added[here] = sought.added[place[here]], begun[place[here]]
        told[here] = traces.most[place[here]] > 1
        unexpected += int(times[ops.complete[row] <= first_added].sum())
        for i in np.flatnonzero((times > 1) & (ops.complete[row] <= added) & ~told).tolist():
            found.setdefault((int(owner), int(value[i])), Stray(row, int(value[i]), int(times[i])))
    return _Early(tuple(found.values()), unexpected)

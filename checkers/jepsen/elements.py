"""Follows each element of sets through all reads: when it was known, last shown, last missed.

Columns in, columns out. What reads show is looked at where it lies, list by list: beside it only the elements
themselves need room. Which reads show an element and which is the last to miss it is found without looking at every
pair of the two.

Rows are adds and reads sorted by object and invocation. Reads are met latest first, so those of an object have ranks,
and an element's `lead` is how many of them, from the latest on, show it without a gap: the read of that rank is the
last one that misses it. A read that ended before an element was added can't show it; that matters for `late` elements
only, those added after the last read began (the others were added before some read that does count), and these have
their leads among the `late` reads, those that were still open then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkers.columns.batches import OBJECT, Bools, column, groups_of
from checkers.columns.codes import NEVER, OK, Ints
from checkers.compiled import kernel, lean

ADD, READ = 0, 1


class SetOps(NamedTuple):
    """Adds and reads (`kind`), sorted by (`owner`, `invoke`): `owner` numbers the objects, events are indices."""

    kind: npt.NDArray[np.int8]
    owner: Ints
    invoke: Ints
    complete: Ints


class Sought(NamedTuple):
    """The elements, sorted by (object, value): those of object o are `first[o]:first[o + 1]`; `added` is the index at
    which the last add of each began. `late_reads[late_first[o]:late_first[o + 1]]` are rows, in order."""

    first: Ints
    value: Ints
    added: Ints
    late: npt.NDArray[np.bool_]
    late_first: Ints
    late_reads: Ints


class Traces(NamedTuple):
    """What is known so far of each element, in rows (-1 for none): `known_by` is what made it known first, `present`
    the latest read that shows it, `most_by` the read that shows it `most` times; `read` and `times` are of the read met
    last. `unexpected` counts, by row, the elements shown whose last add, if any, had not begun."""

    lead: Ints
    known_by: Ints
    present: Ints
    read: Ints
    times: Ints
    most: Ints
    most_by: Ints
    unexpected: Ints


class Met(NamedTuple):
    """How many reads of each object were met, and of these how many are `late_reads`."""

    reads: Ints
    late: Ints


def new_traces(elements: int, rows: int) -> Traces:
    """Before any read is met."""
    none = [np.full(elements, -1) for _ in range(4)]
    zeros = [np.zeros(elements, np.int64) for _ in range(3)]
    return Traces(zeros[0], none[0], none[1], none[2], zeros[1], zeros[2], none[3], np.zeros(rows, np.int64))


@kernel
def place_of(value, first, stop, wanted, near):
    """The place of a value among sorted ones, -1 if it is not there; those shown in order are found `near` the last."""
    if near + 1 < stop and value[near + 1] == wanted:
        return near + 1
    low, high = first, stop
    while low < high:
        middle = (low + high) >> 1
        if value[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < stop and value[low] == wanted else -1


@lean
def _overtaken(ops, sought, element, owner, lead, stop):
    """A late element's lead, moved on over late reads that ended before the element was added."""
    last = sought.late_first[owner + 1] - 1
    while lead < stop and ops.complete[sought.late_reads[last - lead]] <= sought.added[element]:
        lead += 1
    return lead


@kernel
def meet_adds(ops, element, ok, sought, traces):
    """Let acknowledged adds make their elements known; `element` gives each row's, -1 for reads."""
    for row in range(len(element)):
        e = element[row]
        if e >= 0 and ok[row] and ops.complete[row] > sought.added[e]:
            known = traces.known_by[e]
            if known < 0 or ops.complete[row] < ops.complete[known]:
                traces.known_by[e] = row


@kernel
def meet_reads(ops, begin, offsets, items, sought, traces, met):
    """Follow the elements through the reads among the rows from `begin` on, whose lists are `items[offsets…]`.

    Rows are met last to first, and so must stretches of them be; `met` counts each object's reads.
    """
    for i in range(len(offsets) - 2, -1, -1):
        row = begin + i
        if ops.kind[row] != READ:
            continue
        owner, complete = ops.owner[row], ops.complete[row]
        first, stop = sought.first[owner], sought.first[owner + 1]
        # So many of the object's reads came after this one, and so many of its late reads. An element that all of them
        # showed has just that as its `lead`, and goes on to lead.
        late_rank, rank, near = met.late[owner], met.reads[owner], first - 1
        for j in range(offsets[i], offsets[i + 1]):
            e = place_of(sought.value, first, stop, items[j], near)
            if e < 0 or complete <= sought.added[e]:
                traces.unexpected[row] += 1
                continue
            # Lists are mostly in order, so the next element is looked for from here on.
            near = e
            if traces.known_by[e] < 0 or complete < ops.complete[traces.known_by[e]]:
                traces.known_by[e] = row
            if traces.present[e] < 0:
                traces.present[e] = row
            if sought.late[e]:
                traces.lead[e] = _overtaken(ops, sought, e, owner, traces.lead[e], late_rank)
            if traces.lead[e] == (late_rank if sought.late[e] else rank):
                traces.lead[e] += 1
            traces.times[e] = traces.times[e] + 1 if traces.read[e] == row else 1
            traces.read[e] = row
            if traces.times[e] >= traces.most[e]:
                traces.most[e], traces.most_by[e] = traces.times[e], row
        met.reads[owner] += 1
        late = sought.late_first[owner + 1] - sought.late_first[owner]
        if late_rank < late and sought.late_reads[sought.late_first[owner + 1] - 1 - late_rank] == row:
            met.late[owner] += 1


@kernel
def last_missed(ops, owner, sought, traces, read_first, reads):
    """The row of the last read that could show each element and does not, -1 for none; reads of an object are
    `reads[read_first[o]:read_first[o + 1]]`, in order."""
    missed = np.full(len(owner), -1)
    for e in range(len(owner)):
        mine = owner[e]
        if sought.late[e]:
            late = sought.late_first[mine + 1] - sought.late_first[mine]
            lead = _overtaken(ops, sought, e, mine, traces.lead[e], late)
            row = sought.late_reads[sought.late_first[mine + 1] - 1 - lead] if lead < late else -1
        else:
            lead = traces.lead[e]
            row = reads[read_first[mine + 1] - 1 - lead] if lead < read_first[mine + 1] - read_first[mine] else -1
        if row >= 0 and ops.complete[row] > sought.added[e]:
            missed[e] = row
    return missed


@dataclass(frozen=True, slots=True)
class Stray:
    """A value that the read at `row` shows several `times` although its last add had not begun."""

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
    starts, _, owner = groups_of([column(table, name) for name in (*OBJECT, "share")])
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
    starts, sizes, number = groups_of([owner[order], value[order]])
    element = np.empty(len(order), np.int64)
    element[order] = number
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
        known = np.zeros(len(value), np.bool_)
        here = place < stop
        here[here] = sought.value[place[here]] == value[here]
        added[here], first_added[here] = sought.added[place[here]], begun[place[here]]
        known[here] = traces.most[place[here]] > 1
        unexpected += int(times[ops.complete[row] <= first_added].sum())
        for i in np.flatnonzero((times > 1) & (ops.complete[row] <= added) & ~known).tolist():
            found.setdefault((int(owner), int(value[i])), Stray(row, int(value[i]), int(times[i])))
    return _Early(tuple(found.values()), unexpected)

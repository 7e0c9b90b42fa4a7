"""Which reads of a set show each element and which is the last to miss it, without looking at every pair of the two.

Rows are adds and reads sorted by object and invocation. Reads are met latest first, so those of an object have ranks,
and an element's `lead` is how many of them, from the latest on, show it without a gap: the read of that rank is the
last one that misses it. A read that ended before an element was added can't show it; that matters for `late` elements
only, those added after the last read began (the others were added before some read that does count), and these have
their leads among the `late` reads, those that were still open then.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.columns.codes import Ints
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

"""Sets element by element: whether one is in is a register that adds and removes write and every read of members reads.

If the set is linearizable then so is each of these, by the same order. So a read that shows what was removed for good,
or misses what was added for good, refutes the set without any search.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from checkers.columns.codes import NIL, READ, WRITE, Ints, RegisterColumns
from checkers.columns.dense import spread
from checkers.columns.projection import KeyedOps
from checkers.linearizability.objects.built import Built, RegisterProjections
from checkers.linearizability.objects.kinds import ADD, MEMBERS

_MOST_PAIRS: Final = 1 << 22
"""Past so many pairs of a read and an element of its set nothing is compared here, and the search decides."""


def set_registers(built: Built) -> RegisterProjections | None:
    """A register for each element of each set; None if these are too many."""
    ops, objects = built.ops, len(built.ops.offsets) - 1
    first, last, members = ops.sets.first, ops.sets.last, ops.sets.members
    key = np.repeat(np.arange(objects), np.diff(ops.offsets))
    reads, changes = np.flatnonzero(ops.kind == MEMBERS), np.flatnonzero(ops.kind != MEMBERS)
    count = len(ops.sets.removed)
    of = np.full(count, objects)
    of[ops.value[changes]] = key[changes]
    places, which = spread(first[reads], last[reads])
    shown_by, shown = reads[which], members[places]
    of[shown] = key[shown_by]
    elements = np.argsort(of, kind="stable")
    start = np.searchsorted(of[elements], np.arange(objects + 1))
    if int(np.diff(start)[key[reads]].sum()) > _MOST_PAIRS:
        return None
    places, which = spread(start[key[reads]], start[key[reads] + 1])
    row, element = reads[which], elements[places]
    there = np.isin(row * count + element, shown_by * count + shown)
    rows, number = np.concatenate((row, changes)), np.concatenate((element, ops.value[changes].astype(np.int64)))
    value = np.concatenate((np.where(there, 1, NIL), np.where(ops.kind[changes] == ADD, 1, NIL)))
    return _registers(built, of, rows, number, value)


def _registers(built: Built, of: Ints, rows: Ints, element: Ints, value: Ints) -> RegisterProjections:
    """From what rows say of elements: the value that they read or write."""
    ops = built.ops
    order = np.lexsort((ops.invoke[rows], element))
    rows, element, value = rows[order], element[order], value[order]
    used, first = np.unique(element, return_index=True)
    kind = np.where(ops.kind[rows] == MEMBERS, np.uint8(READ), np.uint8(WRITE))
    columns = RegisterColumns(
        np.append(first, len(rows)), kind, value, np.full(len(rows), NIL), ops.invoke[rows], ops.complete[rows]
    )
    return RegisterProjections(
        KeyedOps(built.addresses[of[used]], columns), of[used], np.empty(0, np.int64), searched=False
    )

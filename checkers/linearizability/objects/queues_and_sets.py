"""Locks, queues, bags and sets made ready for the search: elements numbered, what can't matter left out.

Whether an element is in a set is a register that adds and removes write and every read of members reads. If the set is
linearizable then so is each of these, by the same order (`set_registers`). So a read that shows what was removed for
good, or misses what was added for good, refutes the set without any search.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.columns.codes import INFO, NEVER, NIL, OK, READ, WRITE, Bools, Ints, RegisterColumns
from checkers.columns.dense import spread, together
from checkers.columns.mops import Columns
from checkers.columns.projection import KeyedOps
from checkers.compiled import kernel
from checkers.linearizability.objects.object_columns import (
    ADD,
    BAG,
    DEQUEUE,
    ENQUEUE,
    FIFO,
    IS_EMPTY,
    MEMBERS,
    MUTEX,
    REMOVE,
    SET,
    TAKE,
    Built,
    QueueColumns,
    RegisterProjections,
    SetColumns,
    addresses_of,
    highest,
    lowest,
    make_ops,
    taken,
    without,
)

ELEMENT: Final = 64
NIL_READ: Final = 65
"""Kinds of rows that are no operations of objects: an element of a list read, a read that found nothing."""


def build_mutex(rows: Columns) -> Built:
    """Acquires and releases, whoever does them and whatever value they carry."""
    return Built(make_ops(MUTEX, rows, rows["kind"], np.zeros(len(rows["kind"]), np.int64)), addresses_of(rows))


def _queue_rows(rows: Columns) -> Columns:
    kind, nothing = rows["kind"].copy(), rows["value"] == NIL
    out = kind == DEQUEUE
    kind[out & (rows["status"] == INFO)] = TAKE
    kind[out & (rows["status"] == OK) & nothing] = IS_EMPTY
    return rows | {"kind": kind}


def _returned(rows: Columns) -> Bools:
    """Whether each row's element is ever returned by a dequeue."""
    ids, count = together([rows["object"], rows["value"]])
    seen = np.zeros(count, np.bool_)
    seen[ids[rows["kind"] == DEQUEUE]] = True
    return seen[ids]


def build_queue(model: int, rows: Columns) -> Built:
    """Queues and bags. Elements that are never returned are all alike, and if their enqueue is unknown it is left out;
    a bag that is never seen empty is one object per element."""
    rows = _queue_rows(rows)
    returned = _returned(rows)
    rows = rows | {"returned": returned.astype(np.int64)}
    rows = taken(rows, ~((rows["kind"] == ENQUEUE) & ~returned & (rows["complete"] == NEVER)))
    addresses = addresses_of(rows)
    return _build_bag(rows, addresses) if model == BAG else _numbered(FIFO, rows, addresses)


def _numbered(model: int, rows: Columns, addresses: Ints) -> Built:
    kind = rows["kind"]
    shown = np.where((rows["returned"] == 1) & np.isin(kind, (ENQUEUE, DEQUEUE)), rows["value"], NIL)
    ids, count = together([rows["object"], shown])
    puts, gets, takes = kind == ENQUEUE, kind == DEQUEUE, kind == TAKE
    objects, key = np.unique(rows["object"], return_inverse=True)
    taken_from = lowest(key[takes], rows["invoke"][takes], len(objects))
    first_out = lowest(ids[gets], rows["invoke"][gets], count)
    out_by = highest(ids[gets], rows["complete"][gets], count, -1)
    enough = np.bincount(ids[gets], minlength=count) >= np.bincount(ids[puts], minlength=count)
    out_by = np.where(enough & (out_by >= 0), out_by, NEVER)
    unclaimed = out_by[ids] == NEVER
    np.minimum.at(first_out, ids[unclaimed], taken_from[key[unclaimed]])
    of, put = np.zeros(count, np.int64), highest(ids[puts], rows["invoke"][puts], count, -1)
    of[ids] = key
    claimed, seen = out_by != NEVER, kind == IS_EMPTY
    ends = np.concatenate((out_by[claimed], rows["complete"][seen]))
    begun = np.concatenate((put[claimed], rows["invoke"][seen]))
    last_before = _barriers(of, first_out, (np.concatenate((of[claimed], key[seen])), ends, begun))
    columns = QueueColumns(first_out, out_by, last_before)
    return Built(make_ops(model, rows, kind, ids)._replace(queues=columns), addresses, _names(ids, shown))


def _barriers(key: Ints, first_out: Ints, before: tuple[Ints, Ints, Ints]) -> Ints:
    """For each element the last invocation of what has to be over before the element can be dequeued; `before` are
    queues, ends and invocations of such things."""
    count = len(key)
    moments, queue = np.concatenate((first_out, before[1])), np.concatenate((key, before[0]))
    order = np.lexsort((np.arange(len(moments)) >= count, moments, queue))
    span = int(before[2].max(initial=0)) + 2
    marks = queue * span + np.concatenate((np.zeros(count, np.int64), before[2] + 1))
    found = np.empty(len(order), np.int64)
    found[order] = np.maximum.accumulate(marks[order]) if len(order) else order
    return found[:count] - key * span - 1


def _build_bag(rows: Columns, addresses: Ints) -> Built:
    objects, key = np.unique(rows["object"], return_inverse=True)
    watched = np.zeros(len(objects), np.bool_)
    watched[key[rows["kind"] == IS_EMPTY]] = True
    whole = watched[key]
    rows = rows | {"bag": key}
    rows = taken(rows, whole | ((rows["returned"] == 1) & np.isin(rows["kind"], (ENQUEUE, DEQUEUE))))
    whole = watched[rows["bag"]]
    split, _ = together([rows["bag"], np.where(whole, NIL, rows["value"])])
    order = np.lexsort((rows["invoke"], split))
    rows = taken(rows | {"object": split}, order)
    _, first = np.unique(rows["object"], return_index=True)
    return _numbered(BAG, rows, addresses[rows["bag"][first]])


def build_set(rows: Columns) -> Built:
    """Sets. Elements that are neither read nor removed are all alike, and if their add is unknown it is left out."""
    addresses = addresses_of(rows)
    rows, members = _with_members(rows)
    objects, key = np.unique(rows["object"], return_inverse=True)
    changes = np.isin(rows["kind"], (ADD, REMOVE))
    both = np.concatenate((key[changes], members[:, 0])), np.concatenate((rows["value"][changes], members[:, 1]))
    ids, count = together(both)
    matters = np.zeros(count, np.bool_)
    matters[ids[int(changes.sum()) :]] = True
    matters[ids[: int(changes.sum())][rows["kind"][changes] == REMOVE]] = True
    value = np.where(matters[ids], both[1], NIL)
    ids, count = together([both[0], value])
    element, item = np.zeros(len(key), np.int64), ids[int(changes.sum()) :]
    element[changes] = ids[: int(changes.sum())]
    first, last, items = _member_slices(len(key), members[:, 2], item)
    removed = np.zeros(count, np.int64)
    removed[element[rows["kind"] == REMOVE]] = 1
    last_lacking, of = np.full(count, -1), np.zeros(count, np.int64)
    of[ids] = both[0]
    reads = np.flatnonzero(rows["kind"] == MEMBERS)
    by_time = reads[np.lexsort((-rows["invoke"][reads], key[reads]))]
    in_order = np.argsort(of, kind="stable")
    shown, present = MemberReads(rows["invoke"], first, last, items), np.full(count, -1)
    bounds = np.arange(len(objects) + 1)
    reads_of, elements_of = np.searchsorted(key[by_time], bounds), np.searchsorted(of[in_order], bounds)
    for number in range(len(objects)):
        mine, elements = (
            some[at[number] : at[number + 1]] for some, at in ((by_time, reads_of), (in_order, elements_of))
        )
        last_without(shown, mine, elements, present, last_lacking)
    columns = SetColumns(first, last, items.astype(np.int32), removed, last_lacking)
    ops = make_ops(SET, rows, rows["kind"], element)._replace(sets=columns)
    anonymous = np.zeros(max(count, 1), np.bool_)  # without changes and members `element` points at nothing
    anonymous[ids[value == NIL]] = True
    useless = (rows["kind"] == ADD) & (rows["complete"] == NEVER) & anonymous[element]
    named = _names(ids, value)
    if useless.any():
        ops = without(ops, useless)
    return Built(ops, addresses, named)


def _names(ids: Ints, values: Ints) -> dict[int, int | None]:
    """What each symbol stands for."""
    return {i: None if v == NIL else v for i, v in zip(ids.tolist(), values.tolist(), strict=True)}


def _with_members(rows: Columns) -> tuple[Columns, Ints]:
    """The operations alone, and the members read as (object number, value, row of the read), as often as it shows them:
    what it shows twice is the state of no set."""
    inner = rows["kind"] == ELEMENT
    ops, elements = taken(rows, ~inner), taken(rows, inner)
    kind = np.where(ops["kind"] == NIL_READ, MEMBERS, ops["kind"])
    ops = ops | {"kind": kind}
    order = np.lexsort((elements["place"], elements["chain"], elements["object"]))
    elements = taken(elements, order)
    reads = np.flatnonzero((kind == MEMBERS) & (ops["chain"] >= 0))
    start = _first_of(elements, ops, reads)
    at, which = spread(start, start + ops["value"][reads])
    of = reads[which]
    _, key = np.unique(ops["object"], return_inverse=True)
    return ops, np.stack((key[of], elements["value"][at], of), axis=1) if len(of) else np.empty((0, 3), np.int64)


def _first_of(elements: Columns, ops: Columns, reads: Ints) -> Ints:
    """Where among the sorted elements the chain of each read begins."""
    size = len(elements["object"])
    both, _ = together([np.concatenate((elements[n], ops[n][reads])) for n in ("object", "chain")])
    return np.searchsorted(both[:size], both[size:]) if size else np.zeros(len(reads), np.int64)


def _member_slices(count: int, of: Ints, item: Ints) -> tuple[Ints, Ints, Ints]:
    order = np.lexsort((item, of))
    rows = np.arange(count)
    return np.searchsorted(of[order], rows), np.searchsorted(of[order], rows, "right"), item[order]


class MemberReads(NamedTuple):
    """By row: its invocation, and `items[first:last]`, the elements it shows if it is a read."""

    invoke: Ints
    first: Ints
    last: Ints
    items: Ints


@kernel
def last_without(reads, order, elements, present, late):
    """For each of an object's `elements` the last invocation of a read of it that lacks the element, into `late`;
    `order` are the object's reads by invocation, falling. `present` is room for a read of each element."""
    undecided = elements.copy()
    for at in range(order.shape[0]):
        read = order[at]
        for item in range(reads.first[read], reads.last[read]):
            present[reads.items[item]] = read
        # Reads come latest first, so the first that lacks an element is the last one: that element is decided.
        left = 0
        for place in range(undecided.shape[0]):
            element = undecided[place]
            if present[element] != read:
                late[element] = reads.invoke[read]
            else:
                undecided[left] = element
                left += 1
        undecided = undecided[:left]


_MOST_PAIRS: Final = 1 << 22
"""Pairs of a read and an element of its set past which nothing is compared here, and the search decides."""


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

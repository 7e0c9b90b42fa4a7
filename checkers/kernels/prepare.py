"""Makes register columns ready for the search: numbers values in keys, orders completions, bounds what stays open."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from checkers.kernels.columns import CAS, FAILED_CAS, FAILED_WRITE, NEVER, NIL, READ, Ints, RegisterColumns
from checkers.kernels.compiled import kernel
from checkers.kernels.search import SearchOps
from checkers.kernels.valuemap import insert, lookup, make_value_map, reset


class Prepared(NamedTuple):
    """`ops` for the search, `rows` of the original columns that its rows stand for, `slots` that its keys need at most,
    and for each value number of each key (`value_start[k] + number`) the value itself in `value_of`."""

    ops: SearchOps
    rows: Ints
    slots: int
    value_start: Ints
    value_of: Ints


def _without_noise(columns: RegisterColumns) -> tuple[RegisterColumns, Ints]:
    """Drops what never took effect and compare-and-sets to the same value: those are reads, or nothing if unknown."""
    same = (columns.kind == CAS) & (columns.value == columns.expected)
    keep = (columns.kind != FAILED_WRITE) & ~(same & (columns.complete == NEVER))
    kind = np.where(same, np.uint8(READ), columns.kind)
    rows = np.flatnonzero(keep)
    before = np.concatenate(([0], np.cumsum(keep)))
    value, expected, invoke, complete = (column[rows] for column in columns[2:])
    cut = RegisterColumns(before[columns.offsets], kind[rows], value, expected, invoke, complete)
    return cut, rows


@kernel
def _number(offsets, kind, value, expected, table, value_out, expected_out, counts, value_of):
    """Number each key's values by first appearance, nil first."""
    total = 0
    for key in range(offsets.shape[0] - 1):
        start, stop = offsets[key], offsets[key + 1]
        lowest, highest = np.int64(NEVER), np.int64(NIL)
        for row in range(start, stop):
            for is_expected in range(2):
                item = expected[row] if is_expected else value[row]
                if item != NIL:
                    lowest, highest = min(lowest, item), max(highest, item)
        reset(table, 2 * (stop - start), lowest, highest)
        count = 1
        value_of[total] = NIL
        for row in range(start, stop):
            for is_expected in range(2):
                item = expected[row] if is_expected else value[row]
                target = expected_out if is_expected else value_out
                if item == NIL:
                    target[row] = 0
                elif insert(table, item, np.int32(count)) < 0:
                    target[row] = count
                    value_of[total + count] = item
                    count += 1
                else:
                    target[row] = lookup(table, item)
        counts[key] = count
        total += count


@kernel
def _last_uses(offsets, kind, value, expected, complete, counts, needed, last_use):
    """When each indeterminate row's value can last be seen: by a completing read or compare-and-set, by way of other
    indeterminate compare-and-sets, or by a failed compare-and-set, which any other value suits."""
    for key in range(offsets.shape[0] - 1):
        start, stop = offsets[key], offsets[key + 1]
        needed[: counts[key]] = -1
        for row in range(start, stop):
            if complete[row] == NEVER:
                continue
            if kind[row] == READ:
                needed[value[row]] = max(needed[value[row]], complete[row])
            elif kind[row] == CAS:
                needed[expected[row]] = max(needed[expected[row]], complete[row])
            elif kind[row] == FAILED_CAS:
                needed[: counts[key]] = np.maximum(needed[: counts[key]], complete[row])
        changed = True
        while changed:
            changed = False
            for row in range(stop - 1, start - 1, -1):
                if kind[row] == CAS and complete[row] == NEVER and needed[expected[row]] < needed[value[row]]:
                    needed[expected[row]] = needed[value[row]]
                    changed = True
        for row in range(start, stop):
            last_use[row] = needed[value[row]] if complete[row] == NEVER else complete[row]


def _most_open(offsets: Ints, keys: Ints, invoke: Ints, last_use: Ints) -> int:
    """The most operations open at once in any key."""
    used = last_use > invoke
    events = np.concatenate((invoke[used], last_use[used]))
    steps = np.concatenate((np.ones(used.sum(), np.int64), np.full(used.sum(), -1)))
    order = np.lexsort((-steps, events, np.concatenate((keys[used], keys[used]))))
    return int(np.cumsum(steps[order]).max(initial=0))


def prepare(columns: RegisterColumns) -> Prepared:
    """Columns for the search; their keys keep their places."""
    cut, rows = _without_noise(columns)
    count = len(cut.kind)
    lengths = np.diff(cut.offsets)
    longest = int(lengths.max(initial=0))
    keys = np.repeat(np.arange(len(lengths)), lengths)
    value, expected = np.empty(count, np.int32), np.empty(count, np.int32)
    values, value_of = np.empty(len(lengths), np.int64), np.empty(2 * count + len(lengths), np.int64)
    table = make_value_map(2 * longest + 1)
    _number(cut.offsets, cut.kind, cut.value, cut.expected, table, value, expected, values, value_of)
    last_use = np.empty(count, np.int64)
    needed = np.empty(int(values.max(initial=1)), np.int64)
    _last_uses(cut.offsets, cut.kind, value, expected, cut.complete, values, needed, last_use)
    order = np.lexsort((cut.complete, keys))
    most = int(values.max(initial=1))
    alike = (value.astype(np.int64) * most + expected) * (FAILED_WRITE + 1) + cut.kind
    ops = SearchOps(cut.offsets, cut.kind, value, expected, cut.invoke, cut.complete, order, values, last_use, alike)
    value_start = np.concatenate(([0], np.cumsum(values)[:-1])).astype(np.int64)
    return Prepared(ops, rows, _most_open(cut.offsets, keys, cut.invoke, last_use), value_start, value_of)

"""Makes register columns ready for the search: numbers values in keys, orders completions, bounds what stays open."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from checkers.columns.codes import CAS, FAILED_CAS, FAILED_WRITE, NEVER, NIL, READ, Codes, Ids, Ints, RegisterColumns
from checkers.columns.dense import ValueMap, insert, lookup, make_value_map, reset
from checkers.compiled import kernel
from checkers.linearizability.driver import widths


class SearchOps(NamedTuple):
    """Operations of many keys: as RegisterColumns, with values numbered within their key (0 is nil, `values[k]` many).

    `order` lists each key's rows by completion; `last_use` is the event after which an indeterminate row is useless;
    rows of a key that are `alike` do the same.
    """

    offsets: Ints
    kind: Codes
    value: Ids
    expected: Ids
    invoke: Ints
    complete: Ints
    order: Ints
    values: Ints
    last_use: Ints
    alike: Ints


class Prepared(NamedTuple):
    """`ops` for the search, `rows` of the original columns that its rows stand for, the `slots` that each key needs,
    and for each value number of each key (`value_start[k] + number`) the value itself in `value_of`."""

    ops: SearchOps
    rows: Ints
    slots: Ints
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


class Numbered(NamedTuple):
    """Values as numbers in their key, nil as 0: by row the value and the expected value, by key how many numbers there
    are; and, key after key, what they stand for."""

    value: Ids
    expected: Ids
    counts: Ints
    value_of: Ints


@kernel
def _number(ops: RegisterColumns, table: ValueMap, out: Numbered) -> None:
    """Number each key's values by first appearance, nil first; into `out`, a Numbered."""
    total = 0
    for key in range(ops.offsets.shape[0] - 1):
        start, stop = ops.offsets[key], ops.offsets[key + 1]
        lowest, highest = np.int64(NEVER), np.int64(NIL)
        for row in range(start, stop):
            for is_expected in range(2):
                item = ops.expected[row] if is_expected else ops.value[row]
                if item != NIL:
                    lowest, highest = min(lowest, item), max(highest, item)
        reset(table, 2 * (stop - start), lowest, highest)
        count = 1
        out.value_of[total] = NIL
        for row in range(start, stop):
            for is_expected in range(2):
                item = ops.expected[row] if is_expected else ops.value[row]
                target = out.expected if is_expected else out.value
                if item == NIL:
                    target[row] = 0
                elif insert(table, item, np.int32(count)) < 0:  # it is new
                    target[row] = count
                    out.value_of[total + count] = item
                    count += 1
                else:
                    target[row] = lookup(table, item)
        out.counts[key] = count
        total += count


@kernel
def _last_uses(ops: RegisterColumns, numbered: Numbered, needed: Ints, last_use: Ints) -> None:
    """When each indeterminate row's value can last be seen: by a completing read or compare-and-set, by way of other
    indeterminate compare-and-sets, or by a failed compare-and-set, which any other value suits."""
    value, expected, complete = numbered.value, numbered.expected, ops.complete
    for key in range(ops.offsets.shape[0] - 1):
        start, stop = ops.offsets[key], ops.offsets[key + 1]
        needed[: numbered.counts[key]] = -1
        for row in range(start, stop):
            if complete[row] == NEVER:
                continue
            if ops.kind[row] == READ:
                needed[value[row]] = max(needed[value[row]], complete[row])
            elif ops.kind[row] == CAS:
                needed[expected[row]] = max(needed[expected[row]], complete[row])
            elif ops.kind[row] == FAILED_CAS:
                needed[: numbered.counts[key]] = np.maximum(needed[: numbered.counts[key]], complete[row])
        # An indeterminate compare-and-set makes of its expected value one that is needed later: up to a fixed point,
        # which comes soon, for most go from an earlier row's value to a later one's.
        changed = True
        while changed:
            changed = False
            for row in range(stop - 1, start - 1, -1):
                if ops.kind[row] == CAS and complete[row] == NEVER and needed[expected[row]] < needed[value[row]]:
                    needed[expected[row]] = needed[value[row]]
                    changed = True
        for row in range(start, stop):
            last_use[row] = needed[value[row]] if complete[row] == NEVER else complete[row]


def prepare(columns: RegisterColumns) -> Prepared:
    """Columns for the search; their keys keep their places."""
    cut, rows = _without_noise(columns)
    count = len(cut.kind)
    lengths = np.diff(cut.offsets)
    longest = int(lengths.max(initial=0))
    keys = np.repeat(np.arange(len(lengths)), lengths)
    value, expected = np.empty(count, np.int32), np.empty(count, np.int32)
    values, value_of = np.empty(len(lengths), np.int64), np.empty(2 * count + len(lengths), np.int64)
    numbered = Numbered(value, expected, values, value_of)
    _number(cut, make_value_map(2 * longest + 1), numbered)
    last_use = np.empty(count, np.int64)
    needed = np.empty(int(values.max(initial=1)), np.int64)
    _last_uses(cut, numbered, needed, last_use)
    order = np.lexsort((cut.complete, keys))
    most = int(values.max(initial=1))
    alike = (value.astype(np.int64) * most + expected) * (FAILED_WRITE + 1) + cut.kind
    ops = SearchOps(cut.offsets, cut.kind, value, expected, cut.invoke, cut.complete, order, values, last_use, alike)
    value_start = np.concatenate(([0], np.cumsum(values)[:-1])).astype(np.int64)
    used = last_use > cut.invoke
    slots = widths(len(lengths), keys[used], cut.invoke[used], last_use[used])
    return Prepared(ops, rows, slots, value_start, value_of)


def prepared_part(prepared: Prepared, keys: Ints) -> Prepared:
    """Some of the keys; the original rows are the same."""
    ops = prepared.ops
    sizes = np.diff(ops.offsets)[keys]
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    moved = ops.offsets[keys] - offsets[:-1]
    rows = np.repeat(moved, sizes) + np.arange(offsets[-1])
    by_row = {
        name: getattr(ops, name)[rows]
        for name in ("kind", "value", "expected", "invoke", "complete", "last_use", "alike")
    }
    order = ops.order[rows] - np.repeat(moved, sizes)
    part = ops._replace(offsets=offsets, order=order, values=ops.values[keys], **by_row)
    return prepared._replace(
        ops=part, rows=prepared.rows[rows], slots=prepared.slots[keys], value_start=prepared.value_start[keys]
    )

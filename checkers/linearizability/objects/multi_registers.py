"""Rows of registers that operations read and write together: split into what is ever touched together, and projected.

What each register goes through by itself (reads, writes, and writes of what also read as compare-and-sets) has to be
linearizable too; that is judged first, by the means that registers have. Rows of one register need nothing more.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.columns.codes import CAS, FAIL, FAILED_CAS, NEVER, NIL, READ, WRITE, Bools, Ints, RegisterColumns
from checkers.columns.dense import together
from checkers.columns.graph import unite
from checkers.columns.mops import ADDRESS, Columns
from checkers.columns.projection import KeyedOps
from checkers.compiled import kernel
from checkers.linearizability.objects.object_columns import (
    FADED,
    ITEM,
    LOOK,
    REFUSED,
    ROW,
    TXN,
    Built,
    C,
    R,
    RegisterProjections,
    RowColumns,
    Slices,
    W,
    highest,
    lowest,
    make_ops,
    taken,
)

ODD: Final = -2
"""Kind of what is no operation of one register: at odds with itself, or refused by one of several."""


class Touches(NamedTuple):
    """What operations do to registers, an item a row, an operation's in its order: the operation and the register (by
    number), R, W or C, the value and the expected value; and whether the operation was refused."""

    op: Ints
    register: Ints
    kind: Ints
    value: Ints
    expected: Ints
    refused: Bools


@kernel
def project(touches, order, out):
    """What each operation does to each register: kind, value and expected into `out` at its first row, for rows in
    `order` of register and operation; kind ODD where that is no operation of a register."""
    op, register, kind = touches.op, touches.register, touches.kind
    row = 0
    while row < order.shape[0]:
        first = order[row]
        # Over the items of one operation on one register: `need` is what it found there, `now` what it has made of it.
        needs, writes, odd = False, False, False
        need, now = np.int64(NIL), np.int64(NIL)
        while row < order.shape[0] and op[order[row]] == op[first] and register[order[row]] == register[first]:
            at = order[row]
            wanted = touches.value[at] if kind[at] == R else touches.expected[at]
            if kind[at] != W:
                odd |= (needs or writes) and now != wanted
                if not needs and not writes:
                    needs, need, now = True, wanted, wanted
            if kind[at] != R:
                writes, now = True, touches.value[at]
            row += 1
        # A refused transaction found another value somewhere; here only if it compared nothing else.
        if odd or (touches.refused[first] and not (writes and needs)):
            out[first, 0] = ODD
            continue
        if touches.refused[first]:
            out[first, 0], out[first, 1], out[first, 2] = FAILED_CAS, NIL, need
        elif needs and writes:
            out[first, 0], out[first, 1], out[first, 2] = CAS, now, need
        else:
            out[first, 0], out[first, 1], out[first, 2] = (WRITE if writes else READ), now, NIL


def _registers(rows: Columns, register: Ints, component: Ints, width: Ints) -> RegisterProjections:
    """The registers one by one; where nothing is said of another register, or of one by several operations of a
    transaction at odds with each other, it decides its row."""
    order = np.lexsort((rows["place"], rows["invoke"], register))
    out = np.full((len(order), 3), -1)
    refused = rows["status"] == FAIL
    touches = Touches(rows["invoke"], register, rows["kind"], rows["value"], rows["expected"], refused)
    project(touches, order, out)
    alone = width == 1
    alone[component[out[:, 0] == ODD]] = False
    order = order[out[order, 0] >= 0]
    key, kind = register[order], out[order, 0].astype(np.uint8)
    _, first = np.unique(key, return_index=True)
    offsets = np.append(first, len(key)).astype(np.int64)
    invoke, complete = rows["invoke"][order], rows["complete"][order]
    addresses = np.stack([rows[name][order[first]] for name in ADDRESS], axis=1)
    columns_of = RegisterColumns(offsets, kind, out[order, 1].copy(), out[order, 2].copy(), invoke, complete)
    return RegisterProjections(KeyedOps(addresses, columns_of), component[order[first]], np.flatnonzero(alone))


def build_rows(rows: Columns) -> tuple[Built, RegisterProjections]:
    """Rows of registers, and each register by itself. The address of a row of registers is that of its first."""
    register, count = together([rows[name] for name in ADDRESS])
    parents = np.arange(count)
    by_op = np.lexsort((rows["place"], rows["invoke"]))
    rows, register = taken(rows, by_op), register[by_op]
    unite(rows["invoke"], register, parents)
    objects, component = np.unique(parents[register], return_inverse=True)
    order = np.lexsort((rows["place"], rows["invoke"], component))
    rows, register, component = taken(rows, order), register[order], component[order]
    _, first_register = np.unique(component, return_index=True)
    pairs, local = np.unique(component * count + register, return_inverse=True)
    of_pair, register_of = np.divmod(pairs, max(1, count))
    width = np.bincount(of_pair, minlength=len(objects))
    begin = np.cumsum(width) - width
    symbols, values = _symbols(rows, register)
    items = np.stack(
        (local - begin[component], rows["kind"], symbols[: len(component)], symbols[len(component) :]),
        axis=1,
    )
    begins = np.ones(len(component), np.bool_)
    begins[1:] = (component[1:] != component[:-1]) | (rows["invoke"][1:] != rows["invoke"][:-1])
    start, op = np.flatnonzero(begins), np.cumsum(begins) - 1
    changes = highest(op, (rows["kind"] != R).astype(np.int64), len(start), 0) == 1
    kind = np.where(changes, TXN, LOOK)
    kind[rows["status"][start] == FAIL] = REFUSED
    heads = taken(rows | {"object": component}, start)
    ends = np.append(start[1:], len(component)) if len(start) else start
    slices = Slices(start * ITEM, ends * ITEM, items.reshape(-1).astype(np.int32))
    columns = RowColumns(width.astype(np.int64), *slices, *_look_ahead(rows, op, register, symbols, max(values) + 1))
    ops = make_ops(ROW, heads, kind, np.zeros(len(start), np.int64), slices)._replace(rows=columns)
    addresses = np.stack([rows[name][first_register] for name in ADDRESS], axis=1)
    _, of_register = np.unique(register, return_index=True)
    cells = np.stack([rows[name][of_register] for name in ADDRESS], axis=1)[register_of]
    return Built(ops, addresses, values, cells=cells), _registers(rows, register, component, width)


def _symbols(rows: Columns, register: Ints) -> tuple[Ints, dict[int, int | None]]:
    """Values and then expected values as symbols, one for each value of each register, and what symbols stand for."""
    both = np.concatenate((rows["value"], rows["expected"]))
    some = both != NIL
    ids, _ = together([np.concatenate((register, register))[some], both[some]])
    symbols = np.zeros(len(both), np.int64)
    symbols[some] = ids + FADED + 1
    values: dict[int, int | None] = {0: None, FADED: None}
    values.update(zip(symbols[some].tolist(), both[some].tolist(), strict=True))
    return symbols, values


def _look_ahead(rows: Columns, op: Ints, register: Ints, symbols: Ints, count: int) -> tuple[Ints, ...]:
    """What the search may know of what comes later, by symbol: the last columns of `RowColumns`. Only the first thing
    that a transaction does to a register needs anything of what was there."""
    kind, size = rows["kind"], len(op)
    value, expected = symbols[:size], symbols[size:]
    pair, _ = together([op, register])
    _, first = np.unique(pair, return_index=True)
    wanted = np.where(kind == R, value, expected)
    failed, done = rows["status"] == FAIL, rows["complete"] != NEVER
    need = first[(kind[first] != W) & done[first] & ~failed[first]]
    write = np.flatnonzero((kind != R) & ~failed)
    depends = np.concatenate((first[kind[first] != W], np.flatnonzero(failed & (kind == C))))
    made = np.bincount(value[write], minlength=count)
    gone = highest(wanted[depends], rows["complete"][depends], count, -1)
    gone[: FADED + 1] = NEVER
    made[0] = 0
    last_needed = highest(wanted[need], rows["invoke"][need], count, -1)
    last_written = highest(value[write], rows["invoke"][write], count, -1)
    first_needed = np.where(made == 1, lowest(wanted[need], rows["complete"][need], count), NEVER)
    return last_needed, last_written, first_needed, gone

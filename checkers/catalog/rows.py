"""Rows whose columns come and go: which cells operations on them read and wrote.

A read or write asks for a column by a wish, a number below 0, and its answer says the id of the column that it got; one
that does not is refused. A write without answer has only its wish. Values are unique: whoever reads one says which
column it went to. What nobody ever read may as well never have been written, and is left out.

A `scan` reads a cell of each of its rows. An `erase` of a row that was there (value 1), or of which nobody knows
whether it was carried out, writes nil to every cell of the row that anybody ever read or wrote; one that found no row
(value 0) read nil in all of them.

Erasures also tell of the row itself, which is one more register (`PRESENCE`): nobody finds a row twice that was written
once. A write makes the row be there, a write of nil perhaps; an erasure that found it took it away.

All of this is about one row at a time, so the rows of a history are judged by many tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.columns.batches import flat as record_batch
from checkers.columns.codes import CAS, NEVER, NIL, READ, UNSUPPORTED, WRITE, Ints, began_as
from checkers.columns.dense import spread
from checkers.columns.projection import FLAT, Flat, Projection, concatenated, flatten, group, part_of, slices
from checkers.engines.keyed import ROWS_PER_CALL
from checkers.explain.speaker import about_key
from checkers.findings import PRESENCE, Findings, Key, merged
from checkers.linearizability.registers.refute_registers import RegisterKernel
from checkers.source import KEY_COLUMNS, top_level

OF_SEVERAL: Final = ("scan", "erase")
"""Operations on several cells; all others are of one micro-operation."""

ROW_OPERATIONS: Final = ("read", "write", "cas", *OF_SEVERAL)
"""The operations that the model `catalog-rows` judges."""

ERASE: Final = 16
"""The kind of an erasure, beside those of registers."""

THERE: Final = 1
"""What the PRESENCE of a row is, or nil."""


@dataclass(frozen=True, slots=True)
class RowsFlow:
    """See `Flow`: all operations on a row meet. `registers` says what its cells are made of."""

    registers: Projection
    kernel: RegisterKernel
    schema: pa.Schema = FLAT
    keys: tuple[str, ...] = ("partition",)
    order: tuple[str, ...] = ("invoke",)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(top_level(("f", *self.registers.columns())))

    def flatten(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """One row for each cell that is named, and one for each erasure."""
        known = replace(self.registers, kinds={**self.registers.kinds, "erase": ERASE}, initial=None)
        named = batch.column("f").cast(pa.string())
        of_rows = pc.and_(pc.is_in(named, pa.array(ROW_OPERATIONS)), pc.greater_equal(batch.column("process"), 0))
        several = pc.is_in(named, pa.array(OF_SEVERAL))
        alone = batch.filter(pc.and_(of_rows, pc.invert(several)))
        flats = [flatten(part, known) for part in (alone, _one_by_one(batch.filter(pc.and_(of_rows, several))))]
        address, *rest = concatenated(flats)
        columns = dict(zip(KEY_COLUMNS, address, strict=True))
        return record_batch(FLAT, columns | dict(zip(Flat._fields[1:], rest, strict=True)))

    def judge(self, rows: pa.Table) -> Findings:
        """Whether each cell is a register."""
        columns = [rows.column(name).to_numpy() for name in FLAT.names]
        keyed = group(_cells(Flat(tuple(columns[:4]), *columns[4:]), self.registers.initial))
        explain = self.kernel.explain
        return merged([self.kernel(part) for part in slices(keyed, ROWS_PER_CALL)], explain)


def _one_by_one(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Operations of several micro-operations as so many of one, with the same invocation and completion."""
    lists = batch.column("mops")
    cells = lists.flatten()
    mops = pa.ListArray.from_arrays(pa.array(np.arange(len(cells) + 1), pa.int32()), cells)
    apart = batch.take(pc.list_parent_indices(lists))
    return apart.set_column(apart.schema.get_field_index("mops"), "mops", mops)


def _cells(rows: Flat, initial: int | None) -> Flat:
    """Of rows in order of partition and invocation what was done to cells, in order of invocation."""
    table, partition, row, _ = rows.address
    column = _columns(rows)
    nowhere = np.isin(rows.kind, (READ, WRITE, CAS)) & (column < 0)
    kind = np.where(nowhere & (rows.complete != NEVER), UNSUPPORTED, rows.kind)
    # Any cell may be the one that a write of nil without answer unset.
    erasing = (kind == ERASE) | ((kind == WRITE) & nowhere & (rows.value == NIL))
    rows = rows._replace(address=(table, partition, row, column), kind=kind)
    known = part_of(rows, ~erasing & ((column >= 0) | (rows.kind == UNSUPPORTED)))
    cells = concatenated([known, _erased(part_of(rows, erasing), known), _presence(rows)])
    cells = cells._replace(value=began_as(cells.value, initial), expected=began_as(cells.expected, initial))
    return part_of(cells, np.argsort(cells.invoke, kind="stable"))


def _columns(rows: Flat) -> Ints:
    """The column of each; below 0 where nothing says it."""
    _, partition, _, column = rows.address
    column = column.copy()
    told = np.flatnonzero((rows.kind == READ) & (column >= 0) & (rows.value != NIL))
    seen: dict[tuple[int, int], int] = {}
    lost = np.flatnonzero(np.isin(rows.kind, (WRITE, CAS)) & (column < 0) & (rows.complete == NEVER))
    if len(lost):
        for place in told.tolist():
            seen.setdefault((int(partition[place]), int(rows.value[place])), int(column[place]))
    for place in lost.tolist():
        column[place] = seen.get((int(partition[place]), int(rows.value[place])), -1)
    return column


def _erased(erasures: Flat, known: Flat) -> Flat:
    """What erasures did to the cells of their rows that are known."""
    partitions, columns = np.unique(np.stack((known.address[1], known.address[3])), axis=1)
    begin, end = (np.searchsorted(partitions, erasures.address[1], side) for side in ("left", "right"))
    place, each = spread(begin, end)
    found_none = (erasures.complete != NEVER) & ((erasures.value == 0) | (erasures.value == NIL))
    nil = np.full(len(each), NIL)
    kind = np.where(found_none, READ, WRITE).astype(np.int8)
    table, partition, row, _ = (part[each] for part in erasures.address)
    address = (table, partition, row, columns[place])
    return Flat(address, erasures.invoke[each], erasures.complete[each], kind[each], nil, nil)


def _presence(rows: Flat) -> Flat:
    """What was done to the rows of which an erasure found one: of others their cells tell as much."""
    found = (rows.kind == ERASE) & (rows.complete != NEVER) & (rows.value != 0) & (rows.value != NIL)
    changes = np.isin(rows.kind, (WRITE, CAS, ERASE)) & np.isin(rows.address[1], rows.address[1][found])
    taken, of = found[changes], part_of(rows, changes)
    table, partition, row, column = of.address
    unset = (of.kind == WRITE) & (of.value == NIL)
    gone = of.kind == ERASE
    none = gone & (of.complete != NEVER) & ~taken
    kind = np.select([taken, none], [CAS, READ], WRITE).astype(np.int8)
    value, expected = np.where(gone, NIL, THERE), np.where(taken, THERE, NIL)
    address = (table, partition, row, np.full_like(column, PRESENCE))
    return Flat(address, of.invoke, np.where(unset, NEVER, of.complete), kind, value, expected)


def of_cell(row: dict[str, Any], key: Key) -> dict[str, Any]:
    """What an operation did to one cell: of an erasure that it wrote nil, or read it; in the column that it got."""
    row = about_key(row, key)
    if len(row["mops"]) != 1:
        return row
    mop = row["mops"][0]
    of_row = key.column == PRESENCE
    if mop["f"] == "erase":
        answered = row["type"] == "ok"
        f = "w" if not answered or (mop["value"] and not of_row) else "cas" if mop["value"] else "r"
        mop = {**mop, "f": f, "value": None, "expected": THERE if f == "cas" else None}
    elif of_row:
        mop = {**mop, "f": "w", "value": THERE}
    return {**row, "mops": [{**mop, "column": key.column}]}

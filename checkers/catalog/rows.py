"""Rows whose columns come and go: which cells operations on them read and wrote.

A read or write asks for a column by a wish, a number below 0, and its answer says the id of the column that it got. A
write without answer has only its wish. Values are unique: whoever reads one says which column it went to. What nobody
ever read may as well never have been written, and is left out.

A `scan` reads a cell of each of its rows. An `erase` of a row that was there (value 1), or of which nobody knows
whether it was carried out, writes nil to every cell of the row that anybody ever read or wrote; one that found no row
(value 0) read nil in all of them.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.columns.batches import ints
from checkers.columns.codes import Ints

OF_SEVERAL: Final = ("scan", "erase")
"""Operations on several cells; all others are of one micro-operation."""


class _Mops(NamedTuple):
    """The micro-operations of all operations: `of` is the place of each one's operation."""

    cells: Any
    of: Ints
    f: Any
    partition: Ints
    value: Ints
    column: Ints
    nil: Any

    def part(self, kept: Any) -> _Mops:
        return _Mops(self.cells.take(pa.array(np.flatnonzero(kept))), *(each[kept] for each in self[1:]))


def with_cells(table: pa.Table) -> pa.Table:
    """The table of operations on rows, each with its reads and writes of cells; the same if that is what they are."""
    mops = table.column("mops").combine_chunks()
    lengths = pc.list_value_length(mops).fill_null(0).to_numpy(zero_copy_only=False)
    several = pc.is_in(table.column("f").cast(pa.string()), pa.array(OF_SEVERAL)).to_numpy(zero_copy_only=False)
    if not len(mops) or (lengths[~several] != 1).any():
        return table
    cells = mops.flatten()
    flat = _Mops(
        cells,
        np.repeat(np.arange(len(mops)), lengths),
        np.array(cells.field("f").cast(pa.string()).to_pylist(), object),
        ints(cells.field("partition")),
        ints(cells.field("value")),
        ints(cells.field("column")),
        cells.field("value").is_null().to_numpy(zero_copy_only=False),
    )
    erasing = flat.f == "erase"
    if not (several.any() or erasing.any() or (flat.column < 0).any()):
        return table
    outcomes = np.array(table.column("type").cast(pa.string()).to_pylist(), object)[flat.of]
    columns = _columns(flat, outcomes)
    kept = ~erasing & (columns >= 0)
    known = flat._replace(column=columns).part(kept)
    erased = _erased(flat.part(erasing & (outcomes != "fail")), outcomes[erasing & (outcomes != "fail")], known)
    return _with(table, [known, erased])


def cell_by_cell(table: pa.Table) -> pa.Table:
    """Operations of several micro-operations as so many of one, with the same invocation and completion."""
    mops = table.column("mops").combine_chunks()
    cells = mops.flatten()
    if len(cells) == len(mops):
        return table
    rows = table.take(pc.list_parent_indices(mops))
    return _with_lists(rows, np.arange(len(cells) + 1), cells)


def _columns(mops: _Mops, outcomes: Any) -> Ints:
    """The column of each; below 0 where nothing says it."""
    columns = mops.column.copy()
    reads = mops.f == "r"
    seen: dict[tuple[int, int], int] = {}
    for place in np.flatnonzero(reads & (outcomes == "ok") & (columns >= 0) & ~mops.nil).tolist():
        seen.setdefault((int(mops.partition[place]), int(mops.value[place])), int(columns[place]))
    for place in np.flatnonzero((columns < 0) & (mops.f == "w") & (outcomes == "info")).tolist():
        columns[place] = seen.get((int(mops.partition[place]), int(mops.value[place])), -1)
    return columns


def _erased(erasures: _Mops, outcomes: Any, known: _Mops) -> _Mops:
    """What erasures did to the cells of their rows that are known."""
    of_row: dict[int, list[int]] = {}
    for partition, column in sorted({*zip(known.partition.tolist(), known.column.tolist(), strict=True)}):
        of_row.setdefault(partition, []).append(column)
    lists = [of_row.get(partition, []) for partition in erasures.partition.tolist()]
    times = np.array([len(each) for each in lists], np.int64)
    found_none = (outcomes == "ok") & (erasures.value == 0)
    each = np.repeat(np.arange(len(lists)), times)
    return _Mops(
        erasures.cells.take(pa.array(each)),
        erasures.of[each],
        np.where(found_none, "r", "w").astype(object)[each],
        erasures.partition[each],
        np.zeros(len(each), np.int64),
        np.array([column for columns in lists for column in columns], np.int64),
        np.ones(len(each), np.bool_),
    )


def _with(table: pa.Table, parts: list[_Mops]) -> pa.Table:
    """The operations that have any of the micro-operations, with these."""
    of = np.concatenate([part.of for part in parts])
    order = np.argsort(of, kind="stable")
    lengths = np.bincount(of, minlength=table.num_rows)
    cells = pa.concat_arrays([_rebuilt(part) for part in parts]).take(pa.array(order))
    kept = np.flatnonzero(lengths)
    return _with_lists(table.take(pa.array(kept)), np.concatenate(([0], np.cumsum(lengths[kept]))), cells)


def _rebuilt(mops: _Mops) -> pa.Array:
    fields = list(mops.cells.type)
    changed = {
        "f": pa.array(mops.f.tolist(), pa.string()),
        "value": pa.array(mops.value, mask=mops.nil),
        "column": pa.array(mops.column),
    }
    arrays = [
        changed[each.name].cast(each.type) if each.name in changed else mops.cells.field(place)
        for place, each in enumerate(fields)
    ]
    return pa.StructArray.from_arrays(arrays, fields=fields)


def _with_lists(table: pa.Table, offsets: Ints, cells: pa.Array) -> pa.Table:
    mops = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), cells)
    return table.set_column(table.schema.get_field_index("mops"), table.schema.field("mops"), mops)

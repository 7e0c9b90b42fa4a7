"""Rows whose columns come and go: which column a write of unknown outcome was of.

A read or write asks for a column by a wish, a number below 0, and its answer says the id of the column that it got. A
write without answer has only its wish. Values are unique: whoever reads one says which column it went to. What nobody
ever read may as well never have been written, and is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.kernels.columns import Ints


def with_columns(table: pa.Table) -> pa.Table:
    """The table of operations on rows, each of one micro-operation, with the ids of columns; the same if there is no
    wish in it."""
    mops = table.column("mops").combine_chunks()
    if (
        not len(mops)
        or pc.min(pc.list_value_length(mops)).as_py() != 1
        or pc.max(pc.list_value_length(mops)).as_py() != 1
    ):
        return table
    cells = mops.flatten()
    columns, values = _ints(cells, "column"), _ints(cells, "value")
    wishes = columns < 0
    if not wishes.any():
        return table
    partitions, nil = _ints(cells, "partition"), cells.field("value").is_null().to_numpy(zero_copy_only=False)
    outcomes = np.array(table.column("type").cast(pa.string()).to_pylist())
    reads = np.array(cells.field("f").cast(pa.string()).to_pylist()) == "r"
    seen: dict[tuple[int, int], int] = {}
    for place in np.flatnonzero(reads & (outcomes == "ok") & ~wishes & ~nil).tolist():
        seen.setdefault((int(partitions[place]), int(values[place])), int(columns[place]))
    for place in np.flatnonzero(wishes & ~reads & (outcomes == "info")).tolist():
        columns[place] = seen.get((int(partitions[place]), int(values[place])), -1)
    kept = np.flatnonzero(columns >= 0)
    return _with(table, cells, columns).take(pa.array(kept))


def _ints(cells: Any, name: str) -> Ints:
    found: Ints = cells.field(name).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _with(table: pa.Table, cells: Any, columns: Ints) -> pa.Table:
    fields = list(cells.type)
    arrays = [
        pa.array(columns, each.type) if each.name == "column" else cells.field(place)
        for place, each in enumerate(fields)
    ]
    mops = pa.ListArray.from_arrays(
        pa.array(np.arange(len(columns) + 1), pa.int32()), pa.StructArray.from_arrays(arrays, fields=fields)
    )
    return table.set_column(table.schema.get_field_index("mops"), table.schema.field("mops"), mops)

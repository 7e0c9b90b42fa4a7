"""Flat rows for checkers of operations with one plain value each: a kind, an object, a value, when it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkers.columns.codes import INFO, NEVER, OK, UNSUPPORTED, Ints, unsupported
from checkers.columns.rows import COLUMNS, OBJECT, column, flat, group_starts, read_mops, read_operations
from checkers.columns.spans import spread
from checkers.findings import Findings

SCHEMA: Final = pa.schema(
    [
        *(pa.field(name, pa.int64(), nullable=False) for name in OBJECT),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("value", pa.int64(), nullable=False),
        pa.field("nil", pa.int8(), nullable=False),
        pa.field("outcome", pa.int8(), nullable=False),
        pa.field("invoke", pa.int64(), nullable=False),
        pa.field("complete", pa.int64(), nullable=False),
    ]
)
"""`complete` is NEVER unless the operation is ok or failed; `nil` is 1 where the value (stored as 0) is nil."""


_KEYS: Final = (*OBJECT, "nil", "value")


def read_cells(batch: pa.RecordBatch, kinds: Mapping[str, int], listed: frozenset[int] = frozenset()) -> pa.RecordBatch:
    """One row a micro-operation of clients; kinds in `listed` have lists, which become one row an element (and one of
    kind `-1 - kind` for the operation itself). What fits no kind, and lists elsewhere, become UNSUPPORTED."""
    operations = read_operations(batch)
    mops = read_mops(batch, operations, np.ones(len(operations.row), np.bool_), kinds)
    kind = mops.kind.copy()
    lists = np.isin(kind, list(listed))
    kind[mops.listed & ~lists] = UNSUPPORTED
    stop = np.where(mops.listed & lists, mops.list_stop, mops.list_start)
    places, elements = spread(mops.list_start, stop)
    rows = np.concatenate((np.arange(len(kind)), elements))
    marked = np.where(lists & (kind != UNSUPPORTED), -1 - kind, kind)
    kinds_out = np.concatenate((marked, kind[elements])).astype(np.int8)
    of = mops.of[rows]
    columns: dict[str, Any] = {name: part[rows] for name, part in zip(OBJECT, mops.address, strict=True)}
    columns["kind"] = kinds_out
    columns["value"] = np.concatenate((mops.value, mops.items[places]))
    columns["nil"] = np.concatenate((mops.nil, mops.nil_item[places])).astype(np.int8)
    columns["outcome"] = operations.outcome[of]
    columns["invoke"] = operations.invoke[of]
    columns["complete"] = np.where(operations.outcome[of] == INFO, NEVER, operations.complete[of])
    null = batch.column("mops").is_null().to_numpy(zero_copy_only=False)[operations.row]
    unfit = np.flatnonzero(null & (operations.outcome == OK))
    return pa.concat_batches([flat(SCHEMA, columns), _strange(operations.invoke[unfit])])


@dataclass(frozen=True, slots=True)
class CellFlow:
    """See `Flow`: all that happened to one value of one object meets, in order of invocation. An operation of none of
    the `kinds` is refused for the `problem`. The kernel takes the rows, and how many anomalies of a class to keep."""

    kinds: Mapping[str, int]
    problem: str
    kernel: Callable[[pa.Table, int], Findings]
    explain: int
    columns: tuple[str, ...] = COLUMNS
    schema: pa.Schema = SCHEMA
    keys: tuple[str, ...] = _KEYS
    order: tuple[str, ...] = ("invoke",)

    def flatten(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return read_cells(batch, self.kinds)

    def judge(self, rows: pa.Table) -> Findings:
        problems = unsupported(column(rows, "invoke")[column(rows, "kind") == UNSUPPORTED], self.problem)
        if problems or not rows.num_rows:
            return Findings(unsupported=problems)
        return self.kernel(rows, self.explain)


def by_value(rows: pa.Table) -> tuple[Ints, Ints]:
    """Where the rows of each value of each object begin, and the number of each row's group."""
    starts = group_starts([column(rows, name) for name in _KEYS])
    return starts, np.repeat(np.arange(len(starts)), np.diff(np.append(starts, rows.num_rows)))


def _strange(invoke: Any) -> pa.RecordBatch:
    zeros = np.zeros(len(invoke), np.int64)
    columns = {field.name: zeros for field in SCHEMA} | {"invoke": invoke, "kind": np.full(len(invoke), UNSUPPORTED)}
    return flat(SCHEMA, columns)

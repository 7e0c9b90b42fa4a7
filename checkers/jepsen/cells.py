"""Flat rows for checkers of operations with one plain value each (a kind, an object, a value, when it was), and
integers of any size: what importers intern because 64 bits or the reserved range do not hold it, and safe sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkers.columns.batches import (
    COLUMNS,
    OBJECT,
    SMALL,
    WIDE,
    column,
    flat,
    flat_schema,
    groups_of,
    read_mops,
    read_operations,
    unknown_rows,
)
from checkers.columns.codes import INFO, NEVER, OK, UNSUPPORTED, Ints, unsupported
from checkers.columns.dense import spread
from checkers.findings import Findings
from checkers.source import Source
from harness.history.columns import FOREIGN_BASE

SCHEMA: Final = flat_schema(OBJECT, kind=SMALL, value=WIDE, nil=SMALL, outcome=SMALL, invoke=WIDE, complete=WIDE)
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
    unknown = unknown_rows(SCHEMA, operations.invoke[operations.unfit & (operations.outcome == OK)])
    return pa.concat_batches([flat(SCHEMA, columns), unknown])


@dataclass(frozen=True, slots=True)
class CellFlow:
    """See `Flow`: all that happened to one value of one object meets, in order of invocation. `prepare` may change the
    rows of a batch; an operation of none of the `kinds` is refused for the `problem`. The kernel takes the rows, and
    how many anomalies of a class to keep."""

    kinds: Mapping[str, int]
    problem: str
    kernel: Callable[[pa.Table, int], Findings]
    explain: int
    listed: frozenset[int] = frozenset()
    prepare: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    columns: tuple[str, ...] = COLUMNS
    schema: pa.Schema = SCHEMA
    keys: tuple[str, ...] = _KEYS
    order: tuple[str, ...] = ("invoke",)

    def flatten(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = read_cells(batch, self.kinds, self.listed)
        return rows if self.prepare is None else self.prepare(rows)

    def judge(self, rows: pa.Table) -> Findings:
        problems = unsupported(column(rows, "invoke")[column(rows, "kind") == UNSUPPORTED], self.problem)
        if problems or not rows.num_rows:
            return Findings(unsupported=problems)
        return self.kernel(rows, self.explain)


def by_value(rows: pa.Table) -> tuple[Ints, Ints]:
    """Where the rows of each value of each object begin, and the number of each row's group."""
    groups = groups_of([column(rows, name) for name in _KEYS])
    return groups.starts, groups.of


_SAFE: Final = 2.0**62


def large_integers(source: Source) -> dict[int, int]:
    """The interned values of a source that are integers beyond the range of plain ones, by id."""
    found: dict[int, int] = {}
    for place, text in enumerate(source.dictionary):
        digits = text.removesuffix("N")
        if digits.removeprefix("-").removeprefix("+").isdecimal() and digits.isascii():
            number = int(digits)
            if number <= FOREIGN_BASE or number >= 2**63:
                found[FOREIGN_BASE - 1 - place] = number
    return found


def is_foreign(values: Ints, dictionary_size: int) -> Any:
    """Which values stand for texts, keywords and the like."""
    return (values < FOREIGN_BASE) & (values >= FOREIGN_BASE - dictionary_size)


def exact(values: Ints, large: Mapping[int, int]) -> Any:
    """The integers that the values stand for: 64-bit ones, or an object array where they need more."""
    if not large or not len(values) or int(values.min()) >= FOREIGN_BASE:
        return values
    return np.array([large.get(value, value) for value in values.tolist()], object)


def summable(values: Any) -> Any:
    """The values in a type in which no partial sum of them can overflow."""
    if not len(values) or values.dtype == object:
        return values
    largest = max(abs(float(values.min())), abs(float(values.max())))
    return values if largest * len(values) < _SAFE else values.astype(object)


def json_able(number: int) -> int | str:
    """An integer as JSON holds it: as text beyond 64 bits."""
    return int(number) if -(2**63) <= number < 2**63 else str(number)

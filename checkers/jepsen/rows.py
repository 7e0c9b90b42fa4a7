"""A batch of the history table as numpy columns: client operations, their micro-operations and the lists in these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checkers.findings import Key
from checkers.kernels.columns import NEVER, NIL, Ints

Bools = npt.NDArray[np.bool_]

OBJECT: Final = ("table", "partition", "row", "column")
"""The columns that name an object."""

COLUMNS: Final = ("invoke_index", "complete_index", "type", "process", "f", "mops")
"""The columns of the history that `read_batch` needs."""

OK: Final = 0
INFO: Final = 1
FAIL: Final = 2

UNKNOWN_F: Final = 127
"""Kind of a micro-operation that the model does not know."""


@dataclass(frozen=True, slots=True)
class Operations:
    """Client operations of a batch. `row` is their place in it, `outcome` OK, INFO or FAIL; `complete` is NEVER unless
    they are ok or failed; `f` numbers into `f_names`; `mop_start[i]:mop_stop[i]` are operation i's micro-operations."""

    row: Ints
    invoke: Ints
    complete: Ints
    outcome: npt.NDArray[np.int8]
    f: npt.NDArray[np.int32]
    f_names: list[str]
    mop_start: Ints
    mop_stop: Ints

    def named(self, names: Sequence[str]) -> Bools:
        """Which operations are called by one of the names."""
        table = np.array([name in names for name in self.f_names] + [False])
        found: Bools = table[self.f]
        return found


@dataclass(frozen=True, slots=True)
class Mops:
    """Micro-operations of client operations, in order. `of` is the operation's place in `Operations`; `value` is 0
    where `nil`; lists are `items[list_start:list_stop]` where `listed`, in which elements that are nil (NIL in the
    tables of importers) are 0 and flagged in `nil_item`."""

    of: Ints
    kind: npt.NDArray[np.int8]
    address: tuple[Ints, Ints, Ints, Ints]
    value: Ints
    nil: Bools
    listed: Bools
    list_start: Ints
    list_stop: Ints
    items: Ints
    nil_item: Bools


def ints(column: pa.Array, null: int = 0) -> Ints:
    """A column of integers with nulls replaced."""
    filled = column.fill_null(null) if column.null_count else column
    found: Ints = filled.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return found


def text_codes(column: pa.Array) -> tuple[npt.NDArray[np.int32], list[str]]:
    """A column of texts as numbers (-1: null) into the list of names."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    return codes, column.dictionary.to_pylist()


def read_operations(batch: pa.RecordBatch) -> Operations:
    """The client operations of a batch."""
    rows = np.flatnonzero(ints(batch.column("process")) >= 0)
    types, names = text_codes(batch.column("type"))
    outcomes = np.array([{"ok": OK, "fail": FAIL}.get(name, INFO) for name in names] + [INFO], np.int8)
    outcome = outcomes[types[rows]]
    complete = ints(batch.column("complete_index"), NEVER)[rows]
    f, f_names = text_codes(batch.column("f"))
    lengths = ints(pc.list_value_length(batch.column("mops")))
    stop = np.cumsum(lengths)
    return Operations(
        rows,
        ints(batch.column("invoke_index"))[rows],
        np.where(outcome == INFO, NEVER, complete),
        outcome,
        f[rows],
        f_names,
        (stop - lengths)[rows],
        stop[rows],
    )


def read_mops(batch: pa.RecordBatch, operations: Operations, chosen: Bools, kinds: Mapping[str, int]) -> Mops:
    """The micro-operations of the chosen operations; `kinds` gives the kind of each f, others are UNKNOWN_F."""
    elements = batch.column("mops").flatten()
    fields = {field.name: elements.field(i) for i, field in enumerate(elements.type)}
    which = np.flatnonzero(chosen)
    lengths = operations.mop_stop[which] - operations.mop_start[which]
    of = np.repeat(which, lengths)
    before = np.cumsum(lengths) - lengths
    place = np.repeat(operations.mop_start[which] - before, lengths) + np.arange(len(of))
    f, names = text_codes(fields["f"])
    table = np.array([kinds.get(name, UNKNOWN_F) for name in names] + [UNKNOWN_F], np.int8)
    lists = fields["values"]
    elements_of_lists = lists.flatten()
    items = ints(elements_of_lists, NIL)
    nil_item = items == NIL
    size = ints(pc.list_value_length(lists))
    stop = np.cumsum(size)
    t, p, r, c = (ints(fields[name])[place] for name in OBJECT)
    return Mops(
        of,
        table[f[place]],
        (t, p, r, c),
        ints(fields["value"])[place],
        _nulls(fields["value"])[place],
        ~_nulls(lists)[place],
        (stop - size)[place],
        stop[place],
        np.where(nil_item, 0, items) if nil_item.any() else items,
        nil_item,
    )


def _nulls(column: pa.Array) -> Bools:
    found: Bools = column.is_null().to_numpy(zero_copy_only=False)
    return found


def exploded(start: Ints, stop: Ints) -> tuple[Ints, Ints]:
    """For ranges: the number of the range of each element, and the elements."""
    lengths = stop - start
    which = np.repeat(np.arange(len(start)), lengths)
    before = np.cumsum(lengths) - lengths
    return which, np.repeat(start - before, lengths) + np.arange(len(which))


def lists_of(mops: Mops, rows: Ints) -> pa.ListArray:
    """The lists of some micro-operations, named in order; empty where they have none."""
    bounds = np.column_stack((mops.list_start[rows], mops.list_stop[rows])).ravel()
    spans = pa.ListArray.from_arrays(pa.array(np.append(bounds, len(mops.items)), pa.int32()), pa.array(mops.items))
    return spans.take(pa.array(np.arange(0, len(bounds), 2)))


def flat(schema: pa.Schema, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """A record batch of the schema from arrays by name."""
    arrays = [
        columns[field.name] if isinstance(columns[field.name], pa.Array) else pa.array(columns[field.name], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def column(table: pa.Table, name: str) -> Any:
    """A column of a flat table as a numpy array."""
    return table.column(name).to_numpy()


def group_starts(columns: Sequence[Any]) -> Ints:
    """Where groups of equal neighbours begin; empty for no rows."""
    size = len(columns[0])
    changes = np.zeros(size, np.bool_)
    changes[:1] = True
    for values in columns:
        changes[1:] |= values[1:] != values[:-1]
    return np.flatnonzero(changes)


def key_at(table: pa.Table, row: int) -> Key:
    """The object that a flat row is about."""
    t, p, r, c = (table.column(name)[row].as_py() for name in OBJECT)
    return t, p, r, c

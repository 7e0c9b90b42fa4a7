"""A batch of the history table as numpy arrays: all that reads one, on either engine, is made of these.

What a family asks of them is its own: one row an operation (`projection`), one row a micro-operation (`mops`), or
client operations beside their micro-operations and the lists in these (`read_operations` and `read_mops` here,
`transactions.mops`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checkers.columns.codes import FAIL, INFO, NEVER, NIL, OK, UNSUPPORTED, Ints
from checkers.columns.dense import spread
from checkers.findings import Key
from checkers.source import KEY_COLUMNS
from harness.history.columns import MOP
from harness.history.columns import SCHEMA as HISTORY
from harness.history.parts import schema

Bools: TypeAlias = npt.NDArray[np.bool_]
Codes: TypeAlias = npt.NDArray[np.int8]

_OUTCOMES: Final = {"ok": OK, "fail": FAIL}


def ints(column: pa.Array, null: int = 0) -> Ints:
    """A column of integers with nulls replaced; not to be written to, for it may be Arrow's own memory."""
    whole = column if column.type == pa.int64() else column.cast(pa.int64())
    found: Ints = (whole.fill_null(null) if whole.null_count else whole).to_numpy(zero_copy_only=False)
    return found


def valid(column: pa.Array) -> Bools:
    """Where there is a value."""
    found: Bools = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def text_codes(column: pa.Array) -> tuple[npt.NDArray[np.int32], list[str]]:
    """A column of texts as numbers (-1: null) into the list of names."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    return codes, column.dictionary.to_pylist()


def decoded(codes: npt.NDArray[Any], names: Sequence[str]) -> pa.Array:
    """The column of texts that `text_codes` tells as these numbers (negative: null) into a list of names."""
    indices = pa.array(codes.astype(np.int32, copy=False), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names or ("",), pa.string())).cast(pa.string())


def coded(column: pa.Array, code: Mapping[str, int], other: int, kind: Any = np.int64) -> npt.NDArray[Any]:
    """Each text's code; `other` for texts that have none and for null."""
    codes, names = text_codes(column)
    return np.array([code.get(name, other) for name in names] + [other], kind)[codes]


def bucket_batch(rows: Sequence[tuple[int, int, bytes]]) -> pa.RecordBatch:
    """Rows of (bucket, piece, data) as Spark takes them between two stages."""
    columns = (pa.int32(), pa.int32(), pa.binary())
    arrays = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(columns)]
    return pa.RecordBatch.from_arrays(arrays, names=["bucket", "piece", "data"])


def outcomes(batch: pa.RecordBatch) -> Codes:
    """OK, INFO or FAIL of each operation."""
    return coded(batch.column("type"), _OUTCOMES, INFO, np.int8)


def completions(batch: pa.RecordBatch, outcome: npt.NDArray[Any]) -> Ints:
    """The event with which each operation completed; NEVER where the outcome is unknown."""
    return np.where(outcome == INFO, NEVER, ints(batch.column("complete_index"), NEVER))


class BatchLists(NamedTuple):
    """Lists `items[start:stop]`, NIL for elements that are nil; empty where there is none, as `listed` says."""

    listed: Bools
    start: Ints
    stop: Ints
    items: Ints


def spans(lists: pa.ListArray) -> BatchLists:
    """A column of lists, where its elements lie."""
    listed, offsets = valid(lists), lists.offsets.to_numpy().astype(np.int64)
    first, last = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    bounds = offsets - first
    stop = bounds[1:] if not lists.null_count else np.where(listed, bounds[1:], bounds[:-1])
    return BatchLists(listed, bounds[:-1], stop, ints(lists.values.slice(first, last - first), NIL))


class BatchMops(NamedTuple):
    """The micro-operations of a batch where they lie: those of its row i are the `size[i]` from `start[i]` on; their
    columns by name."""

    start: Ints
    size: Ints
    columns: Mapping[str, pa.Array]

    def address(self) -> tuple[Ints, Ints, Ints, Ints]:
        """The cell that each is about."""
        table, partition, row, column = (ints(self.columns[name]) for name in KEY_COLUMNS)
        return table, partition, row, column

    def ints(self, name: str, null: int = NIL) -> Ints:
        """A column of integers."""
        return ints(self.columns[name], null)


def read_elements(batch: pa.RecordBatch, least: int = 0) -> BatchMops:
    """The micro-operations of all operations of a batch; if there are none, `least` that are null."""
    lists = batch.column("mops")
    size = ints(pc.list_value_length(lists))
    elements = lists.flatten()
    if len(elements) < least:
        elements = pa.nulls(least, elements.type)
    columns = {field.name: elements.field(i) for i, field in enumerate(elements.type)}
    return BatchMops(np.cumsum(size) - size, size, columns)


OBJECT: Final = KEY_COLUMNS
"""The columns that name an object."""

WIDE: Final = pa.int64()
SMALL: Final = pa.int8()
"""Types of the columns of flat rows."""

COLUMNS: Final = ("invoke_index", "complete_index", "type", "process", "f", "mops")
"""The columns of the history that `read_batch` needs."""


@dataclass(frozen=True, slots=True)
class Operations:
    """Client operations of a batch. `row` is their place in it, `outcome` OK, INFO or FAIL; `complete` is NEVER unless
    they are ok or failed; `f` numbers into `f_names`; `mop_start[i]:mop_stop[i]` are operation i's micro-operations;
    `unfit` are those whose value fits none."""

    row: Ints
    invoke: Ints
    complete: Ints
    outcome: Codes
    f: npt.NDArray[np.int32]
    f_names: list[str]
    mop_start: Ints
    mop_stop: Ints
    unfit: Bools

    def named(self, names: Sequence[str]) -> Bools:
        """Which operations are called by one of the names."""
        table = np.array([name in names for name in self.f_names] + [False])
        found: Bools = table[self.f]
        return found


@dataclass(frozen=True, slots=True)
class ClientMops:
    """Micro-operations of client operations, in order. `of` is the operation's place in `Operations`; `value` is 0
    where `nil`; lists are `items[list_start:list_stop]` where `listed`, in which elements that are nil (NIL in the
    tables of importers) are 0 and flagged in `nil_item`."""

    of: Ints
    kind: Codes
    address: tuple[Ints, Ints, Ints, Ints]
    value: Ints
    nil: Bools
    listed: Bools
    list_start: Ints
    list_stop: Ints
    items: Ints
    nil_item: Bools


def read_operations(batch: pa.RecordBatch) -> Operations:
    """The client operations of a batch."""
    rows = np.flatnonzero(ints(batch.column("process")) >= 0)
    outcome = outcomes(batch)
    f, f_names = text_codes(batch.column("f"))
    lengths = ints(pc.list_value_length(batch.column("mops")))
    stop = np.cumsum(lengths)
    return Operations(
        rows,
        ints(batch.column("invoke_index"))[rows],
        completions(batch, outcome)[rows],
        outcome[rows],
        f[rows],
        f_names,
        (stop - lengths)[rows],
        stop[rows],
        ~valid(batch.column("mops"))[rows],
    )


def read_mops(batch: pa.RecordBatch, operations: Operations, chosen: Bools, kinds: Mapping[str, int]) -> ClientMops:
    """The micro-operations of the chosen operations; `kinds` gives the kind of each f, others are UNSUPPORTED."""
    elements = read_elements(batch)
    which = np.flatnonzero(chosen)
    place, of = spread(operations.mop_start[which], operations.mop_stop[which])
    listed, start, stop, items = spans(elements.columns["values"])
    nil_item = items == NIL
    table, partition, row, key_column = (part[place] for part in elements.address())
    return ClientMops(
        which[of],
        coded(elements.columns["f"], kinds, UNSUPPORTED, np.int8)[place],
        (table, partition, row, key_column),
        elements.ints("value", 0)[place],
        ~valid(elements.columns["value"])[place],
        listed[place],
        start[place],
        stop[place],
        np.where(nil_item, 0, items) if nil_item.any() else items,
        nil_item,
    )


def lists_of(mops: ClientMops, rows: Ints) -> pa.ListArray:
    """The lists of some micro-operations, named in order; empty where they have none."""
    bounds = np.column_stack((mops.list_start[rows], mops.list_stop[rows])).ravel()
    spans = pa.ListArray.from_arrays(pa.array(np.append(bounds, len(mops.items)), pa.int32()), pa.array(mops.items))
    return spans.take(pa.array(np.arange(0, len(bounds), 2)))


def flat_schema(wide: Sequence[str], **columns: pa.DataType) -> pa.Schema:
    """The schema of flat rows: some wide columns and others, of which texts and lists alone may be null."""
    fields = dict.fromkeys(wide, WIDE) | columns
    return pa.schema([pa.field(name, kind, nullable=not pa.types.is_primitive(kind)) for name, kind in fields.items()])


def flat(schema: pa.Schema, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """A record batch of the schema from arrays by name."""
    arrays = [
        columns[field.name] if isinstance(columns[field.name], pa.Array) else pa.array(columns[field.name], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _nulls(rows: int, kinds: Iterable[pa.DataType]) -> list[pa.Array]:
    """Columns that hold nothing; all share memory that is never written to, which the system does not even provide."""
    zeros = pa.py_buffer(np.zeros(rows + 1, np.int64))
    return [_null(rows, kind, zeros) for kind in kinds]


def _null(rows: int, kind: pa.DataType, zeros: pa.Buffer) -> pa.Array:
    if pa.types.is_list(kind):
        return pa.Array.from_buffers(kind, rows, [zeros, zeros], rows, children=[pa.nulls(0, kind.value_type)])
    return pa.Array.from_buffers(kind, rows, [zeros] * kind.num_buffers, rows)


def history_batch(rows: int, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """A batch of the history table with these columns; all others are null."""
    nulls = _nulls(rows, HISTORY.types)
    arrays = [columns.get(field.name, null) for field, null in zip(HISTORY, nulls, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema())


def mops_array(offsets: Ints, columns: Mapping[str, pa.Array]) -> pa.ListArray:
    """The column of micro-operations of a batch: operation i has those from `offsets[i]` on. Parts of addresses that
    are not among the columns are 0, values null."""
    count, kinds = len(columns["f"]), {field.name: field.type for field in MOP}
    fields = dict(zip(kinds, _nulls(count, kinds.values()), strict=True))
    zeros = pa.py_buffer(np.zeros(count, np.int64))
    fields |= {name: pa.Array.from_buffers(kinds[name], count, [None, zeros]) for name in KEY_COLUMNS}
    fields |= columns
    structs = pa.StructArray.from_arrays([fields[field.name] for field in MOP], fields=list(MOP))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), structs, type=pa.list_(MOP))


def unknown_rows(schema: pa.Schema, invoke: Ints) -> pa.RecordBatch:
    """Flat rows of kind UNSUPPORTED: the operations with these invocations are none that the model knows."""
    zeros = np.zeros(len(invoke), np.int64)
    rows = {field.name: pa.nulls(len(invoke), field.type) if field.nullable else zeros for field in schema}
    return flat(schema, rows | {"invoke": invoke, "kind": np.full(len(invoke), UNSUPPORTED)})


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


class Groups(NamedTuple):
    """Groups of equal neighbours: where each begins, how many rows it has, and the number of each row's group."""

    starts: Ints
    sizes: Ints
    of: Ints


def groups_of(columns: Sequence[Any]) -> Groups:
    """The groups of neighbours that are equal in all these columns."""
    starts = group_starts(columns)
    sizes = np.diff(np.append(starts, len(columns[0])))
    return Groups(starts, sizes, np.repeat(np.arange(len(starts)), sizes))


def first_flagged(flags: Any, by: Any, most: int) -> list[int]:
    """The rows with a flag, those with the least `by` first, at most `most`."""
    rows = np.flatnonzero(flags)
    first: list[int] = rows[np.argsort(by[rows], kind="stable")][:most].tolist()
    return first


def key_at(table: pa.Table, row: int) -> Key:
    """The object that a flat row is about."""
    return Key.of(table.column(name)[row].as_py() for name in OBJECT)

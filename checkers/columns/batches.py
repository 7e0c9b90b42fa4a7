"""A batch of the history table as numpy arrays: all that reads one, on either engine, is made of these.

What a family asks of them is its own: one row an operation (`projection`), one row a micro-operation (`mops`), or
operations beside their micro-operations (`rows`, `transactions.mops`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checkers.columns.codes import FAIL, INFO, NEVER, NIL, OK, Ints
from checkers.source import KEY_COLUMNS

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

"""A batch of the history table as numpy columns: client operations, their micro-operations and the lists in these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checkers.columns.batches import (
    Bools,
    Codes,
    coded,
    completions,
    ints,
    outcomes,
    read_elements,
    spans,
    text_codes,
    valid,
)
from checkers.columns.codes import NIL, UNSUPPORTED, Ints
from checkers.columns.spans import spread
from checkers.findings import Key
from checkers.source import KEY_COLUMNS

OBJECT: Final = KEY_COLUMNS
"""The columns that name an object."""

COLUMNS: Final = ("invoke_index", "complete_index", "type", "process", "f", "mops")
"""The columns of the history that `read_batch` needs."""


@dataclass(frozen=True, slots=True)
class Operations:
    """Client operations of a batch. `row` is their place in it, `outcome` OK, INFO or FAIL; `complete` is NEVER unless
    they are ok or failed; `f` numbers into `f_names`; `mop_start[i]:mop_stop[i]` are operation i's micro-operations."""

    row: Ints
    invoke: Ints
    complete: Ints
    outcome: Codes
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
    return Key.of(table.column(name)[row].as_py() for name in OBJECT)

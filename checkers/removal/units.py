"""The units of which a history can be made smaller: a micro-operation each, or an operation that has none.

A model's rule (`checkers.removal.rules`) reads these columns and says which units need which others. What is kept of a
history is a flag a unit; `part_of_history` makes the history of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.columns.batches import coded, completions, ints, outcomes, read_elements, spans, text_codes, valid
from checkers.columns.codes import NEVER, NIL, OK, Bools, Ints
from checkers.source import KEY_COLUMNS, Source
from harness.history.columns import MOP, SCHEMA

_FINAL: Final = {"final": 1, "each-node": 1}
"""Phases of reads that are made when all is over."""

_STATED: Final = ("served_ts", "requested_ts", "write_ts", "data_centre", "replication")
_COLUMNS: Final = (
    *("invoke_index", "complete_index", "type", "process", "session", "f", "mops", "error_class"),
    *("phase", *_STATED),
)

NO_END: Final = NEVER
"""Instead of an event before which a history is cut off: it is not."""


class OperationColumns(NamedTuple):
    """One row an operation: `complete` is NEVER where the outcome is unknown, `ended` only where no event ended it;
    `session` is -1 - process where none is stated. `states` has a flag for each of some columns, `requested` what is
    asked for (NIL: nothing), `centre` numbers data centres (-1: none stated), `final` flags final reads."""

    invoke: Ints
    complete: Ints
    ended: Ints
    outcome: Ints
    process: Ints
    session: Ints
    f: Ints
    requested: Ints
    centre: Ints
    final: Ints
    states: dict[str, Bools]


@dataclass(frozen=True)
class Units:
    """One row a unit: `op` is the place of its operation in the history, `bare` flags those of operations without
    micro-operations. `f` numbers into `names`, as the operations' own do; a bare unit has its operation's. Lists are
    `items[start:stop]` where `listed`."""

    operations: OperationColumns
    names: tuple[str, ...]
    op: Ints
    bare: Bools
    f: Ints
    address: tuple[Ints, Ints, Ints, Ints]
    value: Ints
    expected: Ints
    listed: Bools
    start: Ints
    stop: Ints
    items: Ints

    def __len__(self) -> int:
        return len(self.op)

    def called(self, *names: str) -> Bools:
        """The units of which the micro-operation has one of the names."""
        return np.isin(self.f, [place for place, name in enumerate(self.names) if name in names])

    def of_operations(self, column: Any) -> Any:
        """A column of operations by unit."""
        return column[self.op]

    @cached_property
    def client(self) -> Bools:
        """The units of clients' operations."""
        return np.asarray(self.operations.process[self.op] >= 0)

    @cached_property
    def outcome(self) -> Ints:
        """OK, INFO or FAIL."""
        return np.asarray(self.operations.outcome[self.op])

    @cached_property
    def done(self) -> Bools:
        """The units of clients' operations that succeeded."""
        return np.asarray(self.client & (self.outcome == OK))

    def cell(self, width: int = 4) -> Ints:
        """A digest of the first parts of each address: table, partition, row, column."""
        return digest(*self.address[:width])


def digest(*columns: Any) -> Ints:
    """A number for each combination of values. Two may share one: they are then kept or left out together, which is
    never wrong."""
    size = max(np.size(column) for column in columns)
    mixed = np.full(size, 0x9E3779B97F4A7C15, np.uint64)
    for column in columns:
        mixed = mixed * np.uint64(3) + np.asarray(column, np.int64).view(np.uint64)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    return mixed.view(np.int64)


class _Names:
    """Numbers for texts, the same in all batches."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, column: pa.Array) -> Ints:
        codes, texts = text_codes(column)
        table = [self.numbers.setdefault(text, len(self.numbers)) for text in texts]
        return np.array([*table, -1], np.int64)[codes]


def read_units(source: Source) -> Units:
    """The units of a history, in order of invocation and then of their place in the operation."""
    names, centres = _Names(), _Names()
    parts = [_read(batch, names, centres) for batch in source.batches(_COLUMNS) if batch.num_rows]
    rows = np.cumsum([0, *(len(operations.invoke) for operations, _ in parts)])
    items = np.cumsum([0, *(len(columns["items"]) for _, columns in parts)])
    for (_, columns), row, item in zip(parts, rows.tolist(), items.tolist(), strict=False):
        columns["op"] = columns["op"] + row
        columns["start"], columns["stop"] = columns["start"] + item, columns["stop"] + item
    joined = {name: _joined([columns[name] for _, columns in parts], kind) for name, kind in _KINDS.items()}
    address = tuple(joined.pop(name) for name in KEY_COLUMNS)
    return Units(_all_operations([part for part, _ in parts]), tuple(names.numbers), address=address, **joined)


_KINDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("op", "f", *KEY_COLUMNS, "value", "expected", "start", "stop", "items"), np.int64),
    **dict.fromkeys(("bare", "listed"), np.bool_),
}


def _joined(parts: Sequence[Any], kind: Any = np.int64) -> Any:
    return np.concatenate([np.empty(0, kind), *parts]).astype(kind, copy=False)


def _all_operations(parts: Sequence[OperationColumns]) -> OperationColumns:
    plain = {name: _joined([getattr(part, name) for part in parts]) for name in OperationColumns._fields[:-1]}
    states = {name: _joined([part.states[name] for part in parts], np.bool_) for name in _STATED}
    return OperationColumns(**plain, states=states)


def _read(batch: pa.RecordBatch, names: _Names, centres: _Names) -> tuple[OperationColumns, dict[str, Any]]:
    outcome, process = outcomes(batch), ints(batch.column("process"))
    session = np.where(valid(batch.column("session")), ints(batch.column("session")), -1 - process)
    f = names(batch.column("f"))
    operations = OperationColumns(
        ints(batch.column("invoke_index")),
        completions(batch, outcome),
        ints(batch.column("complete_index"), NEVER),
        outcome.astype(np.int64),
        process,
        session,
        f,
        ints(batch.column("requested_ts"), NIL),
        centres(batch.column("data_centre")),
        coded(batch.column("phase"), _FINAL, 0),
        {name: valid(batch.column(name)) for name in _STATED},
    )
    elements = read_elements(batch)
    size = np.maximum(elements.size, 1)
    op = np.repeat(np.arange(batch.num_rows), size)
    bare = (elements.size == 0)[op]
    listed, start, stop, items = spans(elements.columns["values"])
    place = np.flatnonzero(~bare)
    columns: dict[str, Any] = {"op": op, "bare": bare, "items": items, "f": f[op]}
    told = {"f": names(elements.columns["f"]), "listed": listed, "start": start, "stop": stop}
    told |= dict(zip(KEY_COLUMNS, elements.address(), strict=True))
    told |= {name: elements.ints(name) for name in ("value", "expected")}
    others = {"f": columns["f"], "value": np.full(len(op), NIL), "expected": np.full(len(op), NIL)}
    for name, found in told.items():
        columns[name] = others.get(name, np.zeros(len(op), found.dtype)).copy()
        columns[name][place] = found
    return operations, columns


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept: by unit of a history, of its lists' elements, and of its end. Nobody knows the outcome of an
    operation that is invoked before event `end` and completes at it or later."""

    units: Bools
    items: Bools
    end: int = NO_END

    @property
    def name(self) -> bytes:
        """Equal for what keeps the same."""
        return np.packbits(self.units).tobytes() + self.end.to_bytes(8, "big")


def part_of_history(source: Source, units: Units, kept: Kept) -> Source:
    """The history of what is kept, in memory; events keep their numbers and times."""
    unit = np.searchsorted(units.op, np.arange(len(units.operations.invoke) + 1))
    item = np.concatenate((units.start[~units.bare], [len(units.items)])) if len(units) else np.zeros(1, np.int64)
    before = np.concatenate(([0], np.cumsum(~units.bare)))
    batches, row = [], 0
    for batch in source.batches(SCHEMA.names):
        first, last = unit[row], unit[row + batch.num_rows]
        mine = Kept(kept.units[first:last], kept.items[item[before[first]] : item[before[last]]], kept.end)
        if mine.units.any():
            batches.append(_part_of(batch.select(SCHEMA.names).cast(SCHEMA), units.op[first:last] - row, mine))
        row += batch.num_rows
    table = pa.Table.from_batches(batches, SCHEMA)
    table = table.set_column(0, SCHEMA.field("op"), pa.array(np.arange(table.num_rows)))
    texts = source.interned.texts
    return replace(source, rows=table.num_rows, saved=None, table=table, dictionary=texts, located=None)


def _part_of(batch: pa.RecordBatch, op: Ints, kept: Kept) -> pa.RecordBatch:
    invoke = ints(batch.column("invoke_index"))
    rows = np.bincount(op[kept.units], minlength=batch.num_rows) > 0
    rows &= invoke < kept.end
    complete = ints(batch.column("complete_index"), NEVER)
    open_at_end = (complete >= kept.end) & (complete > invoke) & (complete != NEVER)
    columns = {"mops": _mops(batch.column("mops"), op, kept, open_at_end)}
    if open_at_end.any():
        mask = pa.array(open_at_end)
        columns["type"] = pc.if_else(mask, "info", batch.column("type"))
        for name in ("complete_index", "complete_time", "served_ts", "node", "error_class", "error", "replicas"):
            columns[name] = pc.if_else(mask, pa.nulls(batch.num_rows, SCHEMA.field(name).type), batch.column(name))
    arrays = [columns.get(name, batch.column(name)) for name in SCHEMA.names]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA).filter(pa.array(rows))


def _mops(column: pa.ListArray, op: Ints, kept: Kept, open_at_end: Bools) -> pa.ListArray:
    """The micro-operations that are kept, with the elements that are; those of reads that are open show nothing."""
    size = ints(pc.list_value_length(column))
    flat, bare = column.flatten(), (size == 0)[op]
    of, chosen = op[~bare], kept.units[~bare]
    unanswered = open_at_end[of] & (coded(flat.field("f"), {"r": 1, "read": 1, "dequeue": 1}, 0) == 1)
    fields = {field.name: flat.field(field.name) for field in MOP}
    lists = fields["values"]
    if not kept.items.all():
        listed, start, _, items = spans(lists)
        sizes = np.concatenate(([0], np.cumsum(kept.items)))
        offsets = pa.array(np.append(sizes[start], sizes[-1]).astype(np.int32), mask=np.append(~listed, False))
        shown = pa.array(items[kept.items], mask=items[kept.items] == NIL)
        lists = pa.ListArray.from_arrays(offsets, shown)
    if unanswered.any():
        mask = pa.array(unanswered)
        lists = pc.if_else(mask, pa.nulls(len(flat), lists.type), lists)
        fields["value"] = pc.if_else(mask, pa.nulls(len(flat), pa.int64()), fields["value"])
    fields["values"] = lists
    structs = pa.StructArray.from_arrays(list(fields.values()), fields=list(MOP)).filter(pa.array(chosen))
    left = np.bincount(of[chosen], minlength=len(size))
    offsets = np.concatenate(([0], np.cumsum(left))).astype(np.int32)
    return pa.ListArray.from_arrays(
        pa.array(offsets, mask=np.append(~valid(column), False)), structs, type=pa.list_(MOP)
    )


def places_of(units: Units, invocations: Iterable[int]) -> Iterator[int]:
    """The operations with some invocation indices, as far as there are any."""
    invoke = units.operations.invoke
    for index in invocations:
        place = int(np.searchsorted(invoke, index))
        if place < len(invoke) and invoke[place] == index:
            yield place

"""Injects anomalies: copies of a tiny history, each on keys and by processes of its own, within a longer one.

What is injected can't make the rest wrong: it shares no cell, no process and (where values are told apart in all of a
history) no value with anything else, and the order of all other events stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.history.columns import MOP, SCHEMA
from harness.history.parts import schema

Ints: TypeAlias = npt.NDArray[np.int64]

TICK_NS: Final = 100_000
"""From one event to the next."""

_PROCESSES: Final = 10**9
_SESSIONS: Final = 10**9
_KEYS: Final = 10**12
_VALUES: Final = 10**12
_TABLES: Final = 10**6
"""Numbers from here on are of what is injected."""


@dataclass(frozen=True, slots=True)
class Renamed:
    """What of an anomaly's operations is its own in each copy, beside its processes and sessions."""

    keys: bool = True
    tables: bool = False
    values: bool = False


@dataclass(frozen=True, slots=True)
class Template:
    """A tiny history that shows an anomaly, as rows of the table in order."""

    rows: pa.Table
    renamed: Renamed = Renamed()

    @property
    def events(self) -> int:
        """How many places in the order of events it takes."""
        last = [_highest(self.rows, name) for name in ("invoke_index", "complete_index")]
        return max(last) + 1

    @property
    def lasts_ns(self) -> int:
        """How long it takes."""
        last = [_highest(self.rows, name) for name in ("invoke_time", "complete_time")]
        return max(last) - _lowest(self.rows) + TICK_NS


def _highest(rows: pa.Table, name: str) -> int:
    found = pc.max(rows.column(name)).as_py()
    return -1 if found is None else int(found)


def _lowest(rows: pa.Table) -> int:
    return int(pc.min(rows.column("invoke_time")).as_py())


def spliced(batches: Iterable[pa.RecordBatch], template: Template, places: Ints) -> Iterator[pa.RecordBatch]:
    """The batches of a history with a copy of the template before each of these events (sorted, each once); what comes
    behind the last of its events stands at its end."""
    room = _Room(places, template.events, template.lasts_ns)
    injected, rows = 0, 0
    for batch in batches:
        if not batch.num_rows:
            continue
        last = batch.column("invoke_index")[-1].as_py()
        until = int(np.searchsorted(places, last, "right"))
        whole = [_moved(batch, room)]
        if until > injected:
            whole.append(_copies(template, room, injected, until))
        made = _ordered(whole, rows)
        injected, rows = until, rows + made.num_rows
        yield made
    if injected < len(places):
        yield _ordered([_copies(template, room, injected, len(places))], rows)


@dataclass(frozen=True, slots=True)
class _Room:
    """Where events come to lie once there is room for copies of so many events, which last so long."""

    places: Ints
    events: int
    lasts_ns: int

    def moved(self, event: Ints) -> tuple[Ints, Ints]:
        """New places of events of the history, and their times."""
        before = np.searchsorted(self.places, event, "right")
        return event + self.events * before, event * TICK_NS + self.lasts_ns * before

    def begins(self, copy: Ints) -> tuple[Ints, Ints]:
        """Where copies begin, and when."""
        at = self.places[copy]
        return at + self.events * copy, at * TICK_NS + self.lasts_ns * copy


def _moved(batch: pa.RecordBatch, room: _Room) -> pa.RecordBatch:
    invoke, invoke_time = room.moved(batch.column("invoke_index").to_numpy())
    column = batch.column("complete_index")
    open_ends = column.is_null().to_numpy(zero_copy_only=False)
    complete, complete_time = room.moved(column.fill_null(0).to_numpy())
    return _replaced(
        batch,
        invoke_index=pa.array(invoke),
        invoke_time=pa.array(invoke_time),
        complete_index=pa.array(complete, mask=open_ends),
        complete_time=pa.array(complete_time, mask=open_ends),
    )


def _copies(template: Template, room: _Room, first: int, until: int) -> pa.RecordBatch:
    """The rows of some copies, by their numbers."""
    size, count = template.rows.num_rows, until - first
    rows = template.rows.take(pa.array(np.tile(np.arange(size), count))).combine_chunks().to_batches()[0]
    copy = np.repeat(np.arange(first, until), size)
    event, time = room.begins(copy)
    begin = _lowest(template.rows)
    return _replaced(
        rows,
        invoke_index=_added(rows.column("invoke_index"), event),
        invoke_time=_added(rows.column("invoke_time"), time - begin),
        complete_index=_added(rows.column("complete_index"), event),
        complete_time=_added(rows.column("complete_time"), time - begin),
        process=_renamed(rows.column("process"), copy, _PROCESSES),
        session=_renamed(rows.column("session"), copy, _SESSIONS),
        mops=_mops_of(rows.column("mops"), copy, template.renamed),
    )


def _mops_of(column: pa.ListArray, copy: Ints, renamed: Renamed) -> pa.ListArray:
    lengths = pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64)
    flat, of = column.flatten(), np.repeat(copy, lengths)
    fields = {field.name: flat.field(field.name) for field in MOP}
    if renamed.keys:
        fields["partition"] = _renamed(fields["partition"], of, _KEYS)
    if renamed.tables:
        fields["table"] = _renamed(fields["table"], of, _TABLES).cast(pa.int32())
    if renamed.values:
        fields["value"] = _renamed(fields["value"], of, _VALUES)
    structs = pa.StructArray.from_arrays(list(fields.values()), fields=list(MOP))
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    nothing = np.concatenate((column.is_null().to_numpy(zero_copy_only=False), [False]))
    return pa.ListArray.from_arrays(pa.array(offsets, mask=nothing), structs, type=pa.list_(MOP))


def _renamed(column: pa.Array, copy: Ints, base: int) -> pa.Array:
    """Numbers of each copy's own; what is below zero (but no foreign key or value) and nothing stay as they are."""
    nothing = column.is_null().to_numpy(zero_copy_only=False)
    numbers = column.fill_null(0).to_numpy().astype(np.int64)
    known, rank = np.unique(numbers[~nothing], return_inverse=True)
    ranks = np.zeros(len(numbers), np.int64)
    ranks[~nothing] = rank
    kept = (numbers < 0) & (numbers > -(2**32))
    return pa.array(np.where(kept, numbers, base + copy * max(1, len(known)) + ranks), mask=nothing)


def _added(column: pa.Array, more: Ints) -> pa.Array:
    nothing = column.is_null().to_numpy(zero_copy_only=False)
    return pa.array(column.fill_null(0).to_numpy() + more, mask=nothing)


def _replaced(batch: pa.RecordBatch, **columns: pa.Array) -> pa.RecordBatch:
    arrays = [columns.get(name, batch.column(name)) for name in SCHEMA.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema())


def _ordered(parts: list[pa.RecordBatch], first: int) -> pa.RecordBatch:
    """The rows of all parts in order of invocation, numbered from `first`."""
    whole: Any = pa.concat_batches(parts)
    if len(parts) > 1:
        whole = whole.take(pa.array(np.argsort(whole.column("invoke_index").to_numpy(), kind="stable")))
    return _replaced(whole, op=pa.array(np.arange(first, first + whole.num_rows)))

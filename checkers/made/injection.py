"""Injects anomalies: copies of a tiny history that shows one, each on keys and by processes of its own, within a longer
history.

What is injected can't make the rest wrong: it shares no cell, no process and (where values are told apart in all of a
history) no value with anything else, and the order of all other events stays as it was. Those of transactions are here
(`INJECTED`), others are worked examples (`checkers.made.examples`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

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
    """Where events come to lie once there is room for copies of `events` each, which last `lasts_ns`."""

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


class InjectedTxn(NamedTuple):
    """One transaction: a session, `type`, event places of invocation and completion, and micro-operations as words:
    `a:x:1` appends 1 to x, `w:x:1` writes it, `r:x:1,2` reads a list, `r:x:1` a value and `r:x:` nothing."""

    session: int
    type: str
    invoke: int
    complete: int
    mops: str


def _overlapping(*mops: str, types: tuple[str, ...] = ()) -> tuple[InjectedTxn, ...]:
    """Transactions of different sessions, all open at once."""
    count = len(mops)
    kinds = (*types, *("ok",) * count)
    return tuple(InjectedTxn(i, kinds[i], i, count + i, mop) for i, mop in enumerate(mops))


def _successive(*mops: str, sessions: tuple[int, ...] = ()) -> tuple[InjectedTxn, ...]:
    """One after the other, of different sessions unless told."""
    who = sessions or tuple(range(len(mops)))
    return tuple(InjectedTxn(who[i], "ok", 2 * i, 2 * i + 1, mop) for i, mop in enumerate(mops))


_APPEND: Final[Mapping[str, tuple[InjectedTxn, ...]]] = {
    "G0": _overlapping("a:x:1 a:y:1", "a:x:2 a:y:2", "r:x:1,2 r:y:2,1"),
    "G0-realtime": _successive("a:x:1", "a:x:2", "r:x:2,1"),
    "G1a": _overlapping("a:x:1", "r:x:1", types=("fail",)),
    "G1b": _overlapping("a:x:1 a:x:2", "r:x:1", "r:x:1,2"),
    "G1c": _overlapping("a:x:1 r:y:1", "a:y:1 r:x:1"),
    "G1c-realtime": _successive("r:x:1", "a:x:1"),
    "G-single-item": _overlapping("a:x:1 a:y:1", "r:x: r:y:1", "r:x:1 r:y:1"),
    "G-single-item-realtime": _successive("a:x:1", "r:x:", "r:x:1"),
    "G-nonadjacent-item": _overlapping("a:x:1", "r:x: r:y:1", "a:y:1", "r:y: r:x:1"),
    "G2-item": _overlapping("r:x: a:y:1", "r:y: a:x:1", "r:x:1 r:y:1"),
    "internal": _overlapping("a:x:1 r:x:"),
    "future-read": _overlapping("r:x:1 a:x:1"),
    "dirty-update": _overlapping("a:x:1", "a:x:2", "r:x:1,2", types=("fail",)),
    "lost-update": _overlapping("r:x: a:x:1", "r:x: a:x:2", "r:x:1,2"),
    "incompatible-order": _overlapping("a:x:1 a:x:2", "r:x:1,2", "r:x:2"),
    "duplicate-elements": _overlapping("a:x:1", "r:x:1,1"),
    "garbage-read": _overlapping("r:x:9"),
}

_REGISTER: Final[Mapping[str, tuple[InjectedTxn, ...]]] = {
    "G1a": _overlapping("w:x:1", "r:x:1", types=("fail",)),
    "G1b": _overlapping("w:x:1 w:x:2", "r:x:1"),
    "G1c": _overlapping("w:x:1 r:y:1", "w:y:1 r:x:1"),
    "G-single-item": _overlapping("w:x:1 w:y:1", "r:x: r:y:1"),
    "G-single-item-realtime": _successive("w:x:1", "r:x:"),
    "G-nonadjacent-item": _overlapping("w:x:1", "r:x: r:y:1", "w:y:1", "r:y: r:x:1"),
    "G2-item": _overlapping("r:x: w:y:1", "r:y: w:x:1"),
    "internal": _overlapping("w:x:1 r:x:2", "w:x:2"),
    "future-read": _overlapping("r:x:1 w:x:1"),
    "lost-update": _overlapping("w:x:1", "r:x:1 w:x:2", "r:x:1 w:x:3"),
    "cyclic-versions-realtime": _successive("w:x:1", "w:x:2", "r:x:1", "r:x:2", "r:x:1"),
}

INJECTED: Final[Mapping[str, Mapping[str, tuple[InjectedTxn, ...]]]] = {
    "list-append": _APPEND,
    "rw-register": _REGISTER,
}
"""By model and anomaly; more may show too. Realtime forms need real time, or settings that say so."""

_FS: Final = {"a": "append", "w": "w", "r": "r"}


def _mop(word: str, first_key: int, lists: bool) -> dict[str, Any]:
    f, key, shown = word.split(":")
    numbers = [int(number) for number in shown.split(",") if number]
    is_list = f == "r" and lists
    mop = {"f": _FS[f], "table": 0, "partition": first_key + ord(key) - ord("x"), "row": 0, "column": 0}
    return mop | {"value": numbers[0] if numbers and not is_list else None, "values": numbers if is_list else None}


def injected_rows(
    template: tuple[InjectedTxn, ...], op: int, event: int, first_key: int, first_process: int, tick_ns: int
) -> pa.RecordBatch:
    """The rows of an injected anomaly, by invocation: ops from `op`, events from `event`, keys from `first_key`."""
    lists = not any(word.startswith("w:") for txn in template for word in txn.mops.split())
    rows = []
    for i, txn in enumerate(sorted(template, key=lambda txn: txn.invoke)):
        begin, end = event + txn.invoke, event + txn.complete
        mops = [_mop(word, first_key, lists) for word in txn.mops.split()]
        row = {"op": op + i, "invoke_index": begin, "complete_index": end, "type": txn.type, "f": "txn", "mops": mops}
        times = {"invoke_time": begin * tick_ns, "complete_time": end * tick_ns}
        rows.append(row | times | {"process": first_process + txn.session})
    arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=schema())


def history_of(template: tuple[InjectedTxn, ...]) -> pa.Table:
    """An injected anomaly as a history of its own."""
    return pa.Table.from_batches([injected_rows(template, 0, 0, 0, 0, 1_000_000)])

"""The history table: pairs invocations with completions and writes `columns.SCHEMA` as Parquet, streaming."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import UserError
from harness.history.columns import MOP, NO_PURPOSE, SCHEMA, TIMED_COLUMNS, Purpose
from harness.history.ops import NEMESIS_PROCESS, Mop, Op
from harness.history.parts import PART_ROWS, ROWS_PER_GROUP, schema, write_history
from harness.history.saved import open_saved

Pair: TypeAlias = tuple[Op, Op | None]
"""An invocation and its completion, None if it never completed. An unsolicited event is paired with itself."""

_FROM_COMPLETION = (
    *("session", "phase", "txn", "mode", "bound", "page", "requested_ts", "served_ts"),
    *("node", "clock", "request_id", "error_class", "error", "data_centre", "replication", "replicas"),
    *TIMED_COLUMNS,
)


def pairs(events: Iterable[Op]) -> Iterator[Pair]:
    """Every operation with its completion, in order of invocation.

    Memory is bounded by the operations between an invocation and its completion (that is, by the operations' deadline
    times the rate). Raises UserError for a completion without invocation or a process with two operations at once.
    """
    waiting: deque[list[Op | None]] = deque()
    open_by_process: dict[int, list[Op | None]] = {}
    for event in events:
        process = event.process
        if event.type == "invoke":
            if process in open_by_process:
                raise UserError(f"Event {event.index}: process {process} invokes while its last operation is open.")
            pair: list[Op | None] = [event, None]
            open_by_process[process] = pair
            waiting.append(pair)
        elif process in open_by_process:
            open_by_process.pop(process)[1] = event
        elif event.type == "info":
            waiting.append([event, event])
        else:
            raise UserError(f"Event {event.index}: process {process} completes what it has not invoked.")
        while waiting and waiting[0][1] is not None:
            yield _pair(waiting.popleft())
    for left in waiting:
        yield _pair(left)


def _pair(slot: list[Op | None]) -> Pair:
    invocation, completion = slot
    assert invocation is not None
    return invocation, completion


def batches(events: Iterable[Op], rows_per_batch: int = ROWS_PER_GROUP) -> Iterator[pa.RecordBatch]:
    """The table as record batches of the history schema."""
    chunk: list[Pair] = []
    first = 0
    for pair in pairs(events):
        chunk.append(pair)
        if len(chunk) == rows_per_batch:
            yield _batch(chunk, first)
            first += len(chunk)
            chunk = []
    if chunk:
        yield _batch(chunk, first)


def to_table(events: Iterable[Op]) -> pa.Table:
    """The whole table in memory, for small histories."""
    return pa.Table.from_batches(list(batches(events)), schema=schema())


def nemesis_events(path: Path) -> Iterator[Op]:
    """What the nemesis began and what came of it, as a saved history has them; an invocation is told with what its
    completion says. Raises UserError for a history that is damaged."""
    names = ("process", "phase", "type", "f", "value", "invoke_time", "complete_time")
    for batch in open_saved(path).batches(names, texts=()):
        for row in batch.filter(pc.equal(batch.column("process"), NEMESIS_PROCESS)).to_pylist():
            value = None if row["value"] is None else msgspec.json.decode(row["value"])
            begun = Op("invoke", NEMESIS_PROCESS, row["f"], value=value, time=row["invoke_time"], phase=row["phase"])
            yield begun
            if row["complete_time"] is not None:
                yield msgspec.structs.replace(begun, type=row["type"], time=row["complete_time"])


def write_parquet(
    events: Iterable[Op], path: Path, rows_per_group: int = ROWS_PER_GROUP, purpose: Purpose = NO_PURPOSE
) -> int:
    """Write a history as Parquet, one row group at a time, and return the number of rows; see `write_batches`.

    Raises UserError for an inconsistent history.
    """
    return write_history(batches(events, rows_per_group), path, purpose=purpose)


def difference(events: Iterable[Op], path: Path) -> str | None:
    """How a saved table differs from the history of some events, read row by row, in words; None if it is the same.

    Raises UserError for a table that is damaged or can't be read to its end, and for an inconsistent history.
    """
    left, row = batches(events), 0
    held = pa.Table.from_batches([], schema=schema())
    for batch in open_saved(path).batches(SCHEMA.names, texts=()):
        while held.num_rows < batch.num_rows and (more := next(left, None)) is not None:
            held = pa.concat_tables([held, pa.Table.from_batches([more])])
        expected, held = held.slice(0, batch.num_rows), held.slice(batch.num_rows)
        found = pa.Table.from_batches([batch])
        if not expected.equals(found):
            return f"row {row + _first_unlike(expected.to_pylist(), found.to_pylist())} differs"
        row += batch.num_rows
    return f"it ends before row {row}" if held.num_rows or next(left, None) is not None else None


def _first_unlike(expected: list[Any], found: list[Any]) -> int:
    unlike = (place for place, pair in enumerate(zip(expected, found, strict=False)) if pair[0] != pair[1])
    return next(unlike, min(len(expected), len(found)))


def write_batches(batches: Iterable[pa.RecordBatch], path: Path, part_rows: int = PART_ROWS) -> int:
    """Write the history table as Parquet, a row group a batch, and return the number of rows.

    The file, or the folder of parts of a long history, appears whole or not at all (`parts.write_history`). Raises
    HarnessError if it can't be written.
    """
    return write_history(batches, path, part_rows=part_rows)


def _batch(chunk: list[Pair], first: int) -> pa.RecordBatch:
    ends = [completion or invocation for invocation, completion in chunk]
    done = [completion for _, completion in chunk]
    columns: dict[str, Any] = {
        "op": list(range(first, first + len(chunk))),
        "invoke_index": [invocation.index for invocation, _ in chunk],
        "complete_index": [op.index if op else None for op in done],
        "invoke_time": [invocation.time for invocation, _ in chunk],
        "complete_time": [op.time if op else None for op in done],
        "type": [op.type if op else "info" for op in done],
        "process": [invocation.process for invocation, _ in chunk],
        "f": [invocation.f for invocation, _ in chunk],
        "write_ts": [invocation.write_ts for invocation, _ in chunk],
        "value": [
            _json(invocation if op.value is None else op) for (invocation, _), op in zip(chunk, ends, strict=True)
        ],
    }
    for name in _FROM_COMPLETION:
        columns[name] = [getattr(op, name) for op in ends]
    mops = _mops([op.mops or invocation.mops for (invocation, _), op in zip(chunk, ends, strict=True)])
    arrays = [mops if field.name == "mops" else pa.array(columns[field.name], type=field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=schema())


def _json(op: Op) -> str | None:
    return None if op.value is None else msgspec.json.encode(op.value).decode()


def _mops(lists: list[tuple[Mop, ...]]) -> pa.Array:
    """The nested column, built from flat ones; an operation without micro-operations has null."""
    offsets: list[int | None] = []
    flat: list[Mop] = []
    for mops in lists:
        offsets.append(len(flat) if mops else None)
        flat.extend(mops)
    offsets.append(len(flat))
    fields = [MOP.field(i) for i in range(MOP.num_fields)]
    arrays = [pa.array([getattr(mop, field.name) for mop in flat], type=field.type) for field in fields]
    structs = pa.StructArray.from_arrays(arrays, fields=fields)
    return pa.ListArray.from_arrays(pa.array(offsets, type=pa.int32()), structs, type=pa.list_(MOP))

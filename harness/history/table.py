"""The history table: pairs invocations with completions and writes `harness.columns.SCHEMA` as Parquet, streaming."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from harness.columns import DICTIONARY_KEY, MOP, SCHEMA, SCHEMA_VERSION, VERSION_KEY
from harness.errors import UserError
from harness.history.seal import KEY as SEAL_KEY
from harness.history.seal import seal
from harness.ops import Mop, Op
from harness.whole import appearing

ROWS_PER_GROUP = 65_536

Pair: TypeAlias = tuple[Op, Op | None]
"""An invocation and its completion, None if it never completed. An unsolicited event is paired with itself."""

_FROM_COMPLETION = (
    *("session", "phase", "txn", "mode", "bound", "page", "requested_ts", "served_ts"),
    *("node", "clock", "request_id", "error_class", "error", "data_centre", "replication", "replicas"),
)
_PARQUET_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "use_dictionary": [
        *("type", "phase", "f", "mode", "node", "clock", "error_class", "error"),
        *("data_centre", "replication", "replicas"),
        *("mops.list.element.f", "mops.list.element.values.list.element"),
    ],
    "write_page_checksum": True,
}


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


def schema() -> pa.Schema:
    """The history schema with the version that files state in their metadata."""
    return SCHEMA.with_metadata({VERSION_KEY: str(SCHEMA_VERSION).encode(), DICTIONARY_KEY: b"[]"})


def _sealed_schema() -> pa.Schema:
    plain = schema()
    return plain.with_metadata({**plain.metadata, SEAL_KEY: b"crc32"})


def parquet_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer of history tables: compressed, with a checksum of every page, so that damage is found in reading."""
    return pq.ParquetWriter(path, schema, **_PARQUET_OPTIONS)


def write_parquet(events: Iterable[Op], path: Path, rows_per_group: int = ROWS_PER_GROUP) -> int:
    """Write a history as Parquet, one row group at a time, and return the number of rows; see `write_batches`.

    Raises UserError for an inconsistent history.
    """
    return write_batches(batches(events, rows_per_group), path)


def write_batches(batches: Iterable[pa.RecordBatch], path: Path) -> int:
    """Write the history table as Parquet, a row group a batch, and return the number of rows.

    The file appears whole or not at all, with a seal over all of it (`harness.history.seal`). Raises HarnessError if it
    can't be written.
    """
    rows = 0
    with appearing(path, f"The history {path}") as unfinished:
        with parquet_writer(unfinished, _sealed_schema()) as writer:
            for batch in batches:
                writer.write_batch(batch, row_group_size=max(1, batch.num_rows))
                rows += batch.num_rows
        seal(unfinished)
    return rows


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

"""Histories of partition writes and page reads: valid by construction at any size, or with one injected anomaly.

Made a batch at a time with numpy, as `made.registers` does: clients take turns in rounds, operations of a round
overlap, and they take effect in the order of their clients. Values count up, so they are unique.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkers.columns.batches import decoded, history_batch, mops_array
from checkers.made.registers import processes
from harness.history.table import write_batches

Anomaly: TypeAlias = Literal["none", "torn-read", "non-monotonic-read"]
Ints: TypeAlias = npt.NDArray[np.int64]

_OPS_PER_GROUP: Final = 1 << 16
_TICK_NS: Final = 1_000


@dataclass(frozen=True, slots=True)
class PageShape:
    """`read_share` of the operations read all `rows` of a partition as one page, the others write some of them;
    `info_share` of the writes have an unknown outcome. With `stamped` writes carry commit timestamps; with `quorum`
    their clients' timestamps, at level QUORUM of three replicas."""

    operations: int
    partitions: int = 1000
    rows: int = 4
    clients: int = 10
    read_share: float = 0.5
    info_share: float = 0.01
    stamped: bool = False
    quorum: bool = False
    anomaly: Anomaly = "none"
    seed: int = 0


@dataclass(slots=True)
class _PageBatch:
    """By operation: its partition, whether it writes, and by row whether it touches it and the value there (0: nil)."""

    partition: Ints
    write: npt.NDArray[np.bool_]
    touched: npt.NDArray[np.bool_]
    value: Ints
    info: npt.NDArray[np.bool_]


def _held_after(partition: Ints, written: Ints, held: Ints) -> Ints:
    """What each operation's partition holds in one row right after it, if `written` is what it wrote there (0:
    nothing); values count up, so the latest is the largest. `held` is updated."""
    order = np.argsort(partition, kind="stable")
    sorted_partition = partition[order]
    span = int(max(written.max(initial=0), held.max(initial=0))) + 1
    start = np.maximum(written[order], held[sorted_partition]) + sorted_partition * span
    after = np.maximum.accumulate(start) - sorted_partition * span
    out = np.empty(len(partition), np.int64)
    out[order] = after
    np.maximum.at(held, partition, out)
    return out


def _make(shape: PageShape, first: int, count: int, held: Ints, random: np.random.Generator) -> _PageBatch:
    write = random.random(count) >= shape.read_share
    partition = random.integers(0, shape.partitions, count)
    touched = random.random((count, shape.rows)) < 0.7
    touched[~write] = True
    touched[write & ~touched.any(axis=1), 0] = True
    number = np.arange(first + 1, first + count + 1)
    value = np.empty((count, shape.rows), np.int64)
    for row in range(shape.rows):
        written = np.where(write & touched[:, row], number, 0)
        value[:, row] = _held_after(partition, written, held[row])
    return _PageBatch(partition, write, touched, value, write & (random.random(count) < shape.info_share))


def _inject(shape: PageShape, batch: _PageBatch, first: int) -> None:
    """Make one read past the middle show a row as it was before everything: alone, or with all others of its page."""
    middle = shape.operations // 2
    if shape.anomaly == "none" or not first <= middle < first + len(batch.write):
        return
    reads = np.flatnonzero(~batch.write)
    for op in reads[reads >= middle - first].tolist():
        value = batch.value[op]
        if shape.anomaly == "non-monotonic-read" and (value > 0).any() and op + first >= middle + 4 * shape.partitions:
            batch.value[op] = 0
            return
        if shape.anomaly == "torn-read" and value[0] > 0 and (value[1:] == value[0]).any():
            batch.value[op, 0] = 0
            return


def _mops(shape: PageShape, batch: _PageBatch) -> pa.Array:
    op, row = np.nonzero(batch.touched)
    value = batch.value[op, row]
    fields = {
        "f": decoded(batch.write[op].astype(np.int8), ("r", "w")),
        "partition": pa.array(batch.partition[op]),
        "row": pa.array(row.astype(np.int64)),
        "value": pa.array(value, mask=value == 0),
    }
    return mops_array(np.concatenate(([0], np.cumsum(batch.touched.sum(axis=1)))), fields)


def _record_batch(shape: PageShape, batch: _PageBatch, first: int, lost: Ints) -> pa.RecordBatch:
    count = len(batch.write)
    op = np.arange(first, first + count)
    invoke = op // shape.clients * 2 * shape.clients + op % shape.clients
    complete = invoke + shape.clients
    unstamped = batch.info | ~batch.write if shape.stamped else np.ones(count, np.bool_)
    known: dict[str, Any] = {
        "op": pa.array(op),
        "invoke_index": pa.array(invoke),
        "complete_index": pa.array(complete, mask=batch.info),
        "invoke_time": pa.array(invoke * _TICK_NS),
        "complete_time": pa.array(complete * _TICK_NS, mask=batch.info),
        "type": decoded(batch.info.astype(np.int8), ("ok", "info")),
        "process": pa.array(processes(op, batch.info, lost)),
        "f": decoded(batch.write.astype(np.int8), ("read", "write")),
        "mops": _mops(shape, batch),
        "served_ts": pa.array(op, mask=unstamped),
    }
    if shape.quorum:
        known["write_ts"] = pa.array(op, mask=~batch.write)
        known |= {name: pa.array([text] * count) for name, text in (("mode", "QUORUM"), ("replication", "dc1:3"))}
    return history_batch(count, known)


def page_batches(shape: PageShape) -> Iterator[pa.RecordBatch]:
    """The history in pieces of the table, in order of invocation."""
    random = np.random.default_rng(shape.seed)
    held = np.zeros((shape.rows, shape.partitions), np.int64)
    lost = np.zeros(shape.clients, np.int64)
    for first in range(0, shape.operations, _OPS_PER_GROUP // shape.clients * shape.clients):
        count = min(_OPS_PER_GROUP // shape.clients * shape.clients, shape.operations - first)
        batch = _make(shape, first, count, held, random)
        _inject(shape, batch, first)
        yield _record_batch(shape, batch, first, lost)


def write_page_history(shape: PageShape, path: Path) -> None:
    """Write the history as Parquet; memory is bounded by one batch and one integer a row of each partition."""
    write_batches(page_batches(shape), path)

"""Histories that are valid by construction, at any size, and with one injected anomaly on request.

Made a batch at a time with numpy and written straight to Parquet: clients take turns in rounds; in each round every
client has one operation in flight, all of them overlap, and they take effect in the order of their clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkers.columns.batches import decoded, history_batch, mops_array
from harness.history.table import write_batches

Anomaly: TypeAlias = Literal["none", "stale-read", "read-of-unwritten", "lost-update"]

_TICK_NS: Final = 1_000
_ROWS_PER_GROUP: Final = 1 << 17
_FS: Final = ("read", "write", "cas")
_MOP_FS: Final = ("r", "w", "cas")
_TYPES: Final = ("ok", "info")

Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RegisterShape:
    """A register history: half of the operations write, of these `cas_share` by compare-and-set; `info_share` of the
    writes have an unknown outcome. Values count up per key, so they are unique."""

    operations: int
    keys: int = 1
    clients: int = 10
    cas_share: float = 0.1
    info_share: float = 0.01
    anomaly: Anomaly = "none"
    seed: int = 0


@dataclass(slots=True)
class _RegisterBatch:
    kind: npt.NDArray[np.int8]
    key: Ints
    value: Ints
    expected: Ints
    info: npt.NDArray[np.bool_]


def _by_key(key: Ints, amount: Ints) -> Ints:
    """For each row the sum of `amount` over this and the earlier rows of its key."""
    order = np.argsort(key, kind="stable")
    sums = np.cumsum(amount[order])
    first = np.concatenate(([True], key[order][1:] != key[order][:-1]))
    base = np.maximum.accumulate(np.where(first, np.arange(len(key)), 0))
    out = np.empty(len(key), np.int64)
    out[order] = sums - sums[base] + amount[order][base]
    return out


def processes(op: Ints, info: npt.NDArray[np.bool_], lost: Ints) -> Ints:
    """The process of each operation, where clients take turns; after an operation of unknown outcome a client goes on
    as another process, as Jepsen's do. `lost`, by client, counts such operations so far and is updated."""
    clients = len(lost)
    client, indeterminate = op % clients, info.astype(np.int64)
    before = _by_key(client, indeterminate) - indeterminate
    process: Ints = client + clients * (lost[client] + before)
    np.add.at(lost, client, indeterminate)
    return process


def _make(shape: RegisterShape, rows: int, held: Ints, random: np.random.Generator) -> _RegisterBatch:
    """The next operations in the order in which they take effect; `held` is each key's value, updated."""
    draw = random.random(rows)
    kind = np.where(draw < 0.5, 0, np.where(draw < 0.5 + 0.5 * (1 - shape.cas_share), 1, 2)).astype(np.int8)
    key = random.integers(0, shape.keys, rows)
    value = held[key] + _by_key(key, (kind > 0).astype(np.int64))
    np.maximum.at(held, key, value)
    expected = np.where(kind == 2, value - 1, 0)
    return _RegisterBatch(kind, key, value, expected, (kind > 0) & (random.random(rows) < shape.info_share))


def _inject(shape: RegisterShape, batch: _RegisterBatch, done: int) -> None:
    """Spoil one operation past the middle of the history."""
    middle = shape.operations // 2
    if shape.anomaly == "none" or not done <= middle < done + len(batch.kind):
        return
    for row in range(middle - done, len(batch.kind)):
        if batch.value[row] < 4 * shape.clients + 4:
            continue
        if shape.anomaly == "lost-update" and batch.kind[row] == 2 and not batch.info[row]:
            batch.kind[row], batch.expected[row] = 2, batch.value[row] - 1
            corrupt = row + 1 + int(np.argmax((batch.key[row + 1 :] == batch.key[row]) & (batch.kind[row + 1 :] > 0)))
            batch.kind[corrupt], batch.expected[corrupt], batch.info[corrupt] = 2, batch.value[row] - 1, False
            return
        if shape.anomaly != "lost-update" and batch.kind[row] == 0:
            batch.value[row] = 2**40 if shape.anomaly == "read-of-unwritten" else batch.value[row] - 3 * shape.clients
            return


def _event_indices(first: int, rows: int, clients: int) -> tuple[Ints, Ints]:
    """Invocations of a round come first, then its completions, in the same order."""
    row = np.arange(first, first + rows, dtype=np.int64)
    base, turn = row // clients * 2 * clients, row % clients
    return base + turn, base + clients + turn


def _record_batch(shape: RegisterShape, batch: _RegisterBatch, first: int, lost: Ints) -> pa.RecordBatch:
    rows = len(batch.kind)
    invoke, complete = _event_indices(first, rows, shape.clients)
    op = np.arange(first, first + rows)
    fields = {
        "f": decoded(batch.kind, _MOP_FS),
        "partition": pa.array(batch.key),
        "value": pa.array(batch.value, mask=(batch.kind == 0) & (batch.value == 0)),
        "expected": pa.array(batch.expected, mask=(batch.kind != 2) | (batch.expected == 0)),
    }
    known = {
        "op": pa.array(op),
        "invoke_index": pa.array(invoke),
        "complete_index": pa.array(complete, mask=batch.info),
        "invoke_time": pa.array(invoke * _TICK_NS),
        "complete_time": pa.array(complete * _TICK_NS, mask=batch.info),
        "type": decoded(batch.info.astype(np.int8), _TYPES),
        "process": pa.array(processes(op, batch.info, lost)),
        "f": decoded(batch.kind, _FS),
        "mops": mops_array(np.arange(rows + 1), fields),
    }
    return history_batch(rows, known)


def register_batches(shape: RegisterShape) -> Iterator[pa.RecordBatch]:
    """The history in pieces of the table, in order of invocation."""
    random, held, done = np.random.default_rng(shape.seed), np.zeros(shape.keys, np.int64), 0
    lost = np.zeros(shape.clients, np.int64)
    while done < shape.operations:
        rows = min(_ROWS_PER_GROUP // shape.clients * shape.clients, shape.operations - done)
        batch = _make(shape, rows, held, random)
        _inject(shape, batch, done)
        yield _record_batch(shape, batch, done, lost)
        done += rows


def write_register_history(shape: RegisterShape, path: Path) -> None:
    """Write the history as Parquet; memory is bounded by one batch and one integer a key."""
    write_batches(register_batches(shape), path)

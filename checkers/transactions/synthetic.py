"""Transactional histories of any size that are strictly serializable by construction, with planted anomalies if asked.

Each worker runs one transaction after the other; a transaction takes effect at a random moment between its invocation
and its completion, so order of effect, of invocation and of completion all differ. Compiled; written a row group at a
time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkers.kernels.compiled import kernel
from checkers.transactions.planted import PLANTED, PlantedTxn, planted_rows
from harness.columns import MOP, SCHEMA
from harness.history.parts import schema
from harness.history.table import write_batches

Ints: TypeAlias = npt.NDArray[np.int64]

_TICK_NS: Final = 100_000
_TYPES: Final = ("ok", "info", "fail")
_ROWS_PER_GROUP: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class TxnShape:
    """A transactional history: each transaction has 1 to `mops` micro-operations, half of them writes, on one of
    `active_keys` keys, each retired after `writes_per_key` writes. `anomaly` is one of `PLANTED` or None."""

    transactions: int
    model: Literal["list-append", "rw-register"] = "list-append"
    workers: int = 15
    active_keys: int = 30
    writes_per_key: int = 256
    mops: int = 4
    info_share: float = 0.01
    fail_share: float = 0.01
    anomaly: str | None = None
    seed: int = 0


class _Plan(NamedTuple):
    """What is done, by row in order of invocation; `applied` says which transactions take effect."""

    invoke: Ints
    complete: Ints
    effect: Ints
    process: Ints
    type: npt.NDArray[np.int8]
    applied: npt.NDArray[np.bool_]
    offsets: Ints
    writes: npt.NDArray[np.bool_]
    key: Ints
    value: Ints


@kernel
def _choose(uniform, offsets, active, per_key, writes, key, value):
    """Micro-operations in order of invocation; returns how many keys there are."""
    slots = np.arange(active)
    written = np.zeros(active, np.int64)
    keys, place = active, 0
    for mop in range(offsets[-1]):
        slot = int(uniform[place] * active)
        writes[mop] = uniform[place + 1] < 0.5
        place += 2
        key[mop] = slots[slot]
        if writes[mop]:
            written[slot] += 1
            value[mop] = written[slot]
            if written[slot] == per_key:
                slots[slot], written[slot] = keys, 0
                keys += 1
    return keys


@kernel
def _take_effect(effect, applied, offsets, writes, key, value, per_key, order, count):
    """Apply transactions one by one; reads get the number of elements seen, or with registers the last value."""
    for row in effect:
        if not applied[row]:
            continue
        for mop in range(offsets[row], offsets[row + 1]):
            if writes[mop]:
                order[key[mop] * per_key + count[key[mop]]] = value[mop]
                count[key[mop]] += 1
            else:
                value[mop] = count[key[mop]]


@kernel
def _copy_lists(key, length, order, per_key, values):
    place = 0
    for read in range(key.shape[0]):
        for i in range(length[read]):
            values[place] = order[key[read] * per_key + i]
            place += 1


def _times(shape: TxnShape, random: np.random.Generator) -> tuple[Ints, Ints, Ints, Ints]:
    """Event indices of invocation and completion, rows in order of effect, and each row's worker."""
    each = -(-shape.transactions // shape.workers)
    gaps = random.exponential(0.05, (shape.workers, each))
    lasts = random.exponential(1.0, (shape.workers, each)) + 0.1
    ends = np.cumsum(gaps + lasts, axis=1)
    effects = ends - lasts * random.random((shape.workers, each))
    begins, workers = (ends - lasts).ravel(), np.repeat(np.arange(shape.workers), each)
    rows = np.argsort(begins, kind="stable")[: shape.transactions]
    events = np.argsort(np.concatenate((begins[rows], ends.ravel()[rows])), kind="stable")
    index = np.empty(len(events), np.int64)
    index[events] = np.arange(len(events))
    return index[: len(rows)], index[len(rows) :], np.argsort(effects.ravel()[rows], kind="stable"), workers[rows]


def _plan(shape: TxnShape, random: np.random.Generator) -> tuple[_Plan, Ints]:
    """The whole history without its lists, and the values of each key in order of effect."""
    invoke, complete, effect, workers = _times(shape, random)
    rows = len(invoke)
    chance = random.random(rows)
    kind = np.where(chance < shape.info_share, 1, np.where(chance < shape.info_share + shape.fail_share, 2, 0))
    applied = (kind == 0) | ((kind == 1) & (random.random(rows) < 0.5))
    offsets = np.concatenate(([0], np.cumsum(random.integers(1, shape.mops + 1, rows))))
    writes, key, value = np.empty(offsets[-1], bool), np.empty(offsets[-1], np.int64), np.zeros(offsets[-1], np.int64)
    keys = _choose(random.random(2 * offsets[-1]), offsets, shape.active_keys, shape.writes_per_key, writes, key, value)
    order = np.zeros(keys * shape.writes_per_key, np.int64)
    _take_effect(effect, applied, offsets, writes, key, value, shape.writes_per_key, order, np.zeros(keys, np.int64))
    lost = np.zeros(rows, np.int64)
    for worker in range(shape.workers):
        mine = workers == worker
        lost[mine] = np.cumsum(kind[mine] == 1) - (kind[mine] == 1)
    process = workers + shape.workers * lost
    return _Plan(invoke, complete, effect, process, kind.astype(np.int8), applied, offsets, writes, key, value), order


def _names(codes: npt.NDArray[np.int8], names: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(names)).cast(pa.string())


def _lists(shape: TxnShape, key: Ints, seen: Ints, mask: npt.NDArray[np.bool_], order: Ints) -> pa.Array:
    """Lists of what was read, null where the mask is not set."""
    length = np.where(mask, seen, 0)
    values = np.empty(int(length.sum()), np.int64)
    _copy_lists(key, length, order, shape.writes_per_key, values)
    offsets = np.concatenate(([0], np.cumsum(length))).astype(np.int32)
    null = np.concatenate((~mask, [False]))
    return pa.ListArray.from_arrays(pa.array(offsets, mask=null), pa.array(values), type=pa.list_(pa.int64()))


def _batch(shape: TxnShape, plan: _Plan, order: Ints, first: int, last: int) -> pa.RecordBatch:
    begin, end = int(plan.offsets[first]), int(plan.offsets[last])
    rows, mops = last - first, end - begin
    lengths = np.diff(plan.offsets[first : last + 1])
    writes, key, value = plan.writes[begin:end], plan.key[begin:end], plan.value[begin:end]
    read = ~writes & np.repeat(plan.type[first:last] == 0, lengths)
    lists = shape.model == "list-append"
    shown = writes if lists else writes | (read & (value > 0))
    if not lists:
        held = order[np.maximum(key * shape.writes_per_key + value - 1, 0)]
        value = np.where(writes, value, held)
    zeros = np.zeros(mops, np.int32)
    values = _lists(shape, key, value, read, order) if lists else pa.nulls(mops, pa.list_(pa.int64()))
    fields = [
        _names(writes.astype(np.int8), ("r", "append" if lists else "w")),
        *(pa.array(zeros), pa.array(key), pa.array(zeros.astype(np.int64)), pa.array(zeros)),
        *(pa.array(value, mask=~shown), pa.nulls(mops, pa.int64()), values),
    ]
    structs = pa.StructArray.from_arrays(fields, fields=list(MOP))
    offsets = pa.array((plan.offsets[first : last + 1] - begin).astype(np.int32))
    known: dict[str, Any] = {
        "op": pa.array(np.arange(first, last)),
        "invoke_index": pa.array(plan.invoke[first:last]),
        "complete_index": pa.array(plan.complete[first:last]),
        "invoke_time": pa.array(plan.invoke[first:last] * _TICK_NS),
        "complete_time": pa.array(plan.complete[first:last] * _TICK_NS),
        "type": _names(plan.type[first:last], _TYPES),
        "process": pa.array(plan.process[first:last]),
        "f": _names(np.zeros(rows, np.int8), ("txn",)),
        "mops": pa.ListArray.from_arrays(offsets, structs, type=pa.list_(MOP)),
    }
    arrays = [known.get(field.name, pa.nulls(rows, field.type)) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=schema())


def _shifted(batch: pa.RecordBatch, events_at: int, events: int, rows_at: int, rows: int) -> pa.RecordBatch:
    """Make room for planted events and rows."""

    def moved(name: str, at: int, by: int, scale: int = 1) -> pa.Array:
        column = batch.column(name).to_numpy(zero_copy_only=False)
        return pa.array(np.where(column >= at * scale, column + by * scale, column))

    changed = {
        "op": moved("op", rows_at, rows),
        "invoke_index": moved("invoke_index", events_at, events),
        "complete_index": moved("complete_index", events_at, events),
        "invoke_time": moved("invoke_time", events_at, events, _TICK_NS),
        "complete_time": moved("complete_time", events_at, events, _TICK_NS),
    }
    arrays = [changed.get(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def txn_batches(shape: TxnShape) -> Iterator[pa.RecordBatch]:
    """The history in pieces of the table, in invocation order; a planted anomaly comes half-way, on keys of its own."""
    plan, order = _plan(shape, np.random.default_rng(shape.seed))
    rows = len(plan.invoke)
    middle = rows // 2 if rows else 0
    template: tuple[PlantedTxn, ...] = PLANTED[shape.model][shape.anomaly] if shape.anomaly else ()
    at = int(plan.invoke[middle]) if rows else 0
    cuts = sorted({*range(0, rows, _ROWS_PER_GROUP), rows, middle})
    for first, last in pairwise(cuts):
        if template and first == middle:
            yield planted_rows(template, middle, at, int(plan.key.max()) + 1, int(plan.process.max()) + 1, _TICK_NS)
        yield _shifted(_batch(shape, plan, order, first, last), at, 2 * len(template), middle, len(template))


def write_txn_history(shape: TxnShape, path: Path) -> None:
    """Write the history as Parquet; memory is bounded by the plan (about 100 bytes a transaction) and one row group."""
    write_batches(txn_batches(shape), path)

"""Transactional histories of any size that are strictly serializable by construction, with injected anomalies if asked.

Each worker runs one transaction after the other; a transaction takes effect at a random moment between its invocation
and its completion, so order of effect, of invocation and of completion all differ. Compiled, and made section by
section: between two of them nothing is open, and keys in use go on, so that memory does not grow with the history.
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

from checkers.columns.batches import decoded, history_batch, mops_array
from checkers.compiled import kernel
from checkers.made.injection import INJECTED, InjectedTxn, injected_rows
from harness.history.table import write_batches

Ints: TypeAlias = npt.NDArray[np.int64]

_TICK_NS: Final = 100_000
_TYPES: Final = ("ok", "info", "fail")
_ROWS_PER_GROUP: Final = 1 << 16

_SECTION: Final = 1 << 19
"""Transactions that are made together, about 200 bytes each."""


@dataclass(frozen=True, slots=True)
class TxnShape:
    """A transactional history: each transaction has 1 to `mops` micro-operations, half of them writes, on one of
    `active_keys` keys, each retired after `writes_per_key` writes. `anomaly` is one of `INJECTED` or None."""

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


class _MadeMops(NamedTuple):
    """The micro-operations of transactions: transaction i's are `offsets[i]:offsets[i + 1]`. Keys are numbered within a
    section; the `value` of a read is the number of elements seen, or with registers the last value."""

    offsets: Ints
    writes: npt.NDArray[np.bool_]
    key: Ints
    value: Ints


class _Plan(NamedTuple):
    """What is done in a section, by row in order of invocation; `effect` are the rows in order of effect, `applied`
    says which of them take any. `names` are the keys' numbers in the history, and `order` has the values of each key in
    order of effect."""

    invoke: Ints
    complete: Ints
    effect: Ints
    process: Ints
    type: npt.NDArray[np.int8]
    applied: npt.NDArray[np.bool_]
    mops: _MadeMops
    names: Ints
    order: Ints


@kernel
def _choose(mops, uniform, slots, written, per_key):
    """Micro-operations in order of invocation, on the keys in `slots`, of each of which `written` values were written;
    returns how many keys there are."""
    active = slots.shape[0]
    keys, place = active, 0
    for mop in range(mops.offsets[-1]):
        slot = int(uniform[place] * active)
        mops.writes[mop] = uniform[place + 1] < 0.5
        place += 2
        mops.key[mop] = slots[slot]
        if mops.writes[mop]:
            written[slot] += 1
            mops.value[mop] = written[slot]
            if written[slot] == per_key:
                slots[slot], written[slot] = keys, 0
                keys += 1
    return keys


@kernel
def _take_effect(plan, held, per_key):
    """Apply transactions one by one to keys that hold `held` values each; reads get what they see."""
    mops = plan.mops
    for row in plan.effect:
        if not plan.applied[row]:
            continue
        for mop in range(mops.offsets[row], mops.offsets[row + 1]):
            key = mops.key[mop]
            if mops.writes[mop]:
                plan.order[key * per_key + held[key]] = mops.value[mop]
                held[key] += 1
            else:
                mops.value[mop] = held[key]


@kernel
def _copy_lists(key, length, order, per_key, values):
    place = 0
    for read in range(key.shape[0]):
        for i in range(length[read]):
            values[place] = order[key[read] * per_key + i]
            place += 1


class _Sections:
    """Makes one section after the other: the keys in use with what each holds, and how many clients each worker had."""

    def __init__(self, shape: TxnShape) -> None:
        self._shape, self._random = shape, np.random.default_rng(shape.seed)
        active, per_key = shape.active_keys, shape.writes_per_key
        self._names, self._keys = np.arange(active), active
        self._written, self._held = np.zeros(active, np.int64), np.zeros(active, np.int64)
        self._order = np.zeros(active * per_key, np.int64)
        self._lost = np.zeros(shape.workers, np.int64)
        self._rows = 0

    def __iter__(self) -> Iterator[_Plan]:
        while self._rows < self._shape.transactions:
            plan = self._plan(min(_SECTION, self._shape.transactions - self._rows))
            self._rows += len(plan.invoke)
            yield plan

    def _plan(self, rows: int) -> _Plan:
        shape, random = self._shape, self._random
        invoke, complete, effect, workers = _times(shape, rows, random)
        chance = random.random(rows)
        kind = np.where(chance < shape.info_share, 1, np.where(chance < shape.info_share + shape.fail_share, 2, 0))
        applied = (kind == 0) | ((kind == 1) & (random.random(rows) < 0.5))
        offsets = np.concatenate(([0], np.cumsum(random.integers(1, shape.mops + 1, rows))))
        count = int(offsets[-1])
        mops = _MadeMops(offsets, np.empty(count, bool), np.empty(count, np.int64), np.zeros(count, np.int64))
        slots = np.arange(shape.active_keys)
        keys = _choose(mops, random.random(2 * count), slots, self._written, shape.writes_per_key)
        names, order = self._in_use(keys)
        held = np.concatenate((self._held, np.zeros(keys - shape.active_keys, np.int64)))
        before, process = 2 * self._rows, self._processes(kind == 1, workers)
        type = kind.astype(np.int8)
        plan = _Plan(before + invoke, before + complete, effect, process, type, applied, mops, names, order)
        _take_effect(plan, held, shape.writes_per_key)
        self._carry(slots, names, order, held)
        return plan

    def _in_use(self, keys: int) -> tuple[Ints, Ints]:
        """The numbers of the keys of a section, and room for their values, beginning with those that are there."""
        fresh = keys - self._shape.active_keys
        names = np.concatenate((self._names, self._keys + np.arange(fresh)))
        self._keys += fresh
        return names, np.concatenate((self._order, np.zeros(fresh * self._shape.writes_per_key, np.int64)))

    def _carry(self, slots: Ints, names: Ints, order: Ints, held: Ints) -> None:
        self._names, self._held = names[slots], held[slots]
        self._order = order.reshape(-1, self._shape.writes_per_key)[slots].ravel()

    def _processes(self, lost: npt.NDArray[np.bool_], workers: Ints) -> Ints:
        """A worker goes on as another process after a transaction of unknown outcome."""
        number = np.zeros(len(workers), np.int64)
        for worker in range(self._shape.workers):
            mine = workers == worker
            number[mine] = self._lost[worker] + np.cumsum(lost[mine]) - lost[mine]
            self._lost[worker] += int(lost[mine].sum())
        return workers + self._shape.workers * number


def _times(shape: TxnShape, count: int, random: np.random.Generator) -> tuple[Ints, Ints, Ints, Ints]:
    """Event indices of invocation and completion, rows in order of effect, and each row's worker."""
    each = -(-count // shape.workers)
    gaps = random.exponential(0.05, (shape.workers, each))
    lasts = random.exponential(1.0, (shape.workers, each)) + 0.1
    ends = np.cumsum(gaps + lasts, axis=1)
    effects = ends - lasts * random.random((shape.workers, each))
    begins, workers = (ends - lasts).ravel(), np.repeat(np.arange(shape.workers), each)
    rows = np.argsort(begins, kind="stable")[:count]
    events = np.argsort(np.concatenate((begins[rows], ends.ravel()[rows])), kind="stable")
    index = np.empty(len(events), np.int64)
    index[events] = np.arange(len(events))
    return index[: len(rows)], index[len(rows) :], np.argsort(effects.ravel()[rows], kind="stable"), workers[rows]


def _lists(shape: TxnShape, key: Ints, seen: Ints, mask: npt.NDArray[np.bool_], order: Ints) -> pa.Array:
    """Lists of what was read, null where the mask is not set."""
    length = np.where(mask, seen, 0)
    values = np.empty(int(length.sum()), np.int64)
    _copy_lists(key, length, order, shape.writes_per_key, values)
    offsets = np.concatenate(([0], np.cumsum(length))).astype(np.int32)
    null = np.concatenate((~mask, [False]))
    return pa.ListArray.from_arrays(pa.array(offsets, mask=null), pa.array(values), type=pa.list_(pa.int64()))


def _batch(shape: TxnShape, plan: _Plan, before: int, first: int, last: int) -> pa.RecordBatch:
    """Some rows of a section, which has `before` rows of the history before it."""
    bounds = plan.mops.offsets[first : last + 1]
    begin, end = int(bounds[0]), int(bounds[-1])
    rows, mops = last - first, end - begin
    lengths = np.diff(bounds)
    writes, key, value = plan.mops.writes[begin:end], plan.mops.key[begin:end], plan.mops.value[begin:end]
    read = ~writes & np.repeat(plan.type[first:last] == 0, lengths)
    lists = shape.model == "list-append"
    shown = writes if lists else writes | (read & (value > 0))
    if not lists:
        held = plan.order[np.maximum(key * shape.writes_per_key + value - 1, 0)]
        value = np.where(writes, value, held)
    values = _lists(shape, key, value, read, plan.order) if lists else pa.nulls(mops, pa.list_(pa.int64()))
    fields = {
        "f": decoded(writes.astype(np.int8), ("r", "append" if lists else "w")),
        "partition": pa.array(plan.names[key]),
        "value": pa.array(value, mask=~shown),
        "values": values,
    }
    known: dict[str, Any] = {
        "op": pa.array(before + np.arange(first, last)),
        "invoke_index": pa.array(plan.invoke[first:last]),
        "complete_index": pa.array(plan.complete[first:last]),
        "invoke_time": pa.array(plan.invoke[first:last] * _TICK_NS),
        "complete_time": pa.array(plan.complete[first:last] * _TICK_NS),
        "type": decoded(plan.type[first:last], _TYPES),
        "process": pa.array(plan.process[first:last]),
        "f": decoded(np.zeros(rows, np.int8), ("txn",)),
        "mops": mops_array(bounds - begin, fields),
    }
    return history_batch(rows, known)


def _shifted(batch: pa.RecordBatch, events_at: int, events: int, rows_at: int, rows: int) -> pa.RecordBatch:
    """Make room for injected events and rows."""

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
    """The history in pieces of the table, in invocation order; an injected anomaly comes half-way, on its own keys."""
    middle, before = shape.transactions // 2, 0
    template: tuple[InjectedTxn, ...] = INJECTED[shape.model][shape.anomaly] if shape.anomaly else ()
    keys, processes = shape.active_keys + shape.transactions * shape.mops, shape.workers * (shape.transactions + 1)
    at = 2 * shape.transactions
    for plan in _Sections(shape):
        rows = len(plan.invoke)
        inside = middle - before if before <= middle < before + rows else 0
        at = int(plan.invoke[inside]) if before + inside == middle else at
        for first, last in pairwise(sorted({*range(0, rows, _ROWS_PER_GROUP), rows, inside})):
            if template and before + first == middle:
                yield injected_rows(template, middle, at, keys, processes, _TICK_NS)
            yield _shifted(_batch(shape, plan, before, first, last), at, 2 * len(template), middle, len(template))
        before += rows


def write_txn_history(shape: TxnShape, path: Path) -> None:
    """Write the history as Parquet; memory is bounded by a section, a row group and the values of keys in use."""
    write_batches(txn_batches(shape), path)

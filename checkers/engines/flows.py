"""Flows: how a checker of whole batches or of shuffled groups runs on either engine, with the same code in both.

A flow flattens batches of the history table into rows, rows with equal keys meet in one call of its kernel, sorted, and
what the kernel says of several buckets is combined. A flow without keys skips the shuffle.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkers.engines.api import Engine
from checkers.engines.exchange import buckets_of
from checkers.engines.local import LocalEngine
from checkers.engines.shuffle import EXPANDED, FRAGMENTS, Room, planned_buckets, run_batches_on_spark, run_plan
from checkers.engines.spark import SparkEngine
from checkers.findings import Findings, merged
from checkers.source import Source, top_level

P = TypeVar("P")
P_co = TypeVar("P_co", covariant=True)

_ROWS_PER_BUCKET: Final = 1 << 20
"""Operations in a bucket, which a kernel judges at once."""

_FEW_GROUPS: Final = 16


class Flow(Protocol[P_co]):
    """A picklable plan. `columns` are top-level columns of the history, `schema` that of the flat rows; rows that agree
    in all of `keys` are judged together, in order of `keys` and then `order`."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def keys(self) -> tuple[str, ...]: ...

    @property
    def order(self) -> tuple[str, ...]: ...

    def flatten(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The flat rows of a batch of operations."""

    def judge(self, rows: pa.Table) -> P_co:
        """What the kernel finds in whole groups, sorted; the table may be empty."""


@dataclass(frozen=True, slots=True)
class BatchFlow(Generic[P]):
    """A flow without groups: the kernel judges the history's own columns batch by batch; `combine` makes one of several
    answers, in whatever groups and as often as they come."""

    columns: tuple[str, ...]
    kernel: Callable[[pa.RecordBatch], P]
    combine: Callable[[list[P]], P]


def run_batches(engine: Engine, source: Source, flow: BatchFlow[P]) -> P:
    """What the kernel says of all batches."""
    return engine.run(_OfBatches(source, flow))


@dataclass(frozen=True, slots=True)
class _OfBatches(Generic[P]):
    """The `Work` of `run_batches`."""

    source: Source
    flow: BatchFlow[P]

    def here(self, local: LocalEngine) -> P:
        flow, columns = self.flow, self.flow.columns
        whole = top_level(columns)
        return flow.combine(list(local.mapped(self.source, columns, lambda batch: flow.kernel(batch.select(whole)))))

    def on_spark(self, spark: SparkEngine) -> P:
        flow = self.flow
        found: P | None = run_batches_on_spark(spark, self.source, flow.columns, flow.kernel, flow.combine)
        return flow.combine([] if found is None else [found])


def run_flow(
    engine: Engine,
    source: Source,
    flow: Flow[P],
    combine: Callable[[list[P]], P],
    *,
    whole: bool = False,
    least_buckets: int = 1,
    expanded: int = EXPANDED,
) -> P:
    """What the kernel says of all groups; `combine` makes one of several answers, see `BatchFlow`, and `run_plan` for
    what is `whole` and `expanded`. On Spark there are `least_buckets` at least, for groups that are large by other
    things than the number of operations."""
    return engine.run(_OfGroups(source, flow, combine, whole, least_buckets, expanded))


def findings_of(
    engine: Engine,
    source: Source,
    flow: Flow[Findings],
    explain: int,
    *,
    whole: bool = False,
    least_buckets: int = 1,
    expanded: int = EXPANDED,
) -> Findings:
    """What a flow finds in all groups, with the `explain` earliest anomalies of each class; see `run_flow`."""
    combine = partial(merged, explain=explain)
    return run_flow(engine, source, flow, combine, whole=whole, least_buckets=least_buckets, expanded=expanded)


@dataclass(frozen=True, slots=True)
class _OfGroups(Generic[P]):
    """The `Work` of `run_flow`."""

    source: Source
    flow: Flow[P]
    combine: Callable[[list[P]], P]
    whole: bool
    least_buckets: int
    expanded: int

    def here(self, local: LocalEngine) -> P:
        flow = self.flow
        parts = list(local.mapped(self.source, flow.columns, flow.flatten))
        rows = pa.Table.from_batches(parts, schema=flow.schema)
        parts.clear()
        rows = _sorted(rows, (*flow.keys, *flow.order))
        return self.combine([flow.judge(rows)])

    def on_spark(self, spark: SparkEngine) -> P:
        flow, source = self.flow, self.source
        parts = max(self.least_buckets, spark.parts(source.rows, _ROWS_PER_BUCKET))
        buckets = planned_buckets(spark, source, parts, _room_of(flow), self.expanded)
        plan = FlowPlan(flow, self.combine)
        found: P | None = run_plan(spark, source, plan, buckets, whole=self.whole, expanded=self.expanded)
        return self.combine([flow.judge(flow.schema.empty_table())]) if found is None else found


def _room_of(flow: Flow[Any]) -> Room:
    """Flat rows are of micro-operations and of elements of lists, where a flow reads them, or else of operations."""
    each = 8 * len(flow.schema)
    mops = [column for column in flow.columns if column.startswith("mops")]
    values = any(column == "mops" or column.startswith("mops.list.element.values") for column in mops)
    return Room(0 if mops else each, each if mops else 0, each if values else 0)


def leaves_cores_idle(engine: Engine, source: Source, flow: Flow[P]) -> bool:
    """Whether a flow has work for many tasks but, as its first batch has it, few groups to give them. A guess: only
    time depends on it."""
    if engine.parts(source.rows, _ROWS_PER_BUCKET) == 1:
        return False
    batch = next(iter(source.batches(flow.columns)), None)
    if batch is None:
        return False
    groups = pa.Table.from_batches([flow.flatten(batch.select(flow.columns))]).group_by(list(flow.keys))
    return bool(groups.aggregate([]).num_rows <= _FEW_GROUPS)


def _sorted(rows: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """The rows in order of those columns; columns that never differ are left out of the comparison."""
    columns = [rows.column(name).combine_chunks() for name in names]
    plain = all(pa.types.is_integer(column.type) and not column.null_count for column in columns)
    if not plain:
        return rows.sort_by([(name, "ascending") for name in names])
    arrays = [column.to_numpy(zero_copy_only=False) for column in columns]
    differing = [array for array in arrays if len(array) and (array != array[0]).any()]
    if not differing or (len(differing) == 1 and bool((differing[0][1:] >= differing[0][:-1]).all())):
        return rows
    return rows.take(pa.array(np.lexsort(differing[::-1])))


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """See `Plan`: rows that agree in a flow's keys meet."""

    flow: Any
    combining: Callable[[list[Any]], Any]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.flow.columns)

    def split(self, batches: Iterator[pa.RecordBatch], buckets: int) -> Iterator[tuple[int, bytes]]:
        for batch in batches:
            rows = self.flow.flatten(batch)
            if rows.num_rows:
                yield from _split(rows, self.flow.keys, buckets)

    def split_again(self, part: bytes) -> Iterator[tuple[int, bytes]]:
        rows = pa.ipc.read_record_batch(pa.py_buffer(part), self.flow.schema)
        return _split(rows, self.flow.keys, FRAGMENTS if self.flow.keys else 1, again=True)

    def judge(self, parts: list[bytes]) -> Any:
        schema = self.flow.schema
        rows = pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(part), schema) for part in parts], schema)
        return self.flow.judge(_sorted(rows, (*self.flow.keys, *self.flow.order)))

    def combine(self, found: list[Any]) -> Any:
        return self.combining(found)


def _split(
    rows: pa.RecordBatch, keys: tuple[str, ...], buckets: int, again: bool = False
) -> Iterator[tuple[int, bytes]]:
    """The rows by bucket, in their order; empty buckets are left out."""
    if buckets == 1:
        yield 0, rows.serialize().to_pybytes()
        return
    numbers = {name: _numbers(rows.column(name)) for name in keys}
    bucket = buckets_of(numbers | {"kind": np.zeros(rows.num_rows, np.int64)}, keys, buckets, again)
    order = np.argsort(bucket, kind="stable")
    ends = np.cumsum(np.bincount(bucket, minlength=buckets))
    moved = rows.take(pa.array(order))
    for place in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
        begin = int(ends[place - 1]) if place else 0
        yield place, moved.slice(begin, int(ends[place]) - begin).serialize().to_pybytes()


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    """Numbers of a key column's values: equal for equal values, wherever they are."""
    if pa.types.is_integer(column.type):
        return np.ascontiguousarray(column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))
    coded = column.dictionary_encode()
    table = np.array([zlib.crc32(text.encode()) for text in coded.dictionary.to_pylist()] + [0], np.int64)
    return table[coded.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)]

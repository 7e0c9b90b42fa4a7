"""Flows: how a checker of whole batches or of shuffled groups runs on either engine, with the same code in both.

A flow flattens batches of the history table into rows, rows with equal keys meet in one call of its kernel, sorted, and
what the kernel says comes back in small parts that the checker merges. A flow without keys skips the shuffle.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from checkers.engines.api import Engine
from checkers.engines.spark import SparkEngine, mapped
from checkers.source import Source

P = TypeVar("P")
P_co = TypeVar("P_co", covariant=True)

_ROWS_PER_CALL: Final = 1 << 19
"""A kernel call gets at least so many rows (whole groups), so that a million groups take few calls."""

_ROWS_PER_PARTITION: Final = 2_500_000


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
class BatchFlow:
    """A flow without groups: the kernel judges the history's own columns batch by batch."""

    columns: tuple[str, ...]
    kernel: Callable[[pa.RecordBatch], Any]


def run_batches(engine: Engine, source: Source, flow: BatchFlow) -> list[Any]:
    """What the kernel says of every batch, in no particular order."""
    if isinstance(engine, SparkEngine):
        with engine.frame(source) as frame:
            found = mapped(frame.select(*flow.columns), _Batches(flow), "part binary").collect()
        return [pickle.loads(row["part"]) for row in found]
    return [flow.kernel(batch.select(flow.columns)) for batch in source.batches(flow.columns)]


def run_flow(engine: Engine, source: Source, flow: Flow[P]) -> list[P]:
    """What the kernel says of all groups, in parts; never empty."""
    if isinstance(engine, SparkEngine):
        return _on_spark(engine, source, flow) or [flow.judge(flow.schema.empty_table())]
    parts = [flow.flatten(batch) for batch in source.batches(flow.columns)]
    rows = pa.Table.from_batches(parts, schema=flow.schema)
    parts.clear()
    rows = _sorted(rows, (*flow.keys, *flow.order))
    return [flow.judge(rows)]


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


def _on_spark(engine: SparkEngine, source: Source, flow: Flow[P]) -> list[P]:
    partitions = engine.parts(source.rows, _ROWS_PER_PARTITION)
    with engine.frame(source) as frame:
        flat = mapped(frame.select(*flow.columns), _Flatten(flow), _spark_schema(flow.schema))
        grouped = flat.repartition(partitions, *flow.keys).sortWithinPartitions(*flow.keys, *flow.order)
        found = mapped(grouped, _Groups(flow), "part binary").collect()
    return [pickle.loads(row["part"]) for row in found]


def _spark_schema(schema: pa.Schema) -> str:
    names = {pa.int8(): "tinyint", pa.int32(): "int", pa.int64(): "bigint", pa.string(): "string"}
    names |= {pa.list_(pa.int64()): "array<bigint>"}
    return ", ".join(f"`{field.name}` {names[field.type]}" for field in schema)


def _packed(part: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(part)], pa.binary())], names=["part"])


@dataclass(frozen=True, slots=True)
class _Batches:
    flow: BatchFlow

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield _packed(self.flow.kernel(batch))


@dataclass(frozen=True, slots=True)
class _Flatten:
    flow: Any

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield self.flow.flatten(batch)


@dataclass(frozen=True, slots=True)
class _Groups:
    """What a worker does with its sorted partition: whole groups to the kernel, the last one carried on."""

    flow: Any

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            held.append(batch)
            rows += batch.num_rows
            if rows >= _ROWS_PER_CALL:
                table = pa.Table.from_batches(held).cast(self.flow.schema)
                cut = _last_group(table, self.flow.keys)
                if cut:
                    yield _packed(self.flow.judge(table.slice(0, cut)))
                held = table.slice(cut).combine_chunks().to_batches()
                rows = 0
        if held:
            yield _packed(self.flow.judge(pa.Table.from_batches(held).cast(self.flow.schema)))


def _last_group(table: pa.Table, keys: tuple[str, ...]) -> int:
    """Where the last group, which may go on, begins."""
    same = np.ones(table.num_rows, np.bool_)
    for key in keys:
        column = table.column(key)
        last = column[-1]
        equal = column.is_null() if not last.is_valid else pa.compute.equal(column, last).fill_null(False)
        same &= equal.to_numpy(zero_copy_only=False) if isinstance(equal, pa.Array) else equal.to_numpy()
    return table.num_rows - int(same.sum())

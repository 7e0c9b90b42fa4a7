"""Hands the micro-operations of a history to a kernel, those of equal keys together, on either engine.

On Spark, workers read and flatten row groups with the code that the local engine uses, then rows are shuffled by their
keys and each partition goes to the kernel whole: kernels group and sort by themselves, in linear time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urlparse

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checkers.engines.api import Engine
from checkers.engines.spark import SparkEngine
from checkers.findings import Findings, merged
from checkers.mops import ADDRESS, Columns, MopProjection, flatten_mops, joined
from checkers.source import Source

MopKernel: TypeAlias = Callable[[Columns], Findings]
"""Judges whole groups, their rows in any order; picklable, for workers call it too."""

_ROWS_PER_PARTITION: Final = 4_000_000

_PACKED: Final = (("kind", 7), ("status", 2), ("strong", 1), ("place", 26), ("size", 27))
"""Small columns travel as one: name and bits, from the lowest."""


def judge_mops(
    engine: Engine, source: Source, projection: MopProjection, keys: tuple[str, ...], kernel: MopKernel, explain: int
) -> Findings:
    """The kernel's findings over all groups of rows that agree in `keys` (none: all rows are one group), merged."""
    if isinstance(engine, SparkEngine):
        return _on_spark(engine, source, projection, keys, kernel, explain)
    parts = [flatten_mops(batch, projection) for batch in source.batches(projection.columns)]
    rows = joined(parts, projection)
    parts.clear()
    return merged([kernel(rows)], explain)


def _on_spark(
    engine: SparkEngine,
    source: Source,
    projection: MopProjection,
    keys: tuple[str, ...],
    kernel: MopKernel,
    explain: int,
) -> Findings:
    with engine.frame(source) as frame:
        path = str(source.parquet.resolve()) if source.parquet else unquote(urlparse(frame.inputFiles()[0]).path)
        reader = _Reader(path, projection, _sent(path, projection))
        groups = pq.read_metadata(path).num_row_groups
        if groups == 0:
            return merged([kernel(joined([], projection))], explain)
        schema = ", ".join(f"`{name}` bigint" for name in reader.sent)
        tasks = frame.sparkSession.range(0, groups, 1, min(groups, 4 * engine.cores))
        rows = tasks.mapInArrow(reader, schema)
        partitions = max(engine.cores, -(-source.rows // _ROWS_PER_PARTITION))
        shuffled = rows.repartition(partitions, *_shuffle_keys(keys, reader.sent)) if keys else rows.repartition(1)
        found = shuffled.mapInArrow(_Judge(kernel, projection, explain), "findings binary").collect()
    parts = [msgspec.msgpack.decode(row["findings"], type=Findings) for row in found]
    return merged(parts or [kernel(joined([], projection))], explain)


def _shuffle_keys(keys: tuple[str, ...], sent: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(key for key in keys if key in sent) or ("partition",)


def _sent(path: str, projection: MopProjection) -> tuple[str, ...]:
    """The columns that travel: address parts that are zero throughout stay behind."""
    packed = [name for name, _ in _PACKED]
    zero = _zero_columns(path)
    plain = [name for name in projection.names if name not in packed and name not in zero]
    return (*plain, "packed")


def _zero_columns(path: str) -> set[str]:
    """Address columns (other than the partition) that are zero throughout, by the file's statistics."""
    metadata = pq.read_metadata(path)
    zero = set(ADDRESS) - {"partition"}
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            name, statistics = column.path_in_schema.rsplit(".", 1)[-1], column.statistics
            known = statistics is not None and statistics.has_min_max
            if name in zero and not (known and (statistics.min, statistics.max) == (0, 0)):
                zero.discard(name)
    return zero


def _pack(rows: Columns, sent: tuple[str, ...]) -> pa.RecordBatch:
    packed, shift = np.zeros(len(rows["kind"]), np.int64), 0
    for name, bits in _PACKED:
        if name in rows:
            packed |= rows[name] << shift
        shift += bits
    return pa.RecordBatch.from_arrays([pa.array(packed if n == "packed" else rows[n]) for n in sent], names=list(sent))


def _unpack(batch: pa.RecordBatch, projection: MopProjection) -> Columns:
    rows: Columns = {}
    packed, shift = batch.column("packed").to_numpy(), 0
    for name, bits in _PACKED:
        if name in projection.names:
            rows[name] = (packed >> shift) & ((1 << bits) - 1)
        shift += bits
    for name in projection.names:
        if name not in rows:
            there = name in batch.schema.names
            rows[name] = batch.column(name).to_numpy() if there else np.zeros(batch.num_rows, np.int64)
    return rows


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads row groups by number and flattens them."""

    path: str
    projection: MopProjection
    sent: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(Path(self.path)) as file:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    table = file.read_row_group(number, columns=self.projection.columns, use_threads=False)
                    for part in table.to_batches():
                        yield _pack(flatten_mops(part, self.projection), self.sent)


@dataclass(frozen=True, slots=True)
class _Judge:
    """Gives a partition's rows to the kernel, all at once."""

    kernel: MopKernel
    projection: MopProjection
    explain: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = joined([_unpack(batch, self.projection) for batch in batches], self.projection)
        if len(rows["kind"]):
            packed: Any = msgspec.msgpack.encode(merged([self.kernel(rows)], self.explain))
            yield pa.RecordBatch.from_arrays([pa.array([packed], pa.binary())], names=["findings"])

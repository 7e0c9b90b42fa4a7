"""Hands the micro-operations of a history to a kernel, those of equal keys together, on either engine.

On Spark, workers read and flatten row groups with the code that the local engine uses and split the rows into buckets;
these are shuffled (`checkers.exchange`) and each goes to the kernel whole: kernels group and sort by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from checkers.engines.api import Engine
from checkers.engines.spark import SparkEngine, mapped
from checkers.exchange import MOST_BUCKETS, split, united
from checkers.findings import Findings, merged
from checkers.mops import Columns, MopProjection, flatten_mops, joined
from checkers.source import Source

MopKernel: TypeAlias = Callable[[Columns], Findings]
"""Judges whole groups, their rows in any order; picklable, for workers call it too."""

_ROWS_PER_PIECE: Final = 1 << 19
"""Rows that are split into buckets together."""

_ROWS_PER_BUCKET: Final = 1 << 19
"""Operations in a bucket, whose micro-operations a kernel judges at once."""

_SLICES: Final = 16
_ROWS_PER_SLICE: Final = 1 << 16
"""In-process a kernel's work is split into so many parts, or fewer that have so many operations each."""

_DICTIONARY_COLUMNS: Final = ("type", "f", "mode")


def judge_mops(
    engine: Engine,
    source: Source,
    projection: MopProjection,
    keys: tuple[str, ...],
    kernel: MopKernel,
    explain: int,
    *,
    in_slices: bool = False,
) -> Findings:
    """The kernel's findings over all groups of rows that agree in `keys` (none: all rows are one group), merged.

    In slices, the local engine too gives the kernel some groups at a time, which takes less memory; a kernel whose
    budget is for the whole history should not be called so.
    """
    if isinstance(engine, SparkEngine):
        return _on_spark(engine, source, projection, keys, kernel, explain)
    if in_slices:
        return merged(_slice_by_slice(source, projection, keys, kernel), explain)
    parts = [flatten_mops(batch, projection) for batch in source.batches(projection.columns)]
    rows = joined(parts, projection)
    parts.clear()
    return merged([kernel(rows)], explain)


def _slice_by_slice(
    source: Source, projection: MopProjection, keys: tuple[str, ...], kernel: MopKernel
) -> Iterator[Findings]:
    """The kernel's findings bucket by bucket; rows wait for their turn as few bytes."""
    buckets = max(1, min(_SLICES, -(-source.rows // _ROWS_PER_SLICE)))
    parts: dict[int, list[bytes]] = {0: []}
    for batch in source.batches(projection.columns):
        for bucket, data in split(flatten_mops(batch, projection), keys, buckets):
            parts.setdefault(bucket, []).append(data)
    while parts:
        yield kernel(united(parts.popitem()[1], projection.names))


def _on_spark(
    engine: SparkEngine,
    source: Source,
    projection: MopProjection,
    keys: tuple[str, ...],
    kernel: MopKernel,
    explain: int,
) -> Findings:
    with engine.parquet(source) as path:
        groups = pq.read_metadata(path).num_row_groups
        buckets = min(engine.parts(source.rows, _ROWS_PER_BUCKET, 4), MOST_BUCKETS) if keys else 1
        tasks = engine.numbers(groups, min(groups, 4 * engine.cores, buckets))
        parts = mapped(tasks, _Reader(path, projection, keys, buckets), "bucket int, piece bigint, data binary")
        judged = mapped(parts.repartition(buckets, "bucket"), _Judge(kernel, projection, explain), "findings binary")
        found = judged.collect()
    decoded = [msgspec.msgpack.decode(row["findings"], type=Findings) for row in found]
    return merged(decoded or [kernel(joined([], projection))], explain)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads row groups by number, flattens them and splits them into buckets."""

    path: Path
    projection: MopProjection
    keys: tuple[str, ...]
    buckets: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self.path, read_dictionary=list(_DICTIONARY_COLUMNS)) as file:
            held: list[Columns] = []
            for number in (number for batch in batches for number in batch.column(0).to_pylist()):
                table = file.read_row_group(number, columns=self.projection.columns, use_threads=False)
                held += [flatten_mops(part, self.projection) for part in table.to_batches()]
                if sum(len(rows["kind"]) for rows in held) >= _ROWS_PER_PIECE:
                    yield self._split(number, held)
                    held = []
            if held:
                yield self._split(number, held)

    def _split(self, piece: int, held: list[Columns]) -> pa.RecordBatch:
        parts = list(split(joined(held, self.projection), self.keys, self.buckets))
        arrays = [
            pa.array([bucket for bucket, _ in parts], pa.int32()),
            pa.array([piece] * len(parts), pa.int64()),
            pa.array([data for _, data in parts], pa.binary()),
        ]
        return pa.RecordBatch.from_arrays(arrays, names=["bucket", "piece", "data"])


@dataclass(frozen=True, slots=True)
class _Judge:
    """Gives the buckets of a partition to the kernel, one after the other, rows in the history's order."""

    kernel: MopKernel
    projection: MopProjection
    explain: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts: dict[int, list[tuple[int, bytes]]] = {}
        for batch in batches:
            for bucket, piece, data in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                parts.setdefault(bucket, []).append((piece, data))
        found = []
        while parts:
            _, mine = parts.popitem()
            rows = united([data for _, data in sorted(mine)], self.projection.names)
            found.append(self.kernel(rows))
        if found:
            packed: Any = msgspec.msgpack.encode(merged(found, self.explain))
            yield pa.RecordBatch.from_arrays([pa.array([packed], pa.binary())], names=["findings"])

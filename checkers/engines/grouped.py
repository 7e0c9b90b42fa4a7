"""Hands the micro-operations of a history to a kernel, those of equal keys together, on either engine.

On Spark, workers read and flatten row groups with the code that the local engine uses and split the rows into buckets
(`checkers.engines.shuffle`); each goes to the kernel whole: kernels group and sort by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa

from checkers.engines.api import Engine
from checkers.engines.shuffle import CELL_ROWS, FINER, run_plan
from checkers.engines.spark import SparkEngine
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
    buckets = min(engine.parts(source.rows, _ROWS_PER_BUCKET, 4), MOST_BUCKETS) if keys else 1
    found: Findings | None = run_plan(engine, source, MopPlan(projection, keys, kernel, explain), buckets)
    return found or kernel(joined([], projection))


@dataclass(frozen=True, slots=True)
class MopPlan:
    """See `Plan`: rows that agree in `keys` meet."""

    projection: MopProjection
    keys: tuple[str, ...]
    kernel: MopKernel
    explain: int

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.projection.columns)

    def split(self, batches: Iterator[pa.RecordBatch], buckets: int) -> Iterator[tuple[int, bytes]]:
        held: list[Columns] = []
        for batch in batches:
            held.append(flatten_mops(batch, self.projection))
            if sum(len(rows["kind"]) for rows in held) >= max(_ROWS_PER_PIECE, buckets * CELL_ROWS):
                yield from split(joined(held, self.projection), self.keys, buckets)
                held = []
        if held:
            yield from split(joined(held, self.projection), self.keys, buckets)

    def split_again(self, part: bytes) -> Iterator[tuple[int, bytes]]:
        return split(united([part], self.projection.names), self.keys, FINER if self.keys else 1, finer=True)

    def judge(self, parts: list[bytes]) -> Findings:
        return self.kernel(united(parts, self.projection.names))

    def combine(self, found: list[Any]) -> Findings:
        return merged(found, self.explain)

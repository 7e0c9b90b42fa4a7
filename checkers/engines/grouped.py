"""Hands the micro-operations of a history to a kernel, those of equal keys together, on either engine.

On Spark, workers read and flatten row groups with the code that the local engine uses and split the rows into buckets
(`checkers.engines.shuffle`); each goes to the kernel whole: kernels group and sort by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from checkers.columns.mops import Columns, MopProjection, flatten_mops, joined
from checkers.engines.api import Engine
from checkers.engines.components import COMPONENT, judge_components
from checkers.engines.exchange import MOST_BUCKETS, split, united
from checkers.engines.local import LocalEngine
from checkers.engines.shuffle import EXPANDED, FRAGMENTS, Room, most_held, planned_buckets, rows_held, run_plan
from checkers.engines.spark import SparkEngine
from checkers.findings import Findings, merged
from checkers.source import Source
from harness.history.cores import in_order

MopKernel: TypeAlias = Callable[[Columns], Findings]
"""Judges whole groups, their rows in any order; picklable, for workers call it too."""


class Dealer(Protocol):
    """How rows go to many tasks where groups alone do not say it; picklable."""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that rows get beside their projection's."""

    @property
    def most_buckets(self) -> int: ...

    def __call__(self, rows: Columns, buckets: int, again: bool) -> Iterator[tuple[int, bytes]]:
        """Rows by bucket, as bytes; `again` deals what is one bucket's already."""


@dataclass(frozen=True, slots=True)
class ByKeys:
    """Rows that agree in these columns go to one task."""

    keys: tuple[str, ...]
    names: tuple[str, ...] = ()

    @property
    def most_buckets(self) -> int:
        return MOST_BUCKETS if self.keys else 1

    def __call__(self, rows: Columns, buckets: int, again: bool) -> Iterator[tuple[int, bytes]]:
        return split(rows, self.keys, min(buckets, self.most_buckets), again)


_ROWS_PER_PIECE: Final = 1 << 19
"""Rows that are split into buckets together."""

_BYTES_PER_ROW: Final = 512
"""What a micro-operation takes while it is split, generously."""

_ROWS_PER_BUCKET: Final = 1 << 19
"""Operations in a bucket, whose micro-operations a kernel judges at once."""

_ROOM: Final = Room(mop=48, value=8)
"""A micro-operation has a dozen columns, most of them narrow. Elements go once for each chain of lists."""

_SLICES: Final = 128
_ROWS_PER_SLICE: Final = 1 << 15
"""Parts into which a kernel's work is split in-process, or fewer of that many operations each."""

_SHARE_JUDGED: Final = 4
"""Threads judge at most this part of all at once; and no more of them than judge half of that in slices of equal size,
for they are not."""


class Sharing(NamedTuple):
    """How rows are shared out to calls of the kernel.

    `in_slices`: the local engine too gives it some groups at a time, which takes less memory; a kernel whose budget is
    for the whole history should not be called so. On Spark a `dealer` says instead of the keys what a task needs of the
    rows; the kernel gets the dealer's columns too there. Judging takes `expanded` times the bytes of the shuffle.
    `linked`: operations touch several addresses, and all that they link has to meet, but no more; on Spark each such
    component is judged by one task, and rows have its number too.
    """

    in_slices: bool = False
    dealer: Dealer | None = None
    expanded: int = EXPANDED
    linked: bool = False


SLICES: Final = Sharing(in_slices=True, expanded=12)
"""To judge pages and sessions takes at most 11 times what they take in a shuffle (`python -m bench task_memory`)."""


def judge_mops(
    engine: Engine,
    source: Source,
    projection: MopProjection,
    keys: tuple[str, ...],
    kernel: MopKernel,
    explain: int,
    sharing: Sharing = Sharing(),  # noqa: B008 - immutable
) -> Findings:
    """The kernel's findings over all groups of rows that agree in `keys` (none: all rows are one group), merged."""
    return engine.run(_OfMops(source, projection, keys, kernel, explain, sharing))


@dataclass(frozen=True, slots=True)
class _OfMops:
    """The `Work` of `judge_mops`."""

    source: Source
    projection: MopProjection
    keys: tuple[str, ...]
    kernel: MopKernel
    explain: int
    sharing: Sharing

    def here(self, local: LocalEngine) -> Findings:
        return merged(self._slice_by_slice(local), self.explain)

    def _flattened(self, batch: pa.RecordBatch) -> Columns:
        return flatten_mops(batch, self.projection)

    def _slice_by_slice(self, local: LocalEngine) -> Iterator[Findings]:
        """The kernel's findings bucket by bucket; rows wait for their turn as few bytes."""
        buckets = max(1, min(_SLICES, -(-self.source.rows // _ROWS_PER_SLICE))) if self.sharing.in_slices else 1
        parts: dict[int, list[bytes]] = {0: []}

        def dealt(batch: pa.RecordBatch) -> list[tuple[int, bytes]]:
            return list(split(self._flattened(batch), self.keys, buckets))

        for found in local.mapped(self.source, self.projection.columns, dealt):
            for bucket, data in found:
                parts.setdefault(bucket, []).append(data)
        return self._judged(local, list(parts.values()))

    def _judged(self, local: LocalEngine, slices: list[list[bytes]]) -> Iterator[Findings]:
        """What the kernel finds in each slice, which is given back once it is judged. What is judged at once is at most
        a share of all, by its bytes, or one slice."""
        whole, count = sum(map(_size, slices)), len(slices)
        threads = max(1, min(local.threads(self.source.rows), count // (2 * _SHARE_JUDGED)))
        slices.reverse()

        def wide(part: list[bytes]) -> bool:
            return _size(part) * threads * _SHARE_JUDGED > whole

        def judged(part: list[bytes]) -> Findings:
            rows = united(part, self.projection.names)
            part.clear()
            return self.kernel(rows)

        return in_order(judged, (slices.pop() for _ in range(count)), threads, alone=wide)

    def on_spark(self, spark: SparkEngine) -> Findings:
        room = _ROOM if self.projection.list_kinds else _ROOM._replace(value=0)
        parts = spark.parts(self.source.rows, _ROWS_PER_BUCKET, 4)
        parts = planned_buckets(spark, self.source, parts, room, self.sharing.expanded)
        found: Findings | None
        if self.sharing.linked and parts > 1:
            found = self._by_component(spark, parts)
        else:
            found = self._by_keys(spark, parts)
        return found or self.kernel(joined([], self.projection))

    def _by_component(self, spark: SparkEngine, buckets: int) -> Any:
        plan = MopPlan(self.projection, ByKeys((COMPONENT,), (COMPONENT,)), self.kernel, self.explain)
        return judge_components(spark, self.source, plan, self.projection, buckets, self.sharing.expanded)

    def _by_keys(self, spark: SparkEngine, parts: int) -> Any:
        dealer, held = self.sharing.dealer or ByKeys(self.keys), most_held(spark, _BYTES_PER_ROW)
        plan = MopPlan(self.projection, dealer, self.kernel, self.explain, held)
        buckets = min(parts, dealer.most_buckets)
        return run_plan(spark, self.source, plan, buckets, expanded=self.sharing.expanded)


def _size(part: list[bytes]) -> int:
    return sum(map(len, part))


@dataclass(frozen=True, slots=True)
class MopPlan:
    """See `Plan`: rows meet as the dealer says."""

    projection: MopProjection
    dealer: Dealer
    kernel: MopKernel
    explain: int
    most_held: int = _ROWS_PER_PIECE

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.projection.columns)

    def split(self, batches: Iterator[pa.RecordBatch], buckets: int) -> Iterator[tuple[int, bytes]]:
        held: list[Columns] = []
        for batch in batches:
            held.append(flatten_mops(batch, self.projection))
            if sum(len(rows["kind"]) for rows in held) >= rows_held(buckets, _ROWS_PER_PIECE, self.most_held):
                yield from self.dealer(joined(held, self.projection), buckets, False)
                held = []
        if held:
            yield from self.dealer(joined(held, self.projection), buckets, False)

    def split_again(self, part: bytes) -> Iterator[tuple[int, bytes]]:
        return self.dealer(united([part], self._names), FRAGMENTS, True)

    def judge(self, parts: list[bytes]) -> Findings:
        return self.kernel(united(parts, self._names))

    @property
    def _names(self) -> tuple[str, ...]:
        return (*self.projection.names, *self.dealer.names)

    def combine(self, found: list[Any]) -> Findings:
        return merged(found, self.explain)

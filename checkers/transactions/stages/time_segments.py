"""Fourth stage of the pipeline: the cycles in each segment of time that may hold any.

Every strong component lies in one segment (see `windows`), so workers search segments one by one, and only
counts and the few cycles to be explained leave them. A segment that is longer than one task takes is searched piece by
piece: what is found there is there, but nothing else can be ruled out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from checkers.columns.batches import bucket_batch
from checkers.columns.codes import NEVER
from checkers.columns.dense import numbered, ranked
from checkers.engines.shuffle import within
from checkers.transactions.graph.cycle_anomalies import Cycles, find_cycles
from checkers.transactions.graph.edges import Edges
from checkers.transactions.stages.buckets import Block
from checkers.transactions.stages.floating_intervals import Placed, only
from checkers.transactions.stages.pieces import Row, by_bucket, pack, rows_of, unpack
from checkers.transactions.stages.windows import (
    EXTENTS,
    UNSEARCHED,
    WindowPlan,
    bytes_of,
    dealt,
    merged_extents,
    placed,
)
from checkers.transactions.transaction_mops import Txns

CYCLES: Final = -7
"""Bucket of what goes to the driver: cycles found."""

Fetch: TypeAlias = Callable[[Any], Txns]
"""The transactions with the given invocation indices, in order; picklable where stages are."""


class Sizes(NamedTuple):
    """How time is dealt to tasks: about `a_task` events to each, none longer in one piece than `a_piece`. Beyond `most`
    segments neighbours become one, for the list of them travels with each task; it is more than there are pieces in
    the history, so that none gets too long for one. Floating
    edges have a home for about `a_home` of them. Windows are at least `a_window` events long. What is more than
    `most_bytes` of a shuffle is not searched."""

    a_task: int = 1 << 20
    a_piece: int = 1 << 23
    most: int = 1 << 9
    a_home: int = 1 << 20
    a_window: int = 1 << 18
    most_bytes: int = NEVER


SIZES: Final = Sizes()

_EDGE_BYTES: Final = 41
"""What a dependency takes on its way to a search for cycles (`Block`)."""

_PLACED_BYTES: Final = 73
"""What it takes at most on its way to a window or home (`Placed`)."""

_EXPANDED: Final = 8
"""How many times their bytes in a shuffle it takes to search edges."""

_SEGMENTS_OF_A_PIECE: Final = 4
"""Segments for each `a_piece` of the history where some have to become one."""

_USUAL_EDGES: Final = 2
"""Dependencies for each event of transactions of few micro-operations, which sizes are for."""


def sizes_for(edges: int, events: int, task_bytes: int) -> Sizes:
    """The sizes for `edges` dependencies of transactions that have `events` events, and tasks of `task_bytes` bytes."""
    most, each = max(1, task_bytes // _EXPANDED), max(_USUAL_EDGES, edges / max(1, events))
    share = _USUAL_EDGES / each
    a_piece = min(SIZES.a_piece * share, most / (_EDGE_BYTES * each))
    whole = (
        SIZES.a_task * share,
        a_piece,
        max(SIZES.most, _SEGMENTS_OF_A_PIECE * events / a_piece),
        min(SIZES.a_home, most // _PLACED_BYTES),
        min(SIZES.a_window * share, most / (2 * _PLACED_BYTES * each)),
        most,
    )
    return Sizes(*(max(1, int(size)) for size in whole))


class NamedCycle(msgspec.Struct, frozen=True, array_like=True):
    """A cycle by its transactions' invocation indices; `keys` are `address_hashes` numbers, None for other edges."""

    anomaly: str
    ops: tuple[int, ...]
    kinds: tuple[int, ...]
    keys: tuple[int | None, ...]


class FoundCycles(msgspec.Struct, frozen=True, array_like=True):
    """Counts of anomalies, and the earliest few cycles of each."""

    counts: dict[str, int] = {}
    kept: tuple[NamedCycle, ...] = ()
    whole: bool = True


ByOrders: TypeAlias = dict[int, FoundCycles]
"""What was found by the number of orders besides dependencies (see `cycle_anomalies.core_of`)."""


class TimeSegments(NamedTuple):
    """Pieces of time in order, which may overlap where `whole` is false, and the bucket that each belongs to."""

    low: Any
    high: Any
    bucket: Any
    whole: bool


def lay_segments(extents: Any, sizes: Sizes, overlap: int) -> TimeSegments:
    """Merged extents (rows of low, high) cut into pieces where they are too long, dealt to buckets in order."""
    pieces = []
    longest = max(sizes.a_piece, 2 * overlap)
    for low, high in extents.tolist():
        if high - low <= longest:
            pieces.append((low, high))
        else:
            begins = range(low, high - overlap, longest - overlap)
            pieces += [(begin, min(high, begin + longest)) for begin in begins]
    low, high = np.array(pieces, np.int64).reshape(-1, 2).T
    before = np.cumsum(high - low + 1) - (high - low + 1)
    return TimeSegments(low, high, before // max(1, sizes.a_task), len(pieces) == len(extents))


@dataclass(frozen=True, slots=True)
class Union:
    """Picklable: all extents as one row of at most `most` merged ones, and one row if something is UNSEARCHED."""

    pad: int
    most: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = list(rows_of(batches))
        shown = [unpack(row.data)[0] for row in rows if row.bucket == EXTENTS]
        told = [Row(UNSEARCHED, 0, b"")] if len(shown) < len(rows) else []
        if shown:
            merged = merged_extents(np.concatenate(shown), self.pad)
            told.append(Row(EXTENTS, 0, pack([_coarser(merged, self.most)])))
        if told:
            yield bucket_batch(told)


def _coarser(extents: Any, most: int) -> Any:
    """At most `most` extents: neighbours become one up to a common length, so that none of short ones gets long."""
    if len(extents) <= most:
        return extents
    low, high = extents.T
    # Two groups in a row are longer than this together, so it takes no more than `most` of them to fill the time.
    longest = -(-2 * int(high[-1] - low[0]) // max(1, most - 1))
    first = [0]
    while first[-1] < len(low):
        first.append(max(first[-1] + 1, int(np.searchsorted(high, low[first[-1]] + longest, side="right"))))
    return np.stack((low[first[:-1]], high[np.array(first[1:]) - 1]), axis=1)


@dataclass(frozen=True, slots=True)
class Gatherer:
    """Picklable: the edges of blocks by the buckets of the segments that they touch."""

    plan: WindowPlan
    segments: TimeSegments

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for row in rows_of(batches):
            if row.bucket >= 0:
                yield from self._dealt(placed(row))

    def _dealt(self, edges: Placed) -> Iterator[pa.RecordBatch]:
        first, last = self._touched(edges)
        touching = np.flatnonzero(first <= last)
        begin, end = self.segments.bucket[first[touching]], self.segments.bucket[last[touching]]
        for step in range(int((end - begin).max(initial=-1)) + 1):
            mine = touching[begin + step <= end]
            for bucket, part in dealt((begin + step)[begin + step <= end]):
                yield bucket_batch([Row(bucket, 0, pack(only(Block(*edges[:6]), mine[part])))])

    def _touched(self, edges: Placed) -> tuple[Any, Any]:
        """The first and the last segment that both ends touch; lows and highs both ascend, so each touches a range."""
        span = self.plan.span(edges)
        point = span.low == span.high
        first, last = np.zeros(len(point), np.int64), np.full(len(point), len(self.segments.low) - 1)
        for begin, end in ((edges.source_begin, edges.source_end), (edges.target_begin, edges.target_end)):
            low, high = (
                np.where(point, span.low, extreme) for extreme in (np.minimum(begin, end), np.maximum(begin, end))
            )
            first = np.maximum(first, np.searchsorted(self.segments.high, low))
            last = np.minimum(last, np.searchsorted(self.segments.low, high, side="right") - 1)
        return first, np.where(span.possible, last, -1)


@dataclass(frozen=True, slots=True)
class CycleFinder:
    """Picklable: the cycles in the edges of whole buckets, from rows sorted by bucket. One of more than `most_bytes`
    is not searched."""

    fetch: Fetch
    orders: tuple[int, ...]
    explain: int
    most_bytes: int = NEVER

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, group in by_bucket(rows_of(batches)):
            rows, size = within(self.most_bytes, group, bytes_of)
            too_large = size > self.most_bytes
            found = dict.fromkeys(self.orders, FoundCycles(whole=False)) if too_large else self._searched(rows)
            yield bucket_batch([Row(CYCLES, 0, msgspec.msgpack.encode(found))])

    def _searched(self, rows: list[Row]) -> ByOrders:
        edges, hashes, ids = edges_of([Block(*unpack(row.data)) for row in rows])
        txns = self.fetch(ids)
        return {n: _named(find_cycles(edges, txns, n, self.explain), hashes, ids) for n in self.orders}


@dataclass(frozen=True, slots=True)
class CycleMerger:
    """Picklable: all that was found as one row."""

    explain: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total: ByOrders = {}
        for batch in batches:
            for data in batch.column(2).to_pylist():
                for orders, found in decode_cycles(data).items():
                    total[orders] = _together(total.get(orders, FoundCycles()), found, self.explain)
        if total:
            yield bucket_batch([Row(CYCLES, 0, msgspec.msgpack.encode(total))])


def decode_cycles(data: bytes) -> ByOrders:
    """What a `CycleFinder` or `CycleMerger` has found."""
    return msgspec.msgpack.decode(data, type=dict[int, FoundCycles])


def edges_of(blocks: list[Block]) -> tuple[Edges, list[Any], Any]:
    """Edges by small numbers, the key numbers behind theirs, and the transactions (invocation indices, in order)."""
    columns = [np.concatenate([block[i] for block in blocks]) for i in range(6)]
    source, target, kind, key = columns[0], columns[2], columns[4], columns[5]
    every, places = ranked(np.concatenate((source, target)))
    helpers = int(np.searchsorted(every, 0))
    # Helpers are negative and come first, but are numbered behind the transactions.
    places += np.where(places < helpers, len(every) - helpers, -helpers).astype(np.int32)
    keys, count = numbered(key)
    hashes = np.empty(count, np.int64)
    hashes[keys] = key
    used = np.array([len(source), len(every)])
    edges = Edges(places[: len(source)], places[len(source) :], kind, keys.astype(np.int32), used)
    return edges, hashes.tolist(), every[helpers:]


def _named(cycles: Cycles, hashes: list[int], ids: Any) -> FoundCycles:
    kept = []
    for name, found in cycles.kept.items():
        for cycle in found:
            ops = tuple(int(ids[txn]) for txn in cycle.txns)
            keys = tuple(hashes[key] if key >= 0 else None for key in cycle.keys)
            kept.append(NamedCycle(name, ops, cycle.kinds, keys))
    return FoundCycles(cycles.counts, tuple(kept), cycles.whole)


def _together(one: FoundCycles, other: FoundCycles, explain: int) -> FoundCycles:
    """What either found; of each anomaly the cycles that begin first."""
    counts = {name: one.counts.get(name, 0) + other.counts.get(name, 0) for name in {**one.counts, **other.counts}}
    kept: dict[str, list[NamedCycle]] = {}
    for cycle in sorted((*one.kept, *other.kept), key=lambda cycle: (cycle.ops, cycle.kinds)):
        kept.setdefault(cycle.anomaly, []).append(cycle)
    told = tuple(cycle for found in kept.values() for cycle in found[:explain])
    return FoundCycles(counts, told, one.whole and other.whole)

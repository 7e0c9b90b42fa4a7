"""Third stage of the pipeline: is the graph of dependencies and real time acyclic, and if not, where may cycles be?

In a projection with real-time edges, two transactions of a shortest cycle that are not neighbours on it are concurrent,
else real time would shorten it. So a shortest cycle is one dependency against real time, or it spans no more than four
durations: windows that overlap by that much decide it exactly, each by a topological order. A transaction whose outcome
is unknown, or that took very long, is given the shortest interval that its neighbours imply: what is after a
neighbour that it comes before is after it as well. Every strong component lies in the union of what is
found, and in one stretch of it: where it goes back in time, it does so by dependencies that hang together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from checkers.kernels.columns import NEVER
from checkers.kernels.graph_edges import FREE
from checkers.kernels.graph_order import leftovers
from checkers.transactions.buckets import HELPER, TIMES, UNKNOWN, Block
from checkers.transactions.graph import Graph, label, plain
from checkers.transactions.packing import pack, unpack
from checkers.transactions.pieces import Row, Stage, as_batch
from checkers.transactions.times import Times

EXTENTS: Final = -3
NEIGHBOURS: Final = -4
"""Buckets of what goes to the driver: stretches of time that may hold cycles, and neighbours of long transactions."""

_SPAN: Final = 4


class Long(NamedTuple):
    """Transactions without an end, or with a late one, by invocation index (sorted), and the intervals that stand for
    them (`complete` NEVER: on no cycle)."""

    txn: Any
    invoke: Any
    complete: Any


class Ends(NamedTuple):
    """Intervals of a block's sources and targets; helpers have none and are `helper`."""

    source_invoke: Any
    source_complete: Any
    target_invoke: Any
    target_complete: Any
    source_helper: Any
    target_helper: Any


@dataclass(frozen=True, slots=True)
class Plan:
    """How time is cut: `longest` duration of ordinary transactions (in events), and `stride` of windows."""

    long: Long
    longest: int
    stride: int

    @property
    def overlap(self) -> int:
        return _SPAN * self.longest

    def ends(self, block: Block) -> Ends:
        """The intervals of both ends."""
        source, target = (
            self._interval(block.source, block.source_lasts),
            self._interval(block.target, block.target_lasts),
        )
        return Ends(*source, *target, block.source_lasts == HELPER, block.target_lasts == HELPER)

    def _interval(self, txn: Any, lasts: Any) -> tuple[Any, Any]:
        invoke, complete = txn.copy(), np.where(lasts < 0, NEVER, txn + lasts)
        if len(self.long.txn):
            place = np.minimum(np.searchsorted(self.long.txn, txn), len(self.long.txn) - 1)
            known = self.long.txn[place] == txn
            invoke[known], complete[known] = self.long.invoke[place[known]], self.long.complete[place[known]]
        return invoke, complete


def only(data: Any, kept: Any) -> Any:
    """The same tuple of columns with some rows."""
    return type(data)(*(column[kept] for column in data))


@dataclass(frozen=True, slots=True)
class NeighbourFinder:
    """Picklable: a `BucketJudge` whose blocks are followed by what they say of transactions that are unknown or last
    longer than is usual: per long source the earliest completion behind it, per long target the latest invocation
    before it, and edges between long ones."""

    judge: Stage

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        times = Times()
        for batch in self.judge(batches):
            yield batch
            for bucket, data in zip(batch.column(0).to_pylist(), batch.column(2).to_pylist(), strict=True):
                if bucket == TIMES:
                    times = Times(*unpack(data)[0].tolist())
                elif bucket >= 0:
                    yield as_batch([Row(NEIGHBOURS, 0, pack(neighbours_of(Block(*unpack(data)), times.usual)))])


def neighbours_of(block: Block, usual: int) -> list[Any]:
    """What a block says of its transactions that are unknown or last longer than is usual."""

    def is_long(lasts: Any) -> Any:
        return (lasts == UNKNOWN) | (lasts > usual)

    pairs = _pairs(block)
    out, into = is_long(pairs.source_lasts), is_long(pairs.target_lasts)
    behind, before, both = only(pairs, out), only(pairs, into), only(pairs, out & into)
    ended = np.where(behind.target_lasts < 0, NEVER, behind.target + behind.target_lasts)
    own = np.where(behind.source_lasts < 0, NEVER, behind.source + behind.source_lasts)
    return [
        *_extreme(behind.source, np.minimum(ended, own), np.minimum),
        *_extreme(before.target, before.source, np.maximum),
        both.source,
        both.target,
    ]


class _Pairs(NamedTuple):
    source: Any
    source_lasts: Any
    target: Any
    target_lasts: Any


def _pairs(block: Block) -> _Pairs:
    """The pairs that a block's edges tie, through helpers too."""
    helped = (block.source_lasts == HELPER) | (block.target_lasts == HELPER)
    found = [_Pairs(*(column[~helped] for column in block[:4]))]
    for helper in np.unique(block.source[block.source_lasts == HELPER]).tolist():
        readers, writers = block.target == helper, block.source == helper
        count, times = int(readers.sum()), int(writers.sum())
        sources = (np.repeat(column[readers], times) for column in block[:2])
        found.append(_Pairs(*sources, *(np.tile(column[writers], count) for column in block[2:4])))
    return _Pairs(*(np.concatenate([pairs[i] for pairs in found]) for i in range(4)))


def _extreme(txn: Any, value: Any, best: Any) -> tuple[Any, Any]:
    """The best value of each transaction."""
    if not len(txn):
        return txn, value
    order = np.argsort(txn, kind="stable")
    first = np.flatnonzero(np.diff(txn[order], prepend=txn[order[0]] - 1))
    return txn[order][first], best.reduceat(value[order], first)


def joined_neighbours(parts: list[list[Any]]) -> list[Any]:
    """What `neighbours_of` says of several blocks, as of one."""
    columns = [np.concatenate([part[i] for part in parts]) if parts else np.empty(0, np.int64) for i in range(6)]
    behind, before = _extreme(columns[0], columns[1], np.minimum), _extreme(columns[2], columns[3], np.maximum)
    return [*behind, *before, *columns[4:]]


def settle_long(parts: list[list[Any]]) -> tuple[Long, Any]:
    """The intervals of long transactions, and (source, target) rows of edges between those that have no end."""
    txn, complete, into, latest, source, target = joined_neighbours(parts)
    every = np.unique(np.concatenate((txn, into)))
    ends, begins = np.full(len(every), NEVER), every.copy()
    ends[np.searchsorted(every, txn)] = complete
    place = np.searchsorted(every, into)
    begins[place] = np.maximum(begins[place], latest)
    for _ in range(len(every)):
        before = ends.copy()
        np.minimum.at(ends, np.searchsorted(every, source), ends[np.searchsorted(every, target)])
        if (before == ends).all():
            break
    endless = ends[np.searchsorted(every, source)] == NEVER
    both = endless & (ends[np.searchsorted(every, target)] == NEVER)
    return Long(every, begins, ends), np.stack((source[both], target[both]), axis=1)


@dataclass(frozen=True, slots=True)
class WindowSplit:
    """Picklable: sends each edge of a block to the windows that hold both its ends; edges against real time are
    extents at once."""

    plan: Plan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for bucket, data in zip(batch.column(0).to_pylist(), batch.column(2).to_pylist(), strict=True):
                if bucket >= 0:
                    yield as_batch(list(self._split(Block(*unpack(data)))))

    def _split(self, block: Block) -> Iterator[Row]:
        plan, ends = self.plan, self.plan.ends(block)
        free = ends.source_helper | ends.target_helper
        wrong = ~free & (ends.target_complete < ends.source_invoke)
        extents = _extents_of(only(ends, wrong)) + helper_extents(block, ends)
        if extents:
            yield Row(EXTENTS, 0, pack([np.array(extents).reshape(-1, 2)]))
        low, high = span_of(ends)
        first = np.maximum(0, -(-(high - plan.overlap) // plan.stride) - 1)
        last = low // plan.stride
        for step in range(int((last - first).max(initial=-1)) + 1):
            mine = np.flatnonzero((first + step <= last) & (high != NEVER))
            window = (first + step)[mine]
            order = np.argsort(window, kind="stable")
            cuts = np.flatnonzero(np.diff(window[order], prepend=-1))
            for part in np.split(order, cuts[1:]) if len(order) else ():
                chosen = only(block, mine[part])
                yield Row(int(window[part[0]]), 0, pack(chosen[:4]))


def span_of(ends: Ends) -> tuple[Any, Any]:
    """The time between the ends' intervals, for helpers the other end's; `high` is NEVER where an end has none."""
    low = np.minimum(
        np.where(ends.source_helper, NEVER, ends.source_invoke), np.where(ends.target_helper, NEVER, ends.target_invoke)
    )
    high = np.maximum(
        np.where(ends.source_helper, -1, ends.source_complete), np.where(ends.target_helper, -1, ends.target_complete)
    )
    return low, high


def _extents_of(ends: Ends) -> list[tuple[int, int]]:
    low = np.minimum(ends.source_invoke, ends.target_invoke)
    high = np.maximum(np.where(ends.source_complete == NEVER, ends.source_invoke, ends.source_complete), low)
    return list(zip(low.tolist(), high.tolist(), strict=True))


def helper_extents(block: Block, ends: Ends) -> list[tuple[int, int]]:
    """Extents of pairs that a helper ties against real time: some reader began after some writer had completed."""
    found = []
    for helper in np.unique(block.source[ends.source_helper]).tolist():
        writers, readers = block.source == helper, block.target == helper
        if not readers.any():
            continue
        earliest, latest = int(ends.target_complete[writers].min()), int(ends.source_invoke[readers].max())
        if earliest < latest:
            late = np.where(ends.source_complete[readers] == NEVER, latest, ends.source_complete[readers])
            found.append((int(ends.target_invoke[writers].min()), int(late.max())))
    return found


@dataclass(frozen=True, slots=True)
class WindowJudge:
    """Picklable: extents of the strong components in whole windows, from rows sorted by window."""

    plan: Plan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (Row(*row) for batch in batches for row in zip(*batch.to_pydict().values(), strict=True))
        for window, group in groupby(rows, key=lambda row: row.bucket):
            if window == EXTENTS:
                yield as_batch(list(group))
            else:
                extents = self._judge([unpack(row.data) for row in group])
                if extents:
                    yield as_batch([Row(EXTENTS, 0, pack([np.array(extents).reshape(-1, 2)]))])

    def _judge(self, parts: list[list[Any]]) -> list[tuple[int, int]]:
        source, source_lasts, target, target_lasts = (np.concatenate([part[i] for part in parts]) for i in range(4))
        block = Block(source, source_lasts, target, target_lasts, np.zeros(len(source), np.uint8), source)
        ends = self.plan.ends(block)
        ids, first = np.unique(np.concatenate((block.source, block.target)), return_index=True)
        invoke = np.concatenate((ends.source_invoke, ends.target_invoke))[first]
        complete = np.concatenate((ends.source_complete, ends.target_complete))[first]
        timed, helpers = np.flatnonzero(ids >= 0), np.flatnonzero(ids < 0)
        order = np.concatenate((timed[np.argsort(invoke[timed], kind="stable")], helpers))
        place = np.empty(len(ids), np.int32)
        place[order] = np.arange(len(ids), dtype=np.int32)
        source, target = (place[np.searchsorted(ids, column)] for column in (block.source, block.target))
        begin, end = invoke[order[: len(timed)]], complete[order[: len(timed)]]
        left = leftovers(len(ids), source, target, begin, end, True)
        if not len(left):
            return []
        return _component_extents(len(ids), source, target, begin, end)


def _component_extents(nodes: int, source: Any, target: Any, invoke: Any, complete: Any) -> list[tuple[int, int]]:
    kind = np.full(len(source), FREE, np.uint8)
    graph = Graph(nodes, source.astype(np.int64), target.astype(np.int64), kind, source, invoke, complete)
    labels = label(plain(graph, ()), True)[: graph.timed]
    sizes = np.bincount(labels, minlength=1)
    extents = []
    cyclic = np.flatnonzero(sizes[labels] > 1)
    for name in np.unique(labels[cyclic]).tolist():
        mine = cyclic[labels[cyclic] == name]
        high = np.where(complete[mine] == NEVER, invoke[mine], complete[mine]).max()
        extents.append((int(invoke[mine].min()), int(high)))
    return extents


def merged_extents(extents: list[tuple[int, int]], pad: int) -> list[tuple[int, int]]:
    """The union of stretches of time, each widened by `pad` at both ends."""
    found: list[tuple[int, int]] = []
    for low, high in sorted((low - pad, high + pad) for low, high in extents):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found

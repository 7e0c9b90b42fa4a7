"""Third stage of the pipeline: is the graph of dependencies and real time acyclic, and if not, where may cycles be?

Fixed transactions last no longer than `usual`; floating ones have the intervals of `floating_intervals`, by which T's
begin is no earlier than that of anything it depends on, and its end no later than that of anything that depends on it.

Let a strong component have a node that ends before t and one that begins after t. On a path from the latter to the
former take the last node u that begins after t, and behind it the first, v, that ends before: from u to v lead
dependencies alone, through nodes that contain t, for real time leads forwards. Either u -> v is one dependency against
real time, or the first and the last between them are fixed (a floating one would begin after t with u, or end before it
with v) and the floating ones lie within their neighbours' reach: all of it within two usual durations of t, so a window
that overlaps the next by four shows the cycle u -> ... -> v before u. Thus what is found covers every such t without a
gap: one segment, which every node of the component touches. A component without such a t has a common moment: if a node
of it is fixed a window shows it, else all its nodes have the same interval, and count as if they were at its begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from checkers.columns.batches import bucket_batch
from checkers.columns.codes import NEVER
from checkers.columns.dense import ranked
from checkers.engines.shuffle import within
from checkers.transactions.graph.edges import FREE
from checkers.transactions.graph.projections import Graph, label, leftovers, plain
from checkers.transactions.stages.buckets import FLOATING, PLACED, Block
from checkers.transactions.stages.floating_intervals import Placed, natural
from checkers.transactions.stages.pieces import Row, by_bucket, pack, rows_of, unpack
from harness.errors import HarnessError

EXTENTS: Final = -3
"""Bucket of what goes to the driver: segments of time that may hold cycles."""

UNSEARCHED: Final = -10
"""Bucket of what goes to the driver: that a window was too large for a task."""

_SPAN: Final = 4


class Span(NamedTuple):
    """For each edge the time from the first to the last moment of both ends (of a floating pair of one interval: its
    begin), and whether it can be on a cycle at all: what nothing with an end depends on is on cycles with its like
    alone."""

    low: Any
    high: Any
    possible: Any


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """How time is cut: `usual` duration of fixed transactions (in events), and `stride` of windows."""

    usual: int
    stride: int

    @property
    def overlap(self) -> int:
        return _SPAN * self.usual

    def span(self, edges: Placed) -> Span:
        """The time of each edge, and whether it can be on a cycle."""
        ends = np.stack(edges[6:])
        low = np.where(ends >= 0, ends, NEVER).min(axis=0)
        high = np.where(ends == NEVER, -1, ends).max(axis=0)
        same = (edges.source_begin == edges.target_begin) & (edges.source_end == edges.target_end)
        point = same & (edges.source_end - edges.source_begin > self.overlap)
        endless = (edges.target_end == NEVER) & ~point
        return Span(np.where(point, edges.source_begin, low), np.where(point, edges.source_begin, high), ~endless)


def placed(row: Row) -> Placed:
    """The edges of a row of blocks; raises HarnessError for floating ends that nobody has placed."""
    columns = unpack(row.data)
    if row.piece == FLOATING:
        raise HarnessError("Transactions without a place in time reached the windows of time.")
    if row.piece == PLACED:
        return Placed(*columns)
    block = Block(*columns)
    return Placed(*block, *natural(block.source, block.source_lasts), *natural(block.target, block.target_lasts))


@dataclass(frozen=True, slots=True)
class WindowSplit:
    """Picklable: sends each edge of a block to the windows that hold both its ends; edges against real time are
    extents at once."""

    plan: WindowPlan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for row in rows_of(batches):
            if row.bucket >= 0:
                yield bucket_batch(list(self._split(placed(row), row.piece)))

    def _split(self, edges: Placed, kind: int) -> Iterator[Row]:
        plan, span = self.plan, self.plan.span(edges)
        wrong = edges.target_end < edges.source_begin
        if wrong.any():
            yield Row(EXTENTS, 0, pack([np.stack((span.low[wrong], span.high[wrong]), axis=1)]))
        first = np.maximum(0, -(-(span.high - plan.overlap) // plan.stride) - 1)
        last = np.where(span.possible, span.low // plan.stride, -1)
        sent = (*edges[:4], *edges[6:]) if kind == PLACED else edges[:4]
        for step in range(int((last - first).max(initial=-1)) + 1):
            mine = np.flatnonzero(first + step <= last)
            for window, part in dealt((first + step)[mine]):
                yield Row(window, kind, pack([column[mine[part]] for column in sent]))


def dealt(bucket: Any) -> Iterator[tuple[int, Any]]:
    """Each bucket with the places where it stands, in order."""
    order = np.argsort(bucket, kind="stable")
    cuts = np.flatnonzero(np.diff(bucket[order], prepend=-1))
    for part in np.split(order, cuts[1:]) if len(order) else ():
        yield int(bucket[part[0]]), part


@dataclass(frozen=True, slots=True)
class WindowJudge:
    """Picklable: extents of the strong components in whole windows, from rows sorted by window. A window of more than
    `most_bytes` is not searched, and said to be so (UNSEARCHED)."""

    plan: WindowPlan
    most_bytes: int = NEVER

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for window, group in by_bucket(rows_of(batches)):
            if window == EXTENTS:
                yield from (bucket_batch([row]) for row in group)
                continue
            rows, size = within(self.most_bytes, group, bytes_of)
            if size > self.most_bytes:
                yield bucket_batch([Row(UNSEARCHED, 0, b"")])
            else:
                extents = _judged([_sent(row) for row in rows])
                if len(extents):
                    yield bucket_batch([Row(EXTENTS, 0, pack([extents]))])


def bytes_of(row: Row) -> int:
    """What a row takes."""
    return len(row.data)


def _sent(row: Row) -> tuple[Any, ...]:
    """Sources, targets, and the begins and ends of both."""
    columns = unpack(row.data)
    if row.piece == PLACED:
        return columns[0], columns[2], *columns[4:]
    source, source_lasts, target, target_lasts = columns
    return source, target, *natural(source, source_lasts), *natural(target, target_lasts)


def _judged(parts: list[tuple[Any, ...]]) -> Any:
    """Rows of (low, high): the strong components of a window's edges."""
    source, target, *ends = (np.concatenate([part[i] for part in parts]) for i in range(6))
    ids, places = ranked(np.concatenate((source, target)))
    invoke, complete = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
    invoke[places], complete[places] = np.concatenate((ends[0], ends[2])), np.concatenate((ends[1], ends[3]))
    timed, helpers = np.flatnonzero(ids >= 0), np.flatnonzero(ids < 0)
    order = np.concatenate((timed[np.argsort(invoke[timed], kind="stable")], helpers))
    place = np.empty(len(ids), np.int32)
    place[order] = np.arange(len(ids), dtype=np.int32)
    source, target = np.split(place[places], 2)
    begin, end = invoke[order[: len(timed)]], complete[order[: len(timed)]]
    if not len(leftovers(len(ids), source, target, begin, end, True)):
        return np.empty((0, 2), np.int64)
    return _component_extents(len(ids), source, target, begin, end)


def _component_extents(nodes: int, source: Any, target: Any, invoke: Any, complete: Any) -> Any:
    kind = np.full(len(source), FREE, np.uint8)
    graph = Graph(nodes, source.astype(np.int64), target.astype(np.int64), kind, source, invoke, complete)
    labels = label(plain(graph, ()), True)[: graph.timed]
    cyclic = np.flatnonzero(np.bincount(labels, minlength=1)[labels] > 1)
    cyclic = cyclic[np.argsort(labels[cyclic], kind="stable")]
    first = np.flatnonzero(np.diff(labels[cyclic], prepend=-1))
    if not len(first):
        return np.empty((0, 2), np.int64)
    begin, end = invoke[cyclic], complete[cyclic]
    last = np.where(end == NEVER, begin, np.maximum(begin, end))
    low = np.minimum.reduceat(np.minimum(begin, end), first)
    return np.stack((low, np.maximum.reduceat(last, first)), axis=1)


def merged_extents(extents: Any, pad: int) -> Any:
    """The union of segments of time (rows of low, high), each widened by `pad` at both ends; in order."""
    low, high = extents[np.argsort(extents[:, 0], kind="stable")].T
    low, reach = low - pad, np.maximum.accumulate(high + pad)
    first = np.flatnonzero(np.append(True, low[1:] > reach[:-1]))
    return np.stack((low[first], reach[np.append(first[1:], len(low)) - 1]), axis=1)

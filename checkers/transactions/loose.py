"""Transactions without a place in time, and the interval that their neighbours give each of them.

*Loose* are transactions whose outcome is unknown, those that last much longer than is usual, and helper nodes. What is
after a transaction T by a dependency T -> S, and by real time after S, is after T too; so S's end bounds T's, and the
begin of what T depends on bounds T's begin. Bounds are passed on from loose node to loose node until none gets tighter.
Real-time edges between such intervals stand for paths that are there, so strong components stay what they were.

Each loose node has a home, one task of many, by its place in the history: there the bounds meet that buckets of keys
know (`Asker`), homes tell each other what changed (`Settler`), and at last each bucket is answered (`Teller`) and its
edges get both ends' intervals (`Placer`). No task, stage or driver holds more than its own share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from checkers.kernels.columns import NEVER
from checkers.kernels.intervals import pass_bounds
from checkers.transactions.buckets import TIMES, Block
from checkers.transactions.packing import pack, unpack
from checkers.transactions.pieces import Row, Stage, as_batch
from checkers.transactions.times import Times

ANY_LOOSE: Final = -4
CHANGED: Final = -8
"""Buckets of what goes to the driver: that there are loose ends, and that homes had news for each other."""

FIRM: Final = 0
LOOSE: Final = 1
PLACED: Final = 2
"""Instead of a piece's number, what a block's edges are: with both ends in their own place, with a loose end, and with
both ends' intervals (as `Placed`)."""

TOLD: Final = -1
"""Instead of a bucket's number: what homes, or a home and a bucket, tell each other; sorted before all else."""


class Placed(NamedTuple):
    """A `Block` with the intervals of its ends (NEVER: without an end; begin -1: a helper's that nothing leads to)."""

    source: Any
    source_lasts: Any
    target: Any
    target_lasts: Any
    kind: Any
    key: Any
    source_begin: Any
    source_end: Any
    target_begin: Any
    target_end: Any


class State(NamedTuple):
    """What a home knows: its nodes with their bounds, and the edges between loose nodes of which one is here, with the
    begin of the source and the end of the target as both homes know them."""

    node: Any
    begin: Any
    end: Any
    source: Any
    target: Any
    source_begin: Any
    target_end: Any


def rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    """The rows of batches, one by one."""
    return (Row(*row) for batch in batches for row in zip(*batch.to_pydict().values(), strict=True))


def only(data: Any, kept: Any) -> Any:
    """The same tuple of columns with some rows."""
    return type(data)(*(column[kept] for column in data))


def natural(node: Any, lasts: Any) -> tuple[Any, Any]:
    """The intervals of nodes by themselves."""
    return np.maximum(node, -1), np.where(lasts < 0, NEVER, node + lasts)


@dataclass(frozen=True, slots=True)
class LooseFinder:
    """Picklable: a `BucketJudge` whose edges with a loose end are blocks of their own (`LOOSE`)."""

    judge: Stage

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        times = Times()
        for row in rows_of(self.judge(batches)):
            if row.bucket == TIMES:
                times = Times(*unpack(row.data)[0].tolist())
            yield as_batch([row] if row.bucket < 0 else sorted_out(row, times.usual))


def sorted_out(row: Row, usual: int) -> list[Row]:
    """A block's row as one of edges with firm ends and one of those with loose ends, which the driver is told of."""
    block = Block(*unpack(row.data))
    loose = _is_loose(block.source_lasts, usual) | _is_loose(block.target_lasts, usual)
    if not loose.any():
        return [Row(row.bucket, FIRM, row.data)]
    rows = [Row(row.bucket, kind, pack(only(block, kept))) for kind, kept in ((FIRM, ~loose), (LOOSE, loose))]
    return [*rows, Row(ANY_LOOSE, 0, b"")]


def _is_loose(lasts: Any, usual: int) -> Any:
    return (lasts < 0) | (lasts > usual)


@dataclass(frozen=True, slots=True)
class Homes:
    """Where loose nodes are at home: `count` homes, each of so many events (helpers: by their bucket of keys)."""

    count: int
    span: int

    def of(self, node: Any) -> Any:
        """The home of each node."""
        placed = np.minimum(node // self.span, self.count - 1)
        return np.where(node < 0, ((-1 - node) >> 32) % self.count, placed)


@dataclass(frozen=True, slots=True)
class Asker:
    """Picklable: what loose blocks know of loose nodes, by home, with the number of the bucket that asks."""

    usual: int
    homes: Homes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for row in rows_of(batches):
            if row.bucket >= 0 and row.piece == LOOSE:
                for home, known in _dealt(known_of(Block(*unpack(row.data)), self.usual), self.homes):
                    yield as_batch([Row(home, row.bucket, pack(known))])


def known_of(block: Block, usual: int) -> State:
    """What a block says of its loose nodes, each by its neighbours' own intervals, and which of them are tied."""
    source_begin, source_end = natural(block.source, block.source_lasts)
    _, target_end = natural(block.target, block.target_lasts)
    out, into = _is_loose(block.source_lasts, usual), _is_loose(block.target_lasts, usual)
    node, place = np.unique(np.concatenate((block.source[out], block.target[into])), return_inverse=True)
    begin, end = np.maximum(node, -1), np.full(len(node), NEVER)
    np.minimum.at(end, place, np.concatenate((source_end[out], target_end[into])))
    np.maximum.at(begin, place[out.sum() :], source_begin[into])
    np.minimum.at(end, place[: out.sum()], target_end[out])
    both = out & into
    unknown = np.full(int(both.sum()), -1), np.full(int(both.sum()), NEVER)
    return State(node, begin, end, block.source[both], block.target[both], *unknown)


def _dealt(known: State, homes: Homes) -> Iterator[tuple[int, State]]:
    """What is known by home; ties go to both ends' homes."""
    home, source, target = homes.of(known.node), homes.of(known.source), homes.of(known.target)
    for number in np.unique(home).tolist():
        tied = (source == number) | (target == number)
        nodes = (column[home == number] for column in known[:3])
        yield number, State(*nodes, *(column[tied] for column in known[3:]))


@dataclass(frozen=True, slots=True)
class Settler:
    """Picklable: brings the bounds at each home as far as they go there, from rows sorted by home; to other homes, what
    changed for them."""

    homes: Homes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for home, group in groupby(rows_of(batches), key=lambda row: row.bucket):
            if home >= 0:
                yield as_batch(list(self._settled(home, [State(*unpack(row.data)) for row in group])))

    def _settled(self, home: int, parts: list[State]) -> Iterator[Row]:
        before = together(parts)
        after = tightened(before)
        yield Row(home, TOLD, pack(after))
        changed = (before.source_begin != after.source_begin) | (before.target_end != after.target_end)
        source, target = self.homes.of(after.source), self.homes.of(after.target)
        elsewhere = np.where(source == home, target, source)
        news = changed & (elsewhere != home)
        for other in np.unique(elsewhere[news]).tolist():
            nothing = (np.empty(0, np.int64),) * 3
            mine = news & (elsewhere == other)
            yield Row(other, TOLD, pack(State(*nothing, *(column[mine] for column in after[3:]))))
        if news.any():
            yield Row(CHANGED, 0, b"")


def together(parts: list[State]) -> State:
    """All that is known of each node, and of each tie, as one."""
    columns = State(*(np.concatenate([part[i] for part in parts]) for i in range(7)))
    node, place = np.unique(columns.node, return_inverse=True)
    begin, end = np.full(len(node), -1), np.full(len(node), NEVER)
    np.maximum.at(begin, place, columns.begin)
    np.minimum.at(end, place, columns.end)
    order = np.lexsort((columns.target, columns.source))
    source, target = columns.source[order], columns.target[order]
    first = np.flatnonzero(np.diff(source, prepend=-(2**62)) | np.diff(target, prepend=-(2**62)))
    if not len(first):
        return State(node, begin, end, source, target, source, target)
    begins = np.maximum.reduceat(columns.source_begin[order], first)
    ends = np.minimum.reduceat(columns.target_end[order], first)
    return State(node, begin, end, source[first], target[first], begins, ends)


def tightened(known: State) -> State:
    """The bounds after all that ties among a home's nodes pass on."""
    if not len(known.source):
        return known
    begin, end = known.begin.copy(), known.end.copy()
    source_begin, target_end = known.source_begin.copy(), known.target_end.copy()
    source, target = _places(known.node, known.source), _places(known.node, known.target)
    # Chains mostly run with time: a sweep in this order passes bounds on along all of each.
    pass_bounds(np.argsort(known.source, kind="stable"), source, target, begin, end, source_begin, target_end)
    return State(known.node, begin, end, known.source, known.target, source_begin, target_end)


def _places(nodes: Any, wanted: Any) -> Any:
    """Where each is among sorted nodes, -1 if it is not."""
    place = np.minimum(np.searchsorted(nodes, wanted), max(len(nodes) - 1, 0))
    return np.where(nodes[place] == wanted, place, -1) if len(nodes) else np.full(len(wanted), -1)


@dataclass(frozen=True, slots=True)
class Teller:
    """Picklable: each home's answers to the buckets that asked, from what it knows and was asked."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for home, group in groupby(rows_of(batches), key=lambda row: row.bucket):
            if home < 0:
                continue
            rows = list(group)
            known = together([State(*unpack(row.data)) for row in rows if row.piece == TOLD])
            for row in rows:
                asked = unpack(row.data)[0]
                if row.piece != TOLD and len(asked):
                    place = np.searchsorted(known.node, asked)
                    yield as_batch([Row(row.piece, TOLD, pack((asked, known.begin[place], known.end[place])))])


@dataclass(frozen=True, slots=True)
class Placer:
    """Picklable: blocks with loose ends as `Placed`, from rows sorted by bucket, answers first."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for bucket, group in groupby(rows_of(batches), key=lambda row: row.bucket):
            answers = list[list[Any]]()
            known: tuple[Any, ...] | None = None
            for row in group:
                if row.piece == TOLD:
                    answers.append(unpack(row.data))
                    continue
                known = known or _in_order([np.concatenate([part[i] for part in answers]) for i in range(3)])
                block = Block(*unpack(row.data))
                ends = (*_interval(block.source, block.source_lasts, known), *_interval(block[2], block[3], known))
                yield as_batch([Row(bucket, PLACED, pack((*block, *ends)))])


def _in_order(columns: list[Any]) -> tuple[Any, ...]:
    order = np.argsort(columns[0], kind="stable")
    return tuple(column[order] for column in columns)


def _interval(node: Any, lasts: Any, known: tuple[Any, ...]) -> tuple[Any, Any]:
    begin, end = natural(node, lasts)
    place = _places(known[0], node)
    loose = place >= 0
    begin[loose], end[loose] = known[1][place[loose]], known[2][place[loose]]
    return begin, end


@dataclass(frozen=True, slots=True)
class OfKind:
    """Picklable: the rows of blocks that are of a kind."""

    kind: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from (as_batch([row]) for row in rows_of(batches) if row.bucket >= 0 and row.piece == self.kind)


def every_row(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A stage that leaves rows as they are, but for what went to the driver."""
    yield from (as_batch([row]) for row in rows_of(batches) if row.bucket >= 0)

"""Transactions without a place in time, and the interval that their neighbours give each of them.

*Floating* are transactions whose outcome is unknown, those that last much longer than is usual, and helper nodes. What
is after a transaction T by a dependency T -> S, and by real time after S, is after T too; so S's end bounds T's, and
the begin of what T depends on bounds T's begin. Bounds are passed on from floating node to floating node until none
gets tighter. Real-time edges between such intervals stand for paths that are there, so strong components stay what they
were.

Each floating node has a home, one task of many, by its place in the history, which buckets of keys send all edges of
the node (`Sender`). There its bounds meet; where homes are several they tell each other what changed (`Settler`), and
at last each edge gets both ends' intervals (`Placer`). Where floating edges are few there is one home, and nothing to
tell. No task, stage or driver holds more than its own share.

A tie says that its target depends on its source: the target begins no earlier than the source, the source ends no later
than the target. Bounds only ever get tighter and take finitely many values, so passing them on comes to an end; each
sweep passes them along all of a chain that runs in the order of the ties.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from checkers.columns.batches import bucket_batch
from checkers.columns.codes import NEVER
from checkers.compiled import kernel
from checkers.transactions.stages.buckets import FLOATING, PLACED, Block, is_floating
from checkers.transactions.stages.pieces import Row, by_bucket, pack, rows_of, unpack


@kernel
def pass_bounds(order, source, target, begin, end, source_begin, target_end):
    """Pass bounds on along ties until none changes.

    `source` and `target` are places in `begin` and `end`, or -1 for nodes that are not there: of these ties know what
    `source_begin` and `target_end` say, which are brought up to date for the others.
    """
    # Begins go forward along the order and ends backward, so where ties agree with the order one turn is enough; what
    # runs against it takes another. Bounds only narrow and are of finitely many, so it ends.
    changed = True
    while changed:
        changed = False
        for tie in order:
            if source[tie] >= 0:
                source_begin[tie] = max(source_begin[tie], begin[source[tie]])
            if target[tie] >= 0 and begin[target[tie]] < source_begin[tie]:
                begin[target[tie]] = source_begin[tie]
                changed = True
        for tie in order[::-1]:
            if target[tie] >= 0:
                target_end[tie] = min(target_end[tie], end[target[tie]])
            if source[tie] >= 0 and end[source[tie]] > target_end[tie]:
                end[source[tie]] = target_end[tie]
                changed = True


CHANGED: Final = -8
"""Bucket of what goes to the driver: that homes had news for each other."""

STATE: Final = -1
"""Instead of a kind of blocks: the `HomeState` of a home, or what another home tells it."""


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


class HomeState(NamedTuple):
    """What a home knows: its nodes with their bounds, and the edges between floating nodes of which one is here, with
    the begin of the source and both bounds of the target as both homes know them."""

    node: Any
    begin: Any
    end: Any
    source: Any
    target: Any
    source_begin: Any
    target_begin: Any
    target_end: Any


def only(data: Any, kept: Any) -> Any:
    """Some rows of a tuple of columns."""
    return type(data)(*(column[kept] for column in data))


def natural(node: Any, lasts: Any) -> tuple[Any, Any]:
    """The intervals of nodes by themselves."""
    return np.maximum(node, -1), np.where(lasts < 0, NEVER, node + lasts)


@dataclass(frozen=True, slots=True)
class HomePlan:
    """Where floating nodes are at home: `count` homes, each of `span` events (helpers: by their bucket of keys)."""

    count: int
    span: int

    def of(self, node: Any) -> Any:
        """The home of each node."""
        placed = np.minimum(node // self.span, self.count - 1)
        return np.where(node < 0, ((-1 - node) >> 32) % self.count, placed)


@dataclass(frozen=True, slots=True)
class Sender:
    """Picklable: floating edges by the homes of their floating ends."""

    usual: int
    plan: HomePlan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for row in rows_of(batches):
            if row.bucket >= 0 and row.piece == FLOATING:
                block = Block(*unpack(row.data))
                ends = home_of_ends(block, self.usual, self.plan)
                for home in np.unique(np.concatenate(ends)).tolist():
                    if home >= 0:
                        mine = (ends[0] == home) | (ends[1] == home)
                        yield bucket_batch([Row(home, FLOATING, pack(only(block, mine)))])


def home_of_ends(block: Block, usual: int, plan: HomePlan) -> tuple[Any, Any]:
    """The homes of both ends of each edge, -1 for a fixed end."""
    source = np.where(is_floating(block.source_lasts, usual), plan.of(block.source), -1)
    return source, np.where(is_floating(block.target_lasts, usual), plan.of(block.target), -1)


def known_of(block: Block, ends: tuple[Any, Any], home: int) -> HomeState:
    """What all edges of its nodes tell a home, each by its neighbour's own interval, and which of them are tied; `ends`
    are `home_of_ends`."""
    source_begin, source_end = natural(block.source, block.source_lasts)
    target_begin, target_end = natural(block.target, block.target_lasts)
    out, into, both = ends[0] == home, ends[1] == home, (ends[0] >= 0) & (ends[1] >= 0)
    node = np.concatenate((block.source[out], block.target[into]))
    begin = np.concatenate((source_begin[out], np.maximum(target_begin, source_begin)[into]))
    end = np.concatenate((np.minimum(source_end, target_end)[out], target_end[into]))
    tied = (block.source, block.target, source_begin, target_begin, target_end)
    return HomeState(node, begin, end, *(column[both] for column in tied))


def _met(home: int, group: Iterator[Row], usual: int, plan: HomePlan) -> tuple[HomeState, list[tuple[Block, Any]]]:
    """What a home's rows say together, and its edges with the homes of their sources (of fixed ones: of their
    targets)."""
    states, edges = list[HomeState](), list[tuple[Block, Any]]()
    for row in group:
        if row.piece == STATE:
            states.append(HomeState(*unpack(row.data)))
            continue
        block = Block(*unpack(row.data))
        ends = home_of_ends(block, usual, plan)
        states.append(known_of(block, ends, home))
        edges.append((block, np.where(ends[0] >= 0, ends[0], ends[1])))
    return together(states), edges


@dataclass(frozen=True, slots=True)
class Settler:
    """Picklable: brings the bounds at each home as far as they go there, from edges or from what homes told, sorted by
    home; to other homes, what changed for them."""

    usual: int
    plan: HomePlan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for home, group in by_bucket(rows_of(batches)):
            if home >= 0:
                yield bucket_batch(list(self._settled(home, _met(home, group, self.usual, self.plan)[0])))

    def _settled(self, home: int, before: HomeState) -> Iterator[Row]:
        after = tightened(before)
        yield Row(home, STATE, pack(after))
        shared = zip(before[5:], after[5:], strict=True)
        changed = np.any([mine != became for mine, became in shared], axis=0)
        source, target = self.plan.of(after.source), self.plan.of(after.target)
        elsewhere = np.where(source == home, target, source)
        news = changed & (elsewhere != home)
        for other in np.unique(elsewhere[news]).tolist():
            nothing = (np.empty(0, np.int64),) * 3
            mine = news & (elsewhere == other)
            yield Row(other, STATE, pack(HomeState(*nothing, *(column[mine] for column in after[3:]))))
        if news.any():
            yield Row(CHANGED, 0, b"")


@dataclass(frozen=True, slots=True)
class Placer:
    """Picklable: each home's edges as `Placed`, from rows sorted by home; of what two homes have, the source's."""

    usual: int
    plan: HomePlan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for home, group in by_bucket(rows_of(batches)):
            if home < 0:
                continue
            known, edges = _met(home, group, self.usual, self.plan)
            known = _with_targets(tightened(known))
            for block, owner in edges:
                mine = only(block, owner == home)
                ends = (*_interval(mine.source, mine.source_lasts, known), *_interval(mine[2], mine[3], known))
                yield bucket_batch([Row(home, PLACED, pack((*mine, *ends)))] if len(mine.kind) else [])


def _with_targets(known: HomeState) -> HomeState:
    """What is known with targets at other homes as nodes."""
    nothing = (np.empty(0, np.int64),) * 5
    return together([known, HomeState(known.target, known.target_begin, known.target_end, *nothing)])


def together(parts: list[HomeState]) -> HomeState:
    """All that is known of each node, and of each tie, as one."""
    columns = HomeState(*(np.concatenate([part[i] for part in parts]) for i in range(8)))
    node, place = np.unique(columns.node, return_inverse=True)
    begin, end = np.full(len(node), -1), np.full(len(node), NEVER)
    np.maximum.at(begin, place, columns.begin)
    np.minimum.at(end, place, columns.end)
    order = np.lexsort((columns.target, columns.source))
    source, target = columns.source[order], columns.target[order]
    first = np.flatnonzero(np.diff(source, prepend=-(2**62)) | np.diff(target, prepend=-(2**62)))
    if not len(first):
        return HomeState(node, begin, end, *columns[3:])
    begins, reaches = (np.maximum.reduceat(column[order], first) for column in columns[5:7])
    ends = np.minimum.reduceat(columns.target_end[order], first)
    return HomeState(node, begin, end, source[first], target[first], begins, reaches, ends)


def tightened(known: HomeState) -> HomeState:
    """The bounds after all that ties among a home's nodes pass on."""
    if not len(known.source):
        return known
    begin, end = known.begin.copy(), known.end.copy()
    source_begin, target_end = known.source_begin.copy(), known.target_end.copy()
    source, target = _places(known.node, known.source), _places(known.node, known.target)
    # Chains mostly run with time: a sweep in this order passes bounds on along all of each.
    pass_bounds(np.argsort(known.source, kind="stable"), source, target, begin, end, source_begin, target_end)
    target_begin = np.where(target >= 0, begin[target], known.target_begin)
    return HomeState(known.node, begin, end, known.source, known.target, source_begin, target_begin, target_end)


def _places(nodes: Any, wanted: Any) -> Any:
    """Where each is among sorted nodes, -1 if it is not."""
    place = np.minimum(np.searchsorted(nodes, wanted), max(len(nodes) - 1, 0))
    return np.where(nodes[place] == wanted, place, -1) if len(nodes) else np.full(len(wanted), -1)


def _interval(node: Any, lasts: Any, known: HomeState) -> tuple[Any, Any]:
    begin, end = natural(node, lasts)
    place = _places(known.node, node)
    floating = place >= 0
    begin[floating], end[floating] = known.begin[place[floating]], known.end[place[floating]]
    return begin, end

"""What the pipeline's driver does with blocks of dependencies, whoever runs the stages over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from checkers.kernels.columns import NEVER
from checkers.kernels.graph_edges import Edges, make_edges
from checkers.transactions.buckets import Block
from checkers.transactions.cycles import Cycles, find_cycles
from checkers.transactions.mops import Txns
from checkers.transactions.packing import unpack
from checkers.transactions.pieces import Row, Stage
from checkers.transactions.windows import (
    Gatherer,
    Long,
    Plan,
    WindowJudge,
    WindowSplit,
    merged_extents,
    settle_long,
)

LEAST_STRIDE: Final = 1 << 18
"""Windows are at least so many events long."""

Fetch: TypeAlias = Callable[[Any], Txns]
"""The transactions with the given invocation indices, in order."""


class Blocks(Protocol):
    """Blocks of dependencies on which stages can be run."""

    def collect(self, stage: Stage) -> list[Row]:
        """All rows that a stage makes of the blocks."""

    def collect_grouped(self, stage: Stage, judge: Stage) -> list[Row]:
        """The same, through a second stage that gets the first one's rows by bucket."""


class Related(NamedTuple):
    """Dependencies that may be on cycles, the `address_hashes` numbers that their keys are indices of, and the
    transactions that they tie."""

    edges: Edges
    hashes: list[Any]
    txns: Txns

    def cycles(self, orders: int, explain: int) -> Cycles:
        """All classes of cycles; see `find_cycles`."""
        return find_cycles(self.edges, self.txns, orders, explain) if self.txns.size else Cycles({}, {})


def relate(
    blocks: Blocks, usual: int, neighbours: list[list[Any]], fetch: Fetch, least_stride: int = LEAST_STRIDE
) -> Related:
    """The strong components that windows of time show, given `Times.usual` and what `NeighbourFinder` found."""
    long, endless = settle_long(neighbours)
    plan = _plan(long, usual, least_stride)
    rows = blocks.collect_grouped(WindowSplit(plan), WindowJudge(plan))
    extents = [(int(low), int(high)) for row in rows for low, high in unpack(row.data)[0]]
    extents += [(int(pair.min()), int(pair.max())) for pair in endless]
    if not extents:
        nothing = np.empty(0, np.int64)
        return Related(make_edges(0, 0), [], Txns(nothing, nothing, np.empty(0, np.uint8), nothing))
    union = tuple(merged_extents(extents, 2 * plan.longest + 1))
    gathered = [Block(*unpack(row.data)) for row in blocks.collect(Gatherer(plan, union))]
    edges, hashes, ids = _edges_of(gathered)
    return Related(edges, hashes, fetch(ids))


def _plan(long: Long, most: int, least_stride: int) -> Plan:
    ended = long.complete != NEVER
    longest = max(most, int((long.complete[ended] - long.invoke[ended]).max(initial=0)))
    return Plan(long, longest, max(least_stride, 8 * longest))


def _edges_of(blocks: list[Block]) -> tuple[Edges, list[Any], Any]:
    """Edges by small numbers, the key numbers behind theirs, and the transactions (invocation indices, in order)."""
    columns = [np.concatenate([block[i] for block in blocks]) for i in range(6)]
    source, target, kind, key = columns[0], columns[2], columns[4], columns[5]
    every = np.unique(np.concatenate((source, target)))
    ids, helpers = every[every >= 0], every[every < 0]
    numbers = np.concatenate((ids, helpers))
    order = np.argsort(numbers, kind="stable")

    def number(column: Any) -> Any:
        return order[np.searchsorted(numbers, column, sorter=order)].astype(np.int32)

    hashes, keys = np.unique(key, return_inverse=True)
    count = np.array([len(source), len(numbers)])
    return Edges(number(source), number(target), kind, keys.astype(np.int32), count), hashes.tolist(), ids

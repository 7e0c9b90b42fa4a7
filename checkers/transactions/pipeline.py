"""What the pipeline's driver does with blocks of dependencies, whoever runs the stages over them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from checkers.kernels.columns import NEVER
from checkers.transactions.packing import pack, unpack
from checkers.transactions.pieces import Row, Stage, as_batch
from checkers.transactions.stretches import (
    SIZES,
    ByOrders,
    CycleFinder,
    CycleMerger,
    Fetch,
    FoundCycles,
    Gatherer,
    Sizes,
    Union,
    decode_cycles,
    lay_stretches,
)
from checkers.transactions.windows import EXTENTS, Long, Plan, WindowJudge, WindowSplit, settle_long

LEAST_STRIDE: Final = 1 << 18
"""Windows are at least so many events long."""


class Blocks(Protocol):
    """Blocks of dependencies on which stages can be run."""

    def collect(self, split: Stage, judge: Stage, combine: Stage) -> list[Row]:
        """A few rows: what `judge` makes of the rows of a bucket, for all that `split` makes of the blocks, put
        together by `combine`, which may be applied to any part of them and to its own rows again."""


def combined(rows: list[Row], combine: Stage) -> list[Row]:
    """The rows put together in this process."""
    return [
        Row(*row) for batch in combine(iter([as_batch(rows)])) for row in zip(*batch.to_pydict().values(), strict=True)
    ]


class Search(NamedTuple):
    """What to search for: by which orders besides dependencies, and how many cycles of each anomaly to keep."""

    orders: tuple[int, ...]
    explain: int


class Related(NamedTuple):
    """Cycles; `whole` unless some could have been too long for where they were looked for."""

    cycles: ByOrders
    whole: bool

    def by(self, orders: int) -> FoundCycles:
        """Those by so many orders besides dependencies, which must have been searched for."""
        return self.cycles[orders]


def relate(
    blocks: Blocks,
    usual: int,
    neighbours: list[list[Any]],
    fetch: Fetch,
    search: Search,
    least_stride: int = LEAST_STRIDE,
    sizes: Sizes = SIZES,
) -> Related:
    """The cycles in the strong components that windows of time show, given `Times.usual` and what `NeighbourFinder`
    found."""
    long, endless = settle_long(neighbours)
    plan = _plan(long, usual, least_stride)
    without_end = np.array([(pair.min(), pair.max()) for pair in endless], np.int64).reshape(-1, 2)
    union = Union(2 * plan.longest + 1, sizes.most)
    shown = blocks.collect(WindowSplit(plan), WindowJudge(plan), union)
    if len(without_end):
        shown = combined([*shown, Row(EXTENTS, 0, pack([without_end]))], union)
    nothing: ByOrders = {orders: FoundCycles() for orders in search.orders}
    if not shown:
        return Related(nothing, True)
    stretches = lay_stretches(unpack(shown[0].data)[0], sizes, plan.overlap)
    finder = CycleFinder(fetch, search.orders, search.explain)
    found = blocks.collect(Gatherer(plan, stretches), finder, CycleMerger(search.explain))
    return Related(nothing | (decode_cycles(found[0].data) if found else {}), stretches.whole)


def _plan(long: Long, most: int, least_stride: int) -> Plan:
    ended = long.complete != NEVER
    longest = max(most, int((long.complete[ended] - long.invoke[ended]).max(initial=0)))
    return Plan(long, longest, max(least_stride, 8 * longest))

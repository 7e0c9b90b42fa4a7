"""What the pipeline's driver does with blocks of dependencies, whoever runs the stages over them."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol, Self

from checkers.columns.batches import bucket_batch
from checkers.transactions.stages.buckets import FIXED, FLOATING
from checkers.transactions.stages.floating_intervals import CHANGED, HomePlan, Placer, Sender, Settler
from checkers.transactions.stages.pieces import Row, Stage, Times, rows_of, unpack
from checkers.transactions.stages.time_segments import (
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
    lay_segments,
)
from checkers.transactions.stages.windows import EXTENTS, UNSEARCHED, WindowJudge, WindowPlan, WindowSplit

_ROUNDS: Final = 64
"""How often, at most, homes tell each other what changed; mostly once or twice is enough."""


class Blocks(Protocol):
    """Blocks of dependencies, or other rows by bucket, on which stages can be run."""

    def of(self, kind: int) -> Self:
        """The blocks of a kind (see `buckets.FIXED`)."""

    def only(self, split: Stage) -> Self:
        """What `split` makes of the rows."""

    def beside(self, other: Self) -> Self:
        """The rows of both."""

    def met(self, judge: Stage, tasks: int) -> Self:
        """What `judge` makes of the rows of a bucket, in order of pieces, in `tasks` tasks; kept, for it may be asked
        for again."""

    def holds(self, bucket: int) -> bool:
        """Whether there is a row for that bucket, which must have few."""

    def collect(self, split: Stage, judge: Stage, combine: Stage) -> list[Row]:
        """A few rows: what `judge` makes of the rows of a bucket, for all that `split` makes of the blocks, put
        together by `combine`, which may be applied to any part of them and to its own rows again."""


def combined(rows: list[Row], combine: Stage) -> list[Row]:
    """The rows put together in this process."""
    return list(rows_of(combine(iter([bucket_batch(rows)]))))


class Search(NamedTuple):
    """What to search for: by which orders besides dependencies, and how many cycles of each anomaly to keep."""

    orders: tuple[int, ...]
    explain: int


class Inferences(NamedTuple):
    """Blocks of dependencies, how many of these are in `FLOATING` ones, and the times of all transactions."""

    blocks: Blocks
    floating: int
    times: Times


class Related(NamedTuple):
    """Cycles; `whole` unless some could have been too long for where they were looked for."""

    cycles: ByOrders
    whole: bool

    def by(self, orders: int) -> FoundCycles:
        """The cycles by `orders` orders besides dependencies, which must have been searched for."""
        return self.cycles[orders]


def relate(inferred: Inferences, fetch: Fetch, search: Search, sizes: Sizes = SIZES) -> Related:
    """The cycles in the strong components that windows of time show."""
    usual = inferred.times.usual
    blocks, settled = _placed(inferred, sizes.a_home) if inferred.floating else (inferred.blocks, True)
    plan = WindowPlan(usual, max(sizes.a_window, 8 * usual))
    judge, union = WindowJudge(plan, sizes.most_bytes), Union(2 * usual + 1, sizes.most)
    told = {row.bucket: row.data for row in blocks.collect(WindowSplit(plan), judge, union)}
    settled = settled and UNSEARCHED not in told
    nothing: ByOrders = {orders: FoundCycles() for orders in search.orders}
    if EXTENTS not in told:
        return Related(nothing, settled)
    segments = lay_segments(unpack(told[EXTENTS])[0], sizes, plan.overlap)
    finder = CycleFinder(fetch, search.orders, search.explain, sizes.most_bytes)
    found = blocks.collect(Gatherer(plan, segments), finder, CycleMerger(search.explain))
    return Related(nothing | (decode_cycles(found[0].data) if found else {}), segments.whole and settled)


def _placed(inferred: Inferences, each_home: int) -> tuple[Blocks, bool]:
    """The blocks with the intervals of floating ends, and whether these are as tight as they get: if not, cycles may
    have been missed, but what is found is there."""
    blocks, times, count = inferred.blocks, inferred.times, -(-inferred.floating // each_home)
    plan = HomePlan(count, times.last // count + 1)
    edges, settled = blocks.of(FLOATING).only(Sender(times.usual, plan)), True
    if count > 1:
        known, settled = _settled(edges, Settler(times.usual, plan))
        edges = edges.beside(known)
    return blocks.of(FIXED).beside(edges.met(Placer(times.usual, plan), count)), settled


def _settled(edges: Blocks, settler: Settler) -> tuple[Blocks, bool]:
    """What homes know when none has news for another, or after _ROUNDS rounds, which must do."""
    known = edges.met(settler, settler.plan.count)
    for _ in range(_ROUNDS):
        if not known.holds(CHANGED):
            return known, True
        known = known.met(settler, settler.plan.count)
    return known, False

"""What the pipeline's driver does with blocks of dependencies, whoever runs the stages over them."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol, Self

from checkers.transactions.loose import (
    CHANGED,
    FIRM,
    LOOSE,
    Asker,
    Homes,
    OfKind,
    Placer,
    Settler,
    Teller,
    every_row,
)
from checkers.transactions.packing import unpack
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
from checkers.transactions.times import Times
from checkers.transactions.windows import Plan, WindowJudge, WindowSplit

LEAST_STRIDE: Final = 1 << 18
"""Windows are at least so many events long."""

_ROUNDS: Final = 64
"""Homes of loose transactions tell each other so often what changed; mostly once or twice is enough."""


class Blocks(Protocol):
    """Blocks of dependencies, or other rows by bucket, on which stages can be run."""

    @property
    def parts(self) -> int:
        """How many tasks they are dealt to."""

    def only(self, split: Stage) -> Self:
        """What `split` makes of the rows."""

    def beside(self, other: Self) -> Self:
        """The rows of both."""

    def met(self, judge: Stage) -> Self:
        """What `judge` makes of the rows of a bucket, in order of pieces; kept, for it may be asked for again."""

    def told(self, bucket: int) -> bool:
        """Whether there is a row for that bucket, which must have few."""

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


class Inferences(NamedTuple):
    """Blocks of dependencies, whether any of them is `LOOSE`, and the times of all transactions."""

    blocks: Blocks
    loose: bool
    times: Times


class Related(NamedTuple):
    """Cycles; `whole` unless some could have been too long for where they were looked for."""

    cycles: ByOrders
    whole: bool

    def by(self, orders: int) -> FoundCycles:
        """Those by so many orders besides dependencies, which must have been searched for."""
        return self.cycles[orders]


def relate(
    inferred: Inferences, fetch: Fetch, search: Search, least_stride: int = LEAST_STRIDE, sizes: Sizes = SIZES
) -> Related:
    """The cycles in the strong components that windows of time show."""
    usual = inferred.times.usual
    blocks, settled = _placed(inferred) if inferred.loose else (inferred.blocks, True)
    plan = Plan(usual, max(least_stride, 8 * usual))
    shown = blocks.collect(WindowSplit(plan), WindowJudge(plan), Union(2 * usual + 1, sizes.most))
    nothing: ByOrders = {orders: FoundCycles() for orders in search.orders}
    if not shown:
        return Related(nothing, settled)
    stretches = lay_stretches(unpack(shown[0].data)[0], sizes, plan.overlap)
    finder = CycleFinder(fetch, search.orders, search.explain)
    found = blocks.collect(Gatherer(plan, stretches), finder, CycleMerger(search.explain))
    return Related(nothing | (decode_cycles(found[0].data) if found else {}), stretches.whole and settled)


def _placed(inferred: Inferences) -> tuple[Blocks, bool]:
    """The blocks with the intervals of loose ends, and whether these are as tight as they get: if not, cycles may have
    been missed, but what is found is there."""
    blocks, times = inferred.blocks, inferred.times
    homes = Homes(blocks.parts, times.last // blocks.parts + 1)
    loose = blocks.only(OfKind(LOOSE))
    asked = loose.only(Asker(times.usual, homes)).met(every_row)
    known, rounds = asked.met(Settler(homes)), 1
    while homes.count > 1 and known.told(CHANGED) and rounds < _ROUNDS:
        known, rounds = known.only(every_row).met(Settler(homes)), rounds + 1
    settled = rounds < _ROUNDS
    answers = asked.beside(known.only(every_row)).met(Teller())
    return blocks.only(OfKind(FIRM)).beside(loose.beside(answers).met(Placer())), settled

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.operations import bytecodes
from cluster.ranges.latches import Latch, Latches
from cluster.store.cells import Span, point, rows

SPANS: list[Span] = [
    point((0, 0, 0)),
    point((0, 0, 1)),
    point((0, 3, 0)),
    point((7, 0, 0)),
    rows(0, 0, 1),
    rows(0, 0, None),
    rows(0, 2, 5),
]
Claim: TypeAlias = tuple[tuple[Span, ...], tuple[Span, ...]]
"""What is read and what is written."""

SETS = st.lists(st.sampled_from(SPANS), max_size=3).map(tuple)


def keys_of(spans: tuple[Span, ...]) -> set[tuple[int, int, int]]:
    """The cells of a small universe that lie in the spans."""
    universe = [(p, r, c) for p in (0, 7) for r in range(6) for c in range(2)]
    return {key for key in universe if any(start <= key < end for start, end in spans)}


def clash(one: Latch, other: Latch) -> bool:
    return bool(
        keys_of(one.writes) & (keys_of(other.writes) | keys_of(other.reads))
        or keys_of(one.reads) & keys_of(other.writes)
    )


class Model:
    """All claims in order of arrival; a claim is granted while no earlier one that is not over clashes with it."""

    def __init__(self) -> None:
        self.latches = Latches()
        self.live: list[Latch] = []
        self.woken: list[int] = []
        self.granted: set[int] = set()
        self.numbers: dict[Latch, int] = {}

    def acquire(self, reads: tuple[Span, ...], writes: tuple[Span, ...]) -> None:
        number = len(self.numbers)
        latch = self.latches.acquire(reads, writes)
        latch.wake = lambda: self.woken.append(number)
        self.numbers[latch] = number
        self.live.append(latch)
        if latch.granted:
            self.granted.add(number)

    def release(self, latch: Latch) -> None:
        self.live.remove(latch)
        self.latches.release(latch)
        self.latches.release(latch)

    def check(self) -> None:
        for at, latch in enumerate(self.live):
            expected = not any(clash(earlier, latch) for earlier in self.live[:at])
            assert latch.granted == expected
            number = self.numbers[latch]
            assert (number in self.granted or number in self.woken) == expected
        assert len(self.woken) == len(set(self.woken))
        assert not self.granted & set(self.woken)


@given(data=st.data())
def test_a_claim_is_granted_exactly_when_no_earlier_one_conflicts_and_all_are_in_the_end(data: st.DataObject) -> None:
    model = Model()
    for _ in range(data.draw(st.integers(1, 25))):
        if model.live and data.draw(st.booleans()):
            model.release(data.draw(st.sampled_from(model.live)))  # granted ones end, waiting ones give up
        else:
            model.acquire(data.draw(SETS), data.draw(SETS))
        model.check()
    while model.live:
        assert model.live[0].granted  # the earliest never waits: no deadlock
        model.release(model.live[0])
        model.check()
    assert len(model.latches) == 0


def test_readers_share_and_a_writer_behind_them_goes_before_readers_that_came_later() -> None:
    latches = Latches()
    cell = (point((0, 0, 0)),)
    first, second = latches.acquire(cell, ()), latches.acquire(cell, ())
    writer = latches.acquire((), cell)
    late = latches.acquire(cell, ())
    assert (first.granted, second.granted, writer.granted, late.granted) == (True, True, False, False)
    latches.release(first)
    assert not writer.granted
    latches.release(second)
    assert writer.granted and not late.granted


def test_a_waiting_claim_that_is_given_up_lets_nobody_past_what_it_waited_for() -> None:
    latches = Latches()
    cell = (point((0, 0, 0)),)
    holder = latches.acquire((), cell)
    gone = latches.acquire((), cell)
    behind = latches.acquire((), cell)
    latches.release(gone)
    assert not behind.granted
    latches.release(holder)
    assert behind.granted


def claims_of_cells_of_their_own(count: int) -> list[Claim]:
    return [((), (point((0, row, 0)),)) for row in range(count)]


def writes_of_one_cell(count: int) -> list[Claim]:
    return [((), (point((0, 0, 0)),))] * count


def reads_and_writes_of_one_cell(count: int) -> list[Claim]:
    cell = (point((0, 0, 0)),)
    return [(cell, ()) if number % 3 else ((), cell) for number in range(count)]


def reads_of_one_cell(count: int) -> list[Claim]:
    return [((point((0, 0, 0)),), ())] * count


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(
    "claims",
    [claims_of_cells_of_their_own, writes_of_one_cell, reads_and_writes_of_one_cell, reads_of_one_cell],
)
def test_a_claim_of_a_cell_costs_the_same_however_many_are_open(
    claims: Callable[[int], list[Claim]], backwards: bool
) -> None:
    """Each was compared with every open one of its partition."""

    def cost(count: int) -> int:
        latches = Latches()
        with bytecodes() as counts:
            held = [latches.acquire(*claim) for claim in claims(count)]
            for latch in reversed(held) if backwards else held:
                latches.release(latch)
        assert len(latches) == 0
        return counts.total()

    assert cost(800) < 8 * 1.2 * cost(100)

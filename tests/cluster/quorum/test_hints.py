"""Hints of one coordinator, pure but for a journal that is a list (Q2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from cluster.quorum.hints import MOST_FOR_ONE, Hints
from cluster.quorum.journal import Journal
from cluster.quorum.replica_sets import Endpoint

TARGETS = tuple(Endpoint(name, f"{name}:1", "z1") for name in ("a", "b"))


class Records:
    """A journal whose records are durable at once; `base` is what a cut has put in their place."""

    def __init__(self, hints: Hints) -> None:
        self.hints, self.base, self.records = hints, list[bytes](), list[bytes]()
        self.log_bytes = self.durable = 0

    async def put(self, records: Sequence[bytes]) -> None:
        for record in records:
            self.durable += 1
            self.records.append(record)
            self.hints.take(self.durable, record)

    def cut(self, number: int, base: Iterator[bytes]) -> None:
        assert number == self.durable
        self.base, self.records = list(base), []

    def recovered(self) -> Hints:
        hints = Hints()
        for record in self.base:
            hints.restore(record)
        for number, record in enumerate(self.records, 1):
            hints.take(number, record)
        return hints


def pending(hints: Hints) -> dict[str, list[bytes]]:
    return {each.node_id: [hint.mutation for hint in hints.pending(each.node_id, 99_999)] for each in TARGETS}


async def test_hints_are_kept_in_order_until_delivered_and_found_again_whatever_was_cut() -> None:
    hints = Hints()
    records = Records(hints)
    journal = cast(Journal, records)
    kept: dict[str, list[bytes]] = {"a": [], "b": []}
    for number in range(1_500):
        target = TARGETS[number % 2]
        mutation = b"%d" % number
        assert await hints.store(journal, target, "tablet", mutation, 0)
        kept[target.node_id].append(mutation)
        if number % 3 == 2:
            oldest = hints.pending("a", 1)
            await hints.delivered(journal, tuple(hint.number for hint in oldest))
            del kept["a"][: len(oldest)]
    assert pending(hints) == kept and hints.waiting == {name: len(each) for name, each in kept.items()}
    assert pending(records.recovered()) == kept
    for target in ("a", "b"):
        while some := hints.pending(target, 100):
            await hints.delivered(journal, tuple(hint.number for hint in some))
    while not records.base and records.records:
        assert await hints.store(journal, TARGETS[0], "tablet", b"again", 0)
        await hints.delivered(journal, tuple(hint.number for hint in hints.pending("a", 1)))
    assert pending(records.recovered()) == {"a": [], "b": []}
    assert await hints.store(journal, TARGETS[1], "tablet", b"last", 0)
    assert pending(records.recovered()) == {"a": [], "b": [b"last"]}


async def test_a_target_that_stays_away_costs_no_more_than_so_many_hints() -> None:
    hints = Hints()
    journal = cast(Journal, Records(hints))
    stored = [await hints.store(journal, TARGETS[0], "t", b"x", 0) for _ in range(MOST_FOR_ONE + 3)]
    assert stored.count(False) == 3 and hints.dropped == 3
    assert await hints.store(journal, TARGETS[1], "t", b"x", 0)

"""An order is replayed without a fault exactly where some abstract execution has it: small histories, all orders."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations, permutations

import pytest
from abstract_executions import FORMS, LEVELS, allowed
from adversarial_histories import adversarial
from weak_store import Txn

from checkers.columns.codes import FAIL, INFO, NEVER, OK
from checkers.transactions.polygraph.certificate import TERMS, ClientTransaction, first_fault
from tests.support.few_seeds import ranges_of

OUTCOMES = {"ok": OK, "info": INFO, "fail": FAIL}


def client_side(history: list[Txn], initial: int | None = None) -> list[ClientTransaction]:
    """The history as a replay has it."""
    return [
        ClientTransaction(
            txn.process,
            txn.invoke,
            NEVER if txn.complete is None else txn.complete,
            OUTCOMES[txn.outcome],
            tuple((f == "r", key, None if value == initial else value) for f, key, value in txn.mops),
        )
        for txn in history
    ]


def orders_of(history: list[Txn], split: bool) -> Iterator[tuple[int, ...]]:
    """All orders of those that took place, each of them twice if `split`."""
    committed = [n for n, txn in enumerate(history) if txn.outcome == "ok"]
    unknown = [n for n, txn in enumerate(history) if txn.outcome == "info"]
    for some in chain.from_iterable(combinations(unknown, count) for count in range(len(unknown) + 1)):
        events = sorted([*committed, *some] * (2 if split else 1))
        yield from dict.fromkeys(permutations(events))


@pytest.mark.parametrize("seeds", ranges_of(60, 2_000))
@pytest.mark.parametrize("lists", [False, True])
def test_some_order_replays_exactly_where_a_level_allows_a_history(lists: bool, seeds: range) -> None:
    for seed in seeds:
        small = adversarial(seed, lists)
        if len(small.txns) > 3:
            continue
        words, told = allowed(small.txns, lists, small.initial), client_side(small.txns, small.initial)
        for level in LEVELS:
            orders = list(orders_of(small.txns, TERMS[level].split))
            for form, name in enumerate(FORMS):
                replayed = any(first_fault(told, lists, level, form, order) is None for order in orders)
                assert words[level, name] in (replayed, None), (seed, level, name, small)

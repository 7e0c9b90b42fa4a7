"""Both transactional models against brute force on thousands of small random histories from weak stores."""

from __future__ import annotations

import random
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.support.kernels_alone import find_in

sys.path.insert(0, str(Path(__file__).parent))

import naive
from weak_store import Txn, random_history, source_of, with_strange_reads

from checkers.transactions.inference.register_accesses import ORDER_REALTIME, ORDER_SESSIONS, ORDER_WFR
from checkers.transactions.lattice import impossible_models

SEEDS = range(120)
SHOWN = range(400)
CAMPAIGN = range(1000, 9000)
STATED = [
    stated + realtime
    for stated in (ORDER_WFR, ORDER_SESSIONS, ORDER_WFR + ORDER_SESSIONS)
    for realtime in (0, ORDER_REALTIME)
]


def compare(history: list[Txn], ours: set[str], theirs: set[str], note: object) -> None:
    """We claim only what is there, and rule out all that is to be ruled out."""
    assert ours <= theirs, (note, ours - theirs, history)
    assert impossible_models(ours) == impossible_models(theirs), (note, ours, theirs, history)


def check_lists(seed: int) -> None:
    history = random_history(seed, True)
    for orders in range(3):
        alone, kinds = naive.list_anomalies(history)
        naive.add_orders(history, kinds, orders)
        found = find_in(source_of(history), "list-append", orders, 0, 2)
        compare(history, set(found.counts), alone | naive.cycle_classes(kinds), (seed, orders))


def check_registers(seed: int) -> None:
    """What sessions and transactions say of versions, with real time or without: one of these settings by turns."""
    dice = random.Random(f"reads {seed}")
    history = with_strange_reads(random_history(seed, False), dice, dice.choice([0.0, 0.2, 0.5]))
    cases = [*product(range(3), (0, ORDER_REALTIME)), (dice.randrange(3), STATED[seed % len(STATED)])]
    for orders, sources in cases:
        alone, kinds = naive.register_anomalies(history, sources)
        naive.add_orders(history, kinds, orders)
        found = find_in(source_of(history), "rw-register", orders, sources, 2)
        compare(history, set(found.counts), alone | naive.cycle_classes(kinds), (seed, orders, sources))


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(CAMPAIGN, marks=pytest.mark.campaign)])
@pytest.mark.parametrize("check", [check_lists, check_registers])
def test_transactions_agree_with_brute_force(check, seeds):
    for seed in seeds:
        check(seed)


def test_the_stores_show_every_class():
    """The comparison would be hollow if the stores were too good."""
    found: set[str] = set()
    for seed in SHOWN:
        history = random_history(seed, True)
        alone, kinds = naive.list_anomalies(history)
        naive.add_orders(history, kinds, 2)
        found |= alone | naive.cycle_classes(kinds)
    assert found >= {"G0", "G1a", "G1b", "G1c", "G-single-item", "G-nonadjacent-item", "G2-item", "lost-update"}
    assert found >= {"internal", "incompatible-order", "duplicate-elements", "dirty-update", "G2-item-realtime"}

"""Both transactional models against their definitions on larger random histories, whose transactions interleave; and
the stages of the distributed pipeline on the same."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from tests.support.kernels_alone import find_in

sys.path.insert(0, str(Path(__file__).parent))

import naive
from pipeline_in_memory import find_in_pieces
from stepwise_store import stepwise_history
from weak_store import Txn, source_of

from checkers.transactions.inference.register_accesses import ORDER_REALTIME, ORDER_SESSIONS, ORDER_WFR
from checkers.transactions.lattice import implied_anomalies, impossible_models
from checkers.transactions.transaction_findings import Found
from checkers.transactions.transaction_sentences import KIND_NAMES

MODELS = ["list-append", "rw-register"]
SEEDS = range(60)
CAMPAIGN = range(1000, 5000)
EVERY_SOURCE = ORDER_WFR + ORDER_SESSIONS + ORDER_REALTIME


def find(history: list[Txn], model: str, orders: int, sources: int) -> Found:
    return find_in(source_of(history), model, orders, sources, 4)


def expected(history: list[Txn], model: str, orders: int, sources: int) -> tuple[set[str], naive.Kinds]:
    if model == "list-append":
        alone, kinds = naive.list_anomalies(history)
    else:
        alone, kinds = naive.register_anomalies(history, sources)
    naive.add_orders(history, kinds, orders)
    return alone, kinds


def compare(history: list[Txn], model: str, orders: int, sources: int) -> Found:
    """Anomalies of single keys are the same; every cycle told is there; no class of cycles is missed.

    Where real time orders versions, dependencies that follow from others are not drawn, so that a cycle may show in a
    worse class only.
    """
    found = find(history, model, orders, sources)
    alone, kinds = expected(history, model, orders, sources)
    cyclic = {name for name in found.counts if name.startswith(("G0", "G1c", "G-", "G2"))}
    assert set(found.counts) - cyclic == alone
    place = {txn.invoke: i for i, txn in enumerate(history)}
    shown = set()
    for finding in found.findings:
        if finding.anomaly in cyclic:
            edge_kinds = tuple(KIND_NAMES[kind] for kind in finding.facts["kinds"])
            assert naive.check_cycle(tuple(place[op] for op in finding.ops), edge_kinds, kinds) == finding.anomaly
            shown.add(finding.anomaly)
    assert shown == cyclic
    theirs = naive.projected_classes(kinds, len(history))
    assert cyclic <= implied_anomalies(theirs)
    assert impossible_models(theirs) == impossible_models(cyclic)
    if not sources & ORDER_REALTIME:
        assert {name for name in theirs if "nonadjacent" not in name} <= implied_anomalies(cyclic)
    return found


def choose(seed: int, model: str) -> tuple[list[Txn], int, int]:
    dice = random.Random(f"orders {seed}")
    history = stepwise_history(seed, model == "list-append", dice.choice([10, 40, 120]))
    orders = dice.randrange(3)
    if model == "list-append":
        return history, orders, 0
    if dice.random() < 0.2:
        history = without_some_writes(history, dice)
    return history, orders, dice.choice([0, ORDER_REALTIME, dice.randrange(EVERY_SOURCE + 1)])


def without_some_writes(history: list[Txn], dice: random.Random) -> list[Txn]:
    """The history without some of its writes, so that nobody wrote some values that are read."""
    return [
        txn._replace(mops=tuple(mop for mop in txn.mops if mop[0] == "r" or dice.random() < 0.9)) for txn in history
    ]


def check(model: str, seed: int) -> None:
    history, orders, sources = choose(seed, model)
    try:
        compare(history, model, orders, sources)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, orders {orders}, sources {sources}") from error


def check_stages(model: str, seed: int, folder: Path) -> None:
    history, orders, sources = choose(seed, model)
    dice = random.Random(f"parts {seed}")
    parts = {"rows_each": dice.randint(1, 40), "buckets": dice.randint(1, 4), "stride": dice.choice([1, 16, 4096])}
    theirs = find_in_pieces(source_of(history), folder, model, orders, sources, **parts)
    assert theirs == find(history, model, orders, sources).counts, (seed, orders, sources, parts)


@pytest.mark.parametrize("model", MODELS)
def test_interleaved_transactions_agree_with_the_definitions(model):
    for seed in SEEDS:
        check(model, seed)


@pytest.mark.parametrize("model", MODELS)
def test_the_pipeline_s_stages_say_the_same(model, tmp_path):
    for seed in SEEDS[::2]:
        check_stages(model, seed, tmp_path)


@pytest.mark.campaign
@pytest.mark.parametrize("model", MODELS)
def test_many_more_agree(model, tmp_path):
    for seed in CAMPAIGN:
        check(model, seed)
        if seed % 4 == 0:
            check_stages(model, seed, tmp_path)

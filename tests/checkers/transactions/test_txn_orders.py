"""By the definition of strict serializability itself: a history of lists is valid exactly if some order of its
transactions that respects real time explains every read, and one of registers that has such an order is never invalid.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.extend(str(Path(__file__).parents[level]) for level in (0, 1))

from bruteforce import some_order
from weak_store import Txn, random_history, source_of, with_strange_reads

from checkers.columns.codes import NEVER
from checkers.engines.local import LocalEngine
from checkers.models import MODELS
from checkers.options import CheckOptions
from tests.support.few_seeds import ranges_of

SEEDS = ranges_of(50, 5_000)
MOST = 7
"""Transactions of a history at most, since all their orders are tried."""


def small(seed: int, lists: bool) -> list[Txn]:
    """The first transactions of a store's history, of which some reads may show anything."""
    dice = random.Random(f"orders {seed}")
    history = random_history(seed, lists)[: dice.randint(2, MOST)]
    chance = dice.choice([0.0, 0.0, 0.2, 0.5])
    return with_strange_lists(history, dice, chance) if lists else with_strange_reads(history, dice, chance)


def with_strange_lists(history: list[Txn], dice: random.Random, chance: float) -> list[Txn]:
    """Some reads omit elements, show them in another order, or show more, also of what is appended later."""
    appended: dict[int, list[int]] = {}
    for txn in history:
        for f, key, value in txn.mops:
            appended.setdefault(key, []).extend([value] if f != "r" else [])

    def strange(mop: tuple[str, int, Any]) -> tuple[str, int, Any]:
        f, key, seen = mop
        if f != "r" or seen is None or dice.random() >= chance:
            return mop
        more = (*seen, dice.choice(appended[key] or [99]))
        return f, key, dice.choice([seen[:-1], seen[1:], tuple(dice.sample(seen, len(seen))), more, (*seen, 99), ()])

    return [txn._replace(mops=tuple(map(strange, txn.mops))) for txn in history]


State = tuple[tuple[int, Any], ...]


def steps(state: State, txn: Txn) -> Iterator[State]:
    """What a transaction makes of lists, or registers, that show what it read, if its reads say anything."""
    now = dict(state)
    for f, key, value in txn.mops:
        if f == "r":
            if txn.outcome == "ok" and now.get(key, () if isinstance(value, tuple) else None) != value:
                return
        else:
            now[key] = (*now.get(key, ()), value) if f == "append" else value
    yield tuple(sorted(now.items()))


def has_order(history: list[Txn]) -> bool:
    """Whether an order explains all that is not known to have failed; what is unknown may be left out."""
    possible = [txn for txn in history if txn.outcome != "fail"]
    ends = [txn.complete if txn.outcome == "ok" and txn.complete is not None else NEVER for txn in possible]
    return some_order([(txn, txn.invoke, end) for txn, end in zip(possible, ends, strict=True)], (), steps)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("model", ["list-append", "rw-register"])
def test_strict_serializability_is_what_its_definition_says(model: str, seeds: range) -> None:
    seen: Counter[tuple[bool, Any]] = Counter()
    for seed in seeds:
        history = small(seed, model == "list-append")
        verdict = MODELS[model].judge(source_of(history), LocalEngine(), CheckOptions(explain=1))
        right = has_order(history)
        seen[right, verdict.valid] += 1
        assert not (right and verdict.valid is False), (seed, verdict.counts, history)
        assert model == "rw-register" or right or verdict.valid is False, (seed, history)
    assert min(seen[True, True], seen[False, False]) > len(seeds) // 10, "both answers must occur often"

"""Random small histories, valid and corrupted, against naive versions of the same checkers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from jepsen_histories import joined, judge, random_history
from naive_jepsen import (
    naive_bank,
    naive_convergence,
    naive_counter,
    naive_long_fork,
    naive_queue,
    naive_set,
    naive_set_full,
    naive_total_queue,
    naive_unique_ids,
)

from checkers.jepsen.queues import CLASSES
from harness.history.ops import Op
from tests.support.few_seeds import ranges_of

SEEDS = ranges_of(100, 3_000)
HISTORIES = 500
TOGETHER = 25

NAIVE: dict[str, Callable[[list[Op]], dict[str, int] | None]] = {
    "bank": naive_bank,
    "set": naive_set,
    "set-full": naive_set_full,
    "counter": naive_counter,
    "queue": naive_queue,
    "total-queue": naive_total_queue,
    "long-fork": naive_long_fork,
    "unique-ids": naive_unique_ids,
    "convergence": naive_convergence,
}


def nonzero(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


def counted(model: str, events: list[Op]) -> dict[str, int]:
    """All that the checker counts, anomalies or not, in the naive version's words."""
    settings = {"linearizable": "true"} if model == "set-full" else {}
    verdict = judge(model, events, **settings)
    counts = dict(verdict.counts)
    if model == "set-full":
        counts |= {name: verdict.details.get(name, 0) for name in ("stable", "never_read")}
    if model == "total-queue":
        counts |= {name: verdict.details[name] for name in CLASSES}
    return nonzero(counts)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("model", NAIVE)
def test_random_small_histories_agree_with_the_naive_version(model: str, seeds: range) -> None:
    seen: Counter[bool] = Counter()
    for seed in seeds:
        events = random_history(model, seed)
        expected = NAIVE[model](events)
        assert counted(model, events) == nonzero(expected or {}), f"{model}, seed {seed}: {events}"
        seen[bool(nonzero(expected or {}).keys() - {"stable", "never_read"})] += 1
        if model == "set" and expected is None:
            assert judge(model, events).valid == "unknown"
    assert min(seen[True], seen[False]) > len(seeds) // 30, "both answers must occur often"


@pytest.mark.parametrize("model", [name for name in NAIVE if name != "bank"])
def test_many_objects_in_one_history_are_judged_apart(model: str) -> None:
    for first in range(0, HISTORIES, TOGETHER):
        histories = [
            random_history(model, HISTORIES + seed, key=seed - first) for seed in range(first, first + TOGETHER)
        ]
        expected: Counter[str] = Counter()
        for one in histories:
            expected.update(NAIVE[model](one) or {})
        if model == "unique-ids":
            expected = Counter(naive_unique_ids([op for one in histories for op in one]))
        assert counted(model, joined(histories)) == nonzero(dict(expected))


@pytest.mark.parametrize("model", NAIVE)
def test_invalid_exactly_if_something_is_counted(model: str) -> None:
    for seed in range(60):
        verdict = judge(model, random_history(model, seed))
        assert (verdict.valid is False) == bool(verdict.counts)
        assert all(verdict.anomalies[name] for name in verdict.counts)
        assert all(anomaly.message.endswith((".", "…")) for found in verdict.anomalies.values() for anomaly in found)

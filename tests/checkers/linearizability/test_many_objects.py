"""Histories of many small objects take time by their length, not by objects times operations."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from random import Random
from typing import Any

from object_histories import columns, random_calls

from checkers.linearizability.objects.object_columns import sorted_rows
from checkers.linearizability.objects.queues_and_sets import build_set


def sets(count: int) -> Any:
    """Columns of `count` sets; one in a few shows what can't be."""
    some = [random_calls(Random(seed), "lin-set", 6) for seed in range(100)]
    return sorted_rows(columns("lin-set", [some[number % 100] for number in range(count)]))


def ratio(work: Callable[[Any], Any], few: Any, many: Any) -> float:
    """How many times as long the work on many takes as on few."""

    def cost_s(given: Any) -> float:
        began = time.process_time()
        work(given)
        return time.process_time() - began

    cost_s(few)  # compiles
    return statistics.median(cost_s(many) / cost_s(few) for _ in range(3))


def test_eight_times_the_sets_are_built_in_about_eight_times_the_time() -> None:
    assert ratio(build_set, sets(2_000), sets(16_000)) < 16

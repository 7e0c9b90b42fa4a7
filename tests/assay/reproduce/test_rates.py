"""Rates of which a few runs tell: their bounds, and when enough runs were seen."""

from __future__ import annotations

from random import Random

import pytest

from assay.reproduce.rates import LESS, NONE, WRONG, Hits, holds, runs_for_one, wilson


@pytest.mark.parametrize(
    ("hits", "runs", "low", "high"),
    [(0, 0, 0.0, 1.0), (3, 20, 0.052, 0.360), (0, 10, 0.0, 0.278), (10, 10, 0.722, 1.0)],
)
def test_bounds_are_those_of_wilson(hits: int, runs: int, low: float, high: float) -> None:
    assert wilson(hits, runs) == pytest.approx((low, high), abs=0.001)


def test_how_many_runs_show_it_once() -> None:
    assert [runs_for_one(rate) for rate in (1.0, 0.5, 0.15)] == [1, 7, 29]


@pytest.mark.parametrize(
    ("usual", "hits", "misses"),
    [(0.9, 2, 2), (0.8, 2, 2), (0.5, 2, 5), (0.3, 2, 9)],
)
def test_runs_of_one_kind_decide_soon(usual: float, hits: int, misses: int) -> None:
    answers = [holds(Hits(count, count), usual) for count in range(hits + 1)]
    assert answers == [*[None] * hits, True]
    answers = [holds(Hits(0, count), usual) for count in range(misses + 1)]
    assert answers == [*[None] * misses, False]


@pytest.mark.parametrize("usual", [0.9, 0.5, 0.3])
@pytest.mark.parametrize("is_usual", [True, False])
def test_each_answer_is_mostly_right(usual: float, is_usual: bool) -> None:
    chance, rate, wrong, cases = Random(7), usual if is_usual else usual * LESS, 0, 500
    for _ in range(cases):
        seen, answer = NONE, None
        while answer is None:
            seen = seen.seen(chance.random() < rate)
            answer = holds(seen, usual)
        wrong += answer is not is_usual
    assert wrong <= 1.5 * WRONG * cases

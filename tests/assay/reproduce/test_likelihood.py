"""When a finding became inevitable: the rise of a curve of shares is found, also where the shares are noisy."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest

from assay.options import RunOptions
from assay.reproduce.inputs import Inputs
from assay.reproduce.likelihood import BRANCHES, NARROW_S, CurvePoint, branches_at, climbed


def curve_of(share: Callable[[float], float], seed: int = 0) -> tuple[list[float], tuple[float, float] | None]:
    """The times that are asked for, and the rise, of branches that show a finding with these shares."""
    chance, asked = Random(seed), list[float]()

    def point_at(at_s: float) -> CurvePoint:
        asked.append(at_s)
        return CurvePoint(at_s, sum(chance.random() < share(at_s) for _ in range(BRANCHES)), BRANCHES)

    return asked, climbed(point_at, 16.0).rise


def step_at(begin_s: float) -> Callable[[float], float]:
    return lambda at_s: float(at_s > begin_s)


@pytest.mark.parametrize("begin_s", [0.1, 5.0, 7.99, 15.9])
def test_a_step_is_found_in_a_few_points(begin_s: float) -> None:
    asked, rise = curve_of(step_at(begin_s))
    assert rise is not None
    assert rise[0] <= begin_s <= rise[1] <= rise[0] + NARROW_S
    assert len(asked) == len(set(asked)) <= 2 + math.ceil(math.log2(16 / NARROW_S))


@pytest.mark.parametrize("seed", range(20))
def test_a_slope_is_found_within_its_bounds(seed: int) -> None:
    asked, rise = curve_of(lambda at_s: min(1.0, max(0.0, (at_s - 4) / 2)), seed)
    assert rise is not None
    assert rise[0] <= 6.0 and rise[1] >= 4.0 and len(asked) <= 9


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_where_chance_does_not_matter_nothing_rises(share: float) -> None:
    assert curve_of(lambda at_s: share) == ([0.0, 16.0], None)


def test_branches_have_chance_of_their_own() -> None:
    branches = branches_at(Inputs(RunOptions("register")), 5)
    assert {each.anew_ns for each in branches} == {5}
    assert len({each.key for each in branches}) == BRANCHES

"""Trends: made series in which nothing changes, and others in which something does."""

from __future__ import annotations

import numpy as np
import pytest
from made_nights import night, run

from assay.night.records import MachineRecord, Night, RunFigures
from assay.night.trends import (
    LEAST_WALL_NIGHTS,
    FigureSeries,
    NightValue,
    changed,
    changes_of,
    levels_of,
    series_of,
    size_of,
)

NIGHTS, SERIES, RUNS = 30, 200, 12
DAYS = [night([], day=day) for day in range(2, 2 + NIGHTS)]
COMMON, OWN = 0.05, 0.10
"""Noise that all runs of a night share, and that of each run."""


def made(virtual: bool, change: float, seed: int, count: int = SERIES) -> list[FigureSeries]:
    """Series of which each grows by `change` at night 20; of the wall clock with noise common to a night, by seeds that
    no other night has."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        nights = []
        for place, each in enumerate(DAYS, 1):
            level = 100 * (1 + change * (place >= 20))
            common = 0.0 if virtual else rng.normal(0, COMMON)
            values = level * np.exp(common + rng.normal(0, OWN, RUNS))
            nights.append(NightValue(each, {place * RUNS + n: float(value) for n, value in enumerate(values)}))
        found.append(FigureSeries(f"cell {number}", "p99-ms", virtual, 1, tuple(nights)))
    return found


def first_alarm(series: FigureSeries, since: int, until: int) -> int | None:
    """The first night whose morning an alarm shows, to who looks every morning; of a plan with this series alone."""
    mornings = range(since, until + 1)
    return next((n for n in mornings if changed([series._replace(nights=series.nights[:n])], DAYS[n - 1])), None)


@pytest.mark.parametrize(("virtual", "count"), [(False, SERIES), (True, 60)], ids=["wall", "virtual"])
def test_false_alarms_are_few_and_a_change_is_found_within_four_nights(virtual: bool, count: int) -> None:
    """Without a change one series of twenty alarms at most over thirty mornings; a fifth more at night 20 is found by
    night 23 in nine of ten."""
    false = [first_alarm(each, 2, NIGHTS) for each in made(virtual, 0.0, 1, count)]
    assert sum(each is not None for each in false) <= 0.05 * count
    found = [first_alarm(each, 20, 23) for each in made(virtual, 0.2, 2, count)]
    assert sum(each is not None for each in found) >= 0.9 * count


def test_of_many_series_at_once_discoveries_are_true() -> None:
    """Twenty slower ones among two hundred: of what is told on the morning of night 23 nineteen of twenty are these."""
    quiet, slower = made(False, 0.0, 3)[20:], [each._replace(figure="slower") for each in made(False, 0.2, 4, 20)]
    nights = [each._replace(nights=each.nights[:23]) for each in (*quiet, *slower)]
    told = [change.series.figure for change in changed(nights, DAYS[22])]
    assert told.count("slower") >= 15 and len(told) - told.count("slower") <= 1


def a_night(day: int, slow: float = 1.0, first: int | None = None, **head: object) -> Night:
    """A night of twelve runs, whose seeds are its own unless `first` names them."""
    start = 100 * day if first is None else first
    values = [slow * (10 + (7 * n + (day if first is None else 0)) % 12 * 0.1) for n in range(12)]
    made_runs = [
        run(n, seed=start + n, figures=RunFigures(p99_ms=each, checker_s=each)) for n, each in enumerate(values)
    ]
    return night(made_runs, day=day, head=head)


def test_figures_in_virtual_time_are_compared_at_once_and_those_of_the_wall_clock_later() -> None:
    changes = changes_of([a_night(28), a_night(29), a_night(30, 1.3)])
    assert [change.series.figure for change in changes] == ["p99-ms"]
    (change,) = changes
    assert change.low < change.size < change.high and abs(change.size - 0.3) < 0.05
    assert change.since.head.begun[:10] == "2026-12-30" and "p99-ms: +" in change.sentence
    many = [a_night(day, 1.3 if day > 24 else 1.0) for day in range(28 - LEAST_WALL_NIGHTS + 1, 29)]
    wall = [each for each in changes_of(many) if each.series.figure == "checker-s"]
    assert [each.since.head.begun[:10] for each in wall] == ["2026-12-25"]
    assert not [each for each in changes_of(many[1:]) if each.series.figure == "checker-s"]


def test_equal_seeds_are_compared_in_pairs() -> None:
    """A change that is smaller than what seeds differ by is found where the seeds are the same."""
    assert changes_of([a_night(29, first=0), a_night(30, 1.04, first=0)])
    assert not changes_of([a_night(29), a_night(30, 1.04)])


def test_another_machine_is_another_series() -> None:
    """Of the wall clock; virtual time is the same everywhere."""
    other = MachineRecord(host="other", cores=64)
    nights = [a_night(day, machine=other) for day in range(20, 30)] + [a_night(30)]
    lengths = {each.figure: len(each.nights) for each in series_of(nights)}
    assert (lengths["p99-ms"], lengths["checker-s"]) == (11, 1)


def test_sizes_have_intervals_that_hold() -> None:
    """Of a hundred samples the true size lies in nine of ten intervals at least."""
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(100):
        first, second = np.exp(rng.normal(0, 0.2, 20)), 1.2 * np.exp(rng.normal(0, 0.2, 20))
        _, low, high = size_of(first, second)
        held += low <= 0.2 <= high
    assert held >= 90
    assert size_of(np.zeros(5), np.zeros(5)) == (0.0, 0.0, 0.0)


def test_the_long_view_has_the_levels() -> None:
    series = made(False, 0.5, 6)[0]
    assert [level.begin for level in levels_of(series)] == [0, 19]
    assert len(levels_of(series._replace(nights=series.nights[:5]))) == 1

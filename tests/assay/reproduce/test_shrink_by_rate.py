"""Runs in real time become smaller at their hit rate: with a made-up runner, no containers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace as changed

from assay.options import RunOptions
from assay.reproduce.inputs import Inputs, inputs_in_real_time, load_inputs, save_inputs
from assay.reproduce.rates import NONE, Hits
from assay.reproduce.shrink_by_rate import ENOUGH_HITS, MOST_RUNS, RateSearch, Shows
from assay.runner import Keep, RunOrder, run_orders
from harness.history.rundir import RunDir
from nemesis.planned import PlannedFault

SECOND = 1_000_000_000
KINDS = ("kill", "partition", "pause")
CAUSE = 4
"""The fault that makes the finding, which begins 10 s after the load did."""


def whole() -> Inputs:
    faults = (PlannedFault(n, KINDS[n % 3], "one", n, (2 * n + 2) * SECOND, (2 * n + 3) * SECOND) for n in range(6))
    return Inputs(RunOptions("register", on="docker", nemesis=KINDS, time_limit=60.0), tuple(faults), own_load=True)


class Runner:
    """Shows the finding at a rate where the cause begins behind 2 s of load, and lasts a second."""

    def __init__(self, rate: float, seed: int = 0) -> None:
        self.made, self._rate, self._chance = 0, rate, Random(seed)

    def __call__(self, inputs: Inputs) -> bool | None:
        self.made += 1
        return able(inputs) and self._chance.random() < self._rate


def able(inputs: Inputs) -> bool:
    end_ns = inputs.options.time_limit * SECOND
    causes = [fault for fault in inputs.faults if fault.instance == CAUSE]
    return any(
        2 * SECOND <= each.begin_ns <= (each.end_ns or 0) - SECOND and (each.end_ns or 0) <= end_ns for each in causes
    )


def searched(shows: Shows, to: Path, budget_s: float = 60.0) -> tuple[RateSearch, Inputs | None]:
    search = RateSearch(shows, to, budget_s)
    return search, search.run(whole(), None)


@pytest.mark.parametrize(("rate", "most_runs", "most_faults"), [(1.0, 60, 1), (0.7, 160, 2), (0.3, 400, 2)])
def test_what_is_needed_stays_and_little_else(rate: float, most_runs: int, most_faults: int, tmp_path: Path) -> None:
    sizes = []
    for seed in range(10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        runner = Runner(rate, seed)
        search, best = searched(runner, folder)
        if best is None:
            assert search.before.hits == 0
            continue
        assert able(best)
        assert best.options.nemesis == tuple(dict.fromkeys(fault.kind for fault in best.faults))
        assert load_inputs(folder / "inputs") == best
        assert search.smallest and runner.made <= most_runs
        sizes.append((len(best.faults), best.options.time_limit))
    sizes.sort()
    assert len(sizes) >= 9 and sizes[len(sizes) // 2][0] <= most_faults
    if rate == 1:
        assert set(sizes) == {(1, 3.975)}, "2.725 s of load, the fault, and what halves of the end leave"


@pytest.mark.parametrize(
    ("shows", "before"),
    [(lambda inputs: False, Hits(0, MOST_RUNS)), (lambda inputs: None, NONE)],
    ids=["never", "nobody can tell"],
)
def test_what_does_not_show_again_has_no_rate(shows: Shows, before: Hits, tmp_path: Path) -> None:
    search, best = searched(shows, tmp_path)
    assert (best, search.before) == (None, before)


def test_it_goes_on_where_it_was_stopped_with_the_best_so_far(tmp_path: Path) -> None:
    """Stopped after each number of runs in turn; what was answered is not asked again."""
    runner = Runner(1.0)

    def until(most: int) -> Shows:
        def shows(inputs: Inputs) -> bool | None:
            if runner.made == most:
                raise KeyboardInterrupt
            return runner(inputs)

        return shows

    sizes = []
    for most in range(0, 60, 3):
        runner.made = 0
        search, best = searched(until(most), tmp_path)
        if best is not None:
            sizes.append(len(best.faults))
        if search.smallest and search.after.runs:
            break
    assert sizes == sorted(sizes, reverse=True) and (sizes[0], sizes[-1]) == (6, 1)
    runner.made = 0
    search, best = searched(runner, tmp_path)
    assert runner.made == 0 and search.after == Hits(ENOUGH_HITS, ENOUGH_HITS)


def test_without_time_the_whole_is_the_best(tmp_path: Path) -> None:
    search, best = searched(Runner(1.0), tmp_path, budget_s=0.0)
    assert (best, search.before, search.after) == (whole(), Hits(3, 3), Hits(3, 3))


def test_the_faults_of_a_history_are_its_inputs(tmp_path: Path) -> None:
    """As they are recorded, but for what each did: in real time each finds its nodes."""
    options = RunOptions(
        "register", nemesis=("partition(target=leader)", "deposed-leader"), time_limit=4.0, seed=3, store=tmp_path
    )
    order = RunOrder(replace(options, record=tmp_path / "inputs"), Keep.ALL)
    ((_, result),) = run_orders([order], 1)
    assert result.run is not None
    recorded = load_inputs(tmp_path / "inputs").faults
    found = inputs_in_real_time(RunDir(result.run), replace(options, on="docker"))
    assert len(found.faults) >= 2
    assert found.faults == tuple(changed(fault, action=None) for fault in recorded)
    save_inputs(found, tmp_path / "real")
    assert load_inputs(tmp_path / "real").faults == found.faults

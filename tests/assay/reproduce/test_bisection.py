"""Bisection of findings that show in a share of the runs: the posterior, and which commits a search asks and names."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest

from assay.reproduce.bisect_command import Bisected, BisectRecord, CommitSearch
from assay.reproduce.bisection import CONFIDENCE, ENDS, RARE, SHOWN, Bisection, begun
from assay.reproduce.worktrees import NoRun
from harness.errors import UserError

COMMITS = [f"{place:040x}" for place in range(64)]


@dataclass
class FakeRuns:
    """Runs that hit at one rate before a commit and at another from it on; some commits do not build, some not run."""

    place: int
    rates: tuple[float, float]
    unbuilt: frozenset[int] = frozenset()
    unrun: frozenset[int] = frozenset()
    seed: int = 0
    calls: int = 0
    tried: list[int] = field(default_factory=list)

    def why_not(self, commit: str) -> str | None:
        self.tried.append(int(commit, 16))
        return "it does not compile." if self.tried[-1] in self.unbuilt else None

    def hits(self, commit: str, seeds: Sequence[int]) -> list[bool]:
        place = int(commit, 16)
        if place in self.unrun:
            raise NoRun("no run can be made of it.")
        self.calls += len(seeds)
        return [Random(f"{self.seed}/{place}/{seed}").random() < self.rates[place >= self.place] for seed in seeds]


def searched(runs: FakeRuns, commits: Sequence[str] = COMMITS, several: int = 4, most: int = 1_000) -> CommitSearch:
    search = CommitSearch(commits, 7, BisectRecord(1, "f", commits[0], commits[-1], None))
    for _ in search.steps(runs, several):
        if runs.calls > most:
            break
    return search


def test_the_commit_is_named_in_nineteen_of_twenty() -> None:
    right, calls = 0, []
    for seed in range(1_000, 1_100):
        random = Random(seed)
        place = random.randrange(1, 64)
        unbuilt = frozenset(random.sample([each for each in range(1, 63) if each != place], 3))
        runs = FakeRuns(place, (0.02, 0.3), unbuilt, seed=seed)
        search = searched(runs)
        told = Bisected(search, "a stale read", dict.fromkeys(COMMITS, ""), None)  # type: ignore[arg-type]
        assert set(search.record.left_out) == {COMMITS[each] for each in unbuilt.intersection(runs.tried)}
        assert all(runs.tried.count(each) <= 1 for each in unbuilt), "what does not build is not tried again"
        assert len(search.record.seen) == runs.calls == sum(search.known.runs)
        right += told.code == 1 and told.places[-1] == place and unbuilt.issuperset(told.places[:-1])
        calls.append(runs.calls)
    assert right >= 95
    assert statistics.median(calls) <= 130 and max(calls) <= 300, "runs"


@pytest.mark.parametrize(("rates", "most"), [((0.0, 1.0), 60), ((0.2, 0.8), 300), ((0.0, 0.1), 1_000)])
def test_other_rates_take_more_or_fewer_runs(rates: tuple[float, float], most: int) -> None:
    runs = [FakeRuns(place, rates, seed=place) for place in (1, 5, 12, 20)]
    found = [searched(each, COMMITS[:21]).known.suspects for each in runs]
    assert sum(each.place in places for each, places in zip(runs, found, strict=True)) >= 3
    assert max(each.calls for each in runs) <= most


@pytest.mark.parametrize(
    ("place", "word"),
    [(0, "is not good: the finding shows there too"), (64, "is not bad: the finding shows there in 0 of")],
)
def test_ends_that_are_not_as_they_were_said_are_told(place: int, word: str) -> None:
    told = Bisected(searched(FakeRuns(place, (0.0, 0.5))), "a stale read", dict.fromkeys(COMMITS, ""), None)  # type: ignore[arg-type]
    assert told.code == 2 and told.places == () and word in next(told.lines())


def test_what_does_not_build_before_the_commit_can_not_be_told_from_it() -> None:
    runs = FakeRuns(4, (0.0, 0.9), frozenset({3}), frozenset({2}))
    told = Bisected(searched(runs, COMMITS[:8]), "", {commit: commit[-1] for commit in COMMITS}, None)  # type: ignore[arg-type]
    assert told.places == (2, 3, 4) and told.code == 1
    answer, *lines = told.lines()
    assert answer.startswith("FOUND: one of ") and answer.endswith("of which runs can be made of the last only: 4")
    assert sum(line.startswith("  left out: ") for line in lines) == 2


def test_where_nothing_builds_that_is_said() -> None:
    with pytest.raises(
        UserError, match=r"at [01] of these commits, which tells nothing; of another: it does not compile"
    ):
        searched(FakeRuns(1, (0, 1), frozenset(range(3))), COMMITS[:3])


def test_a_search_goes_on_from_its_record() -> None:
    whole, runs = searched(FakeRuns(9, (0.02, 0.4))), FakeRuns(9, (0.02, 0.4))
    first = searched(runs, most=20)
    again = CommitSearch(COMMITS, 7, first.record)
    assert again.known == first.known and not again.known.is_decided
    assert all(again.steps(runs, 4)) and again.record == whole.record


def likelihood(known: Bisection, place: int) -> float:
    """Of the runs, if the finding came with this commit, by a sum over rates."""
    rates = (np.arange(4_000) + 0.5) / 4_000
    found = 1.0
    for prior, part in ((RARE, slice(0, place)), (SHOWN, slice(place, None))):
        hits, runs = sum(known.hits[part]), sum(known.runs[part])
        density = rates ** (prior[0] - 1) * (1 - rates) ** (prior[1] - 1)
        found *= float((rates**hits * (1 - rates) ** (runs - hits) * density).sum() / density.sum())
    return found


def test_the_posterior_is_that_of_rates_which_nobody_knows() -> None:
    known = Bisection((4, 0, 7, 3, 5), (0, 0, 1, 2, 4))
    prior = np.array([ENDS, *[(1 - 2 * ENDS) / 4] * 4, ENDS])
    shares = prior * [likelihood(known, place) for place in range(6)]
    assert known.posterior == pytest.approx(shares / shares.sum(), rel=1e-3)
    assert begun(5).posterior == pytest.approx(prior)


def test_the_suspects_are_the_fewest_with_most_of_the_posterior() -> None:
    known = Bisection((6, 6, 6, 6, 6), (0, 0, 1, 3, 3))
    shares = known.posterior
    chosen = list(known.suspects)
    assert shares[chosen].sum() >= CONFIDENCE > shares[chosen[:-1]].sum()
    assert sorted(shares[chosen])[::-1] == list(shares[chosen])


def test_the_first_question_is_in_the_middle_and_no_seed_is_asked_twice_of_a_commit() -> None:
    assert 10 <= begun(64).next_commit <= 50
    record = searched(FakeRuns(30, (0.02, 0.3))).record
    assert len({(visit.commit, visit.seed) for visit in record.seen}) == len(record.seen)
    assert min(visit.seed for visit in record.seen) == 7

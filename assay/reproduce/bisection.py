"""Which commit brought a finding that shows in a share of the runs only: noisy bisection by posterior.

    while no place has 95 %:
        commit = the one of which a run is expected to say most about the place
        hit = does a run of it show the finding?
        posterior = the share of each place, given all runs so far

A *place* is the first commit with the finding. Before it runs hit at one rate, from it on at another, neither of them
known: both have Beta priors, which a hit or a miss moves to another Beta, so that how likely all runs are for a place
is a quotient of Beta functions and no rate need be estimated. Asking where the entropy is expected to fall most is the
rule of Jedynak, Frazier and Sznitman, "Twenty questions with noise" (2012); `git-bayesect` puts both together. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
from scipy.special import betaln

CONFIDENCE: Final = 0.95

RARE: Final = (1.0, 8.0)
"""Beta of the rate before: mostly little, though another bug may look alike."""

SHOWN: Final = (1.0, 1.0)
"""Beta of the rate from the commit on: any."""

ENDS: Final = 0.1
"""The share of the first and of the last place before any run: what was said of good and bad may be wrong."""

Shares: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"


@dataclass(frozen=True, slots=True)
class Bisection:
    """What is known of some commits, in order from one that is said to be good to one that is said to be bad: how many
    runs of each there were, how many of these hit, and which do not build.

    There are as many places as commits, and one: place 0 is that the first commit has the finding already, the last
    place that no commit has it. Both say that no commit between makes a difference, and are one group.
    """

    runs: tuple[int, ...]
    hits: tuple[int, ...]
    unbuilt: frozenset[int] = frozenset()

    def seen(self, commit: int, hit: bool) -> Bisection:
        """With one run more."""
        runs, hits = list(self.runs), list(self.hits)
        runs[commit] += 1
        hits[commit] += hit
        return replace(self, runs=tuple(runs), hits=tuple(hits))

    def without(self, commit: int) -> Bisection:
        """With a commit that does not build, which is not asked again."""
        return replace(self, unbuilt=self.unbuilt | {commit})

    @property
    def posterior(self) -> Shares:
        """The share of each place."""
        likelihood = _evidence(RARE, *self._counts(True)) + _evidence(SHOWN, *self._counts(False))
        between = len(self.runs) - 1
        prior = np.array([ENDS, *[(1 - 2 * ENDS) / between] * between, ENDS])
        shares = prior * np.exp(likelihood - likelihood.max())
        return np.asarray(shares / shares.sum())

    def _counts(self, before: bool) -> tuple[Shares, Shares]:
        """Of each place the hits and the misses before it, or from it on."""
        hits = np.concatenate([[0.0], np.cumsum(self.hits)])
        misses = np.concatenate([[0.0], np.cumsum(self.runs)]) - hits
        return (hits, misses) if before else (hits[-1] - hits, misses[-1] - misses)

    @property
    def groups(self) -> list[tuple[int, ...]]:
        """Places that are one answer: a commit that builds, with those before it that do not, which no run can tell
        from it; and first of all those at the ends."""
        found: list[list[int]] = [[]]
        for commit in range(len(self.runs)):
            found[-1].append(commit)
            if commit not in self.unbuilt:
                found.append([])
        found[-1].append(len(self.runs))
        ends = [*found[0], *(found[-1] if len(found) > 1 else ())]
        return [tuple(group) for group in (ends, *found[1:-1])]

    @property
    def suspects(self) -> tuple[int, ...]:
        """The fewest places with CONFIDENCE together, the likeliest first; each with what can't be told from it."""
        shares = self.posterior
        chosen, held = list[int](), 0.0
        for group in sorted(self.groups, key=lambda group: -float(shares[list(group)].sum())):
            chosen += group
            held += float(shares[list(group)].sum())
            if held >= CONFIDENCE:
                break
        return tuple(chosen)

    @property
    def is_decided(self) -> bool:
        """Whether no run could make the suspects fewer, as far as CONFIDENCE goes."""
        shares = self.posterior
        return max(float(shares[list(group)].sum()) for group in self.groups) >= CONFIDENCE

    @property
    def next_commit(self) -> int:
        """The commit of which a run leaves the least entropy, as is to be expected; the first of several such."""
        shares, places = self.posterior, np.arange(len(self.runs) + 1)
        rare = _mean(RARE, *self._counts(True))
        shown = _mean(SHOWN, *self._counts(False))
        able = [commit for commit in range(len(self.runs)) if commit not in self.unbuilt]
        hit = np.where(places[None, :] <= np.array(able)[:, None], shown[None, :], rare[None, :])
        within = np.zeros((len(places), len(self.groups)))
        for number, group in enumerate(self.groups):
            within[list(group), number] = 1.0
        left = sum(_entropy(shares * rate @ within) for rate in (hit, 1.0 - hit))
        return able[int(np.argmin(np.round(left, 12)))]


def begun(commits: int) -> Bisection:
    """Before any run."""
    return Bisection((0,) * commits, (0,) * commits)


def _evidence(prior: tuple[float, float], hits: Shares, misses: Shares) -> Shares:
    """How likely (ln) these hits and misses are at a rate of this prior."""
    return np.asarray(betaln(prior[0] + hits, prior[1] + misses) - betaln(*prior))


def _mean(prior: tuple[float, float], hits: Shares, misses: Shares) -> Shares:
    return (prior[0] + hits) / (sum(prior) + hits + misses)


def _entropy(joint: Shares) -> Shares:
    """Of each row, what is left to know (nats) once it is seen, times how likely that is."""
    total = joint.sum(axis=1, keepdims=True)
    logs = np.log(np.where(joint > 0, joint / total, 1.0))
    return np.asarray(-(joint * logs).sum(axis=1))

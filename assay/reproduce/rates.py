"""Rates of which a few runs tell: how sure they are, and when enough runs were seen to take one for another."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

Z: Final = 1.96
"""Of intervals that hold the rate in 95 of 100 cases."""

SURE: Final = 0.99

LESS: Final = 1 / 3
"""A rate of this share of the usual one is taken for another."""

WRONG: Final = 0.1
"""How often each of both answers may be wrong."""


class Hits(NamedTuple):
    """Of `runs`, how many hit."""

    hits: int = 0
    runs: int = 0

    def seen(self, hit: bool) -> Hits:
        """With one run more."""
        return Hits(self.hits + hit, self.runs + 1)

    @property
    def likely(self) -> float:
        """The rate, never 0 or 1 (Laplace's rule of succession)."""
        return (self.hits + 1) / (self.runs + 2)

    def words(self) -> str:
        """The rate with its bounds, for people."""
        if not self.runs:
            return "no run"
        low, high = wilson(self.hits, self.runs)
        return f"{self.hits} of {self.runs} runs ({low:.0%} to {high:.0%})"


NONE: Final = Hits()


def wilson(hits: int, runs: int) -> tuple[float, float]:
    """The bounds of a rate, of which `hits` of `runs` were seen (Wilson 1927), 95 %."""
    if runs == 0:
        return 0.0, 1.0
    share, spread = hits / runs, Z * Z / runs
    middle = (share + spread / 2) / (1 + spread)
    half = Z * math.sqrt(share * (1 - share) / runs + spread / (4 * runs)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def runs_for_one(rate: float) -> int:
    """How many runs show it at least once with SURE, at this rate above 0."""
    return 1 if rate >= 1 else math.ceil(math.log(1 - SURE) / math.log(1 - rate))


def holds(seen: Hits, usual: float) -> bool | None:
    """Whether the rate is the usual one (True), or LESS of it (False); None while too few runs were seen.

    The sequential test of two rates (Wald 1945): each answer is wrong in WRONG of the cases at most, about.
    """
    less = usual * LESS
    ratio = seen.hits * math.log(usual / less) + (seen.runs - seen.hits) * math.log((1 - usual) / (1 - less))
    enough = math.log((1 - WRONG) / WRONG)
    return None if abs(ratio) < enough else ratio > 0

"""How sure a rate is of which a few runs tell."""

from __future__ import annotations

import math
from typing import Final

Z: Final = 1.96
"""Of intervals that hold the rate in 95 of 100 cases."""

SURE: Final = 0.99


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

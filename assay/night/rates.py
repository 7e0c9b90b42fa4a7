"""What counts of runs prove of a rate: bounds, intervals, and when too many or none is no accident."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log, log1p, sqrt
from typing import Final

from scipy.special import bdtrc, betaincinv, ndtri  # scipy.stats takes ten times as long to load

CONFIDENCE: Final = 0.95

TOO_MANY: Final = 0.01
"""More runs than a rate gives with a larger probability than this are more than that rate."""

MISSED: Final = 0.01
"""A flaw is missed if its runs without it would come with a smaller probability than this."""

GONE: Final = 0.05
"""A finding is gone if its runs without it would come with a smaller probability than this."""


def upper_bound(found: int, of: int) -> float:
    """The rate that is not exceeded, with 95 %, by what gave `found` of `of` (Clopper and Pearson); 1 of none."""
    return 1.0 if found >= of else float(betaincinv(found + 1, of - found, CONFIDENCE))


def interval(found: int, of: int) -> tuple[float, float]:
    """Wilson's interval of a rate, 95 %; all that is possible where there were no runs."""
    if of == 0:
        return 0.0, 1.0
    z, share = float(ndtri((1 + CONFIDENCE) / 2)), found / of
    middle, width = share + z * z / (2 * of), z * sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return max(0.0, (middle - width) / (1 + z * z / of)), min(1.0, (middle + width) / (1 + z * z / of))


def too_many(found: int, of: int, rate: float) -> bool:
    """Whether `found` of `of` runs are more than the rate explains."""
    return found > 0 and float(bdtrc(found - 1, of, min(rate, 1.0))) < TOO_MANY


def none_of(runs: int, rate: float) -> float:
    """The probability that none of n runs shows what a share p of them would: (1 − p)^n."""
    return 1.0 if runs == 0 or rate <= 0 else 0.0 if rate >= 1 else float((1 - rate) ** runs)


def runs_for(rate: float, probability: float) -> int | None:
    """How many runs without a finding make it as improbable as that; None where no number does."""
    if rate <= 0:
        return None
    if rate >= 1:
        return 1
    return ceil(log(probability) / log1p(-rate))


def in_words(found: int, of: int) -> str:
    """Such as `0 of 300: below 1.0 %, 95 %`, or `7 of 60: 5.8 to 22.2 %, 95 %`; a count with what it proves."""
    if found == 0:
        return f"0 of {of}: below {percent(upper_bound(0, of))}, 95 %"
    low, high = interval(found, of)
    return f"{found} of {of}: {100 * low:.1f} to {percent(high)}, 95 %"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def discoveries(p_values: Sequence[float], rate: float = 0.05) -> list[bool]:
    """Which of these tests are discoveries, so that at most a share `rate` of those is false (Benjamini and Hochberg,
    1995)."""
    order = sorted(range(len(p_values)), key=lambda each: p_values[each])
    passed = [rank for rank, each in enumerate(order, 1) if p_values[each] <= rate * rank / len(order)]
    found = set(order[: max(passed, default=0)])
    return [each in found for each in range(len(p_values))]

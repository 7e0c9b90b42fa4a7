"""What healed faults leave behind that no database can help: a recovery's budget begins when it has worn off."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

MOST_S = 60.0
"""For so long at most it is waited for, however far somebody has clocks set."""


@runtime_checkable
class WearsOff(Protocol):
    """The power of a nemesis, or of what carries out a family of its faults, to say how long that takes."""

    @property
    def worn_off_ns(self) -> int:
        """The monotonic time, ns, by which it has: what clocks that ran ahead have stamped is within bounds again."""


def wear_s(nemesis: object, now_ns: int) -> float:
    """How long it takes from now on, in seconds; of any nemesis."""
    left_ns = nemesis.worn_off_ns - now_ns if isinstance(nemesis, WearsOff) else 0
    return min(max(0.0, left_ns / 1e9), MOST_S)

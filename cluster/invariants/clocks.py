"""What the simulator knows of a machine's clocks, and how far a node's hybrid clock may be ahead of true time (G3)."""

from __future__ import annotations

from typing import Protocol

from cluster.invariants.findings import BreachLog
from cluster.observer import Readings

HLC_IN_BOUNDS = "hlc-in-bounds"


class MachineClock(Protocol):
    """The clocks of the machine that a life runs on, seen from outside."""

    def true_ns(self, monotonic_ns: int) -> int:
        """The true time, ns, at which the monotonic clock shows this, at the rate it has now."""

    def true_wall_ns(self) -> int:
        """What a correct wall clock shows now."""

    def peak_offset_ns(self) -> int:
        """How far ahead of that the machine's own wall clock was at most when it was read."""


class HybridClock:
    """The hybrid clock of one life. Its own wall clock may be ahead by the declared offset and still be in bounds, and
    readings are taken in from clocks that are ahead of it by as much: no reading lies further than twice the offset
    from true time. A machine whose wall clock was out of bounds when it was read is let off."""

    __slots__ = ("_clock", "_findings", "_hlc", "_life", "_max_offset_ns")

    def __init__(self, findings: BreachLog, life: int, clock: MachineClock, hlc: Readings, max_offset_ns: int) -> None:
        self._findings, self._life, self._clock = findings, life, clock
        self._hlc, self._max_offset_ns = hlc, max_offset_ns

    def look(self) -> None:
        """Compare it with true time, now."""
        self._findings.checked[HLC_IN_BOUNDS] += 1
        ahead_ns = self._hlc.last - self._clock.true_wall_ns()
        if ahead_ns > 2 * self._max_offset_ns and self._clock.peak_offset_ns() <= self._max_offset_ns:
            bound = f"and clocks may be {self._max_offset_ns / 1e9:g} s apart"
            message = f"the hybrid clock is {ahead_ns / 1e9:.3f} s ahead of true time, {bound}"
            self._findings.tell(HLC_IN_BOUNDS, message, (self._life,), None)

"""The clock of one node (G3): its wall clock, its monotonic clock and its hybrid logical clock, made once a node."""

from __future__ import annotations

from cluster.store.hlc import ClockReading, Hlc, Timestamp, as_timestamp, physical
from harness.ports import Clock


class NodeClock:
    """Gives out readings, which go out with messages, and timestamps, which stamp data.

    `fenced` says that the wall clock is not to be trusted: nothing that depends on it may be served or stamped then.
    """

    def __init__(self, clock: Clock, max_offset_ns: int) -> None:
        self._clock = clock
        self.hlc = Hlc(max_offset_ns)

    @property
    def fenced(self) -> bool:
        """Whether nothing that depends on this clock may be served or stamped."""
        return False

    def reading(self) -> ClockReading:
        """What the clock shows; above every reading given out or taken in before."""
        return self.hlc.now(self._clock.wall_ns())

    def shown(self) -> Timestamp:
        """The time on the clock, to compare with; giving nothing out, it doesn't move the clock."""
        return Timestamp(max(self.hlc.last, physical(self._clock.wall_ns())))

    def now(self) -> Timestamp:
        """The reading as a time to stamp data with."""
        return as_timestamp(self.reading())

    def monotonic_ns(self) -> int:
        """The monotonic clock, which times who may serve."""
        return self._clock.monotonic_ns()

"""The ends of leases as one node's clock knows them (G3): what its heartbeats offer, and what was promised before."""

from __future__ import annotations

from cluster.knobs import Knobs
from cluster.store.hlc import Timestamp
from cluster.store.node_clock import NodeClock

_MS = 1_000_000


def latest_end(clock: NodeClock, knobs: Knobs) -> Timestamp:
    """No lease that anybody was promised by now lasts longer, as long as clocks keep their bounds.

    Who promised had a trusted clock, at most the maximum offset ahead of this one, or refused readings further ahead;
    and the hybrid clock that offered may have been led by as much again, by a clock that was not yet fenced.
    """
    return Timestamp(clock.shown() + knobs.support_ns + 2 * knobs.max_clock_offset_ms * _MS)


class NodeLeaseEnds:
    """Implements `cluster.wire.liveness.LeaseEnds` for a tablet server; `begin` it when the clock's peers are known."""

    def __init__(self, clock: NodeClock, knobs: Knobs) -> None:
        self._clock, self._knobs, self._support_ns = clock, knobs, knobs.support_ns
        self._begun = False
        self._before_start: Timestamp | None = None

    def begin(self) -> None:
        """From now on a clock that is trusted has been proven."""
        self._begun = True
        self.look()

    def look(self) -> None:
        """To be told that the clock is trusted: the sooner it is looked at, the less has to be waited for."""
        if self._before_start is None and self._begun and self._clock.fenced is None:
            self._before_start = latest_end(self._clock, self._knobs)

    def next_end(self) -> int:
        """How far a promise reaches that is asked for now: from the last reading, so no untrusted clock moves it."""
        return self._clock.last + self._support_ns

    def before_start(self) -> int | None:
        """No earlier life of this node has promised more; None while the clock has not been proven."""
        self.look()
        return self._before_start

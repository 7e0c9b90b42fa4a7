"""The clock of one node (G3): its wall clock, its monotonic clock, its hybrid logical clock and the guard over them.

Made once a node and handed down. While it is fenced its hybrid logical clock stands still: nothing that depends on it
is served and nothing is stamped, but messages still come and go, so that a fenced node votes and replicates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cluster.nodelog import node_logger
from cluster.store.clock_guard import ClockFence, ClockGuard, ClockLimits, Measurement
from cluster.store.hlc import ClockOffsetTooLarge, ClockReading, Hlc, Timestamp, physical
from harness.ports.api import Clock


class ClockFenced(Exception):
    """The node's wall clock is not to be trusted: nothing that depends on it is done. Definite."""


class NodeClock:
    """Gives out readings, which go out with messages, and timestamps, which stamp data.

    `refused` counts the messages whose reading lay beyond the declared maximum offset; `judged` is the fence as it was
    found last, for those who have a reading of this moment.
    """

    def __init__(self, clock: Clock, bounds: ClockLimits, node_id: str = "") -> None:
        self._wall_ns, self._monotonic_ns, self._times_ns = clock.wall_ns, clock.monotonic_ns, clock.times_ns
        self._log = node_logger(node_id)
        self._hlc = self.readings = Hlc(bounds.max_offset_ns)
        self._guard = ClockGuard(bounds, clock.wall_ns(), clock.monotonic_ns())
        self.judged: ClockFence | None = None
        self._on_fence: list[Callable[[], None]] = []
        self.refused = 0

    # ---- what the owner of data asks ----

    @property
    def fenced(self) -> ClockFence | None:
        """Why nothing that depends on this clock may be served or stamped now, or None."""
        self._look()
        return self.judged

    @property
    def last(self) -> ClockReading:
        """The highest reading given out or taken in."""
        return self._hlc.last

    def reading(self) -> ClockReading:
        """What the clock shows; above every reading given out or taken in before, or the last one while fenced."""
        return self.outgoing()[0]

    def now(self) -> Timestamp:
        """The reading as a time to stamp data with; raises ClockFenced."""
        wall_ns = self._look()
        if self.judged is not None:
            raise ClockFenced(f"this node's clock is {self.judged}")
        return Timestamp(self._hlc.now(wall_ns))

    def shown(self) -> Timestamp:
        """The time on the clock, to compare with; giving nothing out, it doesn't move the clock."""
        return Timestamp(max(self._hlc.last, physical(self._wall_ns())))

    def on_fence(self, callback: Callable[[], None]) -> None:
        """Have it called whenever the clock is fenced, or free again."""
        self._on_fence.append(callback)

    # ---- what comes with messages ----

    def outgoing(self) -> tuple[ClockReading, int]:
        """What a message carries: the reading, and the wall clock as it is, trusted or not, for others to measure."""
        wall_ns, hlc = self._look(), self._hlc
        return (hlc.now(wall_ns) if self.judged is None else hlc.last), wall_ns

    def monotonic_ns(self) -> int:
        """The monotonic clock, which times who may serve."""
        return self._monotonic_ns()

    def take_in(self, reading: ClockReading, source: str) -> bool:
        """Take in the reading of a message; False if it is beyond the declared maximum offset: refuse the message.

        A fenced node can't judge and needn't: the reading moves nothing.
        """
        wall_ns = self._look()
        if self.judged is not None:
            return True
        try:
            self._hlc.observe(reading, wall_ns)
        except ClockOffsetTooLarge as error:
            self.refused += 1
            if self.refused & (self.refused - 1) == 0:
                self._log.warning("a message of %s is refused, %d so far: %s", source, self.refused, error)
            return False
        return True

    # ---- measuring ----

    @property
    def peers(self) -> tuple[str, ...]:
        """Addresses of the nodes that this clock is measured against."""
        return self._guard.peers

    def measure_against(self, peers: Iterable[str]) -> None:
        """Measure against the nodes at these addresses."""
        self._guard.expect(peers)

    def measured(self, peer: str, wall_ns: int, sent_ns: int) -> None:
        """An answer came just now: the peer's wall clock showed `wall_ns`, the call left at monotonic `sent_ns`."""
        own_ns, now_ns = self._wall_ns(), self._monotonic_ns()
        half_ns = (now_ns - sent_ns + 1) // 2
        self._guard.measured(peer, Measurement(wall_ns + half_ns - own_ns, half_ns, own_ns - now_ns, now_ns))

    def _look(self) -> int:
        """The wall clock; `judged` says whether it is to be trusted."""
        wall_ns, monotonic_ns = self._times_ns()
        guard = self._guard
        if monotonic_ns < guard.stands_until_ns and guard.lowest_ns <= wall_ns - monotonic_ns <= guard.highest_ns:
            fence = guard.verdict
        else:
            fence = guard.judge(wall_ns, monotonic_ns)
        if fence is not self.judged:
            self._changed(fence)
        return wall_ns

    def _changed(self, fence: ClockFence | None) -> None:
        self.judged = fence
        if fence is ClockFence.JUMPED:
            self._log.warning("the clock has jumped: nothing that depends on it is served")
        else:
            self._log.info("the clock is %s", fence or "trusted")
        for callback in self._on_fence:
            callback()

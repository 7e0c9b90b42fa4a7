"""A node's clock in the simulator: a wall clock that faults may skew, a monotonic one whose rate may drift."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from harness.ports.machines import Skew
from harness.ports.sim.incarnation import SimHandle
from harness.ports.sim.loop import NO_LIMIT, SimLoop

BILLION = 1_000_000_000
EPOCH_NS = 1_700_000_000 * BILLION
"""Wall-clock time at virtual time 0, ns since 1970."""

_PERIOD_NS = (2 * BILLION, 10 * BILLION)
_SLEW_PPB = 10_000_000
_JUMP_ODDS = 0.25


@dataclass(frozen=True, slots=True)
class ClockOptions:
    """How the clocks of a machine go.

    `drift` is the rate of the monotonic clock, 0.01 for one per cent too fast. The wall clock is slewed, by at most one
    per cent, towards times that are wrong by at most `wander_ns`, now this way and now that, as one is that follows
    servers which disagree. Now and then it jumps to a time that is wrong by up to `jump_ns`; if that is more than
    `wander_ns` it jumps back after some seconds.
    """

    drift: float = 0.0
    wander_ns: int = 0
    jump_ns: int = 0


class SimClock:
    """Time of one machine; it outlives the machine's processes. Implements `harness.ports.api.Clock`.

    Rates are in parts per billion over virtual time, so that arithmetic stays exact.
    """

    __slots__ = (
        "_entropy",
        "_look_holds_until_ns",
        "_loop",
        "_mono_ahead_ns",
        "_mono_base",
        "_mono_lead_ns",
        "_mono_ppb",
        "_mono_since",
        "_options",
        "_peak_ns",
        "_skew",
        "_skewed_since",
        "_turn_ns",
        "_wall_base",
        "_wall_lead_ns",
        "_wall_ppb",
        "_wall_since",
    )

    def __init__(
        self, loop: SimLoop, options: ClockOptions | None = None, entropy: random.Random | None = None
    ) -> None:
        self._loop = loop
        self._options = options if options is not None else ClockOptions()
        self._entropy = entropy if entropy is not None else random.Random(0)
        self._turn_ns = NO_LIMIT
        self._look_holds_until_ns = 0
        """Until when both clocks are ahead of virtual time by what the last look at both found, unless one is set."""
        self._wall_lead_ns = self._mono_lead_ns = 0
        self._wall_base = EPOCH_NS + loop.now_ns
        self._wall_since = loop.now_ns
        self._wall_ppb = 0
        self._peak_ns = 0
        self._skew: Skew | None = None
        self._skewed_since = 0
        self._mono_base = loop.now_ns
        self._mono_since = loop.now_ns
        self._mono_ppb = 0
        self._mono_ahead_ns = 0
        """How far it is ahead of virtual time, while its rate is right."""
        if self._options.drift:
            self.set_monotonic_drift(self._options.drift)
        if self._options.wander_ns or self._options.jump_ns:
            self._wall_base += self._within(self._options.wander_ns)
            self._turn_ns = loop.now_ns

    def wall_ns(self) -> int:
        now_ns = self._loop.now_ns
        if self._skew is not None:
            shown_ns = self.true_wall_ns() + self._skew.after(now_ns - self._skewed_since)
        elif self._wall_ppb or now_ns >= self._turn_ns:
            shown_ns = self._own_wall_ns()
        else:
            shown_ns = self._wall_base + now_ns - self._wall_since
        if shown_ns - now_ns > self._peak_ns:
            self._peak_ns = shown_ns - now_ns
        return shown_ns

    def _own_wall_ns(self) -> int:
        if self._loop.now_ns >= self._turn_ns:
            self._catch_up()
        elapsed = self._loop.now_ns - self._wall_since
        drifted = elapsed * self._wall_ppb // BILLION if self._wall_ppb else 0
        return self._wall_base + elapsed + drifted

    def monotonic_ns(self) -> int:
        if not self._mono_ppb:
            return self._loop.now_ns + self._mono_ahead_ns
        elapsed = self._loop.now_ns - self._mono_since
        return self._mono_base + elapsed + elapsed * self._mono_ppb // BILLION

    def times_ns(self) -> tuple[int, int]:
        now_ns = self._loop.now_ns
        if now_ns < self._look_holds_until_ns:
            return now_ns + self._wall_lead_ns, now_ns + self._mono_lead_ns
        wall_ns, monotonic_ns = self.wall_ns(), self.monotonic_ns()
        self._wall_lead_ns, self._mono_lead_ns = wall_ns - now_ns, monotonic_ns - now_ns
        steady = not (self._mono_ppb or self._wall_ppb or self._skew is not None)
        self._look_holds_until_ns = self._turn_ns if steady else now_ns + 1
        return wall_ns, monotonic_ns

    def true_ns(self, monotonic_ns: int) -> int:
        """The virtual time at which `monotonic_ns` is shown, at the rate the monotonic clock has now."""
        ahead_ns = monotonic_ns - self.monotonic_ns()
        return self._loop.now_ns + ahead_ns * BILLION // (BILLION + self._mono_ppb)

    def true_wall_ns(self) -> int:
        """What a wall clock shows now that was never touched."""
        return EPOCH_NS + self._loop.now_ns

    def peak_offset_ns(self) -> int:
        """How far ahead of such a clock the wall clock was at most when it was read."""
        return max(0, self._peak_ns - EPOCH_NS)

    async def sleep(self, seconds: float) -> None:
        """Wait by the monotonic clock, at the rate it has when the wait begins."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        ended = self._loop.create_future()
        timer = self._loop.call_later(seconds / (1 + self._mono_ppb / BILLION), _end, ended)
        try:
            await ended
        finally:
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> SimHandle:
        if self._mono_ppb:
            seconds /= 1 + self._mono_ppb / BILLION
        return self._loop.call_later(seconds, callback)

    # ---- what the wall clock does by itself: worked out when it is looked at, so that it costs no steps ----

    def _catch_up(self) -> None:
        while self._turn_ns <= self._loop.now_ns:
            self._turn(self._turn_ns)
            self._turn_ns += self._entropy.randint(*_PERIOD_NS)

    def _turn(self, at_ns: int) -> None:
        """From this moment on, slew towards another wrong time, perhaps after a jump."""
        elapsed = at_ns - self._wall_since
        self._wall_base += elapsed + elapsed * self._wall_ppb // BILLION
        self._wall_since = at_ns
        offset = self._wall_base - EPOCH_NS - at_ns
        wander, jump = self._options.wander_ns, self._options.jump_ns
        if jump and (abs(offset) > wander or self._entropy.random() < _JUMP_ODDS):
            offset = self._within(wander if abs(offset) > wander else jump)
            self._wall_base = EPOCH_NS + at_ns + offset
        aim_ppb = (self._within(wander) - offset) * BILLION // _PERIOD_NS[1]
        self._wall_ppb = max(-_SLEW_PPB, min(_SLEW_PPB, aim_ppb)) if abs(offset) <= wander else 0

    def _within(self, bound_ns: int) -> int:
        return self._entropy.randint(-bound_ns, bound_ns)

    # ---- faults ----

    def offset_ns(self) -> int:
        """How far the wall clock is ahead of one that was never touched."""
        return self.wall_ns() - EPOCH_NS - self._loop.now_ns

    def own_offset_ns(self) -> int:
        """How far the wall clock would be ahead if no fault skewed it."""
        return self._own_wall_ns() - self.true_wall_ns()

    @property
    def skewed(self) -> bool:
        """Whether a fault skews the wall clock."""
        return self._skew is not None

    def skew(self, skew: Skew | None) -> None:
        """Let the wall clock go like this from now on, whatever it would do by itself; None: as it goes by itself."""
        self._skew, self._skewed_since = skew, self._loop.now_ns
        self._look_holds_until_ns = 0

    def jump(self, delta_ns: int) -> None:
        """Move the wall clock, at once."""
        self._wall_base += delta_ns
        self._look_holds_until_ns = 0

    def set_offset(self, offset_ns: int) -> None:
        """Set the wall clock to true time plus this much; its drift goes on from there."""
        self.jump(offset_ns - self.offset_ns())

    def set_drift(self, rate: float) -> None:
        """Let the wall clock run `1 + rate` times as fast as time, from now on, without a jump."""
        self._wall_base, self._wall_since = self._own_wall_ns(), self._loop.now_ns
        self._wall_ppb = round(rate * BILLION)
        self._look_holds_until_ns = 0

    def set_monotonic_drift(self, rate: float) -> None:
        """Let the monotonic clock run `1 + rate` times as fast as time, from now on, without a jump."""
        if rate <= -1:
            raise ValueError("a monotonic clock can't stand still or go back")
        self._mono_base, self._mono_since = self.monotonic_ns(), self._loop.now_ns
        self._mono_ahead_ns = self._mono_base - self._mono_since
        self._mono_ppb = round(rate * BILLION)
        self._look_holds_until_ns = 0


def _end(sleep: asyncio.Future[None]) -> None:
    if not sleep.done():
        sleep.set_result(None)

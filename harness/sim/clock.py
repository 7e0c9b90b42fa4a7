"""A node's clock in the simulator: a wall clock that faults may skew, a monotonic one whose rate may drift."""

from __future__ import annotations

import asyncio

from harness.sim.loop import SimLoop

BILLION = 1_000_000_000
EPOCH_NS = 1_700_000_000 * BILLION
"""Wall-clock time at virtual time 0, ns since 1970."""


class SimClock:
    """Time of one machine; it outlives the machine's processes. Implements `harness.ports.Clock`.

    Rates are in parts per billion over virtual time, so that arithmetic stays exact.
    """

    __slots__ = ("_loop", "_mono_base", "_mono_ppb", "_mono_since", "_wall_base", "_wall_ppb", "_wall_since")

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._wall_base = EPOCH_NS + loop.now_ns
        self._wall_since = loop.now_ns
        self._wall_ppb = 0
        self._mono_base = loop.now_ns
        self._mono_since = loop.now_ns
        self._mono_ppb = 0

    def wall_ns(self) -> int:
        elapsed = self._loop.now_ns - self._wall_since
        return self._wall_base + elapsed + elapsed * self._wall_ppb // BILLION

    def monotonic_ns(self) -> int:
        elapsed = self._loop.now_ns - self._mono_since
        return self._mono_base + elapsed + elapsed * self._mono_ppb // BILLION

    async def sleep(self, seconds: float) -> None:
        """Wait by the monotonic clock, at the rate it has when the wait begins."""
        await asyncio.sleep(seconds / (1 + self._mono_ppb / BILLION))

    # ---- faults ----

    def offset_ns(self) -> int:
        """How far the wall clock is ahead of one that was never touched."""
        return self.wall_ns() - EPOCH_NS - self._loop.now_ns

    def jump(self, delta_ns: int) -> None:
        """Move the wall clock, at once."""
        self._wall_base += delta_ns

    def set_offset(self, offset_ns: int) -> None:
        """Set the wall clock to true time plus this much; its drift goes on from there."""
        self.jump(offset_ns - self.offset_ns())

    def set_drift(self, rate: float) -> None:
        """Let the wall clock run `1 + rate` times as fast as time, from now on, without a jump."""
        self._wall_base, self._wall_since = self.wall_ns(), self._loop.now_ns
        self._wall_ppb = round(rate * BILLION)

    def set_monotonic_drift(self, rate: float) -> None:
        """Let the monotonic clock run `1 + rate` times as fast as time, from now on, without a jump."""
        if rate <= -1:
            raise ValueError("a monotonic clock can't stand still or go back")
        self._mono_base, self._mono_since = self.monotonic_ns(), self._loop.now_ns
        self._mono_ppb = round(rate * BILLION)

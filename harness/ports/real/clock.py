"""The machine's own clock. Implements `harness.ports.api.Clock`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class RealClock:
    """Wall time as the system tells it (faults may skew it); monotonic time and sleep are the system's too."""

    __slots__ = ()

    def wall_ns(self) -> int:
        return time.time_ns()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def times_ns(self) -> tuple[int, int]:
        return time.time_ns(), time.monotonic_ns()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, callback)

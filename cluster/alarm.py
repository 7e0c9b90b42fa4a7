"""One wake-up time that is moved often and mostly later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from harness.ports import Clock

_SLACK_NS = 1_000
"""Sleeps are rounded up by this much, so that a float never ends one just too early."""


class Alarm:
    """Calls `on_wake` at or after `wake_ns` (monotonic), which `on_wake` must move on.

    Moving the time later costs nothing: the sleep ends early, looks, and sleeps on. Only moving it before the end of
    the current sleep starts another task.
    """

    def __init__(self, clock: Clock, on_wake: Callable[[], None], spawn: Callable[[Alarm], asyncio.Task[None]]) -> None:
        self._clock, self._on_wake, self._spawn = clock, on_wake, spawn
        self._wake_ns = 0
        self._sleeps_until_ns = 0
        self._task: asyncio.Task[None] | None = None

    def set(self, wake_ns: int) -> None:
        """Wake at `wake_ns` instead of the time set before."""
        self._wake_ns = wake_ns
        if self._task is not None:
            if self._sleeps_until_ns <= wake_ns:
                return
            self._task.cancel()
        self._sleeps_until_ns = wake_ns
        self._task = self._spawn(self)

    def cancel(self) -> None:
        """Never wake again."""
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        """Sleep and wake, for ever."""
        while True:
            now_ns = self._clock.monotonic_ns()
            self._sleeps_until_ns = self._wake_ns
            if self._wake_ns > now_ns:
                await self._clock.sleep((self._wake_ns - now_ns + _SLACK_NS) / 1e9)
            else:
                self._on_wake()

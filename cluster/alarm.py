"""One wake-up time that is moved often and mostly later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from harness.ports import Clock

_SLACK_NS = 1_000
"""Sleeps are rounded up by this much, so that a float never ends one just too early."""

_NO_SLEEP_NS = 1 << 64
_LONGEST_NS = 3_600_000_000_000
"""No sleep is longer; what has nothing to wake for looks at its time again."""


class Alarm:
    """Calls `on_wake` at or after the time set (monotonic ns), which `on_wake` must move on.

    Moving the time later costs nothing: the sleep ends early, looks, and sleeps on; as long as it is not before
    `sleeps_until_ns` one may also write `wake_ns`. Only moving it before the end of the current sleep starts another
    task. `on_error` is handed what `on_wake` raised; the alarm is dead then.
    """

    def __init__(
        self,
        clock: Clock,
        on_wake: Callable[[], None],
        name: str,
        on_error: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._clock, self._on_wake, self._name, self._on_error = clock, on_wake, name, on_error
        self.wake_ns = 0
        self.sleeps_until_ns = _NO_SLEEP_NS
        self._task: asyncio.Task[None] | None = None
        self._over = False

    def set(self, wake_ns: int) -> None:
        """Wake at `wake_ns` instead of the time set before."""
        self.wake_ns = wake_ns
        if self._task is not None:
            if self.sleeps_until_ns <= wake_ns:
                return
            self._task.cancel()
        self.sleeps_until_ns = wake_ns
        self._task = asyncio.create_task(self._run(), name=self._name)
        self._task.add_done_callback(self._ended)

    def set_earlier(self, wake_ns: int) -> None:
        """Wake at `wake_ns` unless that happens before anyway."""
        if wake_ns < self.wake_ns:
            self.set(wake_ns)

    def cancel(self) -> None:
        """Never wake again, not even if this is called while waking."""
        self._over = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while not self._over:
            now_ns = self._clock.monotonic_ns()
            self.sleeps_until_ns = self.wake_ns
            if self.wake_ns > now_ns:
                await self._clock.sleep((min(self.wake_ns - now_ns, _LONGEST_NS) + _SLACK_NS) / 1e9)
            else:
                self._on_wake()

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and self._on_error is not None:
            self._on_error(error)

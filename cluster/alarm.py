"""One wake-up time that is moved often and mostly later."""

from __future__ import annotations

from collections.abc import Callable

from harness.ports.api import Clock, Timer

_SLACK_NS = 1_000
"""Sleeps are rounded up by this much, so that a float never ends one just too early."""

_NO_SLEEP_NS = 1 << 64
_LONGEST_NS = 3_600_000_000_000
"""No sleep is longer; what has nothing to wake for looks at its time again."""


class Alarm:
    """Calls `on_wake` at or after the time set (monotonic ns), which `on_wake` must move on.

    Moving the time later costs nothing: the sleep ends early, looks, and sleeps on. Only moving it before the end of
    the current sleep, `sleeps_until_ns`, begins another.
    `on_error` is handed what `on_wake` raised, which is the loop's business otherwise; the alarm is dead then. With
    `due` the time is asked for when a sleep ends, and only what comes before `sleeps_until_ns` has to be set.
    """

    def __init__(
        self,
        clock: Clock,
        on_wake: Callable[[], None],
        on_error: Callable[[BaseException], None] | None = None,
        due: Callable[[], int] | None = None,
    ) -> None:
        self._clock, self._on_wake, self._on_error, self._due = clock, on_wake, on_error, due
        self.wake_ns = 0
        self.sleeps_until_ns = _NO_SLEEP_NS
        self._timer: Timer | None = None
        self._over = self._waking = False

    def set(self, wake_ns: int) -> None:
        """Wake at `wake_ns` instead of the time set before."""
        self.wake_ns = wake_ns
        if self._over or self._waking or self.sleeps_until_ns <= wake_ns:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._sleep(wake_ns - self._clock.monotonic_ns())

    def set_earlier(self, wake_ns: int) -> None:
        """Wake at `wake_ns` unless that happens before anyway."""
        if wake_ns < self.wake_ns:
            self.set(wake_ns)

    def cancel(self) -> None:
        """Never wake again, not even if this is called while waking."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()

    def _sleep(self, left_ns: int) -> None:
        self.sleeps_until_ns = self.wake_ns
        seconds = (min(left_ns, _LONGEST_NS) + _SLACK_NS) / 1e9 if left_ns > 0 else 0.0
        self._timer = self._clock.call_later(seconds, self._wake)

    def _wake(self) -> None:
        """Wake as often as the time has come by now, then sleep on. No time that is set meanwhile begins a sleep."""
        self._waking = True
        while not self._over:
            if self._due is not None:
                self.wake_ns = self._due()
            self.sleeps_until_ns = self.wake_ns
            left_ns = self.wake_ns - self._clock.monotonic_ns()
            if left_ns > 0:
                self._waking = False
                self._sleep(left_ns)
                return
            try:
                self._on_wake()
            except Exception as error:
                self._over = True
                if self._on_error is None:
                    raise
                self._on_error(error)

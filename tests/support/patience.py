"""Limits of time for a busy machine: what it does not let tests work does not count, and a hang ends all the same."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

PRESSURE: Final = Path("/proc/pressure/cpu")
MOST: Final = 6
"""Times its seconds that a limit lasts at most: on a machine that is busy without end, too, a hang ends."""


class Limit:
    """A limit of seconds that leaves out those in which some process of this machine waited for a core."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began_s, self._waited_for_core_s = time.monotonic(), waited_for_core_s()

    def left_s(self) -> float:
        """Seconds until it may be over; 0 or less if it is."""
        lasted_s = time.monotonic() - self._began_s
        counted_s = lasted_s - (waited_for_core_s() - self._waited_for_core_s)
        return min(self.seconds - counted_s, MOST * self.seconds - lasted_s)


def waited_for_core_s() -> float:
    """For how long a process has waited for a core, since the machine started; 0 where its kernel doesn't say."""
    try:
        some = PRESSURE.read_text().splitlines()[0]
    except OSError:
        return 0.0
    return int(some.rpartition("=")[2]) / 1e6


def bear_with_this_machine(seconds: float) -> None:
    """Have the alarm that is set to end a test in `seconds` ring when a `Limit` of as many is over."""
    limit, end = Limit(seconds), signal.getsignal(signal.SIGALRM)

    def look(number: int, frame: FrameType | None) -> None:
        __tracebackhide__ = True
        left_s = limit.left_s()
        if left_s > 0:
            signal.setitimer(signal.ITIMER_REAL, left_s + 1)
        elif callable(end):
            end(number, frame)

    if callable(end):
        signal.signal(signal.SIGALRM, look)


def until(condition: Callable[[], object], within_s: float = 60.0, every_s: float = 0.05) -> None:
    """Wait until the condition holds; fails if it does not within a `Limit` of `within_s`."""
    limit = Limit(within_s)
    while not condition():
        assert limit.left_s() > 0, "it never came"
        time.sleep(every_s)

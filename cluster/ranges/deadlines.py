"""Waits that end after one fixed time, whatever they wait for."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from cluster.alarm import Alarm
from cluster.groups.waiters import OutcomeUnknown
from harness.ports.api import Clock

_IDLE_NS = 3600 * 1_000_000_000


class Deadlines:
    """Fails futures that are not done `timeout_s` after they were added with OutcomeUnknown.

    All waits last equally long, so they end in the order in which they began, and one alarm is enough.
    """

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock = clock
        self._timeout_ns = int(timeout_s * 1e9)
        self._waits: deque[tuple[int, asyncio.Future[Any]]] = deque()
        self._alarm = Alarm(clock, self._wake)
        self._armed = False

    def add(self, future: asyncio.Future[Any]) -> None:
        """Give this one its deadline."""
        while self._waits and self._waits[0][1].done():
            self._waits.popleft()
        deadline_ns = self._clock.monotonic_ns() + self._timeout_ns
        self._waits.append((deadline_ns, future))
        if not self._armed:
            self._armed = True
            self._alarm.set(deadline_ns)

    def close(self) -> None:
        """End every wait now."""
        self._alarm.cancel()
        while self._waits:
            _expire(self._waits.popleft()[1])

    def _wake(self) -> None:
        now_ns = self._clock.monotonic_ns()
        while self._waits and (self._waits[0][0] <= now_ns or self._waits[0][1].done()):
            _expire(self._waits.popleft()[1])
        self._armed = bool(self._waits)
        self._alarm.set(self._waits[0][0] if self._waits else now_ns + _IDLE_NS)


def _expire(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(OutcomeUnknown("the deadline passed"))

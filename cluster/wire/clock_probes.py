"""Measuring a node's clock against those of the nodes it works with, often while it is not trusted (G3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from cluster.alarm import Alarm
from cluster.store.node_clock import NodeClock
from harness.ports.api import Address, CallLost, Ports, Refused, Unreachable

_MS = 1_000_000
_TIMEOUT_S = 1.0


class ClockProbes:
    """Between `start` and `close` asks every peer for its time, each interval; twenty times as often while the clock is
    fenced. `peers` gives their addresses as they are now."""

    def __init__(
        self, ports: Ports, clock: NodeClock, interval_ms: int, peers: Callable[[], Iterable[Address]]
    ) -> None:
        self._network, self._clock, self._peers = ports.network, clock, peers
        self._interval_ns = interval_ms * _MS
        self._alarm = Alarm(ports.clock, self._wake)
        self._busy: dict[Address, asyncio.Task[None]] = {}
        self._running = False

    def start(self) -> None:
        """Begin at once."""
        self._running = True
        self._clock.on_fence(self.soon)
        self.soon()

    def meet(self, peers: Iterable[Address]) -> None:
        """Groups are shared with these from now on: if any of them is new, measure now."""
        if any(peer not in self._clock.peers for peer in peers):
            self.soon()

    def soon(self) -> None:
        """Measure now: the clock is in doubt, or there are new peers."""
        if self._running:
            self._clock.measure_against(self._peers())
            self._alarm.set(self._clock.monotonic_ns())

    async def close(self) -> None:
        """Stop."""
        self._running = False
        self._alarm.cancel()
        tasks = list(self._busy.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _wake(self) -> None:
        self._clock.measure_against(self._peers())
        interval_ns = self._interval_ns if self._clock.fenced is None else self._interval_ns // 20
        self._alarm.set(self._clock.monotonic_ns() + interval_ns)
        for peer in self._clock.peers:
            task = self._busy.get(peer)
            if task is None or task.done():
                self._busy[peer] = asyncio.create_task(self._probe(peer), name=f"clock.{peer}")

    async def _probe(self, peer: Address) -> None:
        try:
            await self._network.call(peer, b"", _TIMEOUT_S)
        except (Unreachable, CallLost, Refused):
            return  # What was measured before grows old; the next probe is due soon.

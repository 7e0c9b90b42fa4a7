"""Readings on every message between nodes (G3): a network port whose messages carry the clock, and the probes of it.

What a node sends begins with a mark, its clock's reading and its wall clock. What comes without is a client's: clients
have no clock to be judged by, and get their answers without. A call with nothing behind the reading asks for the
clock alone; it measures the offset between two nodes.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from cluster.alarm import Alarm
from cluster.store.hlc import ClockReading
from cluster.store.node_clock import NodeClock
from cluster.wire.messages import ErrorReply, encode
from harness.ports.api import (
    Address,
    CallLost,
    Channel,
    Failpoints,
    Handler,
    Listener,
    Network,
    NotifyHandler,
    Peer,
    Ports,
    Refused,
    Unreachable,
)
from harness.ports.failpoints import linger

_MS = 1_000_000
_TIMEOUT_S = 1.0

_HEADER = struct.Struct(">cQQ")
_MARK = b"\xc1"
"""The one byte that MessagePack never uses."""

_REFUSED = encode(ErrorReply("CLOCK_OFFSET", "the sender's clock is beyond the declared maximum offset", definite=True))

_CUT_SHORT = encode(ErrorReply("INVALID", "this is no request: its clock reading is cut short", definite=True))


def unclocked(message: bytes) -> bytes:
    """What a message says behind its sender's clock, if it carries one."""
    return message[_HEADER.size :] if message[:1] == _MARK else message


class ClockedNetwork:
    """Implements `harness.ports.api.Network` over another one."""

    def __init__(self, network: Network, clock: NodeClock, failpoints: Failpoints) -> None:
        self._network, self._clock, self._failpoints = network, clock, failpoints

    async def listen(self, address: Address, on_call: Handler, on_notify: NotifyHandler) -> Listener:
        """As the port says; messages whose reading is beyond bounds are dropped, calls answered CLOCK_OFFSET.

        So are those whose reading is cut short, and calls answered INVALID.
        """

        take_in, read_header, size = self._clock.take_in, _HEADER.unpack_from, _HEADER.size

        def call(peer: Peer, payload: bytes) -> Coroutine[Any, Any, bytes]:
            return on_call(peer, payload) if payload[:1] != _MARK else clocked(peer, payload)

        async def clocked(peer: Peer, payload: bytes) -> bytes:
            if len(payload) < _HEADER.size:
                return _CUT_SHORT
            if not self._take_in(payload, peer.node_id):
                return self._stamp(_REFUSED)
            body = payload[_HEADER.size :]
            return self._stamp(await on_call(peer, body) if body else b"")

        def notify(peer: Peer, payload: bytes) -> None:
            if payload[:1] != _MARK:
                on_notify(peer, payload)
            elif len(payload) >= size and take_in(read_header(payload)[1], peer.node_id):
                on_notify(peer, payload[size:])

        return await self._network.listen(address, call, notify)

    async def call(self, address: Address, request: bytes, timeout_s: float) -> bytes:
        """As the port says; an answer whose reading is beyond bounds counts as lost."""
        sent_ns = self._clock.monotonic_ns()
        answer = await self._network.call(address, self._stamp(request), timeout_s)
        if answer[:1] != _MARK:
            return answer
        if len(answer) < _HEADER.size:
            raise CallLost(f"the answer of {address} is cut short")
        self._clock.measured(address, _HEADER.unpack_from(answer)[2], sent_ns)
        if not self._take_in(answer, address):
            raise CallLost(f"the clock of {address} is beyond the declared maximum offset")
        if self._failpoints.armed:
            await linger(self._failpoints, "peer.answered")
        return answer[_HEADER.size :]

    def notify(self, address: Address, message: bytes, channel: Channel = Channel.LOG) -> None:
        """As the port says."""
        reading, wall_ns = self._clock.outgoing()
        self._network.notify(address, _HEADER.pack(_MARK, reading, wall_ns) + message, channel)

    async def close(self) -> None:
        """As the port says."""
        await self._network.close()

    def _stamp(self, message: bytes) -> bytes:
        reading, wall_ns = self._clock.outgoing()
        return _HEADER.pack(_MARK, reading, wall_ns) + message

    def _take_in(self, message: bytes, source: str) -> bool:
        return self._clock.take_in(ClockReading(_HEADER.unpack_from(message)[1]), source)


class ClockProbes:
    """Measures a node's clock against those of the nodes that it works with, often while it is not trusted (G3).

    Between `start` and `close` it asks every peer for its time, each interval; twenty times as often while the clock is
    fenced. `peers` gives their addresses as they are now; `also` those of whom no more is wanted than how long their
    answers take, of which `on_round_trip` is told with all.
    """

    def __init__(
        self,
        ports: Ports,
        clock: NodeClock,
        interval_ms: int,
        peers: Callable[[], Iterable[Address]],
        also: Callable[[], Iterable[Address]] = tuple,
        on_round_trip: Callable[[Address, int], None] = lambda peer, took_ns: None,
    ) -> None:
        self._network, self._clock, self._peers = ports.network, clock, peers
        self._also, self._on_round_trip = also, on_round_trip
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
        """Stop, and give up the probes under way."""
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
        for peer in dict.fromkeys((*self._clock.peers, *self._also())):
            task = self._busy.get(peer)
            if task is None or task.done():
                self._busy[peer] = asyncio.create_task(self._probe(peer), name=f"clock.{peer}")

    async def _probe(self, peer: Address) -> None:
        sent_ns = self._clock.monotonic_ns()
        try:
            await self._network.call(peer, b"", _TIMEOUT_S)
        except (Unreachable, CallLost, Refused):
            return  # What was measured before grows old; the next probe is due soon.
        self._on_round_trip(peer, self._clock.monotonic_ns() - sent_ns)

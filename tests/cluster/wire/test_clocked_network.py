"""Readings on every message between two nodes of the simulator."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from cluster.store.clock_guard import ClockFence, ClockLimits
from cluster.store.node_clock import ClockFenced, NodeClock
from cluster.wire.clocked import ClockedNetwork
from cluster.wire.messages import ErrorReply, decode_reply
from harness.ports.api import CallLost, Peer
from harness.ports.sim.world import World

SECOND = 1_000_000_000
LIMITS = ClockLimits(SECOND // 2, 0.01)
NAMES = ("a", "b", "c")


class Nodes:
    """Nodes that echo calls and keep what is notified; their clocks may be set."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.heard: list[tuple[str, bytes]] = []
        self.clocks = {name: NodeClock(world.node(name).clock, LIMITS, name) for name in NAMES}
        ports = {name: world.harness_ports(f"port-{name}") for name in NAMES}
        self.plain = world.harness_ports("client").network
        self.networks = {
            name: ClockedNetwork(each.network, self.clocks[name], each.failpoints) for name, each in ports.items()
        }

    async def start(self) -> None:
        for name in NAMES:
            await self.networks[name].listen(f"port-{name}:1", self._echo, lambda peer, message: self._hear(message))

    async def _echo(self, peer: Peer, payload: bytes) -> bytes:
        return b"echo " + payload

    def _hear(self, message: bytes) -> None:
        self.heard.append(("heard", message))

    async def call(self, source: str, target: str, payload: bytes = b"x") -> bytes:
        return await self.networks[source].call(f"port-{target}:1", payload, 1.0)

    def set_clock(self, name: str, seconds: float) -> None:
        self.world.node(name).clock.set_offset(int(seconds * SECOND))


def play(scenario: Callable[[Nodes], Coroutine[Any, Any, None]], *before: tuple[str, float]) -> None:
    """Run a scenario; `before` are clocks that are wrong when the nodes start."""
    with World(3) as world:
        for name, seconds in before:
            world.node(name).clock.set_offset(int(seconds * SECOND))
        nodes = Nodes(world)

        async def main() -> None:
            await nodes.start()
            await scenario(nodes)

        world.run(main())
        assert world.errors == []


def test_a_message_takes_the_clock_of_who_gets_it_along_within_the_maximum_offset() -> None:
    async def scenario(nodes: Nodes) -> None:
        assert await nodes.call("a", "b") == b"echo x"
        ahead = nodes.clocks["a"].last
        assert nodes.world.node("b").clock.wall_ns() < ahead < nodes.clocks["b"].reading()
        assert nodes.clocks["b"].last < nodes.world.node("b").clock.wall_ns() + LIMITS.max_offset_ns

    play(scenario, ("a", 0.4))


def test_a_message_from_beyond_the_maximum_offset_is_refused_and_counted() -> None:
    async def scenario(nodes: Nodes) -> None:
        reply = decode_reply(await nodes.call("a", "b"))
        assert isinstance(reply, ErrorReply) and reply.kind == "CLOCK_OFFSET" and reply.definite
        nodes.networks["a"].notify("port-b:1", b"bad")
        nodes.networks["c"].notify("port-b:1", b"good")
        await nodes.world.harness_ports("client").clock.sleep(0.1)
        assert nodes.heard == [("heard", b"good")]
        assert nodes.clocks["b"].refused == 2
        assert nodes.clocks["b"].last < nodes.world.node("b").clock.wall_ns()
        with pytest.raises(CallLost):
            await nodes.call("b", "a")

    play(scenario, ("a", 2.0))


def test_clients_send_and_get_plain_messages() -> None:
    async def scenario(nodes: Nodes) -> None:
        assert await nodes.plain.call("port-a:1", b"x", 1.0) == b"echo x"
        nodes.plain.notify("port-a:1", b"y")
        await nodes.world.harness_ports("client").clock.sleep(0.1)
        assert nodes.heard == [("heard", b"y")]

    play(scenario)


def test_an_empty_call_measures_the_offset_and_asks_nobody() -> None:
    async def scenario(nodes: Nodes) -> None:
        clock = nodes.clocks["a"]
        clock.measure_against(("port-b:1", "port-c:1"))
        assert clock.fenced is ClockFence.UNPROVEN
        with pytest.raises(ClockFenced):
            clock.now()
        assert await nodes.call("a", "b", b"") == b""
        assert clock.fenced is None
        assert clock.now() > 0

    play(scenario, ("b", 0.3))


def test_a_fenced_clock_stands_still_and_its_messages_are_taken() -> None:
    async def scenario(nodes: Nodes) -> None:
        clock = nodes.clocks["a"]
        clock.measure_against(("port-b:1", "port-c:1"))
        await nodes.call("a", "b", b"")
        before = clock.reading()
        nodes.set_clock("a", 3_600.0)
        assert clock.reading() == before
        assert clock.fenced is ClockFence.JUMPED
        assert await nodes.call("a", "b") == b"echo x"
        assert clock.last == before
        assert nodes.clocks["b"].refused == 0
        nodes.set_clock("a", 0.0)
        assert clock.reading() > before

    play(scenario)


def test_whoever_is_fenced_or_freed_is_called() -> None:
    async def scenario(nodes: Nodes) -> None:
        fences: list[ClockFence | None] = []
        clock = nodes.clocks["a"]
        clock.on_fence(lambda: fences.append(clock.fenced))
        for seconds in (5.0, 0.0):
            nodes.set_clock("a", seconds)
            clock.reading()
        assert fences == [ClockFence.JUMPED, None]

    play(scenario)

"""Three tablet servers in the simulator with one tablet on them, and calls from the harness."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from cluster.config import NodeConfig
from cluster.deploy.database_sim import format_machine
from cluster.knobs import Knobs
from cluster.node import run_node
from cluster.wire.messages import (
    CompareAndSet,
    CreateTablet,
    DoneReply,
    ErrorReply,
    Partition,
    ReadCell,
    ReadReply,
    RegisterSession,
    Replica,
    Reply,
    Request,
    RequestId,
    SessionReply,
    WriteCell,
    decode_reply,
    encode,
)
from harness.ports.api import CallLost, Unreachable
from harness.ports.sim.world import World

NAMES = ("t1", "t2", "t3")
VOTERS = tuple(Replica(name, f"{name}:7050") for name in NAMES)


def create_on(server_id: str) -> CreateTablet:
    return CreateTablet(server_id, True, "tab", "table", "registers", Partition(0, 1), (), 0, VOTERS)


SECOND = 1_000_000_000


class TserverRig:
    """Three tablet servers, one tablet, and calls from the harness."""

    def __init__(self, world: World, flaws: tuple[str, ...], knobs: Knobs) -> None:
        self.world, self.flaws, self.knobs = world, flaws, knobs
        self.masters: tuple[Replica, ...] = ()
        self.ports = world.harness_ports("h")
        self.clock = self.ports.clock
        self.session = 0

    def start(self, *names: str) -> None:
        for name in names or NAMES:
            config = NodeConfig(
                node_id=name,
                role="tserver",
                listen=f"{name}:7050",
                masters=self.masters,
                flaws=self.flaws,
                knobs=self.knobs,
            )
            format_machine(self.world.node(name), config.cluster_id)
            self.world.node(name).start(lambda ports, config=config: run_node(ports, config))  # type: ignore[misc]

    async def call(self, name: str, request: Request, timeout_s: float = 2.0) -> Reply:
        return decode_reply(await self.ports.network.call(f"{name}:7050", encode(request), timeout_s))

    async def created(self) -> None:
        self.start()
        await self.clock.sleep(0.1)
        for name in NAMES:
            assert await self.call(name, create_on(name)) == DoneReply(True)
        await self.registered()

    async def registered(self) -> None:
        reply = await self.anyone(RegisterSession("tab"))
        assert isinstance(reply, SessionReply)
        self.session = reply.session

    def rid(self, sequence: int) -> RequestId:
        return RequestId(self.session, sequence, 0)

    async def anyone(self, request: Request) -> Reply:
        """Ask one after another until somebody answers with something else than a refusal to serve."""
        deadline_ns = self.clock.monotonic_ns() + 20 * SECOND
        while self.clock.monotonic_ns() < deadline_ns:
            for name in NAMES:
                try:
                    reply = await self.call(name, request, 0.5)
                except (CallLost, Unreachable):
                    continue
                if not isinstance(reply, ErrorReply) or reply.kind == "INVALID":
                    return reply
            await self.clock.sleep(0.05)
        raise AssertionError(f"nobody answered {request}")

    async def write(self, sequence: int, value: int) -> Reply:
        return await self.anyone(WriteCell(self.rid(sequence), "tab", 1, 0, 0, value))

    async def cas(self, sequence: int, expected: int | None, value: int) -> Reply:
        return await self.anyone(CompareAndSet(self.rid(sequence), "tab", 1, 0, 0, expected, value))

    async def read(self) -> ReadReply:
        reply = await self.anyone(ReadCell("tab", 1, 0, 0))
        assert isinstance(reply, ReadReply)
        return reply

    async def leader(self, *among: str) -> str:
        """The leaseholder, once one of these serves."""
        deadline_ns = self.clock.monotonic_ns() + 20 * SECOND
        while self.clock.monotonic_ns() < deadline_ns:
            for name in among or NAMES:
                try:
                    reply = await self.call(name, ReadCell("tab", 1, 0, 0), 0.5)
                except (CallLost, Unreachable):
                    continue
                if isinstance(reply, ReadReply):
                    return name
            await self.clock.sleep(0.05)
        raise AssertionError("no leaseholder")

    def cut_off(self, name: str) -> None:
        for other in NAMES:
            if other != name:
                self.world.network.cut(name, other)
                self.world.network.cut(other, name)


def simulate(
    seed: int,
    scenario: Callable[[TserverRig], Coroutine[Any, Any, None]],
    flaws: tuple[str, ...] = (),
    knobs: Knobs | None = None,
) -> None:
    knobs = knobs or Knobs(snapshot_entries=20, session_silence_ms=10_000_000)
    with World(seed) as world:
        world.run(scenario(TserverRig(world, flaws, knobs)))

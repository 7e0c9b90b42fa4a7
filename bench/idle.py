"""What replicas cost that nobody asks for anything, and whether elections end where they can't all be had at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Annotated, Final, TypeAlias

from bench.measure import Row, spent
from cluster.config import NodeConfig
from cluster.deploy.database_sim import format_machine
from cluster.knobs import Knobs
from cluster.node import run_node
from cluster.wire.messages import (
    CreateTablet,
    DoneReply,
    GetStatus,
    Partition,
    Replica,
    StatusReply,
    decode_reply,
    encode,
)
from harness.ports.sim.incarnation import Processor
from harness.ports.sim.node import MachineOptions
from harness.ports.sim.world import World

NODES: Final = tuple(Replica(f"t{number}", f"t{number}:7050") for number in (1, 2, 3))

HEARTBEATS: Final = {
    "one by one": Knobs(heartbeat_gather_ms=0, quiesce_after_ms=0),
    "gathered": Knobs(quiesce_after_ms=0),
    "from node to node, groups quiescent": Knobs(),
}

SETTLING_S: Final = 3.0
ANSWER_S: Final = 60.0
"""Statuses wait in line on a slow node, as everything does."""

Tablets: TypeAlias = Annotated[int, "replicas on each node"]


class Idle:
    """Three tablet servers with as many tablets of three replicas, so that each node has a replica of every tablet."""

    def __init__(self, world: World, tablets: int, knobs: Knobs) -> None:
        self.world, self.tablets, self.knobs = world, tablets, knobs
        self.ports = world.harness_ports("bench")

    async def start(self) -> None:
        for node in NODES:
            config = NodeConfig(node_id=node.node_id, role="tserver", listen=node.address, masters=(), knobs=self.knobs)
            format_machine(self.world.node(node.node_id), self.world.cluster_id)
            self.world.node(node.node_id).start(lambda ports, config=config: run_node(ports, config))  # type: ignore[misc]
        await self.ports.clock.sleep(0.5)
        for number in range(self.tablets):
            await asyncio.gather(*(self._create(node, number) for node in NODES))
        await self.ports.clock.sleep(5)

    async def _create(self, node: Replica, number: int) -> None:
        partition = Partition(number, self.tablets)
        request = CreateTablet(node.node_id, True, f"tablet{number}", "table", "idle", partition, (), 0, NODES)
        reply = decode_reply(await self.ports.network.call(node.address, encode(request), 5.0))
        if reply != DoneReply(True):
            raise RuntimeError(f"{node.node_id} answers {reply}")

    async def pass_time(self, seconds: float) -> None:
        await self.ports.clock.sleep(seconds)


def idle(tablets: Tablets = 600, seconds: Annotated[float, "virtual seconds"] = 10.0) -> Iterator[Row]:
    """Cores a node, by how heartbeats go: CPU time of the idle simulation alone, a third of it for each node."""
    for heartbeats, knobs in HEARTBEATS.items():
        with World(1) as world:
            idle = Idle(world, tablets, knobs)
            world.run(idle.start())
            delivered = world.network.delivered
            with spent() as took:
                world.run(idle.pass_time(seconds))
            messages = world.network.delivered - delivered
        for_each = seconds * len(NODES)
        figures = {"cores_a_node": round(took.cpu_s / for_each, 3), "messages_a_node_and_s": round(messages / for_each)}
        yield {"heartbeats": heartbeats, **figures, "replicas_a_node": tablets}


# ---- elections on slow processors ----


def storm(
    tablets: Tablets = 300,
    step_us: Annotated[int, "what a step costs on each node"] = 2_000,
    pause: Annotated[float, "virtual seconds for which one node is stopped"] = 3.0,
    seconds: Annotated[float, "virtual seconds that are looked at after that"] = 120.0,
    every: Annotated[float, "virtual seconds between two looks"] = 15.0,
) -> Iterator[Row]:
    """How many groups have a leader with a lease after one node was away, and how many terms a look began.

    Each step of a node takes a fixed time of its processor, as it does where many replicas share few cores. While one
    node is stopped its groups are led by others; when it goes on there are elections, and what they cost delays the
    heartbeats and votes of all others.
    """
    slow = MachineOptions(processor=Processor(step_us * 1_000))
    with World(1, machines={node.node_id: slow for node in NODES}) as world:
        looks = world.run(_storm(Idle(world, tablets, Knobs()), pause, seconds, every))
    seen = {
        f"{when}_{what}": figure
        for when, look in (("first_look", looks[0]), ("last_look", looks[-1]))
        for what, figure in look.items()
    }
    yield {"tablets": str(tablets), "step": f"{step_us / 1e3:g} ms", **seen, "looks": looks}


async def _storm(idle: Idle, pause_s: float, seconds: float, every_s: float) -> list[Row]:
    await idle.start()
    clock = idle.ports.clock
    await clock.sleep(SETTLING_S)
    victim = idle.world.node(NODES[0].node_id)
    victim.pause()
    await clock.sleep(pause_s)
    victim.resume()
    began_ns, looks = clock.monotonic_ns(), []
    _, before = await _state(idle)
    while clock.monotonic_ns() - began_ns < seconds * 1e9:
        await clock.sleep(every_s)
        leased, terms = await _state(idle)
        after_s = round((clock.monotonic_ns() - began_ns) / 1e9, 1)
        looks.append({"after_s": after_s, "leased": leased, "terms": terms - before})
        before = terms
    return looks


async def _state(idle: Idle) -> tuple[int, int]:
    """How many groups have a leader with a lease, and the sum of their terms."""
    leased: set[str] = set()
    terms: dict[str, int] = {}
    for node in NODES:
        reply = decode_reply(await idle.ports.network.call(node.address, encode(GetStatus()), ANSWER_S))
        assert isinstance(reply, StatusReply)
        for group in reply.groups:
            terms[group.group] = max(group.term, terms.get(group.group, 0))
            if group.lease_valid:
                leased.add(group.group)
    return len(leased), sum(terms.values())

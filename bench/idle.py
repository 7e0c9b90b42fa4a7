"""What idle replicas cost: cores a node, with heartbeats one by one, gathered, and from node to node (quiescence)."""

from __future__ import annotations

import argparse
import asyncio
import json
import time

from bench._measure import machine
from cluster.config import NodeConfig
from cluster.deploy.database_sim import format_machine
from cluster.knobs import Knobs
from cluster.node import run_node
from cluster.wire.messages import CreateTablet, DoneReply, Partition, Replica, decode_reply, encode
from harness.ports.sim.world import World

NODES = tuple(Replica(f"t{number}", f"t{number}:7050") for number in (1, 2, 3))


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


def measure(tablets: int, seconds: float, knobs: Knobs) -> dict[str, float]:
    """One world; the cost is that of the idle time alone, a third of it for each node."""
    with World(1, record_decisions=False) as world:
        idle = Idle(world, tablets, knobs)
        world.run(idle.start())
        began, delivered = time.process_time(), world.network.delivered
        world.run(idle.pass_time(seconds))
        cpu_s = time.process_time() - began
        return {
            "cores_per_node": round(cpu_s / seconds / len(NODES), 3),
            "messages_per_second_and_node": round((world.network.delivered - delivered) / seconds / len(NODES)),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tablets", type=int, default=600, help="replicas on each node")
    parser.add_argument("--seconds", type=float, default=10.0, help="virtual seconds")
    arguments = parser.parse_args()
    figures = {
        "benchmark": "idle",
        "replicas_per_node": arguments.tablets,
        "one_by_one": measure(arguments.tablets, arguments.seconds, Knobs(heartbeat_gather_ms=0, quiesce_after_ms=0)),
        "gathered": measure(arguments.tablets, arguments.seconds, Knobs(quiesce_after_ms=0)),
        "quiescent": measure(arguments.tablets, arguments.seconds, Knobs()),
        "machine": machine(),
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()

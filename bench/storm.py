"""Whether elections end after a node was away, on nodes whose processors are too slow for all groups to stand at once.

Each step of a node takes a fixed time of its processor, as it does where many replicas share few cores. While one node
is stopped its groups are led by others; when it goes on there are elections, and what they cost delays the heartbeats
and votes of all others. Every so often it is told how many groups have a leader with a lease, and how many terms were
begun since.
"""

from __future__ import annotations

import argparse
import json

from bench._measure import machine
from bench.idle import NODES, Idle
from cluster.knobs import Knobs
from cluster.wire.messages import GetStatus, StatusReply, decode_reply, encode
from harness.ports.sim.node import MachineOptions
from harness.ports.sim.world import World

SETTLING_S = 3.0
ANSWER_S = 60.0
"""Statuses wait in line on a slow node, as everything does."""


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


async def _storm(idle: Idle, pause_s: float, seconds: float, every_s: float) -> list[dict[str, float]]:
    await idle.start()
    clock = idle.ports.clock
    await clock.sleep(SETTLING_S)
    victim = idle.world.node(NODES[0].node_id)
    victim.pause()
    await clock.sleep(pause_s)
    victim.resume()
    began_ns, rows = clock.monotonic_ns(), []
    _, before = await _state(idle)
    while clock.monotonic_ns() - began_ns < seconds * 1e9:
        await clock.sleep(every_s)
        leased, terms = await _state(idle)
        after_s = round((clock.monotonic_ns() - began_ns) / 1e9, 1)
        rows.append({"after_s": after_s, "leased": leased, "terms": terms - before})
        before = terms
    return rows


def measure(tablets: int, step_us: int, pause_s: float, seconds: float, every_s: float) -> list[dict[str, float]]:
    slow = MachineOptions(step_ns=step_us * 1_000)
    with World(1, record_decisions=False, machines={node.node_id: slow for node in NODES}) as world:
        return world.run(_storm(Idle(world, tablets, Knobs()), pause_s, seconds, every_s))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tablets", type=int, default=300, help="replicas on each node")
    parser.add_argument("--step-us", type=int, default=2_000, help="what a step costs on each node")
    parser.add_argument("--pause", type=float, default=3.0, help="virtual seconds for which one node is stopped")
    parser.add_argument("--seconds", type=float, default=120.0, help="virtual seconds that are looked at after that")
    parser.add_argument("--every", type=float, default=15.0, help="virtual seconds between two looks")
    given = parser.parse_args()
    rows = measure(given.tablets, given.step_us, given.pause, given.seconds, given.every)
    for row in rows:
        print(json.dumps(row))
    told = {"benchmark": "storm", "tablets": given.tablets, "step_us": given.step_us, "pause_s": given.pause}
    print(json.dumps({**told, "machine": machine()}))


if __name__ == "__main__":
    main()

"""How fast the cluster runs in the simulator: operations per CPU second, and speed against real time at 100 op/s."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import time

from cluster.deploy.database_sim import SimDatabase
from harness.history.ops import Op, read, write
from harness.ports.api import Clock
from harness.ports.sim.world import World

KEYS = 30


async def run_client(database: SimDatabase, clock: Clock, process: int, until_ns: int, pause_s: float) -> int:
    entropy = random.Random(process)
    client = await database.open_client(process, 5.0)
    done = 0
    while clock.monotonic_ns() < until_ns:
        if pause_s:
            await clock.sleep(pause_s * (0.5 + entropy.random()))
        key = entropy.randrange(KEYS)
        mop = read(key) if entropy.random() < 0.5 else write(key, done)
        await client.invoke(Op("invoke", process, mop.f, (mop,)))
        done += 1
    return done


async def _load(world: World, database: SimDatabase, clients: int, seconds: float, pause_s: float) -> int:
    clock = world.harness_ports("bench").clock
    await database.install()
    for node in database.nodes:
        await database.start(node.name)
    await database.await_ready(20)
    await database.setup_workload("register", {})
    until_ns = clock.monotonic_ns() + int(seconds * 1e9)
    done = await asyncio.gather(
        *(run_client(database, clock, process, until_ns, pause_s) for process in range(clients))
    )
    await database.teardown()
    return sum(done)


def measure(clients: int, virtual_s: float, rate_hz: float) -> dict[str, float]:
    """One world, its clients in a closed loop (`rate_hz` 0) or slowed down to a total rate; no faults."""
    began = time.process_time()
    with World(1, record_decisions=False) as world:
        pause_s = clients / rate_hz if rate_hz else 0.0
        ops = world.run(_load(world, SimDatabase(world), clients, virtual_s, pause_s))
        cpu_s = time.process_time() - began
        return {
            "ops": ops,
            "virtual_seconds": round(world.loop.time(), 1),
            "cpu_seconds": round(cpu_s, 2),
            "ops_per_cpu_second": round(ops / cpu_s),
            "times_real_time": round(world.loop.time() / cpu_s, 1),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="virtual seconds of the closed loop")
    arguments = parser.parse_args()
    figures = {
        "benchmark": "simulator",
        "closed_loop_10_clients": measure(10, arguments.seconds, 0),
        "at_100_per_second": measure(10, arguments.seconds * 3, 100),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

"""Fail-over in the simulator: virtual time from the kill of a leaseholder to the first write that succeeds after it."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
from dataclasses import dataclass
from pathlib import Path

from cluster.config import Knobs
from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.readiness import leaders
from cluster.wire.messages import CATALOG_GROUP
from harness.errors import DefiniteError, IndefiniteError
from harness.ops import Op, write
from harness.ports import Clock
from harness.sim.world import World

CLIENTS = 4
GRACE_S = 0.5
"""What a fail-over may take beyond an election timeout and a lease."""


@dataclass
class Watch:
    """When a write that began after `since_ns` first succeeded."""

    since_ns: int = 0
    first_ns: int = 0


async def _write_on(database: SimDatabase, clock: Clock, process: int, watch: Watch) -> None:
    entropy = random.Random(process)
    client = await database.open_client(process, 5.0)
    while True:
        await clock.sleep(0.01 * (0.5 + entropy.random()))
        began_ns = clock.monotonic_ns()
        try:
            await client.invoke(Op("invoke", process, "write", (write(entropy.randrange(10), process),)))
        except (DefiniteError, IndefiniteError):
            continue
        if began_ns >= watch.since_ns and watch.first_ns < watch.since_ns:
            watch.first_ns = clock.monotonic_ns()


async def _one_kill(database: SimDatabase, clock: Clock, watch: Watch, entropy: random.Random) -> float:
    await clock.sleep(2.0 + entropy.random())
    leading = leaders((await database.statuses()).values())
    victim = next(node for group, node in leading.items() if group != CATALOG_GROUP)
    await database.kill(victim)
    watch.since_ns = clock.monotonic_ns()
    while watch.first_ns < watch.since_ns:
        await clock.sleep(0.001)
    took_s = (watch.first_ns - watch.since_ns) / 1e9
    await database.start(victim)
    return took_s


async def _kills(world: World, knobs: Knobs, kills: int) -> list[float]:
    database = SimDatabase(world, knobs=knobs)
    clock = world.harness_ports("bench").clock
    await database.install()
    for node in database.nodes:
        await database.start(node.name)
    await database.await_ready(20)
    await database.setup_workload("register", {"buckets": 1})
    watch, entropy = Watch(), random.Random(world.seed)
    clients = [asyncio.create_task(_write_on(database, clock, process, watch)) for process in range(CLIENTS)]
    took_s = [await _one_kill(database, clock, watch, entropy) for _ in range(kills)]
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    await database.teardown()
    return took_s


def measure(kills: int, seed: int = 1, knobs: Knobs | None = None) -> list[float]:
    """Seconds of virtual time for each of so many kills."""
    with World(seed, record_decisions=False) as world:
        return world.run(_kills(world, knobs or Knobs(), kills))


def limit_s(knobs: Knobs) -> float:
    """An election timeout, a lease and the grace."""
    return (knobs.election_timeout_ms + (knobs.lease_ms or knobs.election_timeout_ms)) / 1e3 + GRACE_S


def plot(took_s: list[float], path: Path) -> None:
    """How many fail-overs were over after how long."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    axes.step(sorted(took_s), [(number + 1) / len(took_s) for number in range(len(took_s))], where="post")
    axes.axvline(statistics.median(took_s), linestyle=":", color="grey", label="median")
    axes.axvline(limit_s(Knobs()), color="firebrick", label="election timeout + lease + 0.5 s")
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds from the kill of the leaseholder to the first write")
    axes.set_ylabel("share of fail-overs")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--plot", type=Path, help="write a picture of the distribution there")
    arguments = parser.parse_args()
    took_s = measure(arguments.kills)
    if arguments.plot:
        plot(took_s, arguments.plot)
    figures = {
        "benchmark": "failover",
        "kills": len(took_s),
        "median_s": round(statistics.median(took_s), 3),
        "p90_s": round(statistics.quantiles(took_s, n=10)[-1], 3) if len(took_s) > 1 else None,
        "max_s": round(max(took_s), 3),
        "limit_s": limit_s(Knobs()),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

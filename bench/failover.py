"""Fail-over: time from the kill of a leaseholder to the first write that succeeds after it, in simulator or containers.

`idle` leaves the cluster alone before each kill, so that its groups are quiescent: clients begin when the node is dead.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

import uvloop

from bench._measure import machine
from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.database_ssh import SshDatabase
from cluster.deploy.layout import Layout
from cluster.deploy.readiness import leaders
from cluster.knobs import Knobs
from cluster.wire.messages import CATALOG_GROUP
from harness.env.docker.environment import DockerEnvironment
from harness.errors import DefiniteError, IndefiniteError
from harness.history.ops import Op, write
from harness.ports.api import Clock
from harness.ports.real.ports import RealClock
from harness.ports.sim.world import World

CLIENTS = 4
READY_S = 60.0
GRACE_S = 0.5
"""What a fail-over may take beyond an election timeout and a lease."""

Cluster: TypeAlias = SimDatabase | SshDatabase

Kills: TypeAlias = Callable[[Cluster, Clock], Awaitable[list[float]]]
"""Starts a cluster, kills some of its nodes one after the other, and returns the seconds of each fail-over."""

Curves: TypeAlias = Mapping[str, list[float]]
"""Seconds of each fail-over, by what was measured."""


@dataclass
class FailoverWatch:
    """When a write that began after `since_ns` first succeeded; clients write while `open`."""

    open: asyncio.Event = field(default_factory=asyncio.Event)
    since_ns: int = 0
    first_ns: int = 0


async def _write_on(database: Cluster, clock: Clock, process: int, watch: FailoverWatch) -> None:
    entropy = random.Random(process)
    client = await database.open_client(process, 5.0)
    while True:
        await watch.open.wait()
        await clock.sleep(0.01 * (0.5 + entropy.random()))
        began_ns = clock.monotonic_ns()
        try:
            await client.invoke(Op("invoke", process, "write", (write(entropy.randrange(10), process),)))
        except (DefiniteError, IndefiniteError):
            continue
        if began_ns >= watch.since_ns and watch.first_ns < watch.since_ns:
            watch.first_ns = clock.monotonic_ns()


async def _whole(database: Cluster, clock: Clock) -> None:
    """Wait until every node answers: a second kill must not meet a group that is short of one already."""
    while None in (await database.statuses()).values():
        await clock.sleep(0.1)


async def _one_kill(database: Cluster, clock: Clock, watch: FailoverWatch, entropy: random.Random, idle: bool) -> float:
    """Timed from before the kill is ordered; only writes that began once the node was dead count."""
    await _whole(database, clock)
    if idle:
        watch.open.clear()
    await clock.sleep(2.0 + entropy.random())
    leading = leaders(status for status in (await database.statuses()).values() if status is not None)
    victim = next(node for group, node in leading.items() if group != CATALOG_GROUP)
    if idle:
        await clock.sleep(2.0)
    began_ns = clock.monotonic_ns()
    await database.kill(victim)
    watch.since_ns = clock.monotonic_ns()
    watch.open.set()
    while watch.first_ns < watch.since_ns:
        await clock.sleep(0.001)
    await database.start(victim)
    return (watch.first_ns - began_ns) / 1e9


async def _kills(database: Cluster, clock: Clock, kills: int, seed: int, idle: bool) -> list[float]:
    await database.install()
    await asyncio.gather(*(database.start(node.name) for node in database.nodes))
    await database.await_ready(READY_S)
    await database.setup_workload("register", {"buckets": 1})
    watch, entropy = FailoverWatch(), random.Random(seed)
    watch.open.set()
    clients = [asyncio.create_task(_write_on(database, clock, process, watch)) for process in range(CLIENTS)]
    took_s = [await _one_kill(database, clock, watch, entropy, idle) for _ in range(kills)]
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    return took_s


def in_simulator(kill: Kills, seed: int = 1, knobs: Knobs | None = None) -> list[float]:
    """Seconds of virtual time for each kill in the simulator."""
    with World(seed, record_decisions=False) as world:

        async def main() -> list[float]:
            database = SimDatabase(world, knobs=knobs or Knobs())
            took_s = await kill(database, world.harness_ports("bench").clock)
            await database.teardown()
            return took_s

        return world.run(main())


def in_containers(kill: Kills, masters: int, tservers: int) -> list[float]:
    """Seconds for each kill of a program in a container; raises UserError where there is no Docker."""

    async def main() -> list[float]:
        environment = DockerEnvironment(RealClock(), report=lambda text: print(text, file=sys.stderr))
        database = SshDatabase(environment, Layout(masters, tservers))
        try:
            await environment.prepare()
            await environment.setup(database.nodes)
            return await kill(database, RealClock())
        finally:
            await database.teardown()
            await environment.teardown()

    took_s: list[float] = uvloop.run(main())
    return took_s


def measure(kills: int, seed: int = 1, knobs: Knobs | None = None, idle: bool = False) -> list[float]:
    """Seconds of virtual time from each of so many kills of a leaseholder in the simulator."""
    return in_simulator(lambda database, clock: _kills(database, clock, kills, seed, idle), seed, knobs)


def limit_s(knobs: Knobs) -> float:
    """An election timeout, a lease and the grace."""
    return (knobs.election_timeout_ms + (knobs.lease_ms or knobs.election_timeout_ms)) / 1e3 + GRACE_S


def plot(curves: Curves, path: Path, goal: str, goal_s: float, what: str) -> None:
    """How many fail-overs were over after how long; `what` says from when to when, `goal` in words what `goal_s` is."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for number, (name, took_s) in enumerate(curves.items()):
        shares = [(rank + 1) / len(took_s) for rank in range(len(took_s))]
        axes.step(sorted(took_s), shares, where="post", color=f"C{number}", label=f"{name}, {len(took_s)} kills")
        axes.axvline(statistics.median(took_s), linestyle=":", color=f"C{number}")
    axes.axvline(goal_s, color="firebrick", label=goal)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"seconds from {what} (dotted: median)")
    axes.set_ylabel("share of fail-overs")
    axes.legend(loc="upper left")
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def figures(took_s: list[float]) -> dict[str, object]:
    return {
        "kills": len(took_s),
        "median_s": round(statistics.median(took_s), 3),
        "p90_s": round(statistics.quantiles(took_s, n=10)[-1], 3) if len(took_s) > 1 else None,
        "max_s": round(max(took_s), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="in the simulator; 0: none")
    parser.add_argument("--docker", type=int, default=0, metavar="KILLS", help="so many in containers too")
    parser.add_argument("--masters", type=int, default=3, help="in containers")
    parser.add_argument("--nodes", type=int, default=3, help="tablet servers in containers")
    parser.add_argument("--plot", type=Path, help="write a picture of the distributions there")
    parser.add_argument(
        "--beside", type=Path, action="append", default=[], help="what earlier calls printed, to be drawn"
    )
    options = parser.parse_args()
    curves: dict[str, list[float]] = {}
    for path in options.beside:
        curves |= json.loads(path.read_text())["seconds"]
    if options.kills:
        curves["simulator"] = measure(options.kills)
        curves["simulator, idle before the kill"] = measure(options.kills, idle=True)
    if options.docker:
        kill = partial(_kills, kills=options.docker, seed=1, idle=False)
        curves["containers"] = in_containers(kill, options.masters, options.nodes)
    knobs = Knobs()
    if options.plot:
        goal, what = "election timeout + lease + 0.5 s", "the kill of the leaseholder to the first write"
        plot(curves, options.plot, goal, limit_s(knobs), what)
    told = {"election_timeout_ms": knobs.election_timeout_ms, "lease_ms": knobs.lease_ms or knobs.election_timeout_ms}
    told |= {"raft_heartbeat_ms": knobs.raft_heartbeat_ms, "quiesce_after_ms": knobs.quiesce_after_ms}
    measured: dict[str, object] = {name: figures(took_s) for name, took_s in curves.items()}
    measured |= {"limit_s": limit_s(knobs), "knobs": told, "machine": machine()}
    measured["seconds"] = {name: [round(each, 3) for each in took_s] for name, took_s in curves.items()}
    print(json.dumps({"benchmark": "failover", **measured}))


if __name__ == "__main__":
    main()

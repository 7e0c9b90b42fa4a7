"""Fail-over of masters: time from the kill of the leader master to the first table created after it.

The limit is the election, an election timeout and a lease, and one heartbeat interval of a tablet server beyond it: a
new leader must not have to hear from tablet servers before it can place a table (Kudu, "Heartbeat to all masters").
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop

from bench._measure import machine
from bench.failover import Cluster, Curves, figures
from cluster.client.client import ClusterClient
from cluster.config import Knobs
from cluster.deploy.database_docker import DockerDatabase
from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.readiness import leaders
from cluster.store.schema import Column
from cluster.wire.messages import CATALOG_GROUP
from harness.env.docker.environment import DockerEnvironment
from harness.errors import DefiniteError, IndefiniteError
from harness.ports import Clock
from harness.real.clock import RealClock
from harness.sim.world import World

COLUMNS = (Column(0, "value", "int64"),)
HEARTBEAT_INTERVAL_S = 1.5
READY_S = 60.0
CALL_S = 30.0


async def _rest(database: Cluster, clock: Clock, seconds: float) -> str:
    """Wait until every node answers and a while more; the leader master of then."""
    while None in (found := await database.statuses()).values():
        await clock.sleep(0.1)
    await clock.sleep(seconds)
    found = await database.statuses()
    leader = leaders(status for status in found.values() if status is not None).get(CATALOG_GROUP)
    return leader if leader is not None else await _rest(database, clock, 0.5)


async def _created(client: ClusterClient, name: str) -> None:
    """One table, asked for until it is there; a second attempt is another request."""
    while True:
        try:
            await client.create_table(name, COLUMNS, 1, 3)
            return
        except (DefiniteError, IndefiniteError) as error:
            if error.kind == "already-present":
                return


async def _one_kill(database: Cluster, clock: Clock, number: int, entropy: random.Random) -> float:
    """Timed from before the kill is ordered to the answer to a CreateTable that was sent once the leader was dead."""
    client = database.admin_client(CALL_S)
    await client.list_tables()
    leader = await _rest(database, clock, 2.0 + entropy.random())
    began_ns = clock.monotonic_ns()
    await database.kill(leader)
    await _created(client, f"table{number}")
    took_s = (clock.monotonic_ns() - began_ns) / 1e9
    await database.start(leader)
    await client.catalog.delete_table(f"table{number}")
    return took_s


async def _kills(database: Cluster, clock: Clock, kills: int) -> list[float]:
    await database.install()
    await asyncio.gather(*(database.start(node.name) for node in database.nodes))
    await database.await_ready(READY_S)
    entropy = random.Random(1)
    return [await _one_kill(database, clock, number, entropy) for number in range(kills)]


def measure(kills: int, seed: int = 1, knobs: Knobs | None = None) -> list[float]:
    """Seconds of virtual time for each of so many kills in the simulator."""
    with World(seed, record_decisions=False) as world:

        async def main() -> list[float]:
            database = SimDatabase(world, knobs=knobs or Knobs())
            took_s = await _kills(database, world.harness_ports("bench").clock, kills)
            await database.teardown()
            return took_s

        return world.run(main())


async def measure_docker(kills: int, masters: int, tservers: int) -> list[float]:
    """Seconds for each of so many kills of programs in containers; raises UserError where there is no Docker."""
    environment = DockerEnvironment(RealClock(), report=lambda text: print(text, file=sys.stderr))
    database = DockerDatabase(environment, masters, tservers)
    try:
        await environment.prepare()
        await environment.setup(database.nodes)
        return await _kills(database, RealClock(), kills)
    finally:
        await database.teardown()
        await environment.teardown()


def bound_s(knobs: Knobs) -> float:
    """An election timeout and a lease, and one heartbeat interval beyond."""
    return (knobs.election_timeout_ms + (knobs.lease_ms or knobs.election_timeout_ms)) / 1e3 + HEARTBEAT_INTERVAL_S


def plot(curves: Curves, path: Path) -> None:
    """How many fail-overs were over after how long."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for number, (name, took_s) in enumerate(curves.items()):
        shares = [(rank + 1) / len(took_s) for rank in range(len(took_s))]
        axes.step(sorted(took_s), shares, where="post", color=f"C{number}", label=f"{name}, {len(took_s)} kills")
        axes.axvline(statistics.median(took_s), linestyle=":", color=f"C{number}")
    axes.axvline(bound_s(Knobs()), color="firebrick", label="election timeout + lease + 1.5 s")
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds from the kill of the leader master to the first CreateTable (dotted: median)")
    axes.set_ylabel("share of fail-overs")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="in the simulator")
    parser.add_argument("--docker", type=int, default=0, metavar="KILLS", help="so many in containers too")
    parser.add_argument("--masters", type=int, default=3, help="in containers")
    parser.add_argument("--nodes", type=int, default=3, help="tablet servers in containers")
    parser.add_argument("--plot", type=Path, help="write a picture of the distributions there")
    options = parser.parse_args()
    runs: dict[str, Callable[[], list[float]]] = {"simulator": lambda: measure(options.kills)}
    if options.docker:
        runs["containers"] = lambda: uvloop.run(measure_docker(options.docker, options.masters, options.nodes))
    curves = {name: run() for name, run in runs.items()}
    if options.plot:
        plot(curves, options.plot)
    measured = {name: figures(took_s) for name, took_s in curves.items()}
    print(json.dumps({"benchmark": "master_failover", **measured, "bound_s": bound_s(Knobs()), "machine": machine()}))


if __name__ == "__main__":
    main()

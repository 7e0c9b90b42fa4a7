"""Fail-over of masters: time from the kill of the leader master to the first table created after it.

The limit is the election, an election timeout and a lease, and one heartbeat interval of a tablet server beyond it: a
new leader must not have to hear from tablet servers before it can place a table (Kudu, "Heartbeat to all masters").
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from functools import partial
from pathlib import Path

from bench._measure import machine
from bench.failover import Cluster, figures, in_containers, in_simulator, plot
from cluster.client.client import ClusterClient
from cluster.deploy.readiness import leaders
from cluster.knobs import Knobs
from cluster.store.schema import Column
from cluster.wire.messages import CATALOG_GROUP
from harness.errors import DefiniteError, IndefiniteError
from harness.ports.api import Clock

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
    return in_simulator(partial(_kills, kills=kills), seed, knobs)


def bound_s(knobs: Knobs) -> float:
    """An election timeout and a lease, and one heartbeat interval beyond."""
    return (knobs.election_timeout_ms + (knobs.lease_ms or knobs.election_timeout_ms)) / 1e3 + HEARTBEAT_INTERVAL_S


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="in the simulator")
    parser.add_argument("--docker", type=int, default=0, metavar="KILLS", help="so many in containers too")
    parser.add_argument("--masters", type=int, default=3, help="in containers")
    parser.add_argument("--nodes", type=int, default=3, help="tablet servers in containers")
    parser.add_argument("--plot", type=Path, help="write a picture of the distributions there")
    options = parser.parse_args()
    curves = {"simulator": measure(options.kills)}
    if options.docker:
        curves["containers"] = in_containers(partial(_kills, kills=options.docker), options.masters, options.nodes)
    if options.plot:
        goal, what = "election timeout + lease + 1.5 s", "the kill of the leader master to the first CreateTable"
        plot(curves, options.plot, goal, bound_s(Knobs()), what)
    measured = {name: figures(took_s) for name, took_s in curves.items()}
    print(json.dumps({"benchmark": "master_failover", **measured, "bound_s": bound_s(Knobs()), "machine": machine()}))


if __name__ == "__main__":
    main()

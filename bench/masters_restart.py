"""All masters of a large catalog are killed and started again: when the catalog serves, and what that cost.

Tables of a thousand tablets are made first, by the cluster itself. Then all masters are killed and started, and the
locations of a whole table are asked for until they are told; then the leader is killed, and they are asked for again.
In the simulator the processor's time is that of the whole simulation meanwhile, all masters and tablet servers with
their full reports included: what one master does is less.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from functools import partial

from bench._measure import machine
from bench.failover import Cluster, in_containers, in_simulator
from bench.masters import COLUMNS, TABLETS_OF_A_TABLE
from cluster.client.client import ClusterClient
from cluster.deploy.layout import MASTER_ROLE
from cluster.deploy.readiness import leaders
from cluster.wire.messages import CATALOG_GROUP
from harness.errors import DefiniteError
from harness.ports.api import Clock

CALL_S = 30.0
READY_S = 60.0
RUNNING_S = 240.0
LOOK_EVERY_S = 0.25
SETTLING_S = 3.0
NAMES = ("restart_s", "restart_cpu_s", "failover_s", "failover_cpu_s")


async def _filled(database: Cluster, clock: Clock, client: ClusterClient, tables: int) -> None:
    await database.install()
    await asyncio.gather(*(database.start(node.name) for node in database.nodes))
    await database.await_ready(READY_S)
    for number in range(tables):
        await _made(client, clock, f"people{number}")
    await clock.sleep(SETTLING_S)


async def _made(client: ClusterClient, clock: Clock, name: str) -> None:
    """A table whose tablets all run; TimeoutError where they don't in time: there would be nothing to measure."""
    began_ns = clock.monotonic_ns()
    await client.create_table(name, COLUMNS, TABLETS_OF_A_TABLE, 3)
    while not await client.is_create_done(name):
        if clock.monotonic_ns() - began_ns > RUNNING_S * 1e9:
            raise TimeoutError(f"{name} was not running {RUNNING_S:.0f} s after its creation was asked for")
        await clock.sleep(LOOK_EVERY_S)
    print(f"{name} ran after {(clock.monotonic_ns() - began_ns) / 1e9:.1f} s", file=sys.stderr)


async def _until_located(client: ClusterClient, clock: Clock, began_ns: int, cpu_s: float) -> list[float]:
    """Seconds and this process's CPU-seconds until all tablets of a table are located."""
    while True:
        try:
            found = await client.table_locations("people0")
        except DefiniteError:
            continue
        if len(found.tablets) == TABLETS_OF_A_TABLE and all(tablet.replicas for tablet in found.tablets):
            return [(clock.monotonic_ns() - began_ns) / 1e9, time.process_time() - cpu_s]


async def _restarted(database: Cluster, clock: Clock, tables: int) -> list[float]:
    client = database.admin_client(CALL_S)
    await _filled(database, clock, client, tables)
    masters = [node.name for node in database.nodes if node.role == MASTER_ROLE]
    await asyncio.gather(*(database.kill(name) for name in masters))
    began_ns, cpu_s = clock.monotonic_ns(), time.process_time()
    await asyncio.gather(*(database.start(name) for name in masters))
    restart = await _until_located(client, clock, began_ns, cpu_s)
    await clock.sleep(SETTLING_S)
    states = (await database.statuses()).values()
    leader = leaders(status for status in states if status is not None)[CATALOG_GROUP]
    await database.kill(leader)
    return [*restart, *await _until_located(client, clock, clock.monotonic_ns(), time.process_time())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=10, help="of a thousand tablets each")
    parser.add_argument("--docker", action="store_true", help="in containers instead; their processors are not counted")
    options = parser.parse_args()
    work = partial(_restarted, tables=options.tables)
    took = in_containers(work, 3, 5) if options.docker else in_simulator(work)
    figures = {name: round(value, 3) for name, value in zip(NAMES, took, strict=True)}
    counted = {name: value for name, value in figures.items() if not (options.docker and "cpu" in name)}
    print(json.dumps({"benchmark": "masters_restart", "tables": options.tables, **counted, "machine": machine()}))


if __name__ == "__main__":
    main()

"""fsyncs per write through tablet servers in the simulator, and writes a second to one node's log on a real disk.

With one log per node, the more tablets are busy the more writes share an fsync (G5).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.layout import Layout
from cluster.knobs import Knobs
from cluster.log.node import NodeLog
from cluster.raft.types import Entry, Persist
from harness.history.ops import Op, write
from harness.ports.api import Clock, Hello
from harness.ports.real.disk import RealDisk
from harness.ports.real.ports import real_ports
from harness.ports.sim.world import World

TABLETS = (1, 4, 16, 64)
CLIENTS = 64
KEYS = 512


class CountingDisk(RealDisk):
    """A real disk that counts its fsyncs."""

    fsyncs = 0

    async def fsync(self, path: str) -> None:
        """Count, and sync."""
        self.fsyncs += 1
        await super().fsync(path)


# ---- in the simulator ----


async def _client(database: SimDatabase, clock: Clock, process: int, until_ns: int) -> int:
    client = await database.open_client(process, 5.0)
    done = 0
    while clock.monotonic_ns() < until_ns:
        mop = write((process * 37 + done * 101) % KEYS, done)
        await client.invoke(Op("invoke", process, mop.f, (mop,)))
        done += 1
    return done


async def _load(world: World, tablets: int, virtual_s: float) -> tuple[int, int]:
    database = SimDatabase(world, Layout(1, 3))
    clock = world.harness_ports("bench").clock
    await database.install()
    for node in database.nodes:
        await database.start(node.name)
    await database.await_ready(20)
    await database.setup_workload("register", {"buckets": tablets})
    await clock.sleep(2)
    disks = [world.node(f"t{number}").disk for number in (1, 2, 3)]
    before = sum(disk.syncs for disk in disks)
    until_ns = clock.monotonic_ns() + int(virtual_s * 1e9)
    done = await asyncio.gather(*(_client(database, clock, process, until_ns) for process in range(CLIENTS)))
    syncs = sum(disk.syncs for disk in disks) - before
    await database.teardown()
    return sum(done), syncs


def simulated(tablets: int, virtual_s: float) -> dict[str, float]:
    """One world of three tablet servers, each with a replica of every tablet."""
    with World(1, record_decisions=False) as world:
        writes, syncs = world.run(_load(world, tablets, virtual_s))
    return {
        "tablets": tablets,
        "writes": writes,
        "writes_per_virtual_s": round(writes / virtual_s),
        "fsyncs_per_write_on_a_node": round(syncs / 3 / writes, 3),
    }


# ---- on a real disk ----


async def _write(log: NodeLog, name: str, until_s: float) -> int:
    view, done = log.group(name), 0
    loop = asyncio.get_running_loop()
    durable = loop.create_future()
    view.attach(lambda _: durable.set_result(None), lambda full: None)
    while not done or time.monotonic() < until_s:  # a machine that is late still has one to divide by
        done += 1
        durable = loop.create_future()
        view.put(Persist(done, None, (Entry(1, done, 1, bytes(200)),), None, ()))
        await durable
    return done


async def _real(directory: Path, groups: int, seconds: float) -> dict[str, float]:
    ports = real_ports(Hello("bench", "n", 1, 1), directory, seed=1)
    disk = CountingDisk(directory)
    object.__setattr__(ports, "disk", disk)
    log = await NodeLog.open(ports, Knobs(), "tablet", [])
    began_s = time.monotonic()
    writes = sum(await asyncio.gather(*(_write(log, f"g{number}", began_s + seconds) for number in range(groups))))
    took_s = time.monotonic() - began_s
    await log.close()
    return {
        "groups": groups,
        "writes_per_s": round(writes / took_s),
        "fsyncs_per_write": round(disk.fsyncs / writes, 3),
    }


def main() -> None:
    """Print a line for each number of tablets, in the simulator and on the disk of the temporary directory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--virtual-s", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    for tablets in TABLETS:
        print(json.dumps(simulated(tablets, arguments.virtual_s)), flush=True)
    for groups in TABLETS:
        with tempfile.TemporaryDirectory() as directory:
            print(json.dumps(asyncio.run(_real(Path(directory), groups, arguments.seconds))), flush=True)


if __name__ == "__main__":
    main()

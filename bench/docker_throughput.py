"""Operations a second through the cluster in containers with no faults; how long setting up and removing it takes.

Clients work in a closed loop, half reads and half writes, each on a register of its own. Where others load the machine
the processor time of the node programs for each operation says more than operations a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import time
from dataclasses import dataclass, field

import uvloop

from cluster.deploy.database_ssh import SshDatabase
from cluster.deploy.layout import Layout
from cluster.deploy.node_files import NODE_DAEMON
from harness.env.docker.environment import DockerEnvironment
from harness.errors import UserError
from harness.history.ops import Op, read, write
from harness.ports.real.ports import RealClock
from harness.protocols import Client

READY_S = 60.0
OPERATION_S = 5.0


@dataclass(slots=True)
class Laps:
    """How long each stage took."""

    seconds: dict[str, float] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)

    def end(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = round(now - self.began, 2)
        self.began = now


async def bring_up(environment: DockerEnvironment, database: SshDatabase, laps: Laps) -> None:
    """From nothing to a cluster that serves registers."""
    await environment.prepare()
    laps.end("image")
    await environment.setup(database.nodes)
    laps.end("containers")
    await database.install()
    await asyncio.gather(*(database.start(node.name) for node in database.nodes))
    laps.end("programs")
    await database.await_ready(READY_S)
    await database.setup_workload("register", {})
    laps.end("ready")


async def _work(client: Client, process: int, until: float) -> list[float]:
    latencies: list[float] = []
    while (began := time.perf_counter()) < until:
        mop = write(process, len(latencies)) if len(latencies) % 2 else read(process)
        await client.invoke(Op("invoke", process, mop.f, (mop,)))
        latencies.append(time.perf_counter() - began)
    await client.close()
    return latencies


async def load(database: SshDatabase, concurrency: int, seconds: float) -> list[float]:
    """Clients at work for so long: how long each operation took, s."""
    clients = [await database.open_client(process, OPERATION_S) for process in range(concurrency)]
    until = time.perf_counter() + seconds
    done = await asyncio.gather(*(_work(client, process, until) for process, client in enumerate(clients)))
    return [latency for latencies in done for latency in latencies]


async def node_cpu_s(environment: DockerEnvironment, database: SshDatabase) -> float:
    """Processor time that all node programs have used so far (proc(5): utime and stime, in ticks)."""
    command = f"cat /proc/$(cat {NODE_DAEMON.pid_file})/stat"
    stats = await environment.fleet.check_each({node.name: command for node in database.nodes})
    ticks = [int(each) for stat in stats.values() for each in stat.rpartition(")")[2].split()[11:13]]
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


async def _measure(masters: int, tservers: int, concurrency: int, seconds: float) -> dict[str, object]:
    laps = Laps()
    environment = DockerEnvironment(RealClock(), report=lambda text: print(text, file=sys.stderr))
    database = SshDatabase(environment, Layout(masters, tservers))
    try:
        await bring_up(environment, database, laps)
        nodes_before_s, clients_before_s = await node_cpu_s(environment, database), time.process_time()
        latencies = await load(database, concurrency, seconds)
        clients_s = time.process_time() - clients_before_s
        nodes_s = await node_cpu_s(environment, database) - nodes_before_s
        laps.end("load")
    finally:
        await database.teardown()
        await environment.teardown()
        laps.end("removal")
    return {
        "ops": len(latencies),
        "ops_per_second": round(len(latencies) / seconds),
        "node_cpu_us_per_op": round(1e6 * nodes_s / len(latencies)),
        "client_cpu_us_per_op": round(1e6 * clients_s / len(latencies)),
        "latency_ms_median": round(1e3 * statistics.median(latencies), 2),
        "latency_ms_p99": round(1e3 * statistics.quantiles(latencies, n=100)[98], 2),
        "stage_seconds": laps.seconds,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--masters", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=5, help="tablet servers")
    parser.add_argument("--concurrency", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    try:
        measured = uvloop.run(_measure(options.masters, options.nodes, options.concurrency, options.seconds))
    except UserError as error:
        print(error, file=sys.stderr)
        return 254
    about = {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    print(json.dumps({"benchmark": "docker", "concurrency": options.concurrency, **measured, **about}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What an operation costs in processor time, legacy against logged, in pairs: in the simulator and in containers."""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from bench.docker_throughput import node_cpu_s
from bench.quorum.cluster import COLUMNS, DESIGNS, BenchCluster, chance, partition_key, simulated, wrote
from cluster.deploy.database_ssh import SshDatabase
from cluster.quorum.client import QuorumClient, QuorumClientTable
from cluster.quorum.slices import Slice
from cluster.wire.messages import WIRE_VERSION
from harness.env.docker.environment import DockerEnvironment
from harness.ports.api import Hello
from harness.ports.real.ports import RealClock, real_ports
from harness.ports.sim.clock import EPOCH_NS

_CLIENTS, _PARTITIONS = 10, 200
_DOCKER_CLIENTS = 20
_READY_S = 60.0


async def _operations(client: QuorumClient, number: int, reads: bool, count: int, from_ns: int = EPOCH_NS) -> None:
    """So many writes of a row each, or reads of whole partitions, at QUORUM."""
    draws = chance(number)
    for at in range(count):
        partition = draws.randrange(_PARTITIONS)
        if reads:
            await client.read(Slice(partition_key(partition)), "QUORUM", "dc1")
        else:
            mutation = wrote(partition, (at % 8,), "x" * 20, number * 10**6 + at, from_ns)
            await client.write(mutation, "QUORUM", "dc1")


# ---- in the simulator ----


def in_simulator(operations: int, pairs: int) -> list[dict[str, Any]]:
    """CPU seconds of the whole simulator for so many writes, then reads, and the median ratio of the pairs."""
    found: dict[str, list[dict[str, float]]] = {design: [] for design in DESIGNS}
    for pair in range(pairs):
        for design in DESIGNS if pair % 2 else tuple(reversed(DESIGNS)):
            found[design].append(simulated(_Load(operations).run, design, seed=pair))
    return [
        _compared("simulator", what, *([each[what] for each in found[design]] for design in DESIGNS))
        for what in ("writes", "reads")
    ]


class _Load:
    """Clients in a closed loop, without faults; all that runs in the background runs."""

    def __init__(self, operations: int) -> None:
        self._operations = operations

    async def run(self, cluster: BenchCluster) -> dict[str, float]:
        clients = [cluster.client() for _ in range(_CLIENTS)]
        found: dict[str, float] = {}
        for what in ("writes", "reads"):
            began = time.process_time()
            each = self._operations // _CLIENTS
            await asyncio.gather(*(_operations(c, n, what == "reads", each) for n, c in enumerate(clients)))
            found[what] = (time.process_time() - began) / (each * _CLIENTS) * 1e6
        return found


def _compared(where: str, what: str, legacy: Sequence[float], logged: Sequence[float]) -> dict[str, Any]:
    """Microseconds of an operation, and logged's throughput in that of legacy."""
    ratios = [one / other for one, other in zip(legacy, logged, strict=True)]
    return {
        "where": where,
        "what": what,
        "legacy_cpu_us": round(statistics.median(legacy)),
        "logged_cpu_us": round(statistics.median(logged)),
        "logged_of_legacy_throughput": round(statistics.median(ratios), 3),
        "pairs": [round(each, 3) for each in ratios],
    }


# ---- in containers ----


async def in_docker(seconds: float, pairs: int) -> list[dict[str, Any]]:
    """Processor time of the node programs for an operation: two tables of one cluster, written and read in turns."""
    environment = DockerEnvironment(RealClock(), report=lambda text: print(text, file=sys.stderr))
    database = SshDatabase(environment)
    try:
        await environment.prepare()
        await environment.setup(database.nodes)
        await database.install()
        await asyncio.gather(*(database.start(node.name) for node in database.nodes))
        await database.await_ready(_READY_S)
        for design in DESIGNS:
            await database.admin_client(10).create_table(design, COLUMNS, 1, 3, design)
        await database.await_ready(_READY_S)
        return await _docker_pairs(environment, database, seconds, pairs)
    finally:
        await database.teardown()
        await environment.teardown()


async def _docker_pairs(
    environment: DockerEnvironment, database: SshDatabase, seconds: float, pairs: int
) -> list[dict[str, Any]]:
    costs: dict[tuple[str, str], list[float]] = {}
    for pair in range(pairs):
        for what in ("writes", "reads"):
            for design in DESIGNS if pair % 2 else tuple(reversed(DESIGNS)):
                before = await node_cpu_s(environment, database)
                done = await _docker_load(database, design, what == "reads", seconds, pair)
                spent = await node_cpu_s(environment, database) - before
                costs.setdefault((what, design), []).append(spent / done * 1e6)
    return [_compared("containers", what, *(costs[what, design] for design in DESIGNS)) for what in ("writes", "reads")]


async def _docker_load(database: SshDatabase, table: str, reads: bool, seconds: float, pair: int) -> int:
    """Operations by clients in a closed loop for so long; how many there were."""
    masters = [database.address(node.name) for node in database.nodes if node.role == "master"]
    until, from_ns = time.perf_counter() + seconds, time.time_ns()

    async def one(number: int) -> int:
        with tempfile.TemporaryDirectory() as folder:  # clients write no files
            ports = real_ports(Hello("", f"bench{pair}.{number}", 1, WIRE_VERSION), folder, seed=number)
            client, done = QuorumClient(ports, masters, 5.0, QuorumClientTable(table)), 0
            while time.perf_counter() < until:
                await _operations(client, number * 1_000 + done, reads, 10, from_ns)
                done += 10
            await ports.network.close()
            return done

    return sum(await asyncio.gather(*(one(number) for number in range(_DOCKER_CLIENTS))))


# ---- reconciliation ----


def reconciling(ids: int) -> dict[str, Any]:
    """CPU seconds of the whole simulator until a replica has so many mutations that it missed, and all know it."""
    knobs: dict[str, Any] = {"poll_period_ms": 0, "reconcile_period_ms": 5_000}
    return simulated(_Reconciling(ids).run, "logged", **knobs)


class _Reconciling:
    """Two replicas have so many mutations that the third lacks."""

    def __init__(self, ids: int) -> None:
        self._ids = ids

    async def run(self, cluster: BenchCluster) -> dict[str, Any]:
        missed = [wrote(number % _PARTITIONS, (number % 8,), "x", number) for number in range(self._ids)]
        await cluster.load(missed, cluster.replicas[1:])
        last, began = cluster.ports.clock.wall_ns(), time.process_time()
        before = cluster.counts.copy()
        await cluster.until(lambda: cluster.reconciled(last + self._ids))
        sent = cluster.counts.since(before)
        assert len(await cluster.held(cluster.replicas[0], 0)) == len(await cluster.held(cluster.replicas[1], 0)) > 0
        cpu_s = time.process_time() - began
        return {"differing_ids": self._ids, "cpu_s": round(cpu_s, 2), "wire_bytes": sent.wire_bytes}

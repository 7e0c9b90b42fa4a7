"""Clusters to be measured, simulated or in containers; what clients get of these, and what looks at faults cost."""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec
import uvloop

from assay.compose import carry_out
from assay.judging import judge_saved_run
from assay.options import PROBE_PERIOD_S, RunOptions
from bench.measure import Row, report
from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.database_ssh import SshDatabase
from cluster.deploy.layout import Layout
from cluster.deploy.node_files import NODE_DAEMON
from cluster.knobs import Knobs
from harness.env.docker.environment import DockerEnvironment
from harness.history.ops import Op, read, write
from harness.history.rundir import open_run
from harness.ports.api import Clock
from harness.ports.real.ports import RealClock
from harness.ports.sim.world import World
from harness.protocols import Client
from harness.run.spec import Silent
from harness.verdict.facts import OutcomeRecord, load_faults
from harness.verdict.faults import Fault
from nemesis.kinds.packets import DATAGRAM_BYTES, DATAGRAMS, DATAGRAMS_OVER_S, LINKS_PROBED

T = TypeVar("T")

READY_S: Final = 60.0
OPERATION_S: Final = 5.0

Cluster: TypeAlias = SimDatabase | SshDatabase
Containers: TypeAlias = tuple[DockerEnvironment, SshDatabase]

Masters: TypeAlias = Annotated[int, "in containers"]
TabletServers: TypeAlias = Annotated[int, "tablet servers in containers"]


async def started(database: Cluster) -> None:
    """Its programs are there, run, and all serve."""
    await database.install()
    await asyncio.gather(*(database.start(node.name) for node in database.nodes))
    await database.await_ready(READY_S)


def simulated(
    work: Callable[[World, SimDatabase], Awaitable[T]],
    seed: int = 1,
    knobs: Knobs | None = None,
    layout: Layout | None = None,
) -> T:
    """What it returns in a world of its own, on a cluster that is not started yet."""
    with World(seed) as world:

        async def main() -> T:
            database = SimDatabase(world, layout or Layout(), knobs=knobs or Knobs())
            found = await work(world, database)
            await database.teardown()
            return found

        return world.run(main())


def in_simulator(work: Callable[[Cluster, Clock], Awaitable[T]], seed: int = 1, knobs: Knobs | None = None) -> T:
    """What comes of this work with a simulated cluster, where it needs no more than one in containers has."""
    return simulated(lambda world, database: work(database, world.harness_ports("bench").clock), seed, knobs)


def in_containers(work: Callable[[Cluster, Clock], Awaitable[T]], masters: int, tservers: int) -> T:
    """What comes of this work with a cluster in containers; raises UserError where there is no Docker."""

    async def main() -> T:
        async with containers(masters, tservers) as (_, database):
            return await work(database, RealClock())

    found: T = uvloop.run(main())
    return found


@dataclass(slots=True)
class Laps:
    """How long each stage took."""

    seconds: dict[str, float] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)

    def end(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = round(now - self.began, 2)
        self.began = now


@asynccontextmanager
async def containers(masters: int, tservers: int, laps: Laps | None = None) -> AsyncIterator[Containers]:
    """Containers in which nothing of the cluster is yet, removed when the block is left."""
    laps = laps or Laps()
    environment = DockerEnvironment(RealClock(), report=report)
    database = SshDatabase(environment, Layout(masters, tservers))
    try:
        await environment.prepare()
        laps.end("image")
        await environment.setup(database.nodes)
        laps.end("containers")
        yield environment, database
    finally:
        await database.teardown()
        await environment.teardown()
        laps.end("removal")


async def _serving(database: SshDatabase, laps: Laps) -> None:
    """From containers to a cluster that serves registers."""
    await database.install()
    await asyncio.gather(*(database.start(node.name) for node in database.nodes))
    laps.end("programs")
    await database.await_ready(READY_S)
    await database.setup_workload("register", {})
    laps.end("ready")


async def node_cpu_s(running: Containers) -> float:
    """Processor time that all node programs have used so far (proc(5): utime and stime, in ticks)."""
    environment, database = running
    command = f"read -r pid began <{NODE_DAEMON.pid_file} && cat /proc/$pid/stat"
    stats = await environment.fleet.check_each({node.name: command for node in database.nodes})
    ticks = [int(each) for stat in stats.values() for each in stat.rpartition(")")[2].split()[11:13]]
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


# ---- clients in a closed loop, half reads and half writes, each on a register of its own ----


async def _load(database: SshDatabase, concurrency: int, seconds: float) -> list[float]:
    """How long each operation took, s."""
    clients = [await database.open_client(process, OPERATION_S) for process in range(concurrency)]
    until = time.perf_counter() + seconds
    done = await asyncio.gather(*(_work(client, process, until) for process, client in enumerate(clients)))
    return [latency for latencies in done for latency in latencies]


async def _work(client: Client, process: int, until: float) -> list[float]:
    latencies: list[float] = []
    while (began := time.perf_counter()) < until:
        mop = write(process, len(latencies)) if len(latencies) % 2 else read(process)
        await client.invoke(Op("invoke", process, mop.f, (mop,)))
        latencies.append(time.perf_counter() - began)
    await client.close()
    return latencies


def docker_throughput(
    masters: Masters = 3, nodes: TabletServers = 5, concurrency: int = 20, seconds: float = 10.0
) -> Iterator[Row]:
    """Operations a second in containers with no faults; seconds of setting up and of removing.

    Where others load the machine the processor time of the node programs for each operation says more.
    """
    laps = Laps()
    figures = uvloop.run(_throughput(masters, nodes, concurrency, seconds, laps))
    stages = {f"{stage}_s": took for stage, took in laps.seconds.items()}
    yield {"cluster": f"{masters} + {nodes}", "concurrency": concurrency, **figures, **stages}


async def _throughput(masters: int, nodes: int, concurrency: int, seconds: float, laps: Laps) -> Row:
    async with containers(masters, nodes, laps) as running:
        await _serving(running[1], laps)
        nodes_before_s, clients_before_s = await node_cpu_s(running), time.process_time()
        latencies = await _load(running[1], concurrency, seconds)
        clients_s = time.process_time() - clients_before_s
        nodes_s = await node_cpu_s(running) - nodes_before_s
        laps.end("load")
    return {
        "ops": len(latencies),
        "ops_per_s": round(len(latencies) / seconds),
        "node_CPU_us_per_op": round(1e6 * nodes_s / len(latencies)),
        "client_CPU_us_per_op": round(1e6 * clients_s / len(latencies)),
        "median_ms": round(1e3 * statistics.median(latencies), 2),
        "p99_ms": round(1e3 * statistics.quantiles(latencies, n=100)[98], 2),
    }


# ---- probes ----

Look: TypeAlias = Callable[[], Awaitable[Any]]


def probes(
    masters: Masters = 3,
    nodes: TabletServers = 5,
    concurrency: int = 20,
    seconds: Annotated[float, "of each lap"] = 4.0,
    pairs: int = 10,
    looks: Annotated[Literal[1, 2, 3, 4], "more than two are more than any run does"] = 4,
) -> Iterator[Row]:
    """Laps of load with and without the looks that nemeses take at faults, in alternation, on a cluster without one.

    Looks are at the network (as for partitions), at all processes (kills, pauses), at all statuses (clocks,
    membership), and at the packets of some links. Each lap with probes is compared with the mean of those before and
    after it. Waiting hides what is costly where the machine has room, so processor time counts as well.
    """
    laps: list[tuple[float, float]] = []
    rounds: list[float] = []

    async def measure() -> None:
        async with containers(masters, nodes) as running:
            await _serving(running[1], Laps())
            await _load(running[1], concurrency, seconds)
            for lap in range(2 * pairs + 1):
                probing = asyncio.create_task(_probe(_looks(running)[: looks if lap % 2 else 0], rounds))
                laps.append(await _lap(running, concurrency, seconds))
                probing.cancel()
                with suppress(asyncio.CancelledError):
                    await probing
                report(f"lap {lap}: {laps[-1][0]:.0f} operations a second, {laps[-1][1]:.0f} us of processor")

    uvloop.run(measure())
    rates, costs = zip(*laps, strict=True)
    figures = _ratios("throughput", rates) | _ratios("processor", costs)
    round_ms = round(1e3 * statistics.median(rounds))
    without = {"ops_per_s_without": round(statistics.median(rates[::2]))}
    yield {"looks": str(looks), **figures, **without, "rounds": len(rounds), "round_ms": round_ms}


def _looks(running: Containers) -> tuple[Look, ...]:
    """What nemeses look at, the most frequent first."""
    environment, database = running
    names = [node.name for node in database.nodes]
    links = list(itertools.permutations(names, 2))[:LINKS_PROBED]
    return (
        environment.reachability,
        lambda: asyncio.gather(*(database.process_state(name) for name in names)),
        database.statuses,
        lambda: environment.flows(links, DATAGRAMS, DATAGRAM_BYTES, DATAGRAMS_OVER_S),
    )


async def _probe(chosen: Sequence[Look], rounds: list[float]) -> None:
    """As `nemesis.watch` does: one look after the other, a period after the last round."""
    while chosen:
        await asyncio.sleep(PROBE_PERIOD_S)
        began = time.perf_counter()
        for look in chosen:
            await look()
        rounds.append(time.perf_counter() - began)


async def _lap(running: Containers, concurrency: int, seconds: float) -> tuple[float, float]:
    """Operations a second, and processor time for an operation, us."""
    before_s = await node_cpu_s(running) + time.process_time()
    done = len(await _load(running[1], concurrency, seconds))
    used_s = await node_cpu_s(running) + time.process_time() - before_s
    return done / seconds, 1e6 * used_s / done


def _ratios(what: str, laps: Sequence[float]) -> dict[str, float]:
    """Laps with probes (every other) against the mean of both neighbours."""
    found = [2 * laps[i] / (laps[i - 1] + laps[i + 1]) for i in range(1, len(laps), 2)]
    taken = (("median", statistics.median), ("least", min), ("most", max))
    return {f"{what}_{name}": round(take(found), 3) for name, take in taken}


# ---- what a run recorded itself ----

PLAIN: Final = ("partition", "kill", "pause", "stop", "packets", "clock-jump", "clock-strobe", "slow-disk")
"""Kinds of faults that every Linux host can do."""

LASTS_S: Final = 90.0


def run_figures(*runs: str) -> Iterator[Row]:
    """Of saved runs (of one that is made in containers, if none is named): seconds of set-up, and until faults showed.

    For each kind of fault, of those that were observed, the seconds from the request to the look that saw it, median
    and longest. A look counts from where it began: no more is said than it took.
    """
    for run in runs or (_made(),):
        rundir = open_run(Path(run))
        outcome = msgspec.convert(rundir.read_json(rundir.outcome_json), OutcomeRecord)
        set_up_s = sum(end - begin for name, begin, end in outcome.stages if name == "set up") / 1e9
        yield {"what": "set-up", "median_s": round(set_up_s, 2), "runs": [run]}
        yield from (row | {"runs": [run]} for row in _delays(load_faults(rundir)))


def _delays(faults: Sequence[Fault]) -> Iterator[Row]:
    """By kind; the core of a script is a state that it waits for, and is left out."""
    found: dict[str, list[float]] = {}
    for fault in faults:
        if fault.observed_ns is not None and fault.cores is None:
            found.setdefault(fault.kind, []).append((fault.observed_ns - fault.requested_ns) / 1e9)
    for kind, each in sorted(found.items()):
        times = {"median_s": round(statistics.median(each), 2), "longest_s": round(max(each), 2)}
        yield {"what": kind, **times, "instances": len(each)}


def _made() -> str:
    store = Path(tempfile.mkdtemp())
    options = RunOptions("register", on="docker", nemesis=PLAIN, time_limit=LASTS_S, seed=1, store=store)
    return str(carry_out(options, judge_saved_run, Silent(), datetime.now(), report).outcome.rundir.path)

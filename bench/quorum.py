"""CEP-45's goals, measured: legacy replication against mutation tracking on the same workload and faults.

Lag, violations and speed are here; what is counted in bytes stands in `bench.quorum_costs`.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

from assay.compose import carry_out
from assay.options import RunOptions
from bench.clusters import Containers, containers, node_cpu_s, started
from bench.disks import StoreSetup, reopened
from bench.measure import Row, chosen, in_turns, kept_in, picture, spent
from bench.quorum_cluster import COLUMNS, DESIGNS, BenchCluster, chance, partition_key, simulated, wrote
from bench.quorum_costs import Bars, BenchSizes, plot_bars, reads, repair, streaming, wire
from checkers.api import check_run
from cluster.deploy.database_ssh import SshDatabase
from cluster.knobs import Knobs
from cluster.quorum.client import QuorumClient, QuorumClientTable
from cluster.quorum.ids import MutationId
from cluster.quorum.mutation_log import MutationLog
from cluster.quorum.slices import Slice
from cluster.wire.messages import WIRE_VERSION
from harness.errors import DefiniteError, IndefiniteError
from harness.history.rundir import RunDir
from harness.ports.api import CallLost, Hello, Unreachable
from harness.ports.real.ports import real_ports
from harness.ports.sim.clock import EPOCH_NS
from harness.ports.sim.link import LinkOptions
from harness.run.spec import Silent


def quorum(
    *rows: Annotated[str, "some of them; all that need no containers, if none is named"],
    full: Annotated[bool, "the sizes of docs/mutation-tracking.md; without, no figure means much"] = False,
    plots: Annotated[Path | None, "a folder to write pictures to"] = None,
) -> Iterator[Row]:
    """CEP-45's goals: the rows are named in docs/mutation-tracking.md, which says what each measures."""
    for name in chosen(rows or [name for name in ROWS if name != "docker"], ROWS):
        yield from ({"row": name, **figures} for figures in ROWS[name](BenchSizes(full, plots)))


# ---- replication lag: from a write's acknowledgement to the moment at which its last replica has it; hints ----

LOSS = 0.01
_WRITERS = 10
_PAUSE_S = 0.2
_DEAD_S, _ALIVE_S = 1.5, 2.5
_FIRST_LOOK_S, _SLOWER, _LONGEST_S = 0.005, 1.1, 0.5
"""Each next look at a replica comes a tenth later than the one before, at most half a second."""
_BACKGROUND: dict[str, dict[str, int]] = {
    "legacy": {"poll_period_ms": 0, "reconcile_period_ms": 0},
    "logged": {},
}
"""What runs by default; hints are replayed every second, logs polled every half."""


@dataclass
class Lags:
    """Seconds from acknowledgement to the last replica; `missing` are writes that some replica lacked at the end."""

    design: str
    seconds: list[float] = field(default_factory=list)
    missing: int = 0
    hint_bytes: int = 0
    kills: int = 0

    def figures(self) -> Row:
        """In a line."""
        ordered = sorted(self.seconds)
        return {
            "design": self.design,
            "acknowledged": len(ordered) + self.missing,
            "kills": self.kills,
            "median_s": round(statistics.median(ordered), 3),
            "p99_s": round(ordered[int(len(ordered) * 0.99)], 2),
            "longest_s": round(ordered[-1], 2),
            "missing_after_a_minute": self.missing,
            "hint_bytes": self.hint_bytes,
        }


def lag(sizes: BenchSizes) -> list[Row]:
    """Both designs under the same writes and kills, for so much virtual time and a minute more.

    Messages between nodes are lost, and tablet servers die while they coordinate. Whether a replica has a write is
    asked of that replica, by a machine whose own messages are never lost.
    """
    seconds = float(sizes.of(5, 60))
    found = [simulated(_Lag(design, seconds).run, design, network=_lossy, **_BACKGROUND[design]) for design in DESIGNS]
    if sizes.pictures:
        _plot_lag(found, sizes.pictures / "replication-lag.png")
    return [each.figures() for each in found]


def _plot_lag(found: Sequence[Lags], path: Path) -> None:
    """Which share of writes some replica still lacked after how long."""
    with picture(path) as axes:
        for lags in found:
            ordered, total = sorted(lags.seconds), len(lags.seconds) + lags.missing
            shares = [1 - (rank + 1) / total for rank in range(len(ordered))]
            label = f"{lags.design}: {lags.missing} of {total} missing after a minute"
            axes.step([*ordered, 60.0], [*shares, lags.missing / total], where="post", label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("seconds since the write was acknowledged")
        axes.set_ylabel("share of writes that some replica lacks")
        axes.legend(fontsize="small")


def _lossy(source: str, target: str) -> LinkOptions:
    """Only what nodes say to each other is lost."""
    between = all(name[:1] in "mt" and name[1:].isdecimal() for name in (source, target))
    return LinkOptions(loss=LOSS if between else 0.0)


class _Lag:
    """Writers beside a killer; each acknowledged write has a watcher of its own."""

    def __init__(self, design: str, seconds: float) -> None:
        self._found, self._seconds = Lags(design), seconds
        self._watchers: list[asyncio.Task[None]] = []

    async def run(self, cluster: BenchCluster) -> Lags:
        clock = cluster.ports.clock
        until_ns = clock.monotonic_ns() + int(self._seconds * 1e9)
        killer = asyncio.create_task(self._kill(cluster, until_ns))
        await asyncio.gather(*(self._write(cluster, number, until_ns) for number in range(_WRITERS)))
        await killer
        _, left = await asyncio.wait(self._watchers, timeout=60.0)
        self._found.missing = len(left)
        for watcher in left:
            watcher.cancel()
        self._found.hint_bytes = cluster.hint_bytes()
        return self._found

    async def _kill(self, cluster: BenchCluster, until_ns: int) -> None:
        draws = chance(1)
        servers = sorted([*cluster.replicas, *cluster.others])
        while cluster.ports.clock.monotonic_ns() < until_ns:
            await asyncio.sleep(_ALIVE_S)
            victim = draws.choice(servers)
            await cluster.database.kill(victim)
            self._found.kills += 1
            await asyncio.sleep(_DEAD_S)
            await cluster.database.start(victim)

    async def _write(self, cluster: BenchCluster, number: int, until_ns: int) -> None:
        client, clock, draws = cluster.client(), cluster.ports.clock, chance(1000 + number)
        partition = number
        while clock.monotonic_ns() < until_ns:
            await asyncio.sleep(_PAUSE_S * (0.5 + draws.random()))
            partition += _WRITERS
            mutation = wrote(partition, (0,), "x", partition)
            try:
                await client.write(mutation, "QUORUM", "dc1")
            except (DefiniteError, IndefiniteError):
                continue
            self._watchers.append(asyncio.create_task(self._watch(cluster, partition, clock.monotonic_ns())))

    async def _watch(self, cluster: BenchCluster, partition: int, acknowledged_ns: int) -> None:
        lacking, pause_s = list(cluster.replicas), _FIRST_LOOK_S
        while True:
            for node in list(lacking):
                try:
                    if await cluster.held(node, partition):
                        lacking.remove(node)
                except (Unreachable, CallLost, AssertionError):
                    pass  # it is dead, or not open yet
            if not lacking:
                break
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * _SLOWER, _LONGEST_S)
        self._found.seconds.append((cluster.ports.clock.monotonic_ns() - acknowledged_ns) / 1e9)


# ---- reads that the models refute, under the nemeses by which CEP-45 says that legacy replication tears pages ----

MODELS = ("write-atomicity", "monotonic-reads")
TABLES: dict[str, dict[str, str]] = {
    "legacy, blocking": {"table": "legacy", "read-repair": "blocking"},
    "legacy, none": {"table": "legacy", "read-repair": "none"},
    "logged": {"table": "logged"},
}
FAULTS: dict[str, dict[str, str]] = {
    "partial-write": {"slices": "0.8", "limits": "0"},
    "short-read": {"slices": "0", "limits": "0.8"},
}
"""The nemesis, and the reads that it aims at: some of the rows, or all of them up to a limit."""
_CALM = "severity=mild,latency=lan"
_RATE, _SECONDS = 150.0, 30.0


def violations(sizes: BenchSizes) -> list[Row]:
    """A row for each nemesis and table: runs until enough reads were answered, and what the models refute of them."""
    rows = [
        {"nemesis": nemesis, "table": table} | _until(sizes.of(300, 5_000), nemesis, mix | options)
        for nemesis, mix in FAULTS.items()
        for table, options in TABLES.items()
    ]
    for model in MODELS if sizes.pictures else ():
        assert sizes.pictures is not None
        asked = Bars(f"{model}_per_1e5", f"violations of {model} in 100 000 reads", "table")
        plot_bars(rows, lambda row: row["nemesis"], asked, sizes.pictures / f"violations-{model}.png")
    return rows


def _until(reads: int, nemesis: str, options: dict[str, str]) -> Row:
    found: Counter[str] = Counter()
    while found["reads"] < reads:
        found.update(_run(nemesis, 1 + found["runs"], options))
    return {**found, **{f"{model}_per_1e5": round(found[model] * 1e5 / found["reads"], 1) for model in MODELS}}


def _run(nemesis: str, seed: int, options: dict[str, str]) -> dict[str, int]:
    """One run: pages that were read, and how many anomalies each model counts in them."""
    with kept_in() as store:
        asked = RunOptions(
            "write-atomicity",
            nemesis=(nemesis,),
            time_limit=_SECONDS,
            rate=_RATE,
            concurrency=8,
            seed=seed,
            world=_CALM,
            workload_options={"keys": "4", "rows": "8", **options},
            store=store,
        )
        finished = carry_out(asked, _unjudged, Silent(), datetime(2026, 1, 1), lambda _: None)
        verdicts = check_run(finished.outcome.rundir.history_parquet, MODELS, engine="local")
    assert all(verdict.valid in (True, False) for verdict in verdicts.values()), verdicts
    counts = {model: sum(verdicts[model].counts.values()) for model in MODELS}
    return {"runs": 1, "reads": verdicts[MODELS[0]].details["pages"], **counts}


def _unjudged(_: RunDir) -> dict[str, Any]:
    return {}


# ---- what an operation costs in processor time ----

_CLIENTS, _PARTITIONS = 10, 200
_DOCKER_CLIENTS = 20
_REPLICATED_S = 60.0


async def _operations(client: QuorumClient, number: int, reads: bool, count: int, from_ns: int = EPOCH_NS) -> None:
    """`count` writes of a row each, or reads of whole partitions, at QUORUM."""
    draws = chance(number)
    for at in range(count):
        partition = draws.randrange(_PARTITIONS)
        if reads:
            await client.read(Slice(partition_key(partition)), "QUORUM", "dc1")
        else:
            mutation = wrote(partition, (at % 8,), "x" * 20, number * 10**6 + at, from_ns)
            await client.write(mutation, "QUORUM", "dc1")


# ---- in the simulator ----


def speed(sizes: BenchSizes) -> list[Row]:
    """CPU time of the whole simulator for a write and a read, and the median ratio of the pairs."""
    load = _Load(sizes.of(200, 2_000))
    found = in_turns(DESIGNS, sizes.of(1, 5), lambda design, pair: simulated(load.run, design, seed=pair))
    return _compared("simulator", found, sizes)


class _Load:
    """Clients in a closed loop, without faults; all that runs in the background runs."""

    def __init__(self, operations: int) -> None:
        self._operations = operations

    async def run(self, cluster: BenchCluster) -> dict[str, float]:
        clients = [cluster.client() for _ in range(_CLIENTS)]
        found: dict[str, float] = {}
        for what in ("writes", "reads"):
            each = self._operations // _CLIENTS
            with spent() as took:
                await asyncio.gather(*(_operations(c, n, what == "reads", each) for n, c in enumerate(clients)))
            found[what] = took.cpu_s / (each * _CLIENTS) * 1e6
        return found


def _compared(where: str, found: dict[str, list[dict[str, float]]], sizes: BenchSizes) -> list[Row]:
    """Microseconds of an operation by design, and logged's throughput in that of legacy."""
    rows = []
    for what in ("writes", "reads"):
        legacy, logged = ([each[what] for each in found[design]] for design in DESIGNS)
        ratios = [one / other for one, other in zip(legacy, logged, strict=True)]
        figures = {"legacy_cpu_us": round(statistics.median(legacy)), "logged_cpu_us": round(statistics.median(logged))}
        share = {"logged_of_legacy_throughput": round(statistics.median(ratios), 3)}
        rows.append({"where": where, "what": what, **figures, **share, "pairs": [round(each, 3) for each in ratios]})
    if sizes.pictures:
        asked = Bars("logged_of_legacy_throughput", "logged's throughput in that of legacy", "where")
        plot_bars(rows, lambda row: row["what"], asked, sizes.pictures / f"speed-{where}.png")
    return rows


# ---- speed in containers ----


def docker(sizes: BenchSizes) -> list[Row]:
    """Processor time of the node programs for an operation: two tables of one cluster, written and read in turns."""
    return _compared("containers", asyncio.run(_in_containers(float(sizes.of(2, 6)), sizes.of(1, 4))), sizes)


async def _in_containers(seconds: float, pairs: int) -> dict[str, list[dict[str, float]]]:
    async with containers(3, 5) as running:
        database = running[1]
        await started(database)
        for design in DESIGNS:
            await database.admin_client(10).create_table(design, COLUMNS, 1, 3, design)
        await database.await_ready(_REPLICATED_S)
        found: dict[str, list[dict[str, float]]] = {design: [{} for _ in range(pairs)] for design in DESIGNS}
        for pair in range(pairs):
            for what in ("writes", "reads"):
                for design in DESIGNS if pair % 2 else tuple(reversed(DESIGNS)):
                    found[design][pair][what] = await _cpu_us(running, design, what == "reads", seconds, pair)
        return found


async def _cpu_us(running: Containers, design: str, reads: bool, seconds: float, pair: int) -> float:
    before_s = await node_cpu_s(running)
    done = await _docker_load(running[1], design, reads, seconds, pair)
    return (await node_cpu_s(running) - before_s) / done * 1e6


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


def reconciling(sizes: BenchSizes) -> list[Row]:
    """CPU seconds of the whole simulator until a replica has all mutations that it missed, and all know it."""
    knobs: dict[str, Any] = {"poll_period_ms": 0, "reconcile_period_ms": 5_000}
    return [simulated(_Reconciling(sizes.of(1_000, 100_000)).run, "logged", **knobs)]


class _Reconciling:
    """Two replicas have mutations that the third lacks."""

    def __init__(self, ids: int) -> None:
        self._ids = ids

    async def run(self, cluster: BenchCluster) -> Row:
        missed = [wrote(number % _PARTITIONS, (number % 8,), "x", number) for number in range(self._ids)]
        await cluster.load(missed, cluster.replicas[1:])
        last, began = cluster.ports.clock.wall_ns(), time.process_time()
        before = cluster.counts.copy()
        await cluster.until(lambda: cluster.reconciled(last + self._ids))
        sent = cluster.counts.since(before)
        assert len(await cluster.held(cluster.replicas[0], 0)) == len(await cluster.held(cluster.replicas[1], 0)) > 0
        cpu_s = time.process_time() - began
        return {"differing_ids": self._ids, "cpu_s": round(cpu_s, 2), "wire_bytes": sent.wire_bytes}


# ---- restarts, on a real disk, of a replica of whose mutations all are of one row ----


def restart(sizes: BenchSizes) -> Iterator[Row]:
    """Both designs; of the logged one nothing is reconciled, so that every id has to be known again."""
    for design in DESIGNS:
        logged = design == "logged"
        setup = StoreSetup(Knobs(), None, MutationLog if logged else lambda: None)
        mutations = (
            (wrote(0, (0,), str(number), number), MutationId(number, "n") if logged else None)
            for number in range(1, sizes.of(10_000, 1_000_000) + 1)
        )
        with kept_in() as folder:
            yield {"design": design, **asyncio.run(reopened(folder, setup, partition_key(0), mutations))}


ROWS: Final[dict[str, Callable[[BenchSizes], Sequence[Row] | Iterator[Row]]]] = {
    "lag": lag,
    "repair": repair,
    "streaming": streaming,
    "reads": reads,
    "wire": wire,
    "violations": violations,
    "speed": speed,
    "reconciling": reconciling,
    "restart": restart,
    "docker": docker,
}
"""What can be measured, by name."""

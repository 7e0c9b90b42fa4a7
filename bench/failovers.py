"""Fail-over, in the simulator and in containers: of a leaseholder to the next write, of masters to the next table."""

from __future__ import annotations

import asyncio
import random
import statistics
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Final, NamedTuple, TypeAlias

from bench.clusters import Cluster, Masters, TabletServers, in_containers, in_simulator, started
from bench.measure import Row, picture, shares
from cluster.client.client import ClusterClient
from cluster.deploy.readiness import leaders
from cluster.knobs import Knobs
from cluster.store.schema import Column
from cluster.wire.messages import CATALOG_GROUP
from harness.errors import DefiniteError, IndefiniteError
from harness.history.ops import Op, write
from harness.ports.api import Clock

CLIENTS: Final = 4
COLUMNS: Final = (Column(0, "value", "int64"),)
CALL_S: Final = 30.0

Kills: TypeAlias = Callable[[Cluster, Clock], Awaitable[list[float]]]
"""Starts a cluster, kills some of its nodes one after the other, and returns the seconds of each fail-over."""

Curves: TypeAlias = Mapping[str, list[float]]
"""Seconds of each fail-over, by where it was measured."""

KillCount: TypeAlias = Annotated[int, "in the simulator; 0: none"]
Docker: TypeAlias = Annotated[int, "how many in containers too"]
Plot: TypeAlias = Annotated[Path | None, "write a picture of the distributions there"]


class FailoverLimit(NamedTuple):
    """What a fail-over may take beyond an election timeout and a lease, in words, and from when to when it is timed."""

    grace_s: float
    what: str

    def seconds(self, knobs: Knobs) -> float:
        return (knobs.election_timeout_ms + (knobs.lease_ms or knobs.election_timeout_ms)) / 1e3 + self.grace_s


OF_A_LEASEHOLDER: Final = FailoverLimit(0.5, "the kill of the leaseholder to the first write")
OF_MASTERS: Final = FailoverLimit(1.5, "the kill of the leader master to the first CreateTable")
"""One heartbeat interval of a tablet server: a new leader must not have to hear from tablet servers before it can place
a table (Kudu, "Heartbeat to all masters")."""


def _rows(curves: Curves, limit: FailoverLimit, plot: Path | None) -> Iterator[Row]:
    if plot:
        _draw(curves, limit, plot)
    for where, seconds in curves.items():
        figures = {"kills": len(seconds), **shares(seconds), "limit_s": limit.seconds(Knobs())}
        yield {"where": where, **figures, "seconds": [round(each, 3) for each in seconds]}


def _draw(curves: Curves, limit: FailoverLimit, path: Path) -> None:
    """How many fail-overs were over after how long."""
    with picture(path) as axes:
        for number, (name, seconds) in enumerate(curves.items()):
            over = [(rank + 1) / len(seconds) for rank in range(len(seconds))]
            axes.step(sorted(seconds), over, where="post", color=f"C{number}", label=f"{name}, {len(seconds)} kills")
            axes.axvline(statistics.median(seconds), linestyle=":", color=f"C{number}")
        goal = f"election timeout + lease + {limit.grace_s} s"
        axes.axvline(limit.seconds(Knobs()), color="firebrick", label=goal)
        axes.set_xlim(left=0)
        axes.set_xlabel(f"seconds from {limit.what} (dotted: median)")
        axes.set_ylabel("share of fail-overs")
        axes.legend(loc="upper left")


async def _whole(database: Cluster, clock: Clock) -> None:
    """Wait until every node answers: a second kill must not meet a group that is short of one already."""
    while None in (await database.statuses()).values():
        await clock.sleep(0.1)


async def _leaders(database: Cluster) -> dict[str, str]:
    return leaders((await database.statuses()).values())


# ---- a leaseholder ----


def failover(
    kills: KillCount = 50, docker: Docker = 0, masters: Masters = 3, nodes: TabletServers = 3, plot: Plot = None
) -> Iterator[Row]:
    """Seconds from the kill of a leaseholder to the first write that began after it and succeeded.

    In the simulator it is measured again with the cluster left alone before each kill, so that its groups are
    quiescent: clients begin when the node is dead.
    """
    curves: dict[str, list[float]] = {}
    if kills:
        curves["simulator"] = in_simulator(partial(kill_leaseholders, kills=kills))
        curves["simulator, idle before the kill"] = in_simulator(partial(kill_leaseholders, kills=kills, idle=True))
    if docker:
        curves["containers"] = in_containers(partial(kill_leaseholders, kills=docker), masters, nodes)
    yield from _rows(curves, OF_A_LEASEHOLDER, plot)


@dataclass
class FailoverWatch:
    """When a write that began after `since_ns` first succeeded; clients write while `open`."""

    open: asyncio.Event = field(default_factory=asyncio.Event)
    since_ns: int = 0
    first_ns: int = 0


async def kill_leaseholders(database: Cluster, clock: Clock, kills: int, idle: bool = False) -> list[float]:
    """Seconds of each fail-over, one after the other."""
    await started(database)
    await database.setup_workload("register", {"buckets": 1})
    watch, entropy = FailoverWatch(), random.Random(1)
    watch.open.set()
    clients = [asyncio.create_task(_write_on(database, clock, process, watch)) for process in range(CLIENTS)]
    seconds = [await _kill_leaseholder(database, clock, watch, entropy, idle) for _ in range(kills)]
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    return seconds


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


async def _kill_leaseholder(
    database: Cluster, clock: Clock, watch: FailoverWatch, entropy: random.Random, idle: bool
) -> float:
    """Timed from before the kill is ordered; only writes that began once the node was dead count."""
    await _whole(database, clock)
    if idle:
        watch.open.clear()
    await clock.sleep(2.0 + entropy.random())
    victim = next(node for group, node in (await _leaders(database)).items() if group != CATALOG_GROUP)
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


# ---- the leader master ----


def master_failover(
    kills: KillCount = 50, docker: Docker = 0, masters: Masters = 3, nodes: TabletServers = 3, plot: Plot = None
) -> Iterator[Row]:
    """Seconds from the kill of the leader master to the answer to a CreateTable that was sent once it was dead."""
    curves: dict[str, list[float]] = {}
    if kills:
        curves["simulator"] = in_simulator(partial(kill_masters, kills=kills))
    if docker:
        curves["containers"] = in_containers(partial(kill_masters, kills=docker), masters, nodes)
    yield from _rows(curves, OF_MASTERS, plot)


async def kill_masters(database: Cluster, clock: Clock, kills: int) -> list[float]:
    """Seconds of each fail-over, one after the other."""
    await started(database)
    entropy = random.Random(1)
    return [await _kill_master(database, clock, number, entropy) for number in range(kills)]


async def _kill_master(database: Cluster, clock: Clock, number: int, entropy: random.Random) -> float:
    """Timed from before the kill is ordered."""
    client = database.admin_client(CALL_S)
    await client.list_tables()
    leader = await _rested(database, clock, 2.0 + entropy.random())
    began_ns = clock.monotonic_ns()
    await database.kill(leader)
    await _created(client, f"table{number}")
    seconds = (clock.monotonic_ns() - began_ns) / 1e9
    await database.start(leader)
    await client.catalog.delete_table(f"table{number}")
    return seconds


async def _rested(database: Cluster, clock: Clock, seconds: float) -> str:
    """Wait until every node answers and a while more; the leader master of then."""
    await _whole(database, clock)
    await clock.sleep(seconds)
    leader = (await _leaders(database)).get(CATALOG_GROUP)
    return leader if leader is not None else await _rested(database, clock, 0.5)


async def _created(client: ClusterClient, name: str) -> None:
    """One table, asked for until it is there; a second attempt is another request."""
    while True:
        try:
            await client.create_table(name, COLUMNS, 1, 3)
            return
        except (DefiniteError, IndefiniteError) as error:
            if error.kind == "already-present":
                return

"""Reads from any replica where nodes are gone: what each way to read serves meanwhile, and how long until another one
leads; and what a node's own CPU of a read is, by who serves it.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
import time
import types
from collections.abc import Coroutine, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.far_clusters import GLOBAL_MODES, HOME, LEASES, MODES, MS, TABLE, WRITE, S, client_in, far
from bench.measure import Row, picture
from bench.quorum_costs import BenchSizes
from cluster.client import operating
from cluster.client.client import ClusterClient
from cluster.client.reading import ReadWish
from cluster.deploy.database_sim import SimDatabase
from cluster.knobs import Knobs
from cluster.node import run_node
from cluster.observer import UNOBSERVED
from cluster.ranges.policies import needed_ns
from cluster.wire.catalog import GLOBAL
from cluster.wire.messages import RowRange
from harness.cell_address import CellAddress
from harness.errors import DefiniteError, IndefiniteError
from harness.ports.api import Address, Channel, Clock, Handler, Listener, Network, NotifyHandler, Peer, Ports
from harness.ports.sim.world import World

PAUSE_S: Final = 0.1
"""Between two operations of one client."""


@dataclass(slots=True)
class Successes:
    """When operations of one client ended that were begun since `since_ns` and succeeded."""

    since_ns: int
    ends: list[int] = field(default_factory=list)

    def none_for_s(self, until_ns: int) -> float:
        """The longest time without any."""
        times = [self.since_ns, *self.ends, until_ns]
        return round(max(later - earlier for earlier, later in itertools.pairwise(times)) / S, 1)


async def _go_on(client: ClusterClient, clock: Clock, mode: str, wish: ReadWish, into: Successes, seed: int) -> None:
    """One operation of a kind after the other, for ever."""
    draws = random.Random(seed)
    while True:
        cell, began_ns = CellAddress(draws.randrange(50)), clock.monotonic_ns()
        with suppress(DefiniteError, IndefiniteError):
            if mode.startswith(WRITE):
                await client.write(TABLE, cell, 1)
            else:
                await client.read(TABLE, cell, **wish)
            if began_ns >= into.since_ns:
                into.ends.append(clock.monotonic_ns())
        await clock.sleep(PAUSE_S * (0.5 + draws.random()))


# ---- what each way to read serves while regions are gone ----

AWAY_S: Final = 30
PATIENCE_S: Final = 3.0
"""How long a client waits for one operation."""
READER: Final = 4
"""The region of the client, whose replica is a learner."""
OLDER: Final = "exact, of before"
LONG: Final = "bounded, 60 s"


def lost(sizes: BenchSizes) -> list[Row]:
    """By which regions are gone, all their nodes: of each way to read, and of writes, by a client in ap-southeast, the
    longest time in the 30 s after that in which none was served."""
    rows = []
    for gone in LOST if sizes.full else LOST[:1]:
        work = partial(_lost, gone, sizes.of(6, AWAY_S))
        rows += far(partial(work, MODES | {OLDER: ReadWish(), LONG: ReadWish(max_staleness=60 * S)}))
        rows += far(partial(work, GLOBAL_MODES), GLOBAL, **LEASES)
    return rows


LOST: Final = ("the leaseholder's", "another voter's", "the client's own", "the leaseholder's and another voter's")


async def _lost(
    gone: str, seconds: float, ways: Mapping[str, ReadWish], world: World, database: SimDatabase
) -> list[Row]:
    asked, ports = client_in(world, database, READER)
    (tablet,) = (await asked.table_locations(TABLE)).tablets
    state = (await operating.ranges_of(asked, tablet.replicas[0].address)).ranges[0]
    voter = next(int(each[1]) - 1 for each in sorted(state.voters) if int(each[1]) - 1 not in (HOME, READER))
    regions = {LOST[0]: (HOME,), LOST[1]: (voter,), LOST[2]: (READER,), LOST[3]: (HOME, voter)}[gone]
    served: dict[str, Successes] = {}
    tasks = []
    for number, (mode, wish) in enumerate(ways.items()):
        client, _ = client_in(world, database, READER, PATIENCE_S)
        fixed = ReadWish(as_of=ports.clock.wall_ns() - 4 * S) if mode == OLDER else wish
        into = served[mode] = Successes(ports.clock.monotonic_ns() + 5 * S)
        tasks.append(asyncio.create_task(_go_on(client, ports.clock, mode, fixed, into, number)))
    await ports.clock.sleep(5.0)
    for node in database.nodes:
        if int(node.name[1]) - 1 in regions:
            await database.kill(node.name)
    await ports.clock.sleep(seconds)
    until_ns = ports.clock.monotonic_ns()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return [{"gone": gone, "mode": mode, "none_for_s": each.none_for_s(until_ns)} for mode, each in served.items()]


# ---- fail-over, by how far ahead of the clock a table is closed ----

OFFSETS_MS: Final = (250, 500, 1_000, 2_000)
LONGEST_NS: Final = 240 * MS
"""The longest round trip from any region's leaseholder that nodes come to, in their steps."""
WATCHED_S: Final = 25.0
RESTS_S: Final = 20.0


def leads(sizes: BenchSizes) -> list[Row]:
    """By how far a GLOBAL table is closed ahead of the clock, whose leases last as long as that takes at the least: how
    long nothing is written, and nothing read strongly, once its leaseholder is killed, by a client in ap-southeast. The
    first row is of a table that is closed behind the clock."""
    kills = sizes.of(1, 5)
    rows = [{"closed": "3 s behind", **far(partial(_led, kills), max_clock_offset_ms=OFFSETS_MS[1])}]
    for offset_ms in OFFSETS_MS if sizes.full else OFFSETS_MS[:1]:
        lease_ms = needed_ns(Knobs(max_clock_offset_ms=offset_ms), LONGEST_NS) // MS + 100
        knobs = {"max_clock_offset_ms": offset_ms, "tablet_lease_ms": lease_ms, "support_ms": lease_ms}
        row = far(partial(_led, kills), GLOBAL, **knobs)
        rows.append(
            {"closed": f"{row['lead_s']} s ahead", "offset_s": offset_ms / 1e3, "lease_s": lease_ms / 1e3, **row}
        )
    if sizes.pictures and sizes.full:
        _plot_leads(rows, sizes.pictures / "failover-by-lead.png")
    return rows


async def _led(kills: int, world: World, database: SimDatabase) -> Row:
    asked, ports = client_in(world, database, READER)
    clock, gaps = ports.clock, list[tuple[float, float]]()
    for _ in range(kills):
        (tablet,) = (await asked.table_locations(TABLE)).tablets
        leader = next(each for each in tablet.replicas if each.node_id == tablet.leader_hint)
        state = (await operating.ranges_of(asked, leader.address)).ranges[0]
        written, seen = (Successes(clock.monotonic_ns() + 5 * S) for _ in range(2))
        clients = [client_in(world, database, READER, PATIENCE_S)[0] for _ in range(2)]
        tasks = [
            asyncio.create_task(_go_on(client, clock, mode, ReadWish(), into, number))
            for number, (client, mode, into) in enumerate(zip(clients, (WRITE, "strong"), (written, seen), strict=True))
        ]
        await clock.sleep(5.0)
        await database.kill(leader.address.partition(":")[0])
        await clock.sleep(WATCHED_S)
        gaps.append((written.none_for_s(clock.monotonic_ns()), seen.none_for_s(clock.monotonic_ns())))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await database.start(leader.address.partition(":")[0])
        await clock.sleep(RESTS_S)
    writes, reads = zip(*gaps, strict=True)
    return {
        "lead_s": round(-state.lag_ns / S, 2),
        "kills": kills,
        "no_write_for_s": statistics.median(writes),
        "no_strong_read_for_s": statistics.median(reads),
    }


def _plot_leads(rows: Sequence[Row], path: Path) -> None:
    with picture(path) as axes:
        ahead = [row for row in rows if row["lead_s"] > 0]
        for column, label in (("no_write_for_s", "nothing is written"), ("no_strong_read_for_s", "nothing is read")):
            axes.plot([row["lead_s"] for row in ahead], [row[column] for row in ahead], "o-", label=label)
        axes.set_xlabel("closed so far ahead of the clock, s")
        axes.set_ylabel("seconds after the leaseholder was killed, median")
        axes.set_ylim(bottom=0)
        axes.legend()


# ---- CPU of a read at the node that serves it ----


@types.coroutine
def timed(work: Coroutine[Any, Any, bytes], into: list[float]) -> Generator[Any, None, bytes]:
    """What the work comes to; `into` gets its seconds of CPU, without those of others while it waits."""
    took_s, thrown = 0.0, None
    while True:
        began = time.process_time()
        try:
            waited = work.send(None) if thrown is None else work.throw(thrown)
        except StopIteration as done:
            into.append(took_s + time.process_time() - began)
            answer: bytes = done.value
            return answer
        took_s, thrown = took_s + time.process_time() - began, None
        try:
            yield waited
        except asyncio.CancelledError as error:  # of whom waits: nothing else comes so
            thrown = error


class TimedReads:
    """A node's network; its CPU of each read that it is asked for is measured, from the request's bytes to the
    answer's. Implements `Network`."""

    def __init__(self, network: Network, into: list[float]) -> None:
        self._network, self._into = network, into

    async def listen(self, address: Address, on_call: Handler, on_notify: NotifyHandler) -> Listener:
        async def answer(peer: Peer, request: bytes) -> bytes:
            if not any(kind in request for kind in (b"ReadCell", b"ReadRows")):
                return await on_call(peer, request)
            return await timed(on_call(peer, request), self._into)

        return await self._network.listen(address, answer, on_notify)

    async def call(self, address: Address, request: bytes, timeout_s: float) -> bytes:
        return await self._network.call(address, request, timeout_s)

    def notify(self, address: Address, message: bytes, channel: Channel = Channel.LOG) -> None:
        self._network.notify(address, message, channel)

    async def close(self) -> None:
        await self._network.close()


class Unwatched(SimDatabase):
    """Without invariants, which take as much as what they watch."""

    async def _run(self, ports: Ports) -> None:
        await run_node(self._through(ports), self._configs[ports.node_id], UNOBSERVED)


WAYS: Final[dict[str, tuple[int, ReadWish]]] = {
    "strong, by the lease": (HOME, ReadWish()),
    "exact, 1 s ago, by the lease": (HOME, ReadWish(as_of=-S)),
    "exact, 5 s ago, at the leaseholder": (HOME, ReadWish(as_of=-5 * S)),
    "exact, 5 s ago, at a follower": (READER, ReadWish(as_of=-5 * S)),
    "bounded, 10 s, at a follower": (READER, ReadWish(max_staleness=10 * S)),
    "strong, anywhere, at a follower": (READER, ReadWish(strong_anywhere=True)),
}
"""Where the client is, and what it asks for: whatever any replica may serve, the nearest one does."""
CELLS: Final = 100


def cpu(sizes: BenchSizes) -> list[Row]:
    """CPU of a read at the nodes that it comes to, from the bytes of the request to those of the answer: of one cell,
    and of a span of 100."""
    took: list[float] = []
    count = sizes.of(20, 1_000)

    async def work(world: World, database: SimDatabase) -> list[Row]:
        client, ports = client_in(world, database, HOME)
        for number in range(CELLS):
            await client.write(TABLE, CellAddress(0, number), number)
        await ports.clock.sleep(6.0)
        rows = []
        for way, (region, wish) in WAYS.items():
            reader, _ = client_in(world, database, region)
            row: Row = {"way": way}
            for what in ("a cell", f"{CELLS} cells"):
                row[f"CPU_us, {what}"] = await _cpu_us(reader, wish, what, count, took)
            rows.append(row)
            reader.close()
        return rows

    return far(work, "", Unwatched, lambda ports: replace(ports, network=TimedReads(ports.network, took)))


async def _cpu_us(client: ClusterClient, wish: ReadWish, what: str, count: int, took: list[float]) -> float:
    for number in range(count + 10):
        if number == 10:
            took.clear()  # who is nearest is known by then
        if what == "a cell":
            await client.read(TABLE, CellAddress(0, number % CELLS), **wish)
        else:
            await client.read_rows(TABLE, 0, (RowRange(0, CELLS),), **wish)
    return round(1e6 * sum(took) / count, 1)

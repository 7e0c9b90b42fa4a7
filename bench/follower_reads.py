"""What reads from any replica cost and bring: latencies by region, the lag of what is closed, trackers, ticks, intents.

Clusters stand in five regions of a public cloud (`latency=wan5`), a tablet server in each, in the simulator: times are
virtual, CPU time is that of the code. What is served while regions are gone is in `bench.region_loss`.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

from bench.far_clusters import GLOBAL_MODES, HOME, LEASES, MODES, MS, TABLE, WRITE, S, client_in, far
from bench.measure import Row, chosen, picture
from bench.quorum_costs import BenchSizes
from bench.region_loss import cpu, leads, lost
from cluster.client import operating
from cluster.client.reading import ReadWish
from cluster.deploy.database_sim import SimDatabase
from cluster.knobs import Knobs
from cluster.ranges.observer import RangeObserver
from cluster.ranges.promises import BucketTracker, HeapTracker, Promises, SharedClosed, WriteTracker
from cluster.ranges.side_transport import Joined, SideTransport
from cluster.store.clock_guard import ClockLimits
from cluster.store.node_clock import NodeClock
from cluster.wire.catalog import GLOBAL
from cluster.wire.closing import ClosedAt
from cluster.wire.messages import Cell
from harness.cell_address import CellAddress
from harness.ports.api import Peer
from harness.ports.sim.world import World
from harness.ports.sim.worlds import WAN_REGIONS, WAN_ROUND_TRIPS_MS


def follower_reads(
    *parts: Annotated[str, "some of them, all if none is named"],
    full: Annotated[bool, "the sizes of docs/follower-reads.md; without, no figure means much"] = False,
    plots: Annotated[Path | None, "a folder to write pictures to"] = None,
) -> Iterator[Row]:
    """Reads from any replica: the parts are named in docs/follower-reads.md, which says what each measures."""
    for name in chosen(parts, PARTS):
        yield from ({"part": name, **figures} for figures in PARTS[name](BenchSizes(full, plots)))


# ---- the triangle: latencies of writes and reads, by region and mode ----


def modes(sizes: BenchSizes) -> list[Row]:
    """Milliseconds of each way to read, and of writes, for a client in each region, beside its round trips."""

    async def work(ways: Mapping[str, ReadWish], world: World, database: SimDatabase) -> list[Row]:
        each = [await _modes_of(world, database, region, ways, sizes) for region in range(len(WAN_REGIONS))]
        return [row for rows in each for row in rows]

    rows = [*far(partial(work, MODES)), *far(partial(work, GLOBAL_MODES), GLOBAL, **LEASES)]
    if sizes.pictures:
        _plot_modes(rows, sizes.pictures / "reads-by-region.png")
    return rows


async def _modes_of(
    world: World, database: SimDatabase, region: int, ways: Mapping[str, ReadWish], sizes: BenchSizes
) -> list[Row]:
    client, ports = client_in(world, database, region)
    count, draws, rows = sizes.of(3, 200), random.Random(region), []
    for mode, wish in ways.items():
        took: list[float] = []
        for number in range(count + 1):
            await asyncio.sleep(0.1 * draws.random())
            cell, began_ns = CellAddress(draws.randrange(50)), ports.clock.monotonic_ns()
            if mode.startswith(WRITE):
                await client.write(TABLE, cell, number)
            else:
                await client.read(TABLE, cell, **wish)
            took.append((ports.clock.monotonic_ns() - began_ns) / MS)
        rows.append({"region": WAN_REGIONS[region], "mode": mode, **_milliseconds(took[1:]), **_round_trips(region)})
    client.close()
    return rows


def _milliseconds(took: Sequence[float]) -> dict[str, float]:
    ordered = sorted(took)
    return {"median_ms": round(statistics.median(ordered), 1), "p99_ms": round(ordered[int(0.99 * len(ordered))], 1)}


def _round_trips(region: int) -> dict[str, int]:
    trips = WAN_ROUND_TRIPS_MS[region]
    return {"round_trip_inside_ms": trips[region], "round_trip_home_ms": trips[HOME]}


def _plot_modes(rows: Sequence[Row], path: Path) -> None:
    with picture(path, width=9) as axes:
        names = list(dict.fromkeys(row["mode"] for row in rows))
        width = 0.8 / len(names)
        for place, mode in enumerate(names):
            mine = [row for row in rows if row["mode"] == mode]
            at = [number + (place - (len(names) - 1) / 2) * width for number in range(len(mine))]
            axes.bar(at, [row["median_ms"] for row in mine], width, label=mode)
        home = [WAN_ROUND_TRIPS_MS[region][HOME] for region in range(len(WAN_REGIONS))]
        axes.plot(range(len(home)), home, "k_", markersize=40, label="round trip to the leaseholder")
        axes.set_xticks(range(len(WAN_REGIONS)), WAN_REGIONS)
        axes.set_yscale("log")
        axes.set_ylabel("milliseconds, median")
        axes.legend(fontsize="small", markerscale=0.3, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))


# ---- the lag of what is closed: writes that are pushed, and how old bounded reads are ----

LAGS_MS: Final = (100, 300, 1_000, 3_000, 10_000)
_THINKS_S: Final = 0.5
"""Between the time that a change asks for, that of its transaction's begin, and its being sent: on average."""


def lag(sizes: BenchSizes) -> list[Row]:
    """By how far behind the clock timestamps are closed: which share of changes is pushed above, whose transactions
    took half a second on average before they wrote; and how old bounded reads are."""
    rows = [far(partial(_lagging, sizes=sizes), closed_lag_ms=each) for each in LAGS_MS]
    found = [{"lag": f"{each / 1e3:g} s", **row} for each, row in zip(LAGS_MS, rows, strict=True)]
    if sizes.pictures:
        _plot_lag(found, sizes.pictures / "closed-lag.png")
    return found


async def _lagging(world: World, database: SimDatabase, sizes: BenchSizes) -> Row:
    pushed, ages = [0, 0], list[float]()

    async def change(region: int, count: int) -> None:
        client, ports = client_in(world, database, region)
        draws = random.Random(100 + region)
        for number in range(count):
            began = ports.clock.wall_ns()
            await asyncio.sleep(draws.expovariate(1 / _THINKS_S))
            key = CellAddress(1_000 * region + number + 1_000)  # of its own: nothing else pushes it
            done = await client.write(TABLE, key, number, began)
            pushed[0] += done.reply.timestamp > began
            pushed[1] += 1

    async def look(region: int, count: int) -> None:
        client, ports = client_in(world, database, region)
        draws = random.Random(region)
        for _ in range(count):
            await asyncio.sleep(2 * _THINKS_S * draws.random())
            read = await client.read(TABLE, CellAddress(draws.randrange(50)), max_staleness=60 * S)
            ages.append((ports.clock.wall_ns() - read.reply.timestamp) / S)
        client.close()

    count = sizes.of(4, 200)
    await asyncio.gather(*(each(region, count) for region in range(len(WAN_REGIONS)) for each in (change, look)))
    ages.sort()
    return {
        "changes": pushed[1],
        "pushed_percent": round(100 * pushed[0] / pushed[1], 1),
        "age_median_s": round(statistics.median(ages), 2),
        "age_p99_s": round(ages[int(0.99 * len(ages))], 2),
    }


def _plot_lag(rows: Sequence[Row], path: Path) -> None:
    with picture(path) as axes:
        lags = [each / 1e3 for each in LAGS_MS]
        axes.plot(lags, [row["pushed_percent"] for row in rows], "o-", color="C3", label="changes that are pushed, %")
        axes.set_xscale("log")
        axes.set_xlabel("closed so far behind the clock, s")
        axes.set_ylabel("% of changes pushed")
        other = axes.twinx()
        other.plot(lags, [row["age_median_s"] for row in rows], "s--", color="C0", label="age of bounded reads, median")
        other.set_yscale("log")
        other.set_ylabel("seconds")
        axes.legend(loc="upper center", fontsize="small")
        other.legend(loc="center", fontsize="small")


# ---- write trackers: how far the approximation stays behind, and CPU ----

TRACKERS: Final[dict[str, Callable[[], WriteTracker]]] = {"two buckets": BucketTracker, "heap": HeapTracker}


def trackers(sizes: BenchSizes) -> list[Row]:
    """By how many changes are in flight: how far the bound of each tracker lies behind the lowest timestamp in flight,
    and CPU of a change. Each asks for a time up to 100 ms old, and is in flight for 10 ms on average."""
    rows = []
    for in_flight in (1, 10, 100, 1_000):
        for name, make in TRACKERS.items():
            rows.append({"tracker": name, "in_flight": str(in_flight), **_tracked(make, in_flight, sizes)})
    return rows


def _tracked(make: Callable[[], WriteTracker], in_flight: int, sizes: BenchSizes) -> Row:
    draws, tracker, exact = random.Random(1), make(), HeapTracker()
    count, stays_ms = sizes.of(1_000, 100_000), 10.0
    flights: list[tuple[float, int]] = []
    now_ms = 0.0
    for _ in range(count):
        now_ms += draws.expovariate(in_flight / stays_ms)
        flights.append((now_ms, int((now_ms - 100 * draws.random()) * MS) + S))
    ends = sorted((at + draws.expovariate(1 / stays_ms), number) for number, (at, _) in enumerate(flights))
    events = sorted([(at, 0, n) for n, (at, _) in enumerate(flights)] + [(at, 1, n) for at, n in ends])
    behind: list[int] = []
    tickets: dict[int, tuple[Any, Any]] = {}
    for _, ends_now, number in events:
        if ends_now:
            mine, other = tickets.pop(number)
            tracker.leave(mine)
            exact.leave(other)
            if (bound := tracker.bound) is not None and (true := exact.bound) is not None:
                behind.append(true - bound)
        else:
            tickets[number] = tracker.enter(flights[number][1]), exact.enter(flights[number][1])
    behind.sort()
    figures = {"behind_mean_ms": round(statistics.mean(behind or [0]) / MS, 2)}
    figures["behind_p99_ms"] = round(behind[int(0.99 * len(behind))] / MS, 2) if behind else 0.0
    return figures | {"CPU_us": _tracker_cpu_us(make(), flights, events)}


def _tracker_cpu_us(
    tracker: WriteTracker, flights: Sequence[tuple[float, int]], events: Sequence[tuple[float, int, int]]
) -> float:
    tickets: dict[int, Any] = {}
    began = time.process_time()
    for _, ends_now, number in events:
        if ends_now:
            tracker.leave(tickets.pop(number))
        else:
            tickets[number] = tracker.enter(flights[number][1])
        _ = tracker.bound
    return round(1e6 * (time.process_time() - began) / len(flights), 2)


# ---- ticks of the side transport ----

RANGES: Final = (10, 100, 1_000, 10_000, 100_000)
CHANGES: Final = (0, 10, 100, 1_000)


class StubRange:
    """A leaseholder's side of an idle range that lasts by promises."""

    def __init__(self, number: int, lag_ns: int) -> None:
        self.range_id, self.policy, self.leads = f"range-{number:08}", lag_ns, True
        self.promises, self.write_index = Promises(1, 0, 0), 7

    def join(self, shared: SharedClosed, on_leave: Callable[[], None]) -> Joined | None:
        """It can always be closed with others."""
        others = ("t2", "t3")
        return Joined(1, self.write_index, others, None) if self.promises.share(shared, on_leave) else None

    def leave(self) -> None:
        """Go on alone."""
        self.promises.leave_shared()

    def keep(self, known: ClosedAt) -> None:
        """Nobody reads here."""

    def written(self) -> None:
        """Something is written, and applied at once."""
        self.promises.leave(self.promises.enter(0))
        self.write_index += 1


class StubStreams:
    """Streams that lead nowhere, and count bytes."""

    sent = 0

    def post_aside(self, target: str, message: bytes) -> None:
        """Counts what would be sent."""
        self.sent += len(message)

    def supported(self, server: str) -> int:
        """Leases last for as long as anybody asks."""
        return 1 << 62

    def refuses(self, peer: Peer, source: str) -> bool:
        """Nobody is refused."""
        return False


def ticks(sizes: BenchSizes) -> list[Row]:
    """Bytes to each of two other nodes and CPU of a tick, the median, by idle ranges and by how many of them change
    between two ticks. Ranges are stubs; a change's CPU is that of its leaving and of its joining again, not of the
    write."""
    rows = [
        _ticked(ranges, changes, sizes.of(5, 200 if ranges < RANGES[-1] else 50))
        for ranges in (RANGES if sizes.full else RANGES[:2])
        for changes in CHANGES
        if changes <= ranges
    ]
    if sizes.pictures:
        _plot_ticks(rows, sizes.pictures / "ticks.png")
    return rows


def _ticked(count: int, changes: int, turns: int) -> Row:
    knobs, streams = Knobs(), StubStreams()
    with World(1) as world:
        ports = world.harness_ports("t1")
        clock = NodeClock(ports.clock, ClockLimits.of(knobs))
        transport = SideTransport(ports, knobs, clock, streams, RangeObserver(), frozenset())
        ranges = [StubRange(number, knobs.closed_lag_ms * MS) for number in range(count)]
        for each in ranges:
            transport.attend(each)
            transport.consider(each.range_id)
        transport.start()
        period_s = knobs.side_transport_ms / 1e3
        world.run(ports.clock.sleep((count // 4_096 + 3) * period_s + period_s / 2))
        streams.sent, step, took = 0, max(1, count // max(changes, 1)), list[float]()
        for turn in range(turns):
            began = time.process_time()
            for number in range(changes):
                ranges[(number * step + turn) % count].written()
            world.run(ports.clock.sleep(period_s))
            took.append(time.process_time() - began)
        transport.close()
    figures = {"bytes_a_node": round(streams.sent / turns / 2), "CPU_us": round(1e6 * statistics.median(took))}
    return {"ranges": f"{count:,}".replace(",", " "), "changes": str(changes), **figures}


def _plot_ticks(rows: Sequence[Row], path: Path) -> None:
    with picture(path, width=10, panels=2) as panels:
        for axes, column in zip(panels, ("bytes_a_node", "CPU_us"), strict=True):
            for changes in dict.fromkeys(row["changes"] for row in rows):
                mine = [row for row in rows if row["changes"] == changes]
                counts = [int(row["ranges"].replace(" ", "")) for row in mine]
                axes.plot(counts, [row[column] for row in mine], "o-", label=f"{changes} changes a tick")
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlabel("idle ranges")
            axes.set_ylabel(column.replace("_", " ").replace("us", "µs of a tick"))
            axes.legend(fontsize="small")


# ---- closed against resolved, while transactions hold what they have laid ----

HELD_S: Final = (0, 1, 3, 10, 30)
_LOOK_S: Final = 0.1


def intents(sizes: BenchSizes) -> list[Row]:
    """By how long one transaction holds a write: how far behind its clock a follower knows the range to be closed, and
    resolved, at the worst, and how old bounded reads are, of what is held and of something else; nobody pushes."""
    rows = []
    for held_s in HELD_S if sizes.full else HELD_S[:2]:
        rows.append({"held": f"{held_s} s", **far(partial(_held, held_s=held_s), **_UNPUSHED)})
    if sizes.pictures and sizes.full:
        _plot_intents(rows, sizes.pictures / "closed-and-resolved.png")
    return rows


_UNPUSHED: Final = {"push_after_ms": 0, "hold_ms": 60_000}


async def _held(world: World, database: SimDatabase, held_s: float) -> Row:
    client, ports = client_in(world, database, HOME)
    (tablet,) = (await client.table_locations(TABLE)).tablets
    far = next(each.address for each in tablet.replicas if each.node_id.startswith("t5"))
    if held_s:
        await client.hold(TABLE, 0, "held", (Cell(0, 0, 1),))
    began_ns, lags = ports.clock.monotonic_ns(), list[tuple[float, float]]()
    ages: tuple[list[float], list[float]] = ([], [])
    until_ns = began_ns + int((held_s + 8) * S)
    settled = not held_s
    reader, at = client_in(world, database, 4)
    while ports.clock.monotonic_ns() < until_ns:
        if not settled and ports.clock.monotonic_ns() - began_ns >= held_s * S:
            settled = True
            await client.settle(TABLE, 0, "held", True)
        said = await operating.ranges_of(client, far)
        (state,) = said.ranges
        lags.append(((said.shown - state.closed) / S, (said.shown - state.resolved) / S))
        for key, found in enumerate(ages):
            read = await reader.read(TABLE, CellAddress(key), max_staleness=100 * S)
            found.append((at.clock.wall_ns() - read.reply.timestamp) / S)
        await asyncio.sleep(_LOOK_S)
    reader.close()
    return {
        "closed_lag_s": round(max(closed for closed, _ in lags), 2),
        "resolved_lag_s": round(max(resolved for _, resolved in lags), 2),
        "age_there_s": round(max(ages[0]), 2),
        "age_elsewhere_s": round(max(ages[1]), 2),
    }


def _plot_intents(rows: Sequence[Row], path: Path) -> None:
    with picture(path) as axes:
        for column, label in (("closed_lag_s", "closed"), ("resolved_lag_s", "resolved")):
            axes.plot(HELD_S, [row[column] for row in rows], "o-", label=label)
        axes.set_xlabel("seconds for which a transaction holds a write")
        axes.set_ylabel("seconds behind the clock, at the worst")
        axes.legend()


PARTS: Final[dict[str, Callable[[BenchSizes], list[Row]]]] = {
    "modes": modes,
    "lag": lag,
    "trackers": trackers,
    "ticks": ticks,
    "intents": intents,
    "lost": lost,
    "leads": leads,
    "cpu": cpu,
}

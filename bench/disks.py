"""What logs and stores cost on disks: fsyncs and writes of a node's log, and a quorum replica's local store."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from bench.clusters import simulated, started
from bench.measure import Row, Spent, kept_in, spent
from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.layout import Layout
from cluster.knobs import Knobs
from cluster.log.node import NodeLog
from cluster.node import tend_garbage
from cluster.quorum.ids import MutationId
from cluster.quorum.keys import ABOVE, KeyBytes, encode_key
from cluster.quorum.mutation import MutationBuilder, PartitionMutation, encode_mutation
from cluster.quorum.mutation_log import MutationLog
from cluster.quorum.slices import Slice, live_rows
from cluster.quorum.sorted.live import SortedOptions
from cluster.quorum.sorted.store import SortedStore
from cluster.raft.types import Entry, Persist
from cluster.store.cells import Value
from harness.history.ops import Op, write
from harness.ports.api import Clock, Hello
from harness.ports.real.disk import RealDisk
from harness.ports.real.ports import real_ports
from harness.ports.sim.world import World

# ---- a node's log: the more tablets are busy the more writes share an fsync (G5) ----

TABLETS: Final = (1, 4, 16, 64)
CLIENTS: Final = 64
KEYS: Final = 512


def node_log(virtual_s: float = 5.0, seconds: Annotated[float, "on a real disk"] = 3.0) -> Iterator[Row]:
    """Writes through three tablet servers in the simulator, and of 200 bytes to one log on a real disk."""
    for tablets in TABLETS:
        writes, syncs = simulated(
            lambda world, database: _loaded(world, database, tablets, virtual_s),  # noqa: B023
            layout=Layout(1, 3),
        )
        figures = {"writes_per_s": round(writes / virtual_s), "fsyncs_per_write": round(syncs / 3 / writes, 3)}
        yield {"disk": "simulated, fsyncs of one node", "groups": str(tablets), **figures}
    for groups in TABLETS:
        with kept_in() as folder:
            yield {"disk": "real", "groups": str(groups), **asyncio.run(_logged(folder, groups, seconds))}


async def _loaded(world: World, database: SimDatabase, tablets: int, virtual_s: float) -> tuple[int, int]:
    """Writes and fsyncs of tablet servers that each have a replica of every tablet."""
    clock, disks = world.harness_ports("bench").clock, [world.node(f"t{number}").disk for number in (1, 2, 3)]
    await started(database)
    await database.setup_workload("register", {"buckets": tablets})
    await clock.sleep(2)
    before = sum(disk.syncs for disk in disks)
    until_ns = clock.monotonic_ns() + int(virtual_s * 1e9)
    done = await asyncio.gather(*(_client(database, clock, process, until_ns) for process in range(CLIENTS)))
    return sum(done), sum(disk.syncs for disk in disks) - before


async def _client(database: SimDatabase, clock: Clock, process: int, until_ns: int) -> int:
    client = await database.open_client(process, 5.0)
    done = 0
    while clock.monotonic_ns() < until_ns:
        mop = write((process * 37 + done * 101) % KEYS, done)
        await client.invoke(Op("invoke", process, mop.f, (mop,)))
        done += 1
    return done


class CountingDisk(RealDisk):
    """A real disk that counts its fsyncs."""

    fsyncs = 0

    async def fsync(self, path: str) -> None:
        """Count, and sync."""
        self.fsyncs += 1
        await super().fsync(path)


async def _logged(directory: Path, groups: int, seconds: float) -> Row:
    ports = real_ports(Hello("bench", "n", 1, 1), directory, seed=1)
    disk = CountingDisk(directory)
    object.__setattr__(ports, "disk", disk)
    log = await NodeLog.open(ports, Knobs(), "tablet", [])
    with spent() as took:
        until_s = time.monotonic() + seconds
        writes = sum(await asyncio.gather(*(_append(log, f"g{number}", until_s) for number in range(groups))))
    await log.close()
    return {"writes_per_s": round(writes / took.wall_s), "fsyncs_per_write": round(disk.fsyncs / writes, 3)}


async def _append(log: NodeLog, name: str, until_s: float) -> int:
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


# ---- a quorum replica's store ----

PARTITIONS, ROWS = 200, 500
WRITERS, READERS = 64, 8
SLICE_ROWS: Final = 10
OPTIONS: Final = SortedOptions(memtable_bytes=1 << 20)
"""Small memtables, so that a short run has many files and compactions."""
KNOBS: Final = Knobs(bulk_bytes_per_s=1 << 30)
"""Flushes and compactions as fast as they can: what is measured is the store, not its pace."""


class StoreSetup(NamedTuple):
    """How a store is opened, and who keeps the ids of its mutations."""

    knobs: Knobs = KNOBS
    options: SortedOptions | None = OPTIONS
    ledger: Callable[[], MutationLog | None] = lambda: None


def sorted_store(writes: int = 100_000, reads: int = 4_000, one_row: int = 100_000) -> Iterator[Row]:
    """Writes and slices a second, bytes on disk, write amplification, opening again after many writes of one row.

    `turn_ms` is the longest time for which nothing else ran.
    """
    with kept_in() as directory:
        yield from asyncio.run(_measured(directory, writes, reads))
    key, partition = encode_key((1,)), partition_key(0)
    some = ((MutationBuilder(partition, n, 0).write(key, {1: n}).build(), None) for n in range(1, one_row + 1))
    with kept_in() as directory:
        yield {"what": "opened again", **asyncio.run(reopened(directory, StoreSetup(), partition, some))}


def partition_key(number: int) -> KeyBytes:
    """The key of a partition."""
    return encode_key((f"partition{number:04d}",))


def mutation(number: int, chance: random.Random) -> PartitionMutation:
    """A write of one row of a random partition: four cells, two numbers and two texts."""
    key = encode_key((chance.randrange(ROWS), "clustering"))
    values: dict[int, Value] = {1: number, 2: number * 7, 3: f"value {number}", 4: "x" * 12}
    builder = MutationBuilder(partition_key(chance.randrange(PARTITIONS)), 1_700_000_000_000_000 + number, 0)
    return builder.write(key, values).build()


@asynccontextmanager
async def opened(directory: Path, incarnation: int, setup: StoreSetup) -> AsyncIterator[tuple[SortedStore, Spent]]:
    """A store with the log in front of it, closed when the block is left; what it took to open both."""
    ports = real_ports(Hello("bench", "n", incarnation, 1), directory, seed=incarnation)
    with spent() as took:
        log = await NodeLog.open(ports, setup.knobs, "tablet", ["t"] if incarnation > 1 else [])
        store = await SortedStore.open(ports, setup.knobs, log.group("t"), setup.options, ledger=setup.ledger())
    yield store, took
    await store.close()
    await log.close()


async def _measured(directory: Path, writes: int, reads: int) -> list[Row]:
    """Writes, reads before and after a full compaction, a scan."""
    chance = random.Random(1)
    async with opened(directory, 1, StoreSetup()) as (store, _):
        mutations = [mutation(number, chance) for number in range(writes)]
        logged = sum(len(encode_mutation(each)) for each in mutations)
        gc.collect()
        gc.freeze()  # as a node does with what lives long (`cluster.node.tend_garbage`)
        rows = [{"what": "writes", **await _timed(lambda: write_all(store, ((each, None) for each in mutations)))}]
        await store.flush()
        await _settled(store)
        written, files = store.stats.written_bytes, len(store.files)
        rows.append({"what": f"slices of {SLICE_ROWS} rows", **await _sliced(store, reads, chance), "files": files})
        ran = {"flushes": store.stats.flushes, "compactions": store.stats.compactions}
        rows.append({"what": "compaction", "write_amplification": round(written / logged, 2), **ran})
        await store.compact_all()
        rows.append({"what": "slices of one file", **await _sliced(store, reads, chance)})
        rows.append({"what": "scanned rows", **await _timed(lambda: _scanned(store))})
        rows.append({"what": "disk", **await _sizes(store)})
    return rows


async def write_all(store: SortedStore, mutations: Iterable[tuple[PartitionMutation, MutationId | None]]) -> int:
    """Write them, some at a time; how many there were."""
    waiting, done = iter(mutations), 0

    async def writer() -> None:
        nonlocal done
        for each, mutation_id in waiting:
            await store.apply(each, mutation_id)
            done += 1

    await asyncio.gather(*(writer() for _ in range(WRITERS)))
    return done


async def _timed(work: Callable[[], Awaitable[int]]) -> Row:
    """How fast something goes that says how often it did what it does."""
    longest_s = 0.0

    async def watch() -> None:
        nonlocal longest_s
        while True:
            with spent() as turn:
                await asyncio.sleep(0)
            longest_s = max(longest_s, turn.wall_s)
            await asyncio.sleep(0.001)

    watching = asyncio.create_task(watch())
    with spent() as took:
        done = await work()
    watching.cancel()
    figures = {"per_s": round(done / took.wall_s), "CPU_us_each": round(took.cpu_s / done * 1e6, 1)}
    return {**figures, "turn_ms": round(longest_s * 1e3, 1)}


async def _sliced(store: SortedStore, reads: int, chance: random.Random) -> Row:
    before = store.stats.read_bytes
    figures = await _timed(lambda: _read_slices(store, reads, chance))
    return {**figures, "bytes_read_each": round((store.stats.read_bytes - before) / reads)}


async def _read_slices(store: SortedStore, count: int, chance: random.Random) -> int:
    """Read slices of a few rows at random places, some at a time."""

    async def reader(reads: int) -> int:
        rows = 0
        for _ in range(reads):
            start = encode_key((chance.randrange(ROWS - SLICE_ROWS),))
            asked = Slice(partition_key(chance.randrange(PARTITIONS)), ((start, ABOVE),), SLICE_ROWS)
            rows += live_rows((await store.read(asked)).contents)
        return rows

    assert sum(await asyncio.gather(*(reader(count // READERS) for _ in range(READERS)))) > count
    return count // READERS * READERS


async def _settled(store: SortedStore) -> None:
    """Wait until no compaction follows the last one."""
    done = -1
    while store.stats.compactions > done:
        done = store.stats.compactions
        await asyncio.sleep(1.0)


async def _scanned(store: SortedStore) -> int:
    """Everything, as a repair reads it; how many rows there were."""
    scan, rows = store.scan(), 0
    while (piece := await scan.next()) is not None:
        rows += len(piece.contents.rows)
    return rows


async def _sizes(store: SortedStore) -> Row:
    """What a cell costs on disk, beside its own bytes: value, timestamp, its share of the keys of row and partition."""
    scan, cells, own = store.scan(), 0, 0
    while (piece := await scan.next()) is not None:
        own += len(piece.partition) if piece.first else 0
        for row in piece.contents.rows:
            own += len(row.key)
            for cell in row.cells:
                cells += 1
                own += 8 + (len(cell.value) if isinstance(cell.value, str) else 8)
    disk = sum(file.ref.size for file in store.files)
    return {"bytes_per_cell": round(disk / cells, 1), "times_its_own": round(disk / own, 2), "MiB_on_disk": disk >> 20}


async def reopened(
    directory: Path,
    setup: StoreSetup,
    partition: KeyBytes,
    mutations: Iterable[tuple[PartitionMutation, MutationId | None]],
) -> Row:
    """What it takes to open a store to which one row was written many times; garbage is collected as nodes do."""
    tending = asyncio.create_task(tend_garbage())
    async with opened(directory, 1, setup) as (store, _):
        count = await write_all(store, mutations)
    disk = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    ledger = setup.ledger()
    async with opened(directory, 2, setup._replace(ledger=lambda: ledger)) as (store, took):
        assert live_rows((await store.read(Slice(partition))).contents) == 1
        assert ledger is None or len(ledger.index) == count
    tending.cancel()
    figures = {"s": round(took.wall_s, 2), "CPU_s": round(took.cpu_s, 2)}
    return {"mutations_of_one_row": count, "MiB_on_disk": disk >> 20, **figures}

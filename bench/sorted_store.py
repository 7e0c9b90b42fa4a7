"""The local store of a quorum replica on a real disk: writes and slices a second, bytes on disk, write amplification.

Prints one JSON object a measurement, with the machine's size. `turn_ms` is the longest time for which nothing else ran.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench._measure import machine
from cluster.knobs import Knobs
from cluster.log.node import NodeLog
from cluster.quorum.keys import ABOVE, KeyBytes, encode_key
from cluster.quorum.mutation import MutationBuilder, PartitionMutation, encode_mutation
from cluster.quorum.slices import Slice, live_rows
from cluster.quorum.sorted.live import SortedOptions
from cluster.quorum.sorted.store import SortedStore
from cluster.store.cells import Value
from harness.ports.api import Hello
from harness.ports.real.ports import real_ports

PARTITIONS, ROWS, CELLS = 200, 500, 4
WRITERS, READERS = 64, 8
SLICE_ROWS = 10
OPTIONS = SortedOptions(memtable_bytes=1 << 20)
"""Small memtables, so that a short run has many files and compactions."""
KNOBS = Knobs(bulk_bytes_per_s=1 << 30)
"""Flushes and compactions as fast as they can: what is measured is the store, not its pace."""


class Lag:
    """The longest time for which the event loop was busy with one turn, while it is entered."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def __aenter__(self) -> Lag:
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def _watch(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0)
            self.longest_s = max(self.longest_s, time.perf_counter() - began)
            await asyncio.sleep(0.001)


def partition_key(number: int) -> KeyBytes:
    """The key of a partition."""
    return encode_key((f"partition{number:04d}",))


def mutation(number: int, chance: random.Random) -> PartitionMutation:
    """A write of one row of a random partition: four cells, two numbers and two texts."""
    key = encode_key((chance.randrange(ROWS), "clustering"))
    values: dict[int, Value] = {1: number, 2: number * 7, 3: f"value {number}", 4: "x" * 12}
    builder = MutationBuilder(partition_key(chance.randrange(PARTITIONS)), 1_700_000_000_000_000 + number, 0)
    return builder.write(key, values).build()


async def opened(directory: Path, incarnation: int) -> tuple[NodeLog, SortedStore]:
    """A log and a store in a directory."""
    ports = real_ports(Hello("bench", "n", incarnation, 1), directory, seed=incarnation)
    log = await NodeLog.open(ports, KNOBS, "tablet", ["t"] if incarnation > 1 else [])
    return log, await SortedStore.open(ports, KNOBS, log.group("t"), OPTIONS)


async def closed(log: NodeLog, store: SortedStore) -> None:
    """Close both."""
    await store.close()
    await log.close()


async def timed(work: Callable[[], Awaitable[int]]) -> dict[str, float]:
    """How fast something goes that says how often it did what it does."""
    wall, cpu = time.perf_counter(), time.process_time()
    async with Lag() as lag:
        done = await work()
    seconds, cpu_s = time.perf_counter() - wall, time.process_time() - cpu
    return {
        "per_s": round(done / seconds),
        "cpu_us_each": round(cpu_s / done * 1e6, 1),
        "turn_ms": round(lag.longest_s * 1e3, 1),
    }


async def write_all(store: SortedStore, mutations: list[PartitionMutation]) -> int:
    """Write them, some at a time."""
    waiting = iter(mutations)

    async def writer() -> None:
        for each in waiting:
            await store.apply(each)

    await asyncio.gather(*(writer() for _ in range(WRITERS)))
    return len(mutations)


async def read_slices(store: SortedStore, count: int, chance: random.Random) -> int:
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


async def settled(store: SortedStore) -> None:
    """Wait until no compaction follows the last one."""
    done = -1
    while store.stats.compactions > done:
        done = store.stats.compactions
        await asyncio.sleep(1.0)


async def scan_all(store: SortedStore) -> int:
    """Everything, as a repair reads it; how many rows there were."""
    scan, rows = store.scan(), 0
    while (piece := await scan.next()) is not None:
        rows += len(piece.contents.rows)
    return rows


def counted(store: SortedStore) -> dict[str, float]:
    """What ran in the background."""
    return {"flushes": store.stats.flushes, "compactions": store.stats.compactions}


def tell(what: str, figures: dict[str, float]) -> None:
    """One line."""
    print(json.dumps({"what": what, **figures, "machine": machine()}), flush=True)


async def load(directory: Path, writes: int, reads: int) -> None:
    """Writes, reads before and after a full compaction, a scan."""
    chance = random.Random(1)
    log, store = await opened(directory, 1)
    mutations = [mutation(number, chance) for number in range(writes)]
    logged = sum(len(encode_mutation(each)) for each in mutations)
    gc.collect()
    gc.freeze()  # as a node does with what lives long (`cluster.node.tend_garbage`)
    tell("writes", await timed(lambda: write_all(store, mutations)))
    await store.flush()
    await settled(store)
    files, written = len(store.files), store.stats.written_bytes
    before = store.stats.read_bytes
    figures = await timed(lambda: read_slices(store, reads, chance))
    figures |= {"files": files, "bytes_read_each": round((store.stats.read_bytes - before) / reads)}
    tell("slices", figures)
    tell("compaction", {"write_amplification": round(written / logged, 2), **counted(store)})
    await store.compact_all()
    before = store.stats.read_bytes
    figures = await timed(lambda: read_slices(store, reads, chance))
    tell("slices of one file", figures | {"bytes_read_each": round((store.stats.read_bytes - before) / reads)})
    tell("scanned rows", await timed(lambda: scan_all(store)))
    await sizes(store)
    await closed(log, store)


async def sizes(store: SortedStore) -> None:
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
    tell("disk", {"bytes_per_cell": round(disk / cells, 1), "times_its_own": round(disk / own, 2), "mib": disk >> 20})


async def restart(directory: Path, writes: int) -> None:
    """Opening a store to which one row was written many times."""
    log, store = await opened(directory, 1)
    key, partition = encode_key((1,)), partition_key(0)

    def one(number: int) -> PartitionMutation:
        return MutationBuilder(partition, number, 0).write(key, {1: number}).build()

    await write_all(store, [one(number) for number in range(1, writes + 1)])
    await closed(log, store)
    began = time.perf_counter()
    log, store = await opened(directory, 2)
    seconds = time.perf_counter() - began
    assert live_rows((await store.read(Slice(partition))).contents) == 1
    await closed(log, store)
    tell("restart", {"mutations_of_one_row": writes, "seconds": round(seconds, 2)})


def main() -> None:
    """Measure on the disk of the temporary directory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writes", type=int, default=100_000)
    parser.add_argument("--reads", type=int, default=4_000)
    parser.add_argument("--one-row", type=int, default=100_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(load(Path(directory), arguments.writes, arguments.reads))
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(restart(Path(directory), arguments.one_row))


if __name__ == "__main__":
    main()

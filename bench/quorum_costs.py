"""CEP-45 in bytes: what repairs and reads take from disks and send over the wire, legacy against logged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.measure import Row, picture
from bench.quorum_cluster import (
    DESIGNS,
    QUIET,
    TABLE,
    BenchCluster,
    NodeCounts,
    chance,
    partition_key,
    simulated,
    wrote,
)
from cluster.quorum.keys import encode_key
from cluster.quorum.messages import Repaired, RepairTable
from cluster.quorum.mutation import PartitionMutation
from cluster.quorum.slices import Slice

_MIB: Final = 1 << 20


class BenchSizes(NamedTuple):
    """How much is measured, and where pictures go (None: nowhere)."""

    full: bool
    pictures: Path | None

    def of(self, small: int, full: int) -> int:
        """One of the two."""
        return full if self.full else small


class Bars(NamedTuple):
    """The column that bars show, in words, the column of which each has its colour, and the kind of axis."""

    column: str
    label: str
    series: str
    logarithmic: bool = False


def plot_bars(rows: Sequence[Row], what: Callable[[Row], str], asked: Bars, path: Path) -> None:
    """A group of bars for each `what` that rows are about."""
    groups = list(dict.fromkeys(what(row) for row in rows))
    names = list(dict.fromkeys(row[asked.series] for row in rows))
    width = 0.8 / len(names)
    with picture(path) as axes:
        for place, name in enumerate(names):
            chosen = [row for row in rows if row[asked.series] == name]
            at = [groups.index(what(row)) + (place - (len(names) - 1) / 2) * width for row in chosen]
            bars = axes.bar(at, [row[asked.column] for row in chosen], width, label=name)
            axes.bar_label(bars, fmt="%g", fontsize="small")
        axes.set_xticks(range(len(groups)), groups)
        axes.set_yscale("log" if asked.logarithmic else "linear")
        axes.set_ylabel(asked.label)
        axes.legend(fontsize="small")


# ---- repair: what is read to find what replicas miss, and what is sent to make up for it ----

_PARTITION_BYTES = 2_000
_REPAIR_S = 3_600.0
_KNOBS: dict[str, Any] = {"bulk_bytes_per_s": 1 << 30, "memtable_bytes": 2 << 20}
"""What is in memory at the end of loading is less than a memtable."""
_RECONCILING = {"poll_period_ms": 0, "reconcile_period_ms": 5_000}
"""The bound is raised, and nothing is exchanged beside: what is read is one reconciliation's."""


def repair(sizes: BenchSizes) -> list[Row]:
    """Bytes read from all disks until a replica has the mutations that it missed."""
    tables, missing = ((16, 64), (10, 1_000, 10_000)) if sizes.full else ((4,), (10, 100))
    rows = [
        _until_whole(design, mib * _MIB // _PARTITION_BYTES, some, mib=mib)
        for mib in tables
        for some in missing
        for design in DESIGNS
    ]
    if sizes.pictures:
        _plot_repair(rows, sizes.pictures / "repair-disk-load.png")
    return rows


def _plot_repair(rows: Sequence[Row], path: Path) -> None:
    """Bytes read from disks against the mutations that were missing."""
    with picture(path) as axes:
        for design, mib in dict.fromkeys((row["design"], row["mib"]) for row in rows):
            chosen = [row for row in rows if (row["design"], row["mib"]) == (design, mib)]
            read = [row["disk_read_bytes"] / _MIB for row in chosen]
            axes.plot([row["missing"] for row in chosen], read, marker="o", label=f"{design}, {mib} MiB")
        axes.set_xscale("log")
        axes.set_xlabel("missing mutations")
        axes.set_ylabel("MiB read from the disks of three replicas")
        axes.legend(fontsize="small")


def streaming(sizes: BenchSizes) -> list[Row]:
    """Bytes sent until a replica has the one cell that it missed, in a partition of that size."""
    partitions = (1, 16) if sizes.full else (1,)
    rows = [_until_whole(design, 0, 1, partition_mib=mib) for mib in partitions for design in DESIGNS]
    if sizes.pictures:
        asked = Bars("wire_bytes", "bytes sent for one cell", "design", logarithmic=True)
        path = sizes.pictures / "over-streaming.png"
        plot_bars(rows, lambda row: f"partition of {row['partition_mib']} MiB", asked, path)
    return rows


def _until_whole(design: str, partitions: int, missing: int, **sizes: int) -> Row:
    background = _RECONCILING if design == "logged" else QUIET
    run = _Repairing(partitions, missing, sizes.get("partition_mib", 0))
    figures = simulated(run.run, design, **_KNOBS, **background)
    return {"design": design, **sizes, "missing": missing, **figures}


class _Repairing:
    """A table whose first replica misses some small mutations."""

    def __init__(self, partitions: int, missing: int, partition_mib: int) -> None:
        self._partitions, self._missing, self._partition_mib = partitions, missing, partition_mib

    async def run(self, cluster: BenchCluster) -> dict[str, int]:
        await self._load(cluster)
        last_ns = await self._miss(cluster)
        before, began_ns = cluster.counts.copy(), cluster.ports.clock.monotonic_ns()
        if cluster.design == "legacy":
            reply = await cluster.ask(cluster.others[0], RepairTable(TABLE, _REPAIR_S), _REPAIR_S)
            assert isinstance(reply, Repaired), reply
        else:
            await cluster.until(lambda: cluster.reconciled(last_ns), within_s=_REPAIR_S)
        found = cluster.counts.since(before)
        seconds = (cluster.ports.clock.monotonic_ns() - began_ns) / 1e9
        await self._check(cluster)
        return _figures(found) | {"virtual_s": round(seconds)}

    async def _load(self, cluster: BenchCluster) -> None:
        """What all have, and have in files; of a logged table it is reconciled by then."""
        text = "x" * _PARTITION_BYTES
        if self._partition_mib:
            rows = self._partition_mib * _MIB // _PARTITION_BYTES
            await cluster.load([wrote(0, (row,), text, row) for row in range(1, rows + 1)])
        else:
            await cluster.load([wrote(number, (0,), text, number) for number in range(self._partitions)])
        await asyncio.sleep(60)

    async def _miss(self, cluster: BenchCluster) -> int:
        """Small mutations that all but the first replica get; no id of one lies above the time that is returned."""
        draws = chance(2)
        times = range(10**9, 10**9 + self._missing)
        missed = [wrote(self._drawn(draws.random()), (1,), "new", time) for time in times]
        await cluster.load(missed, cluster.replicas[1:])
        return cluster.ports.clock.wall_ns() + 10**9

    def _drawn(self, share: float) -> int:
        return int(share * self._partitions)

    async def _check(self, cluster: BenchCluster) -> None:
        """All replicas hold the same of each partition that one may have missed something of."""
        draws = chance(2)
        some = list({self._drawn(draws.random()): None for _ in range(self._missing)})[:50]
        for number in some:
            first, *others = [await cluster.held(node, number) for node in cluster.replicas]
            assert first[encode_key((1,))] == "new" and all(each == first for each in others), partition_key(number)


def _figures(found: NodeCounts) -> dict[str, int]:
    carried = ("TakePartitions", "DeliverMutations")
    return {
        "disk_read_bytes": found.disk_read_bytes,
        "wire_bytes": found.wire_bytes,
        "of_these_data": sum(found.wire[kind] for kind in carried),
        "largest_message": found.largest_message,
    }


# ---- reads: from how many disks each takes data, and what goes over the wire for it ----

_ROWS, _ROW_BYTES = 4, 200
_MEMTABLE = 64 << 10


def reads(sizes: BenchSizes) -> list[Row]:
    """Data reads from disks for each client read at QUORUM: replicas equal, or each partition differs at one of them.

    Each partition was written once, so that what a replica holds of it lies in one block of one file: a read of data is
    a read of that block.
    """
    count = sizes.of(60, 1_000)
    rows = [
        {"replication": replication, "replicas": state, "design": design}
        | simulated(_DiskReads(count, state == "one lags").run, design, replication, memtable_bytes=_MEMTABLE, **QUIET)
        for replication in (3, 5)
        for state in ("equal", "one lags")
        for design in DESIGNS
    ]
    if sizes.pictures:
        asked, path = Bars("disk_reads_of_each", "data reads from disk for each read", "design"), "disk-reads.png"
        plot_bars(rows, lambda row: f"factor {row['replication']}, {row['replicas']}", asked, sizes.pictures / path)
    return rows


class _DiskReads:
    """`reads` partitions, of which each is read once by a coordinator that holds none."""

    def __init__(self, reads: int, lagging: bool) -> None:
        self._reads, self._lagging = reads, lagging

    async def run(self, cluster: BenchCluster) -> dict[str, float]:
        fill = _MEMTABLE // (_ROWS * _ROW_BYTES) + 1
        load = [wrote(number, range(_ROWS), "x" * _ROW_BYTES, number) for number in range(self._reads + fill)]
        await cluster.load(load)
        await asyncio.sleep(30)
        if self._lagging:
            late = [wrote(number, (1,), "new", 10**9 + number) for number in range(self._reads)]
            for number, each in enumerate(late):
                lags = cluster.replicas[number % len(cluster.replicas)]
                await cluster.load([each], [node for node in cluster.replicas if node != lags])
        draws, before = chance(1), cluster.counts.copy()
        for number in draws.sample(range(self._reads), self._reads):
            prefer = draws.sample(cluster.replicas, len(cluster.replicas))
            page = await cluster.read(cluster.others[0], Slice(partition_key(number)), prefer)
            assert len(page.page.contents.rows) == _ROWS
        found = cluster.counts.since(before)
        return {
            "disk_reads_of_each": round(found.disk_reads / self._reads, 3),
            "disk_bytes_of_each": round(found.disk_read_bytes / self._reads),
            "wire_bytes_of_each": round(found.wire_bytes / self._reads),
            "reads": self._reads,
        }


_KINDS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "summaries": ("logged", {}),
    "ids": ("logged", {"summary_cells": 0}),
    "legacy": ("legacy", {}),
}
"""How differences are found: by summaries, by the ids themselves, by legacy's digests and rows."""


def wire(sizes: BenchSizes) -> list[Row]:
    """Bytes between nodes for a read of one row, as ids of its partition pile up and replicas differ in some."""
    unreconciled, differences = sizes.of(100, 100_000), (0, 1, 10, 100, 1_000) if sizes.full else (0, 10)
    rows = [
        {"kind": kind, **row}
        for kind, (design, knobs) in _KINDS.items()
        for row in simulated(_Wire(unreconciled, differences).run, design, **QUIET, **knobs)
    ]
    if sizes.pictures:
        _plot_wire(rows, sizes.pictures / "bytes-of-reads.png")
    return rows


def _plot_wire(rows: Sequence[Row], path: Path) -> None:
    """Bytes of a read, mutations aside, against ids that are not reconciled; a line for each number of differences."""
    with picture(path, width=9, panels=2, one_scale=True) as panels:
        for axes, kind in zip(panels, ("summaries", "ids"), strict=True):
            for differences in dict.fromkeys(row["differences"] for row in rows):
                chosen = [row for row in rows if (row["kind"], row["differences"]) == (kind, differences)]
                sent = [row["wire_bytes"] - row["of_these_mutations"] for row in chosen]
                axes.plot([row["ids"] for row in chosen], sent, marker="o", label=f"{differences} differences")
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_title(f"differences found by {kind}")
            axes.set_xlabel("unreconciled ids of the partition")
        panels[0].set_ylabel("bytes between nodes for a read")
        panels[0].legend(fontsize="small")


class _Wire:
    """A partition for each number of ids; in it a read for each number of differences, which heals them."""

    def __init__(self, unreconciled: int, differences: tuple[int, ...]) -> None:
        self._unreconciled, self._differences = unreconciled, differences
        self._time = 0

    async def run(self, cluster: BenchCluster) -> list[dict[str, int]]:
        found, count = [], 10
        while count <= self._unreconciled:
            await cluster.load(self._some(count, count))
            ids = count
            for differing in self._differences:
                await cluster.load(self._some(count, differing), cluster.replicas[1:])
                ids += differing
                sent = await self._read(cluster, count)
                mutations = sent.wire["FetchMutations"] + sent.wire["DeliverMutations"] + sent.wire["TakePartitions"]
                row = {"ids": ids, "differences": differing, "wire_bytes": sent.wire_bytes}
                found.append(row | {"of_these_mutations": mutations})
            count *= 10
        return found

    async def _read(self, cluster: BenchCluster, partition: int) -> NodeCounts:
        """Of one row, by a coordinator that holds none, from the replica that lacks something and another one."""
        asked = Slice(partition_key(partition), ((encode_key((0,)), encode_key((1,))),))
        before = cluster.counts.copy()
        await cluster.read(cluster.others[0], asked, cluster.replicas[:2])
        return cluster.counts.since(before)

    def _some(self, partition: int, count: int) -> list[PartitionMutation]:
        times = range(self._time + 1, self._time + count + 1)
        self._time += count
        return [wrote(partition, (0,), f"value {time}", time) for time in times]

"""Reads: from how many disks each takes data, and what goes over the wire for it."""

from __future__ import annotations

import asyncio
from typing import Any

from bench.quorum.cluster import DESIGNS, QUIET, BenchCluster, chance, partition_key, simulated, wrote
from bench.quorum.rim import NodeCounts
from cluster.quorum.keys import encode_key
from cluster.quorum.mutation import PartitionMutation
from cluster.quorum.slices import Slice

_ROWS, _ROW_BYTES = 4, 200
_MEMTABLE = 64 << 10


def disk_reads(reads: int) -> list[dict[str, Any]]:
    """Data reads from disks for each client read at QUORUM: replicas equal, or each partition differs at one of them.

    Each partition was written once, so that what a replica holds of it lies in one block of one file: a read of data is
    a read of that block.
    """
    return [
        {"replication": replication, "replicas": state, "design": design}
        | simulated(_DiskReads(reads, state == "one lags").run, design, replication, memtable_bytes=_MEMTABLE, **QUIET)
        for replication in (3, 5)
        for state in ("equal", "one lags")
        for design in DESIGNS
    ]


class _DiskReads:
    """So many partitions, of which each is read once by a coordinator that holds none."""

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


def wire(unreconciled: int, differences: tuple[int, ...]) -> list[dict[str, Any]]:
    """Bytes between nodes for a read of one row, as ids of its partition pile up and replicas differ in some of them.

    Beside summaries the ids themselves are measured (`summary_cells` 0), and legacy's digests and rows.
    """
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "summaries": ("logged", {}),
        "ids": ("logged", {"summary_cells": 0}),
        "legacy": ("legacy", {}),
    }
    found = []
    for kind, (design, knobs) in kinds.items():
        for row in simulated(_Wire(unreconciled, differences).run, design, **QUIET, **knobs):
            found.append({"kind": kind, **row})
    return found


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

"""Repair: what is read from disks to find what replicas miss, and what is sent to make up for it."""

from __future__ import annotations

import asyncio
from typing import Any

from bench.quorum.cluster import DESIGNS, QUIET, TABLE, BenchCluster, chance, partition_key, simulated, wrote
from bench.quorum.rim import NodeCounts
from cluster.quorum.keys import encode_key
from cluster.quorum.messages import Repaired, RepairTable

_MIB = 1 << 20
_PARTITION_BYTES = 2_000
_REPAIR_S = 3_600.0
_KNOBS: dict[str, Any] = {"bulk_bytes_per_s": 1 << 30, "memtable_bytes": 2 << 20}
"""What is in memory at the end of loading is less than a memtable."""
_RECONCILING = {"poll_period_ms": 0, "reconcile_period_ms": 5_000}
"""The bound is raised, and nothing is exchanged beside: what is read is one reconciliation's."""


def disk_load(mib: int, missing: int) -> list[dict[str, Any]]:
    """Bytes read from all disks until a replica has the mutations that it missed, of a table of that size."""
    return [_until_whole(design, mib * _MIB // _PARTITION_BYTES, missing, mib=mib) for design in DESIGNS]


def over_streaming(mib: int) -> list[dict[str, Any]]:
    """Bytes sent until a replica has the one cell that it missed, in a partition of that size."""
    return [_until_whole(design, 0, 1, partition_mib=mib) for design in DESIGNS]


def _until_whole(design: str, partitions: int, missing: int, **sizes: int) -> dict[str, Any]:
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

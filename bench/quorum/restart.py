"""Restarts: how long a replica takes to open again, on a real disk, of whose mutations all are of one row."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from bench.quorum.cluster import DESIGNS, partition_key, wrote
from cluster.knobs import Knobs
from cluster.log.node import NodeLog
from cluster.node import tend_garbage
from cluster.quorum.ids import MutationId
from cluster.quorum.mutation_log import MutationLog
from cluster.quorum.slices import Slice, live_rows
from cluster.quorum.sorted.store import SortedStore
from harness.ports.api import Hello
from harness.ports.real.ports import real_ports

T = TypeVar("T")

_TABLET, _WRITERS = "t", 64


def measure(mutations: int) -> list[dict[str, Any]]:
    """Both designs; of the logged one nothing is reconciled, so that every id has to be known again."""
    found = []
    for design in DESIGNS:
        with tempfile.TemporaryDirectory() as directory:
            found.append({"design": design} | asyncio.run(_tended(_restart(Path(directory), design, mutations))))
    return found


async def _tended(work: Coroutine[Any, Any, T]) -> T:
    """Do something while garbage is collected as node programs collect it."""
    tending = asyncio.create_task(tend_garbage())
    try:
        return await work
    finally:
        tending.cancel()


async def _opened(directory: Path, incarnation: int, ledger: MutationLog | None) -> tuple[NodeLog, SortedStore]:
    ports = real_ports(Hello("bench", "n", incarnation, 1), directory, seed=incarnation)
    log = await NodeLog.open(ports, Knobs(), "tablet", [_TABLET] if incarnation > 1 else [])
    return log, await SortedStore.open(ports, Knobs(), log.group(_TABLET), ledger=ledger)


async def _restart(directory: Path, design: str, mutations: int) -> dict[str, Any]:
    logged = design == "logged"
    log, store = await _opened(directory, 1, MutationLog() if logged else None)
    await _write(store, mutations, logged)
    await store.close()
    await log.close()
    mib = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) >> 20
    ledger, wall, cpu = MutationLog() if logged else None, time.perf_counter(), time.process_time()
    log, store = await _opened(directory, 2, ledger)
    figures = {"wall_s": round(time.perf_counter() - wall, 2), "cpu_s": round(time.process_time() - cpu, 2)}
    assert live_rows((await store.read(Slice(partition_key(0)))).contents) == 1
    assert ledger is None or len(ledger.index) == mutations
    await store.close()
    await log.close()
    return {"mutations_of_one_row": mutations, "mib_on_disk": mib, **figures}


async def _write(store: SortedStore, mutations: int, logged: bool) -> None:
    waiting = iter(range(1, mutations + 1))

    async def writer() -> None:
        for number in waiting:
            await store.apply(wrote(0, (0,), str(number), number), MutationId(number, "n") if logged else None)

    await asyncio.gather(*(writer() for _ in range(_WRITERS)))

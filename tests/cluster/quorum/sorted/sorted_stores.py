"""A store of sorted files on a simulated machine, as the tests of this folder drive it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from cluster.knobs import Knobs
from cluster.log.node import NodeLog
from cluster.quorum.keys import KeyBytes
from cluster.quorum.partition_store import Ledger, Purgeable, keep_all
from cluster.quorum.rows import PartitionContents, join_contents
from cluster.quorum.slices import Slice
from cluster.quorum.sorted.live import SortedOptions
from cluster.quorum.sorted.store import SortedStore
from harness.ports.api import Crashed, Ports
from harness.ports.machines import ProcessState
from harness.ports.sim.disk import DiskOptions, SimDisk
from harness.ports.sim.world import World

KNOBS = Knobs(log_segment_bytes=8_000, log_idle_ms=100, disk_retry_ms=20)
SMALL = SortedOptions(memtable_bytes=600, block_bytes=200, chunk_bytes=80)
GROUP = "t1"

T = TypeVar("T")


class StoreMachine:
    """One machine with one log and one store; `start` opens it anew, `kill` cuts the power."""

    def __init__(
        self, world: World, options: SortedOptions, purgeable: Purgeable, knobs: Knobs, name: str = "n"
    ) -> None:
        self.world, self.options, self.purgeable, self.knobs = world, options, purgeable, knobs
        self.node = world.node(name)
        self.disk: SimDisk = self.node.disk
        self.clock = world.harness_ports("h").clock
        self.quarantined: list[BaseException] = []
        self.failures: list[BaseException] = []
        self.begun = False
        self.ledger: Ledger | None = None
        self._ports: Ports | None = None
        self._context = contextvars.copy_context()
        self._store: SortedStore | None = None
        self._log: NodeLog | None = None

    @property
    def store(self) -> SortedStore:
        assert self._store is not None
        return self._store

    @property
    def ports(self) -> Ports:
        assert self._ports is not None
        return self._ports

    @property
    def log(self) -> NodeLog:
        assert self._log is not None
        return self._log

    async def start(self) -> None:
        """Open log and store; raises what opening raised."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def main(ports: Ports) -> None:
            self._ports, self._context = ports, contextvars.copy_context()
            try:
                groups = [GROUP] if self.begun else []
                self._log = await NodeLog.open(ports, self.knobs, "tablet", groups, self.failures.append)
                view = self._log.group(GROUP)
                self._store = await SortedStore.open(
                    ports, self.knobs, view, self.options, self.purgeable, self.quarantined.append, self.ledger
                )
                self.begun = True
            except Exception as error:  # noqa: BLE001 - the test looks at it
                opened.set_exception(error)
            else:
                opened.set_result(None)
            await asyncio.get_running_loop().create_future()

        self.node.start(main)
        while not opened.done() and self.alive:
            await self.clock.sleep(0.001)
        if opened.done():
            await opened

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run work in the node's process: if that dies, the task is forgotten and never done."""
        return asyncio.get_running_loop().create_task(work, context=self._context)

    async def do(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Run work in the node's process to its end; None if the process died before."""
        task = self.begin(work)
        while not task.done() and self.alive:
            await self.clock.sleep(0.001)
        return task.result() if task.done() and not isinstance(task.exception(), Crashed) else None

    @property
    def alive(self) -> bool:
        return self.node.state is not ProcessState.DEAD

    def kill(self) -> None:
        self.node.kill()

    async def restart(self) -> None:
        self.kill()
        await self.start()

    async def contents(self, partition: KeyBytes) -> PartitionContents:
        return (await self.store.read(Slice(partition))).contents

    async def scanned(self, first: int = 0, last: int = (1 << 64) - 1) -> dict[KeyBytes, PartitionContents]:
        """Everything between two tokens, partitions in the order in which they came."""
        pieces: dict[KeyBytes, list[PartitionContents]] = {}
        scan = self.store.scan(first, last)
        while (piece := await scan.next()) is not None:
            assert piece.first == (piece.partition not in pieces)
            pieces.setdefault(piece.partition, []).append(piece.contents)
        return {partition: join_contents(each) for partition, each in pieces.items()}

    async def until(self, condition: Callable[[], bool], what: str = "the condition") -> None:
        for _ in range(5_000):
            if condition():
                return
            await self.clock.sleep(0.005)
        raise AssertionError(f"not in time: {what}")

    def files(self) -> list[str]:
        return [path for path in self.disk.paths() if path.startswith(f"sorted/{GROUP}/")]


def simulate(
    scenario: Callable[[StoreMachine], Coroutine[Any, Any, None]],
    seed: int = 1,
    options: SortedOptions = SMALL,
    purgeable: Purgeable = keep_all,
    knobs: Knobs = KNOBS,
    **disk: Any,
) -> None:
    """Run a scenario in a world of its own; `disk` are options of its disks."""
    with World(seed, disk=replace(DiskOptions(), **disk)) as world:
        world.run(scenario(StoreMachine(world, options, purgeable, knobs)))

"""A node's log on a simulated machine, as the tests of this folder drive it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from cluster.knobs import Knobs
from cluster.log.node import NodeLog
from cluster.log.replay import SnapshotRef
from cluster.log.snapshots import pieces
from cluster.log.view import GroupLog, Recovered
from cluster.raft.types import Configuration, Entry, HardState, Member, Persist, SnapshotMeta
from harness.ports.api import Ports
from harness.ports.sim.disk import DiskOptions, SimDisk
from harness.ports.sim.world import World

CONFIGURATION = Configuration((Member("a", "a:7"), Member("b", "b:7")), (), 1, 1)
KNOBS = Knobs(log_segment_bytes=4_000, log_idle_ms=100, disk_retry_ms=20)


class Snapshot(NamedTuple):
    """A snapshot with its bytes."""

    meta: SnapshotMeta
    data: bytes


Stored: TypeAlias = tuple[HardState, Snapshot | None, tuple[Entry, ...]]


def entry(index: int, term: int, data: bytes = b"x") -> Entry:
    return Entry(term, index, 1, data)


def snapshot(index: int, term: int, size: int = 20) -> Snapshot:
    return Snapshot(SnapshotMeta(index, term, CONFIGURATION), b"%d" % index * size)


class Machine:
    """One machine with one log; `start` opens it anew, `kill` cuts the power."""

    def __init__(self, world: World, knobs: Knobs = KNOBS) -> None:
        self.world, self.knobs = world, knobs
        self.node = world.node("n")
        self.disk: SimDisk = self.node.disk
        self.clock = world.harness_ports("h").clock
        self.groups: list[str] = []
        self.failures: list[BaseException] = []
        self.sequence = 0
        self.durable: dict[str, list[int]] = {}
        self._log: NodeLog | None = None

    @property
    def log(self) -> NodeLog:
        assert self._log is not None
        return self._log

    async def start(self) -> None:
        """Open the log; raises what opening it raised."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def main(ports: Ports) -> None:
            try:
                self._log = await NodeLog.open(ports, self.knobs, "tablet", self.groups, self.failures.append)
            except Exception as error:  # noqa: BLE001 - the test looks at it
                opened.set_exception(error)
                return
            opened.set_result(None)
            await asyncio.get_running_loop().create_future()

        self.node.start(main)
        await opened

    async def restart(self) -> None:
        self.node.kill()
        await self.start()

    def group(self, name: str) -> GroupLog:
        """A view whose durable sequences are kept in `durable`."""
        if name not in self.groups:
            self.groups.append(name)
        view = self.log.group(name)
        synced = self.durable[name] = []
        view.attach(lambda batch: synced.extend(item.sequence for item in batch), lambda full: None)
        return view

    async def recovered(self, name: str) -> Recovered:
        return self.group(name).recover()

    async def stored(self, name: str) -> Stored:
        found = await self.recovered(name)
        if found.snapshot is None:
            return found.hard_state, None, found.entries
        parts: list[bytes] = []
        await self.log.group(name).load_snapshot(found.snapshot, parts.append)
        return found.hard_state, Snapshot(found.snapshot.meta, b"".join(parts)), found.entries

    def put(
        self, view: GroupLog, *entries: Entry, hard: HardState | None = None, new: SnapshotRef | None = None
    ) -> int:
        self.sequence += 1
        view.put(Persist(self.sequence, hard, entries, None if new is None else new.meta, ()), new)
        return self.sequence

    async def receive(self, view: GroupLog, new: Snapshot) -> SnapshotRef:
        """Write the file of a snapshot that another node has sent."""
        return await view.snapshot_file(new.meta).write_all(pieces(new.meta, (new.data[:7], new.data[7:])))

    async def until(self, condition: Callable[[], bool], what: str = "the condition") -> None:
        for _ in range(3_000):
            if condition():
                return
            await self.clock.sleep(0.005)
        raise AssertionError(f"not in time: {what}")

    async def write(self, view: GroupLog, *entries: Entry, hard: HardState | None = None) -> None:
        """Put and wait until it is durable."""
        sequence = self.put(view, *entries, hard=hard)
        await self.until(lambda: sequence in self.durable[view.group], "durable")

    async def save(self, view: GroupLog, new: Snapshot) -> None:
        saved: list[bool] = []
        view.save_snapshot(new.meta, iter((new.data[:7], new.data[7:])), lambda _: saved.append(True))
        await self.until(lambda: bool(saved), "the snapshot")

    def segments(self) -> list[str]:
        return [path for path in self.disk.paths() if path.startswith("log/segment-")]

    def log_bytes(self) -> int:
        return sum(len(self.disk.peek(path)) for path in self.segments())

    def damage(self, path: str, start: int, length: int) -> None:
        for byte in range(start, start + length):
            self.disk.flip_bit(path, 8 * byte + 3)


def simulate(
    scenario: Callable[[Machine], Coroutine[Any, Any, None]], seed: int = 1, knobs: Knobs = KNOBS, **disk: Any
) -> None:
    """Run a scenario in a world of its own; `disk` are options of its disks."""
    with World(seed, disk=replace(DiskOptions(), **disk)) as world:
        world.run(scenario(Machine(world, knobs)))

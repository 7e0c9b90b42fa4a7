"""A database that is a dictionary, and roles that do nothing: for trying the harness itself (Jepsen's `atom-db`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec.structs import replace

from harness.errors import DefiniteError
from harness.history.ops import Mop, Op
from harness.ports.api import Clock
from harness.ports.machines import ProcessState
from harness.protocols import Client, Node, NodeStatus, start_all

Cells: TypeAlias = dict[int, int | None]
Apply: TypeAlias = Callable[[Cells, Mop], Mop]
"""Carries out one micro-operation at one moment and returns it as answered; may raise the clients' typed errors."""


def apply_mop(cells: Cells, mop: Mop) -> Mop:
    """Linearizable registers: read, write, compare-and-set."""
    if mop.f == "r":
        return replace(mop, value=cells.get(mop.partition))
    if mop.f == "w":
        cells[mop.partition] = mop.value
        return mop
    if mop.f == "cas":
        if cells.get(mop.partition) != mop.expected:
            raise DefiniteError("cas-mismatch", f"found {cells.get(mop.partition)}")
        cells[mop.partition] = mop.value
        return mop
    raise DefiniteError("unsupported", f"no such operation: {mop.f}")


class MemoryClient:
    """Implements `Client`; is served by one node, and refused when that is dead."""

    def __init__(self, database: MemoryDatabase, node: str) -> None:
        self._database = database
        self._node = node

    async def invoke(self, op: Op) -> Op:
        database = self._database
        await database.clock.sleep(database.latency_s)
        if await database.process_state(self._node) is not ProcessState.RUNNING:
            raise DefiniteError("refused", f"{self._node} does not run")
        mops = tuple(database.apply(database.cells, mop) for mop in op.mops)
        await database.clock.sleep(database.latency_s)
        return op.complete("ok", mops=mops, node=self._node)

    async def close(self) -> None:
        """Nothing to release."""


class MemoryDatabase:
    """Implements `Database`: all nodes share one dictionary; a killed or paused node refuses its clients."""

    name = "memory"
    capabilities: frozenset[str] = frozenset({"kill", "pause"})
    operations = frozenset({"r", "w", "cas"})

    def __init__(
        self,
        clock: Clock,
        *,
        size: int = 3,
        latency_s: float = 0.001,
        apply: Apply = apply_mop,
        make_client: Callable[[MemoryDatabase, str], Client] | None = None,
    ) -> None:
        self.clock = clock
        self.latency_s = latency_s
        self.apply = apply
        self.make_client = make_client or MemoryClient
        self.cells: Cells = {}
        self.nodes = tuple(Node(f"n{number + 1}", "server") for number in range(size))
        self._states = {node.name: ProcessState.DEAD for node in self.nodes}

    async def install(self) -> None:
        """Nothing to install."""

    def facts(self) -> Mapping[str, Any]:
        return {"version": "1"}

    async def first_start(self) -> None:
        await start_all(self.start, self.nodes)

    async def start(self, node: str) -> None:
        if self._states[node] is ProcessState.DEAD:
            self._states[node] = ProcessState.RUNNING

    async def stop(self, node: str) -> None:
        self._states[node] = ProcessState.DEAD

    async def kill(self, node: str) -> None:
        self._states[node] = ProcessState.DEAD

    async def pause(self, node: str) -> None:
        if self._states[node] is ProcessState.RUNNING:
            self._states[node] = ProcessState.PAUSED

    async def resume(self, node: str) -> None:
        if self._states[node] is ProcessState.PAUSED:
            self._states[node] = ProcessState.RUNNING

    async def process_state(self, node: str) -> ProcessState:
        return self._states[node]

    async def status(self, node: str) -> NodeStatus | None:
        running = self._states[node] is ProcessState.RUNNING
        return NodeStatus(node, "server", 1) if running else None

    async def await_ready(self, timeout_s: float) -> None:
        deadline_ns = self.clock.monotonic_ns() + round(timeout_s * 1e9)
        while any(state is not ProcessState.RUNNING for state in self._states.values()):
            if self.clock.monotonic_ns() >= deadline_ns:
                raise TimeoutError("a node does not run")
            await self.clock.sleep(self.latency_s)

    async def setup_workload(self, workload: str, options: Mapping[str, Any]) -> None:
        self.cells.clear()

    async def open_client(self, process: int, timeout_s: float) -> Client:
        return self.make_client(self, self.nodes[process % len(self.nodes)].name)

    async def collect_logs(self) -> Mapping[str, bytes]:
        return {f"{node.name}/server.log": b"" for node in self.nodes}

    async def teardown(self) -> None:
        for node in self.nodes:
            await self.kill(node.name)


class NoNemesis:
    """Implements `Nemesis`: does nothing to anybody."""

    async def setup(self) -> None:
        """Nothing to prepare."""

    async def invoke(self, op: Op) -> Op:
        return op.complete("info")

    async def teardown(self) -> None:
        """Nothing to heal."""

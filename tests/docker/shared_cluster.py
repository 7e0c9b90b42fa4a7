"""The reference cluster in containers, as the tests of `tests/docker` share it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

from cluster.config import Knobs
from cluster.deploy.database_ssh import SshDatabase
from cluster.deploy.readiness import leaders, ready_timeout_s
from harness.env.docker.environment import DockerEnvironment
from harness.errors import DefiniteError, IndefiniteError
from harness.ops import CellAddress, Mop, Op
from harness.protocols import Client, DiskState, GroupStatus
from harness.real.clock import RealClock

T = TypeVar("T")

MASTERS, TSERVERS = 3, 4
"""A tablet of three replicas has a server to spare."""

VOLUME_MIB = 64
WRITES = 30
WRITE_GAP_S = 0.1
QUORUM_CLIENTS, QUORUM_GAP_S = 4, 0.02
OPERATION_S = 5.0
LOOKS = 10
"""So often a node that says nothing is asked: on a busy machine its answer may come too late."""


class Cluster:
    """Masters and tablet servers with a workload's table, on small volumes, whose clocks can be set; and a client.

    `options` are those of a quorum workload; without, the table is one of registers.
    """

    def __init__(
        self,
        runner: asyncio.Runner,
        knobs: Knobs | None = None,
        workload: str = "register",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.runner = runner
        self.knobs = knobs
        self.workload, self.options = workload, options or {}
        self.environment = DockerEnvironment(RealClock(), volume_mib=VOLUME_MIB)
        self.database: SshDatabase
        self.client: Client

    async def set_up(self) -> None:
        await self.environment.prepare(try_out=True)
        clock = "clock" in self.environment.capabilities
        variables = self.environment.program_environment if clock else {}
        self.database = SshDatabase(self.environment, MASTERS, TSERVERS, knobs=self.knobs, environment=variables)
        self.database.workload, self.database.workload_options = self.workload, self.options
        await self.environment.setup(self.database.nodes)
        await self.database.install()
        await asyncio.gather(*(self.database.start(node.name) for node in self.database.nodes))
        await self.serves()
        await self.database.setup_workload(self.workload, self.options)
        self.client = await self.database.open_client(0, OPERATION_S)
        if not self.options:
            await self.write()

    async def tear_down(self) -> None:
        try:
            await self.database.teardown()
        finally:
            await self.environment.teardown()

    def run(self, work: Awaitable[T]) -> T:
        """Carry something out in the cluster's event loop."""

        async def awaited() -> T:
            return await work

        return self.runner.run(awaited())

    async def mend(self) -> None:
        """No disk is full, nothing is armed, every process runs, and the cluster serves."""
        for node in self.database.nodes:
            await self.database.free_disk(node.name)
            await self.database.disarm(node.name)
            await self.database.start(node.name)
        await self.serves()

    async def serves(self) -> None:
        await self.database.await_ready(ready_timeout_s(len(self.database.nodes)))

    async def write(self) -> None:
        """One write of each key."""
        client = self.database.admin_client(20.0)
        for key in range(WRITES):
            await client.write("registers", CellAddress(key), key)

    async def load(self) -> None:
        """A few writes a second, however they end: most failpoints are passed where something is written."""
        client = self.database.admin_client(1.0)
        for value in count():
            with suppress(DefiniteError, IndefiniteError):
                await client.write("registers", CellAddress(value % WRITES), value)
            await asyncio.sleep(WRITE_GAP_S)

    async def quorum_load(self) -> None:
        """Writes of two rows and reads of a page, by several clients, however they end."""
        await asyncio.gather(*(self._quorum_client(process) for process in range(1, 1 + QUORUM_CLIENTS)))

    async def _quorum_client(self, process: int) -> None:
        client = await self.database.open_client(process, 1.0)
        for value in count(process, QUORUM_CLIENTS):
            wall_ns, partition = self.environment.clock.monotonic_ns(), value % WRITES
            cells = tuple(Mop("w", partition, value, row=row, column=0) for row in (0, 1))
            page = (Mop("page", partition, values=(None, None, 2)),)
            for f, mops in (("write", cells), ("read", page)):
                with suppress(DefiniteError, IndefiniteError):
                    await client.invoke(Op("invoke", process, f, mops, mode="QUORUM", write_ts=wall_ns))
            await asyncio.sleep(QUORUM_GAP_S)

    async def disk(self, node: str) -> DiskState:
        for _ in range(LOOKS):
            if (state := await self.database.probe_disk(node)) is not None:
                return state
        raise AssertionError(f"{node} said nothing of its disk")

    async def back(self, node: str) -> None:
        await self.database.start(node)
        await self.serves()
        await self.write()

    async def whole(self) -> None:
        """Wait until every tablet has three voters again: masters replace a damaged replica, one change at a time."""
        async with asyncio.timeout(ready_timeout_s(len(self.database.nodes))):
            while not all(len(group.voters) == 3 for group in await self.tablets()):
                await self.environment.clock.sleep(0.2)

    async def tablets(self) -> list[GroupStatus]:
        statuses = (await self.database.statuses()).values()
        return [group for status in statuses if status for group in status.groups if group.group != "catalog"]

    def leader_of_a(self, role: str) -> str:
        """A node of this role that leads a group."""
        statuses = self.run(self.database.statuses())
        names = {node.name for node in self.database.nodes if node.role == role}
        return next(node for node in leaders(statuses.values()).values() if node in names)

    def do(self, mop: Mop) -> Op:
        return self.run(self.client.invoke(Op("invoke", 0, mop.f, (mop,))))

    def do_until_known(self, mop: Mop) -> Op:
        """Repeat an operation that may be repeated, while a new leader is found."""
        for _ in range(10):
            with suppress(DefiniteError, IndefiniteError):
                return self.do(mop)
        return self.do(mop)

"""What the tests of `tests/docker` share, since it takes long to set up: nodes, and the reference cluster on nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Protocol, TypeVar

from cluster.deploy.database_ssh import SshDatabase
from cluster.deploy.layout import Layout
from cluster.deploy.readiness import leaders, ready_timeout_s
from cluster.knobs import Knobs
from harness.cell_address import CellAddress
from harness.env.docker.environment import DockerEnvironment
from harness.env.ssh import Conversation
from harness.errors import DefiniteError, IndefiniteError
from harness.history.ops import Mop, Op
from harness.ports.real.ports import RealClock
from harness.protocols import Client, DiskState, Node

T = TypeVar("T")

THREE_NODES = (Node("t1", "tserver"), Node("t2", "tserver"), Node("t3", "tserver"))

MASTERS, TSERVERS, ZONES = 3, 5, 3
"""A tablet of three replicas has servers to spare, and a replica in each zone."""

LAYOUT = Layout(MASTERS, TSERVERS, ZONES)

KNOBS = Knobs(snapshot_entries=100, retained_entries=50)
"""Followers that were away for a while need a snapshot."""

REGISTERS: tuple[str, Mapping[str, Any]] = ("register", {})

VOLUME_MIB = 64
WRITES = 30
WRITE_GAP_S = 0.1
QUORUM_CLIENTS, QUORUM_GAP_S = 4, 0.02
OPERATION_S = 5.0
LOOKS = 10
"""So often a node that says nothing is asked: on a busy machine its answer may come too late."""


class Shared(Protocol):
    """What tests share: `mend` leaves it whole for the next one, whatever a test that failed has done to it."""

    async def set_up(self) -> None: ...

    async def mend(self) -> None: ...

    async def tear_down(self) -> None: ...


S = TypeVar("S", bound=Shared)


class OneAtATime:
    """Keeps what was set up for as long as the tests that follow ask for the same; two never stand side by side."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._standing: Shared | None = None

    def get(self, kind: type[S], make: Callable[[], S]) -> S:
        """The one of this kind that stands, or one that is made now."""
        if not isinstance(self._standing, kind):
            self.clear()
            self._standing = made = make()
            try:
                self._runner.run(made.set_up())
            except BaseException:
                self.clear()
                raise
        return self._standing  # type: ignore[return-value]

    def mend(self) -> None:
        """What can't be mended is replaced by who asks next."""
        if self._standing is not None:
            try:
                self._runner.run(self._standing.mend())
            except BaseException:
                self.clear()
                raise

    def clear(self) -> None:
        standing, self._standing = self._standing, None
        if standing is not None:
            self._runner.run(standing.tear_down())


class Nodes:
    """Three nodes on which nothing runs."""

    def __init__(self) -> None:
        self.environment = DockerEnvironment(RealClock())

    async def set_up(self) -> None:
        await self.environment.prepare(try_out=True)
        await self.environment.setup(THREE_NODES)

    async def mend(self) -> None:
        """Nobody is cut off, no link is bad, no clock is wrong."""
        await self.environment.heal_network()
        await self.environment.impair({})
        if "clock" in self.environment.capabilities:
            for node in THREE_NODES:
                await self.environment.skew_clock(node.name, None)

    async def tear_down(self) -> None:
        await self.environment.teardown()


async def open_on_each(environment: DockerEnvironment, command: str) -> dict[str, Conversation]:
    """A program on each of the three nodes that answers lines."""
    opened = [environment.fleet.on(node.name, lambda host: host.open_conversation(command)) for node in THREE_NODES]
    return dict(zip((node.name for node in THREE_NODES), await asyncio.gather(*opened), strict=True))


class Cluster:
    """Masters and tablet servers with a workload's table, on small volumes, whose clocks can be set; and a client.

    `options` are those of a quorum workload; without, the table is one of registers, which is always there.
    """

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.options = REGISTERS[1]
        self.environment = DockerEnvironment(RealClock(), volume_mib=VOLUME_MIB)
        self._tables: list[str] = []
        self.database: SshDatabase
        self.client: Client

    async def set_up(self) -> None:
        await self.environment.prepare(try_out=True)
        clock = "clock" in self.environment.capabilities
        variables = self.environment.program_environment if clock else {}
        self.database = SshDatabase(self.environment, LAYOUT, knobs=KNOBS, environment=variables)
        await self.environment.setup(self.database.nodes)
        await self.database.install()
        await asyncio.gather(*(self.database.start(node.name) for node in self.database.nodes))
        await self.serves()
        await self.turn_to(*REGISTERS)
        self.client = await self.database.open_client(0, OPERATION_S)
        await self.write()

    async def turn_to(self, workload: str, options: Mapping[str, Any]) -> None:
        """Have this workload's table, which is made once, and faults that fit it."""
        self.options = self.database.workload_options = options
        self.database.workload = workload
        if workload not in self._tables:
            await self.database.setup_workload(workload, options)
            self._tables.append(workload)

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
        """Nobody is cut off, no disk is full, nothing is armed, every process runs, and the cluster is whole."""
        await self.environment.heal_network()
        for node in self.database.nodes:
            await self.database.free_disk(node.name)
            await self.database.disarm(node.name)
            await self.database.start(node.name)
        await self.serves()
        await self.whole()

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
        """Wait until every tablet has three voters that live: masters replace a damaged one, a change at a time."""
        while not await self._is_whole():
            await self.environment.clock.sleep(0.2)

    async def _is_whole(self) -> bool:
        statuses = [status for status in (await self.database.statuses()).values() if status is not None]
        live = {status.details["server_id"] for status in statuses}
        groups = [group for status in statuses for group in status.groups if group.role == "leader"]
        return all(len(group.voters) == 3 and live.issuperset(group.voters) for group in groups)

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

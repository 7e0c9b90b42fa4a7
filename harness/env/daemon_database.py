"""A database whose nodes run daemons: what is the same for all of them, for plugins to derive from."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from harness.capabilities import Capability
from harness.env import daemon as shell
from harness.errors import DefiniteError, HarnessError, IndefiniteError
from harness.ports.machines import Daemon, ProcessState
from harness.protocols import Client, Database, Environment, GroupStatus, Node, NodeStatus

STATUS_TIMEOUT_S = 1.0
LOOK_S = 0.1
LOG_BYTES = 4_000_000
"""Of each log so much of the end is kept."""


class DaemonDatabase(Database, ABC):
    """`Database` for programs that run in the foreground on each node; the rest says how they are started and asked.

    All signals go to the whole tree of every daemon of a node; a node's incarnation is that of its first daemon.
    """

    def __init__(self, name: str, environment: Environment, nodes: Sequence[Node], operations: frozenset[str]) -> None:
        self._name = name
        self._nodes = tuple(nodes)
        self._operations = operations
        self.environment = environment

    @property
    def name(self) -> str:
        return self._name

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self._nodes

    @property
    def capabilities(self) -> frozenset[str]:
        return frozenset({Capability.KILL, Capability.STOP, Capability.PAUSE, Capability.STATUS})

    @property
    def operations(self) -> frozenset[str]:
        return self._operations

    # ---- what a plugin says ----

    @abstractmethod
    def daemons(self, node: str) -> Sequence[Daemon]:
        """What runs on a node, in the order in which it is started; at least one."""

    @abstractmethod
    async def serves(self, node: str) -> bool:
        """Whether the node answers a client now: asked over its data address, within a second. What clients raise, and
        OSError and TimeoutError, are a no."""

    @abstractmethod
    async def open_client(self, process: int, timeout_s: float) -> Client: ...

    async def groups(self, node: str) -> Sequence[GroupStatus]:
        """The node's view of each group of which it holds a replica; none where the database has no roles."""
        return ()

    async def wall_ns(self, node: str) -> int:
        """What time it is by the node's program, with the capability `wall-clock`; else 0."""
        return 0

    def address(self, node: str) -> str:
        """Where clients and other nodes reach it, without a port."""
        return self.environment.data_address(node)

    def facts(self) -> Mapping[str, Any]:
        """Its nodes, and what runs on each. A plugin adds versions and settings."""
        programs = {node.name: {each.name: list(each.argv) for each in self.daemons(node.name)} for node in self._nodes}
        return {"nodes": {node.name: node.zone for node in self._nodes}, "programs": programs}

    # ---- processes ----

    async def start(self, node: str) -> None:
        for each in self.daemons(node):
            await self.on(node, shell.start_command(each))

    async def stop(self, node: str) -> None:
        for each in reversed(self.daemons(node)):
            await self.on(node, shell.stop_command(each))

    async def kill(self, node: str) -> None:
        await self._all(node, shell.kill_command)

    async def pause(self, node: str) -> None:
        await self._all(node, shell.pause_command)

    async def resume(self, node: str) -> None:
        await self._all(node, shell.resume_command)

    async def process_state(self, node: str) -> ProcessState:
        """Dead if all its daemons are, paused if all that live have stopped."""
        states = [await self.environment.process_state(node, each) for each in self.daemons(node)]
        living = {state for state in states if state is not ProcessState.DEAD}
        return living.pop() if len(living) == 1 else ProcessState.RUNNING if living else ProcessState.DEAD

    async def on(self, node: str, command: str, stdin: bytes = b"", timeout_s: float | None = None) -> str:
        """What a shell command prints on a node, as root; raises HarnessError where it fails, or takes over 30 s."""
        return await self.environment.fleet.check(node, command, stdin, timeout_s)

    async def on_each(self, action: Callable[[str], Awaitable[object]]) -> None:
        """Do it for every node at once; the first failure is raised when all have ended."""
        for result in await asyncio.gather(*(action(node.name) for node in self._nodes), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _all(self, node: str, command: Callable[[Daemon], str]) -> None:
        await asyncio.gather(*(self.on(node, command(each)) for each in self.daemons(node)))

    # ---- what it says of itself ----

    async def status(self, node: str) -> NodeStatus | None:
        """None unless the node serves: its role, its first daemon's incarnation, and its groups."""
        try:
            async with asyncio.timeout(STATUS_TIMEOUT_S):
                if not await self.serves(node):
                    return None
                groups, wall_ns = tuple(await self.groups(node)), await self.wall_ns(node)
        except (OSError, TimeoutError, DefiniteError, IndefiniteError):
            return None
        incarnation = await self.environment.incarnation(node, self.daemons(node)[0])
        role = next(each.role for each in self._nodes if each.name == node)
        return None if incarnation is None else NodeStatus(node, role, incarnation, groups, wall_ns)

    async def await_ready(self, timeout_s: float) -> None:
        silent = [node.name for node in self._nodes]
        try:
            async with asyncio.timeout(timeout_s):
                while silent:
                    answers = await asyncio.gather(*(self.status(name) for name in silent))
                    silent = [name for name, each in zip(silent, answers, strict=True) if each is None]
                    if silent:
                        await asyncio.sleep(LOOK_S)
        except TimeoutError as error:
            raise TimeoutError(f"{', '.join(silent)} did not serve within {timeout_s:g} s") from error

    async def setup_workload(self, workload: str, options: Mapping[str, Any]) -> None:
        """Nothing has to be made, unless a plugin says so."""

    async def collect_logs(self) -> Mapping[str, bytes]:
        """What each daemon printed, as `NODE/DAEMON.log`."""
        logs: dict[str, bytes] = {}

        async def collect(node: str) -> None:
            for each in self.daemons(node):
                command = f"tail -c {LOG_BYTES} {each.log_file} 2>/dev/null || true"
                try:
                    logs[f"{node}/{each.name}.log"] = (await self.on(node, command)).encode()
                except HarnessError:
                    continue

        await self.on_each(collect)
        return dict(sorted(logs.items()))

    async def teardown(self) -> None:
        """Kill what can be reached; the environment removes the rest."""
        await asyncio.gather(*(self.kill(node.name) for node in self._nodes), return_exceptions=True)

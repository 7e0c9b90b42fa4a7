"""A database of three nodes in this process, whose plugin keeps every promise, and others that each break one.

Nodes are servers at addresses of the loopback network, over one dictionary; their processes are rows of a table.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from msgspec.structs import replace

from assay.plugin import (
    Capability,
    Client,
    Database,
    DefiniteError,
    GroupStatus,
    IndefiniteError,
    Node,
    NodeStatus,
    Op,
    ProcessState,
)
from assay.verify.machines import LISTENING, PROCESSES
from harness.ports.machines import Skew
from harness.ports.real.ports import RealClock

NODES = tuple(Node(f"n{number}", "node") for number in (1, 2, 3))


@dataclass
class StandInNode:
    """One node: its processes (id to name, state and parent), its server, what holds its answers while it is paused."""

    address: str
    port: int = 0
    processes: dict[int, list[Any]] = field(default_factory=dict)
    server: asyncio.Server | None = None
    connections: set[asyncio.StreamWriter] = field(default_factory=set)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)
    life: int = 0
    ahead_ns: int = 0


class StandInMachines:
    """Implements what `assay verify` asks of an environment and of its fleet."""

    name = "stand-in"
    capabilities = frozenset({"clock"})

    def __init__(self) -> None:
        self.clock = RealClock()
        self.nodes = {node.name: StandInNode(f"127.78.0.{number}") for number, node in enumerate(NODES, 1)}
        self.when_skewed = lambda node: None

    @property
    def fleet(self) -> StandInMachines:
        return self

    def data_address(self, node: str) -> str:
        return self.nodes[node].address

    async def check(self, node: str, command: str) -> str:
        if command == LISTENING:
            return f"  0: 0100007F:{self.nodes[node].port:04X} 00000000:0000 0A\n"
        assert command == PROCESSES
        rows = [
            f"{pid} ({name}) {letter} {parent} 1" for pid, (name, letter, parent) in self.nodes[node].processes.items()
        ]
        return "\n".join(["2 self", "1 (init) S 0 1", "2 (sh) R 1 1", *rows])

    async def setup(self, nodes: tuple[Node, ...]) -> None: ...

    async def teardown(self) -> None: ...

    async def skew_clock(self, node: str, skew: Skew | None) -> None:
        self.nodes[node].ahead_ns = 0 if skew is None else skew.offset_ns
        self.when_skewed(node)

    def due_offset_ns(self, node: str) -> int:
        return self.nodes[node].ahead_ns


class StandIn(Database):
    """Keeps every promise. `behind` is the same database on another view of the machines."""

    name = "stand-in"
    nodes = NODES
    operations = frozenset({"r", "w"})
    serving_nodes = tuple(node.name for node in NODES)
    capabilities = frozenset(
        {
            *(Capability.KILL, Capability.STOP, Capability.PAUSE, Capability.STATUS, Capability.TERMS),
            *(Capability.DIRECTED_READS, Capability.WALL_CLOCK),
        }
    )

    def __init__(self, machines: Any, real: StandInMachines, cells: dict[int, int] | None = None) -> None:
        self.machines, self.real = machines, real
        self.cells: dict[int, int] = {} if cells is None else cells
        self.pids = count(100)
        self.term, self.leader = 0, ""

    def behind(self, view: Any) -> StandIn:
        return type(self)(view, self.real, self.cells)

    async def install(self) -> None: ...

    # ---- processes ----

    async def start(self, node: str) -> None:
        if not self.real.nodes[node].processes:
            await self.begin(node)

    async def begin(self, node: str) -> None:
        here = self.real.nodes[node]
        main = next(self.pids)
        here.processes |= {main: ["main", "S", 1], next(self.pids): ["child", "S", main]}
        here.goes_on.set()
        here.life += 1
        await self.listen(here)

    async def listen(self, here: StandInNode) -> None:
        here.server = await asyncio.start_server(self.serving(here), here.address, here.port)
        here.port = here.server.sockets[0].getsockname()[1]

    async def kill(self, node: str) -> None:
        here = self.real.nodes[node]
        here.processes.clear()
        await self.close(here)

    async def close(self, here: StandInNode) -> None:
        if here.server is not None:
            here.server.close()
        for writer in here.connections:
            writer.transport.abort()
        here.connections.clear()

    async def stop(self, node: str) -> None:
        await self.kill(node)

    async def pause(self, node: str) -> None:
        self.real.nodes[node].goes_on.clear()
        self.set_letters(node, "T")

    async def resume(self, node: str) -> None:
        self.set_letters(node, "S")
        self.real.nodes[node].goes_on.set()

    def set_letters(self, node: str, letter: str) -> None:
        for row in self.real.nodes[node].processes.values():
            row[1] = letter

    async def process_state(self, node: str) -> ProcessState:
        letters = {row[1] for row in self.real.nodes[node].processes.values()}
        return ProcessState.DEAD if not letters else ProcessState.PAUSED if letters == {"T"} else ProcessState.RUNNING

    # ---- what it says of itself ----

    async def status(self, node: str) -> NodeStatus | None:
        if await self.process_state(node) is not ProcessState.RUNNING:
            return None
        led = next(name for name, here in self.real.nodes.items() if here.processes)
        if led != self.leader:
            self.leader, self.term = led, self.next_term()
        here = self.real.nodes[node]
        group = GroupStatus("g", "leader" if node == led else "follower", self.term, self.serving_nodes)
        wall_ns = self.real.clock.wall_ns() + here.ahead_ns
        return NodeStatus(node, "node", self.incarnation(here), (group,), wall_ns)

    def next_term(self) -> int:
        return self.term + 1

    def incarnation(self, here: StandInNode) -> int:
        return here.life

    async def await_ready(self, timeout_s: float) -> None:
        while any(here.server is None or not here.processes for here in self.real.nodes.values()):
            await asyncio.sleep(0.01)

    async def setup_workload(self, workload: str, options: Mapping[str, Any]) -> None:
        self.cells.clear()

    async def open_client(self, process: int, timeout_s: float) -> Client:
        return StandInClient(self, NODES[process % len(NODES)].name, timeout_s)

    async def collect_logs(self) -> Mapping[str, bytes]:
        return {f"{node.name}/log": b"began" for node in NODES}

    async def teardown(self) -> None:
        for node in NODES:
            await self.kill(node.name)

    # ---- the server ----

    def serving(self, here: StandInNode) -> Any:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            here.connections.add(writer)
            waits = self.gate(here)
            with suppress(OSError, asyncio.CancelledError):
                while line := await reader.readline():
                    await waits()
                    key, value = json.loads(line)
                    if value is not None:
                        self.cells[key] = value
                    writer.write(json.dumps(self.cells.get(key)).encode() + b"\n")
                    await writer.drain()
            writer.close()

        return serve

    def gate(self, here: StandInNode) -> Any:
        """What each request of a new connection waits for."""
        return here.goes_on.wait


class StandInClient:
    """Keeps a connection to one node, and opens one where a read is sent elsewhere."""

    def __init__(self, database: StandIn, node: str, timeout_s: float) -> None:
        self.database, self.node, self.timeout_s = database, node, timeout_s
        self.opened: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    async def invoke(self, op: Op) -> Op:
        (mop,) = op.mops
        node = op.node or self.node
        try:
            async with asyncio.timeout(self.timeout_s):
                said = await self.asked(node, mop.partition, None if mop.f == "r" else mop.value)
        except ConnectionRefusedError as error:
            raise DefiniteError("refused", str(error)) from error
        except (OSError, EOFError, TimeoutError) as error:
            await self.close()
            raise self.lost(error) from error
        return op.complete("ok", mops=(replace(mop, value=said),), node=node)

    def lost(self, error: Exception) -> Exception:
        """What an operation ends with that was sent and not answered."""
        return IndefiniteError("lost", str(error))

    async def asked(self, node: str, key: int, value: int | None) -> Any:
        if node not in self.opened:
            self.opened[node] = await self.connected(node)
        reader, writer = self.opened[node]
        writer.write(json.dumps([key, value]).encode() + b"\n")
        return json.loads(await reader.readuntil())

    async def connected(self, node: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        port = self.database.real.nodes[node].port
        return await asyncio.open_connection(self.database.machines.data_address(node), port)

    async def close(self) -> None:
        for _, writer in self.opened.values():
            writer.close()
        self.opened.clear()


# ---- those that break a promise ----


class CalledDead(StandIn):
    """Says that what was killed is dead, while it serves."""

    said: set[str] = set()

    async def kill(self, node: str) -> None:
        self.said = self.said | {node}

    async def start(self, node: str) -> None:
        self.said = self.said - {node}
        await super().start(node)

    async def process_state(self, node: str) -> ProcessState:
        return ProcessState.DEAD if node in self.said else await super().process_state(node)


class SparesChildren(StandIn):
    """Kills the main process, as far as anybody is told, and leaves its child."""

    async def kill(self, node: str) -> None:
        here = self.real.nodes[node]
        here.processes = {pid: row for pid, row in here.processes.items() if row[0] == "child"}
        await self.close(here)

    async def start(self, node: str) -> None:
        if not any(row[0] == "main" for row in self.real.nodes[node].processes.values()):
            await self.begin(node)


class StuckIncarnation(StandIn):
    """Calls every life the first."""

    def incarnation(self, here: StandInNode) -> int:
        return 1


class Retries(StandIn):
    """Has a client that sends again what was not answered."""

    async def open_client(self, process: int, timeout_s: float) -> Client:
        return RetryingClient(self, NODES[process % len(NODES)].name, timeout_s)


class RetryingClient(StandInClient):
    async def asked(self, node: str, key: int, value: int | None) -> Any:
        try:
            return await super().asked(node, key, value)
        except (EOFError, ConnectionResetError):
            await self.close()
            return await super().asked(node, key, value)


class RetriesSilence(StandIn):
    """Has a client that sends again, on the same connection, what was not answered soon."""

    async def open_client(self, process: int, timeout_s: float) -> Client:
        return ImpatientClient(self, NODES[process % len(NODES)].name, timeout_s)


class ImpatientClient(StandInClient):
    async def asked(self, node: str, key: int, value: int | None) -> Any:
        with suppress(TimeoutError):
            return await asyncio.wait_for(super().asked(node, key, value), self.timeout_s / 3)
        return await super().asked(node, key, value)


class DefiniteTimeouts(StandIn):
    """Has a client that takes silence for a no."""

    async def open_client(self, process: int, timeout_s: float) -> Client:
        return CertainClient(self, NODES[process % len(NODES)].name, timeout_s)


class CertainClient(StandInClient):
    def lost(self, error: Exception) -> Exception:
        return DefiniteError("lost", str(error))


class GreetsFirst(StandIn):
    """Greets who connects, as many do, and has a client that takes silence for a no."""

    def serving(self, here: StandInNode) -> Any:
        answer = super().serving(here)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await here.goes_on.wait()
            writer.write(b"hello\n")
            await answer(reader, writer)

        return serve

    async def open_client(self, process: int, timeout_s: float) -> Client:
        return GreetedClient(self, NODES[process % len(NODES)].name, timeout_s)


class GreetedClient(CertainClient):
    async def connected(self, node: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await super().connected(node)
        await reader.readline()
        return reader, writer


class EarlyReady(StandIn):
    """Is ready by its own word before it listens."""

    async def listen(self, here: StandInNode) -> None:
        asyncio.get_running_loop().call_later(0.2, lambda: asyncio.ensure_future(super(EarlyReady, self).listen(here)))

    async def await_ready(self, timeout_s: float) -> None: ...


class SparesConnections(StandIn):
    """Pauses for new connections only."""

    def gate(self, here: StandInNode) -> Any:
        spared = here.goes_on.is_set()
        return (lambda: asyncio.sleep(0)) if spared else here.goes_on.wait


class AnswersElsewhere(StandIn):
    """Has a client that asks any node in the place of the one that it is sent to."""

    async def open_client(self, process: int, timeout_s: float) -> Client:
        return StrayingClient(self, NODES[process % len(NODES)].name, timeout_s)


class StrayingClient(StandInClient):
    async def asked(self, node: str, key: int, value: int | None) -> Any:
        running = [name for name, here in self.database.real.nodes.items() if here.goes_on.is_set()]
        return await super().asked(node if node in running else [*running, node][0], key, value)


class StandingTerm(StandIn):
    """Never counts its leaders."""

    def next_term(self) -> int:
        return 1


class StartsTwo(StandIn):
    """Starts another process beside one that runs."""

    async def start(self, node: str) -> None:
        if self.real.nodes[node].processes:
            self.real.nodes[node].processes[next(self.pids)] = ["main", "S", 1]
        else:
            await self.begin(node)


class DiesOfClocks(StandIn):
    """Ends when its clock is set."""

    def __init__(self, machines: Any, real: StandInMachines, cells: dict[int, int] | None = None) -> None:
        super().__init__(machines, real, cells)
        real.when_skewed = lambda node: real.nodes[node].ahead_ns and real.nodes[node].processes.clear()


class SilentAfterwards(StandIn):
    """Answers its status in its first life only."""

    async def status(self, node: str) -> NodeStatus | None:
        return await super().status(node) if self.real.nodes[node].life == 1 else None


class SilentOnceSkewed(StandIn):
    """Does not tell its clock while that is wrong."""

    async def status(self, node: str) -> NodeStatus | None:
        return None if self.real.nodes[node].ahead_ns else await super().status(node)


class RefusesDirected(StandIn):
    """Answers no read that is sent to a node."""

    async def open_client(self, process: int, timeout_s: float) -> Client:
        return RefusingClient(self, NODES[process % len(NODES)].name, timeout_s)


class RefusingClient(StandInClient):
    async def invoke(self, op: Op) -> Op:
        if op.node is not None:
            raise DefiniteError("not-here", "another node has it")
        return await super().invoke(op)


class LeavesSomething(StandIn):
    """Leaves a process when it is torn down."""

    async def teardown(self) -> None:
        await super().teardown()
        self.real.nodes["n2"].processes[next(self.pids)] = ["archiver", "S", 1]


BROKEN: Mapping[type[StandIn], str] = {
    CalledDead: "process_state: all is called dead after kill while clients are served",
    SparesChildren: "kill: child .* was spared",
    StuckIncarnation: "status: the incarnation of n1 stands at 1",
    Retries: "Client.invoke: a write whose answer was lost is called ok",
    RetriesSilence: "Client.invoke: a write whose answer was lost is called ok",
    DefiniteTimeouts: "Client.invoke: a write to a frozen server is called definite",
    EarlyReady: "await_ready: it returned, and the first read failed",
    SparesConnections: "pause: a connection that was there before is served",
    AnswersElsewhere: "Client.invoke: a read sent to n1 is answered while n1 is paused",
    StandingTerm: "groups: the term of g stands at 1",
    StartsTwo: "start: a second one started main",
    DiesOfClocks: "capabilities: the program ended when its clock was set",
    GreetsFirst: "Client.invoke: a write to a frozen server is called definite",
    SilentAfterwards: "status: n1 serves after kill and start, and does not answer",
    SilentOnceSkewed: "status: n1 does not answer once its clock is set",
    RefusesDirected: "Client.invoke: no read sent to n1 is answered",
    LeavesSomething: r"teardown: archiver .* is left on n2",
}
"""Stand-ins that break one promise, each with what is said of it."""


# ---- those with which there is nothing to try ----


class LeadsNoMore(StandIn):
    """Is led by nobody once its leader is gone."""

    async def status(self, node: str) -> NodeStatus | None:
        found = await super().status(node)
        return found if found is None or node == "n1" else dataclasses.replace(found, groups=())


class ShunsProxies(StandIn):
    """Has a client that gives up where it is not the node itself that answers."""

    async def open_client(self, process: int, timeout_s: float) -> Client:
        return ShunningClient(self, NODES[process % len(NODES)].name, timeout_s)


class ShunningClient(StandInClient):
    async def invoke(self, op: Op) -> Op:
        done = await super().invoke(op)
        if self.database.machines is not self.database.real:
            raise IndefiniteError("strange", "it is not the node")
        return done


UNTRIED: Mapping[type[StandIn], str] = {
    LeadsNoMore: "skip terms: no other node led g in time after n1 was killed",
    ShunsProxies: "skip nothing tried again: no write came to an answer through the proxy that could be lost",
}
"""Stand-ins of which a promise can't be tried, each with what is told."""

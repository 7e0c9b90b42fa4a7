"""Masters on a simulated world with scripted tablet servers, for tests of the metadata plane alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

from cluster.client.client import ClusterClient
from cluster.config import NodeConfig
from cluster.knobs import Knobs
from cluster.master.master import Master
from cluster.observer import UNOBSERVED
from cluster.store.clock_guard import ClockLimits
from cluster.store.node_clock import NodeClock
from cluster.wire.known_masters import telling
from cluster.wire.messages import (
    CATALOG_GROUP,
    AlterTablet,
    CreateTable,
    CreateTablet,
    DeleteTablet,
    DoneReply,
    GetStatus,
    Heartbeat,
    HeartbeatReply,
    RegisterSession,
    Replica,
    Reply,
    Request,
    RequestId,
    SessionReply,
    StatusReply,
    TabletReport,
    decode_reply,
    decode_request,
    encode,
    encode_reports,
)
from harness.ports.api import CallLost, Peer, Ports, Refused, Unreachable
from harness.ports.machines import ProcessState
from harness.ports.sim.world import World
from tests.cluster.master.catalog_records import COLUMNS

MASTERS = tuple(Replica(f"m{number}", f"m{number}:7051") for number in (1, 2, 3))
ADDRESSES = tuple(master.address for master in MASTERS)
KNOBS = Knobs(election_timeout_ms=300, raft_heartbeat_ms=50, tserver_heartbeat_ms=100, snapshot_entries=20)

ReplyType = TypeVar("ReplyType")


class ScriptedServer:
    """A tablet server that makes every tablet it is told to, and says that its first voter leads it.

    `tablets` are those it has; `silent_to` the masters that get no heartbeat; `leaderless` makes it report no leader.
    `schemas` are the versions that it was given by `alters`; while it is `deaf_to_alters` it takes none up.
    `mute`: it reports no tablet.
    """

    def __init__(self, world: World, name: str, zone: str = "z1") -> None:
        self.world = world
        self.name = name
        self.zone = zone
        self.tablets: dict[str, CreateTablet] = {}
        self.creates: list[str] = []
        self.deletes: list[str] = []
        self.alters: list[AlterTablet] = []
        self.schemas: dict[str, int] = {}
        self.deaf_to_alters = False
        self.mute = False
        self.replies: dict[str, HeartbeatReply] = {}
        self.silent_to: tuple[str, ...] = ()
        self.leaderless = False
        self.extra_reports: tuple[TabletReport, ...] = ()
        self._call_takes_s, self._busy = 0.0, 0
        self._note_busy: Callable[[int], None] = lambda busy: None

    def calls_slowly(self, seconds: float, note_busy: Callable[[int], None]) -> None:
        """Have each call take `seconds` from now on; `note_busy` hears how many are in hand."""
        self._call_takes_s, self._note_busy = seconds, note_busy

    def start(self) -> None:
        self.world.node(self.name).start(self._main)

    async def _main(self, ports: Ports) -> None:
        address = f"{self.name}:7050"

        async def on_call(peer: Peer, payload: bytes) -> bytes:
            if not payload:
                return b""  # Its clock was asked for.
            self._busy += 1
            self._note_busy(self._busy)
            if self._call_takes_s:
                await ports.clock.sleep(self._call_takes_s)
            self._busy -= 1
            return await self._on_call(peer, payload)

        await ports.network.listen(address, on_call, lambda peer, message: None)
        await asyncio.gather(*(self._heartbeats(ports, address, master) for master in MASTERS))

    async def _heartbeats(self, ports: Ports, address: str, master: Replica) -> None:
        sequence = 0
        while True:
            if master.node_id not in self.silent_to:
                sequence += 1
                beat = Heartbeat(
                    self.name, ports.incarnation, address, self.zone, sequence, True, encode_reports(self._reports())
                )
                try:
                    reply = decode_reply(await ports.network.call(master.address, encode(beat), 0.5))
                except (Unreachable, CallLost, Refused):
                    reply = None
                if isinstance(reply, HeartbeatReply):
                    self.replies[master.node_id] = reply
            await ports.clock.sleep(0.1)

    def _reports(self) -> tuple[TabletReport, ...]:
        if self.mute:
            return ()
        made = (
            TabletReport(
                tablet.tablet_id,
                tablet.table_id,
                "RUNNING",
                1,
                None if self.leaderless else tablet.voters[0].node_id,
                tablet.voters,
                (),
                0,
                self.schemas.get(tablet.tablet_id, 0),
            )
            for tablet in self.tablets.values()
        )
        return (*made, *self.extra_reports)

    async def _on_call(self, peer: Peer, payload: bytes) -> bytes:
        request = decode_request(payload)
        if isinstance(request, CreateTablet):
            self.creates.append(request.tablet_id)
            self.tablets[request.tablet_id] = request
        elif isinstance(request, AlterTablet):
            self.alters.append(request)
            if self.deaf_to_alters:
                raise Refused("deaf")
            self.schemas[request.tablet_id] = request.schema_version
        elif isinstance(request, DeleteTablet):
            self.deletes.append(request.tablet_id)
            self.tablets.pop(request.tablet_id, None)
        return encode(DoneReply(True))


class MasterRig:
    """Three masters and some scripted tablet servers; calls go out from the harness's own machine `h`."""

    def __init__(self, world: World, tservers: int = 3, flaws: tuple[str, ...] = (), knobs: Knobs = KNOBS) -> None:
        self.world = world
        self.flaws = flaws
        self.knobs = knobs
        self.ports = world.harness_ports("h")
        self.servers = [ScriptedServer(world, f"t{number}") for number in range(1, tservers + 1)]

    def start(self) -> None:
        for master in MASTERS:
            self.start_master(master.node_id)
        for server in self.servers:
            server.start()

    def add_server(self, name: str) -> None:
        """Start another tablet server."""
        self.servers.append(ScriptedServer(self.world, name))
        self.servers[-1].start()

    def start_master(self, name: str) -> None:
        address = next(master.address for master in MASTERS if master.node_id == name)
        config = NodeConfig(
            node_id=name, role="master", listen=address, masters=MASTERS, knobs=self.knobs, flaws=self.flaws
        )
        self.world.node(name).start(lambda ports: run_master(ports, config))

    def client(self, timeout_s: float = 8.0) -> ClusterClient:
        return ClusterClient(self.ports, ADDRESSES, timeout_s)

    async def sleep(self, seconds: float) -> None:
        await self.ports.clock.sleep(seconds)

    async def ask(self, master: str, request: Request, timeout_s: float = 3.0) -> Reply:
        """One call to one master, with no retries."""
        reply: Reply = decode_reply(await self.ports.network.call(f"{master}:7051", encode(request), timeout_s))
        return reply

    async def status(self, master: str) -> StatusReply:
        reply = await self.ask(master, GetStatus(), 0.3)
        assert isinstance(reply, StatusReply)
        return reply

    async def session(self) -> int:
        """A client session, registered with the leader of now."""
        reply = await self.ask(await self.leader(), RegisterSession(CATALOG_GROUP))
        assert isinstance(reply, SessionReply)
        return reply.session

    async def leader(self, other_than: str | None = None) -> str:
        """The master that leads with a valid lease."""
        while True:
            for master in MASTERS:
                if master.node_id != other_than and await self._leads(master.node_id):
                    return master.node_id
            await self.sleep(0.05)

    async def _leads(self, master: str) -> bool:
        try:
            reply = await self.ask(master, GetStatus(), 0.3)
        except (Unreachable, CallLost):
            return False
        groups = reply.groups if isinstance(reply, StatusReply) else ()
        return any(group.role == "leader" and group.lease_valid for group in groups)

    async def created(self, client: ClusterClient, name: str) -> None:
        """Wait until every tablet of the table runs."""
        while not await client.is_create_done(name):
            await self.sleep(0.05)

    def isolate(self, name: str) -> None:
        """Cut a master off from the other masters, both ways; it still hears tservers and clients."""
        for master in MASTERS:
            if master.node_id != name:
                self.world.network.cut(name, master.node_id)
                self.world.network.cut(master.node_id, name)

    def panics(self) -> list[BaseException]:
        return [error for master in MASTERS for error in self.world.node(master.node_id).errors]

    def running(self, name: str) -> bool:
        return self.world.node(name).state is ProcessState.RUNNING


async def run_master(ports: Ports, config: NodeConfig) -> None:
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    clock = NodeClock(ports.clock, ClockLimits.of(config.knobs), config.node_id)
    master = Master(ports, config, failed.set_exception, UNOBSERVED, clock)
    await master.start()
    await ports.network.listen(config.listen, telling(master.on_call, master.masters), master.on_notify)
    await failed


def create(session: int, name: str, sequence: int, buckets: int = 3, replication_factor: int = 3) -> CreateTable:
    return CreateTable(RequestId(session, sequence, 1), name, COLUMNS, buckets, replication_factor)


Scenario: TypeAlias = Callable[[MasterRig, ClusterClient], Awaitable[None]]


def play_masters(scenario: Scenario, seed: int = 1, tservers: int = 3, knobs: Knobs = KNOBS) -> None:
    """Run a scenario on a fresh cluster that knows its tablet servers, with a client of it; no master may panic."""
    with World(seed) as world:
        rig = MasterRig(world, tservers, knobs=knobs)

        async def main() -> None:
            rig.start()
            await rig.sleep(1)
            await asyncio.wait_for(scenario(rig, rig.client()), 120)

        world.run(main())
        assert rig.panics() == [] and world.errors == []

"""The master node: one replica of the catalog, and the requests it answers (M1-M5)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

import msgspec

from cluster.config import NodeConfig
from cluster.groups.group import Group, GroupSpec
from cluster.groups.membership import change_replicas, transfer_leadership
from cluster.groups.spec import OnFailure
from cluster.inspection import Inspection
from cluster.log.node import NodeLog
from cluster.master import ddl, heartbeats, queries
from cluster.master.background import run_background
from cluster.master.catalog import Catalog
from cluster.master.manager import CatalogManager, Refusal
from cluster.master.membership import change_masters
from cluster.master.replication import decommission, decommission_state
from cluster.master.tservers import ServerMap
from cluster.observer import Observer
from cluster.raft.types import Message, Role, SoftState
from cluster.store.node_clock import NodeClock
from cluster.wire.admission import OVERLOADED, Admission, malformed
from cluster.wire.clocked import ClockProbes
from cluster.wire.identity import stranger
from cluster.wire.known_masters import KnownMasters
from cluster.wire.messages import (
    CATALOG_GROUP,
    AlterTable,
    ArmFailpoint,
    AskFreshness,
    ChangeReplicas,
    CreateTable,
    DeleteTable,
    ErrorReply,
    GetStatus,
    Heartbeat,
    PlaceTable,
    ProbeDisk,
    RegisterSession,
    Reply,
    Request,
    StatusReply,
    decode_request,
    encode,
)
from cluster.wire.operating import ChangeMasters, DecommissionServer, GetDecommission, TransferLeadership
from cluster.wire.peers import PeerStreams
from harness.errors import UNDECODABLE
from harness.ports.api import Peer, Ports

LIVE_HEARTBEATS = 6
"""A tserver is live for this many heartbeat intervals after its last heartbeat, and for two seconds at least."""

MIN_LIVE_MS = 2_000


class Master:
    """Answers calls and Raft messages between `start` and `close`; `on_failure` is told when it can't go on."""

    def __init__(
        self, ports: Ports, config: NodeConfig, on_failure: OnFailure, observer: Observer, clock: NodeClock
    ) -> None:
        self._ports = ports
        self._observer = observer
        self._inspection = Inspection(ports)
        self._config = config
        self._on_failure = on_failure
        live_ms = max(MIN_LIVE_MS, LIVE_HEARTBEATS * config.knobs.tserver_heartbeat_ms)
        self._servers = ServerMap(live_ms * 1_000_000)
        self._streams = PeerStreams(ports, config.knobs, self._deliver, config.masters)
        self.on_notify = self._streams.receive
        self._admission = Admission(config.knobs.max_requests, ports.failpoints)
        self._probes = ClockProbes(ports, clock, config.knobs.clock_probe_ms, self._clock_peers)
        self._log: NodeLog | None = None
        self._group: Group | None = None
        self._manager: CatalogManager | None = None
        self._background: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Recover the catalog and take part in its Raft group; raises CorruptLog, OSError."""
        catalog = Catalog(frozenset(self._config.flaws))
        knobs, groups, flaws = self._config.knobs, [CATALOG_GROUP], self._config.flaws
        self._log = await NodeLog.open(self._ports, knobs, CATALOG_GROUP, groups, self._on_failure, flaws)
        view = self._log.group(CATALOG_GROUP)
        group = await Group.open(
            self._ports, self._spec(), catalog, self._streams, view, self._leadership_changed, self._on_failure
        )
        self._group = group
        self._manager = CatalogManager(
            self._ports, catalog, group, self._servers, knobs, self._observer, self._on_failure
        )
        self._background = asyncio.create_task(run_background(self._manager), name="catalog.background")
        self._background.add_done_callback(self._background_ended)
        self._probes.start()

    async def close(self) -> None:
        """Stop answering; requests in flight fail."""
        await self._probes.close()
        self._streams.close()
        self._inspection.close()
        if self._background is not None:
            self._background.cancel()
        if self._manager is not None:
            self._manager.close()
        if self._group is not None:
            await self._group.close()
        if self._log is not None:
            await self._log.close()

    def masters(self) -> KnownMasters:
        """Who the masters are, as far as is known here (G1)."""
        return KnownMasters(0, self._config.masters) if self._manager is None else self._manager.masters()

    async def on_call(self, peer: Peer, payload: bytes) -> bytes:
        """Answer one request: its reply or an ErrorReply."""
        try:
            request = decode_request(payload)
        except UNDECODABLE as error:
            return malformed(error)
        if isinstance(request, Heartbeat | GetStatus | ArmFailpoint | ProbeDisk):
            return await self._carry_out(peer, request)
        if self._admission.full:
            return OVERLOADED
        return await self._admission.carry(partial(self._carry_out, peer, request))

    async def _carry_out(self, peer: Peer, request: Request) -> bytes:
        self._observer.master_asked(request)
        try:
            reply = self._refusal(peer, request) or await self._answer(request)
        except Refusal as refusal:
            reply = refusal.error_reply
        self._observer.master_answers(request, reply)
        return encode(reply)

    def _deliver(self, group: str, messages: tuple[Message, ...]) -> None:
        if self._group is not None:
            self._group.receive(messages)

    def _refusal(self, peer: Peer, request: Request) -> Reply | None:
        """A tserver speaks for itself, and in its present life (G9)."""
        if not isinstance(request, Heartbeat):
            return None
        reason = self._streams.check.refusal(peer, (request.node_id,), request.incarnation)
        return None if reason is None else stranger(reason)

    async def _answer(self, request: Request) -> Reply:
        manager = self._manager
        if manager is None:
            return ErrorReply("NOT_THE_LEADER", "this master is starting", definite=True)
        if isinstance(request, queries.Query):
            return await queries.answer(manager, request)
        match request:
            case Heartbeat():
                return await heartbeats.heartbeat(manager, request)
            case CreateTable() | AlterTable() | DeleteTable() | PlaceTable():
                return await ddl.carry_out_request(manager, request)
            case RegisterSession():
                return await manager.register_session()
            case ChangeReplicas():
                return await self._change_replicas(request)
            case AskFreshness():
                return manager.freshness()
            case DecommissionServer():
                return await decommission(manager, request)
            case GetDecommission():
                return decommission_state(await manager.lead(), request.server_id)
            case ChangeMasters():
                return await self._change_masters(manager, request)
            case TransferLeadership():
                return await self._transfer(request)
            case GetStatus():
                return self._status()
            case ArmFailpoint() | ProbeDisk():
                return await self._inspection.answer(request)
            case _:
                return ErrorReply("INVALID", f"masters do not answer {type(request).__name__}", definite=True)

    async def _change_replicas(self, request: ChangeReplicas) -> Reply:
        if self._group is None or request.group != CATALOG_GROUP:
            return ErrorReply("NOT_FOUND", f"masters have no group {request.group}", definite=True)
        return await change_replicas(self._group, request)

    async def _change_masters(self, manager: CatalogManager, request: ChangeMasters) -> Reply:
        if self._group is None:
            return ErrorReply("NOT_THE_LEADER", "this master is starting", definite=True)
        reply = await change_masters(self._group, self._ports, request)
        if isinstance(reply, ErrorReply) and reply.kind == "NOT_THE_LEADER":
            named = manager.not_the_leader(reply.leader).error_reply
            return msgspec.structs.replace(named, definite=reply.definite)
        return reply

    async def _transfer(self, request: TransferLeadership) -> Reply:
        group = self._group
        if group is None or request.group != CATALOG_GROUP:
            return ErrorReply("NOT_FOUND", f"masters have no group {request.group}", definite=True)

        async def give_up(target: str) -> bool:
            group.transfer_leadership(target)
            return False

        return await transfer_leadership(group, self._ports.clock, request, give_up)

    def _status(self) -> StatusReply:
        groups = () if self._group is None else (self._group.status(),)
        ports = self._ports
        return StatusReply(
            ports.node_id, "master", ports.incarnation, ports.clock.wall_ns(), groups, self._streams.states()
        )

    def _leadership_changed(self, state: SoftState) -> None:
        if self._manager is None:
            return
        if state.role is Role.LEADER:
            self._manager.wake.set()
        else:
            self._manager.step_down()

    def _clock_peers(self) -> Iterable[str]:
        """Addresses of the other masters and of live tablet servers."""
        masters = self.masters().masters
        live = self._servers.live(self._ports.clock.monotonic_ns())
        addresses = (*(each.address for each in masters), *(each.address for each in live))
        return dict.fromkeys(each for each in addresses if each != self._config.address)

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)

    def _spec(self) -> GroupSpec:
        """A server on a disk that was not formatted at installation is none of the masters that were named then."""
        founder = self._config.node_id in [master.node_id for master in self._config.masters]
        return GroupSpec(
            group_id=CATALOG_GROUP,
            node_id=self._config.node_id,
            founders=self._config.masters if founder else (),
            knobs=self._config.knobs,
            flaws=frozenset(self._config.flaws),
            kind=CATALOG_GROUP,
            observer=self._observer,
        )

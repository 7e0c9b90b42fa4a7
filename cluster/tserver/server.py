"""The tablet server node: hosts tablets and answers requests for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import get_args

import msgspec

from cluster.config import NodeConfig
from cluster.groups.membership import replicas_of
from cluster.groups.spec import MachineFailed, OnFailure
from cluster.inspection import Inspection
from cluster.log.node import NodeLog, Quarantined
from cluster.nodelog import node_logger
from cluster.observer import Observer
from cluster.quorum.messages import MARK
from cluster.quorum.service import QuorumService
from cluster.raft.types import ChangeKind, HardState, Message, OpId
from cluster.ranges.lease import NodeLeaseEnds
from cluster.ranges.policies import RoundTrips
from cluster.ranges.side_transport import SideTransport
from cluster.store.node_clock import ClockFenced, NodeClock
from cluster.tserver import metadata
from cluster.tserver.evictions import Evictions
from cluster.tserver.heartbeats import HeartbeatSender
from cluster.tserver.metadata import TabletMeta, Tombstone, keeps, stays_away
from cluster.tserver.strategy import STRATEGIES, FailedReplica, Host, Strategy, unreadable_report
from cluster.wire.admission import OVERLOADED, Admission, malformed
from cluster.wire.clocked import ClockProbes
from cluster.wire.identity import stranger
from cluster.wire.known_masters import KnownMasters
from cluster.wire.messages import (
    FAILED,
    QUARANTINED,
    AlterTablet,
    ArmFailpoint,
    ChangeReplicas,
    CreateTablet,
    DeleteTablet,
    DoneReply,
    ErrorReply,
    GetStatus,
    Ping,
    ProbeDisk,
    RegisterSession,
    Request,
    RowRequest,
    StatusReply,
    TabletReport,
    decode_reply,
    decode_request,
    encode,
)
from cluster.wire.operating import GetRanges, RangesReply, TransferLeadership
from cluster.wire.peers import PeerStreams
from harness.errors import UNDECODABLE
from harness.ports.api import CallLost, DiskFull, Peer, Ports, Refused, Unreachable
from harness.ports.failpoints import pass_by

_DONE = encode(DoneReply(done=True))
_ROW_REQUESTS = frozenset(get_args(RowRequest))


def _fault(kind: str, message: str) -> bytes:
    return encode(ErrorReply(kind, message, definite=True))


def _addresses(replicas: Iterable[Strategy], own: str) -> dict[str, None]:
    """Of the voters that these replicas know, without this node."""
    voters = dict.fromkeys(voter for replica in replicas for voter in replica.voters())
    return dict.fromkeys(voter.address for voter in voters if voter.address != own)


class TabletServer:
    """Answers calls and Raft messages between `start` and `close`; `on_failure` is told when it can't go on."""

    def __init__(
        self, ports: Ports, config: NodeConfig, on_failure: OnFailure, observer: Observer, clock: NodeClock
    ) -> None:
        self._ports, self._config, self._on_failure = ports, config, on_failure
        self._log = node_logger(config.node_id)
        self._clock = clock
        self._inspection = Inspection(ports)
        trips = RoundTrips()
        every_ms = config.knobs.clock_probe_ms
        self._probes = ClockProbes(ports, clock, every_ms, self._clock_peers, trips.watched, trips.measured)
        self._ends = NodeLeaseEnds(clock, config.knobs)
        self._streams = PeerStreams(ports, config.knobs, self._deliver, ends=self._ends)
        self.on_notify = self._streams.receive
        self._admission = Admission(config.knobs.max_requests, ports.failpoints)
        self._replicas: dict[str, Strategy] = {}
        """By tablet id what is hosted here, failed replicas too."""
        flaws = frozenset(config.flaws)
        self._closing_ranges = SideTransport(ports, config.knobs, clock, self._streams, observer, flaws)
        self._streams.on_aside = self._closing_ranges.receive
        self._host = Host(ports, config.knobs, clock, observer, flaws, self._closing_ranges, trips)
        self._closing: dict[asyncio.Task[None], None] = {}
        """Replicas that failed and are being closed."""
        self._deleted: dict[str, None] = {}
        """Tablets that were deleted here for good: their ids are never used again."""
        self._tombstones: dict[str, Tombstone] = {}
        """What is left of replicas that their groups removed; kept where such a replica has come back."""
        self._unreadable: dict[str, str] = {}
        """Tablets whose own record is damaged, with what is wrong; none of them is in `_replicas`."""
        self._changing: dict[str, asyncio.Lock] = {}
        """By tablet id, held while it is created or deleted."""
        self._heartbeats = HeartbeatSender(ports, config, self._reports, self._clock_peers)
        self._evictions = Evictions(ports, config.knobs.replica_dead_ms, lambda: self._replicas)
        self._quorum = QuorumService(ports, config, self._replicas, self._streams.check, self.masters, observer)
        self._node_log: NodeLog | None = None
        """The log that all replicas here share; None before `start`."""
        self._serving = False
        """Whether requests are answered: between `start` and `close`."""

    async def start(self) -> None:
        """Recover every tablet from disk, then report to the masters; raises OSError, OtherVersion."""
        tablets, self._unreadable = await metadata.load_all(self._ports.disk)
        for problem in self._unreadable.values():
            self._log.error("a tablet is not served: %s", problem)
        groups = [meta.tablet_id for meta in tablets if meta.created is not None]
        knobs, flaws = self._config.knobs, self._config.flaws
        self._node_log = await NodeLog.open(self._ports, knobs, "tablet", groups, self._on_failure, flaws)
        for meta in tablets:
            await self._recover(self._node_log, meta)
        await self._quorum.start(self._node_log)
        self._log.info("serving %d tablets", len(self._replicas))
        self._serving = True
        self._clock.on_fence(self._fence_changed)
        self._probes.start()
        self._ends.begin()
        await self._heartbeats.recover()
        self._heartbeats.start()
        self._evictions.start()
        self._closing_ranges.start()

    async def _recover(self, log: NodeLog, meta: TabletMeta) -> None:
        if meta.tombstone is not None:
            self._tombstones[meta.tablet_id] = meta.tombstone
        if meta.created is not None:
            await self._open(log, meta.created)
            return
        if meta.tombstone is None:
            self._deleted[meta.tablet_id] = None
        self._host.observer.replica_deleted(meta.tablet_id, self._config.node_id, meta.tombstone is None)
        await log.destroy(meta.tablet_id)

    async def close(self) -> None:
        """Stop answering; requests in flight fail."""
        self._serving = False
        await self._probes.close()
        await self._heartbeats.close()
        await self._evictions.close()
        self._streams.close()
        self._closing_ranges.close()
        self._inspection.close()
        self._quorum.close()
        for replica in list(self._replicas.values()):
            await replica.close()
        if self._node_log is not None:
            await self._node_log.close()

    def masters(self) -> KnownMasters:
        """Who the masters are, as far as is known here (G1)."""
        return self._heartbeats.known

    async def on_call(self, peer: Peer, payload: bytes) -> bytes:
        """Answer one request: its encoded reply or an ErrorReply."""
        if payload[:1] == MARK:
            return await self._quorum_request(peer, payload[1:])
        try:
            request = decode_request(payload)
        except UNDECODABLE as error:
            return malformed(error)
        if not self._serving:
            return _fault("SHUTTING_DOWN", "this tablet server is not serving")
        if type(request) in _ROW_REQUESTS:
            return OVERLOADED if self._admission.full else await self._row(request)
        return await self._admin(peer, request)

    async def _quorum_request(self, peer: Peer, payload: bytes) -> bytes:
        """Of tables that are written and read at levels, which any tablet server coordinates (Q1)."""
        if not self._serving:
            return _fault("SHUTTING_DOWN", "this tablet server is not serving")
        if self._admission.full:
            return OVERLOADED
        return await self._admission.carry(partial(self._quorum.answer, peer, payload))

    def _deliver(self, group: str, messages: tuple[Message, ...]) -> None:
        """Raft messages for tablets that are not here are dropped."""
        replica = self._replicas.get(group)
        if replica is not None:
            replica.receive(messages)

    async def _row(self, request: RowRequest) -> bytes:
        tablet_id = request.group if type(request) is RegisterSession else request.tablet_id
        replica = self._replicas.get(tablet_id)
        if replica is None:
            return _fault("NOT_FOUND", f"no tablet {tablet_id} here")
        failpoints = self._ports.failpoints
        self._admission.in_flight += 1
        try:
            if failpoints.armed:
                await pass_by(failpoints, "tserver.before_serve", tablet_id)
            answer = await replica.serve(request)
            if failpoints.armed:
                await pass_by(failpoints, "tserver.after_serve", tablet_id)
            return answer
        except ClockFenced as error:
            return _fault("CLOCK_FENCED", str(error))
        finally:
            self._admission.in_flight -= 1

    async def _admin(self, peer: Peer, request: Request) -> bytes:
        if isinstance(request, GetStatus):
            return self._status()
        if isinstance(request, Ping):
            return _DONE
        if isinstance(request, GetRanges):
            states = [replica.range_state() for replica in self._replicas.values()]
            ranges = tuple(state for state in states if state is not None)
            return encode(RangesReply(self._config.node_id, self._clock.shown(), ranges))
        if isinstance(request, ArmFailpoint | ProbeDisk):
            return encode(await self._inspection.answer(request))
        if isinstance(request, CreateTablet | AlterTablet | DeleteTablet):
            if (reason := self._streams.check.refusal(peer)) is not None:
                return encode(stranger(reason))
            if isinstance(request, AlterTablet):
                return await self._ask_replica(request.tablet_id, request)
            if not metadata.is_tablet_id(request.tablet_id):
                return _fault("INVALID", f"{request.tablet_id[:80]!r} is no tablet's id")
            async with self._changing.setdefault(request.tablet_id, asyncio.Lock()):
                return await self._create_or_delete(request)
        if isinstance(request, ChangeReplicas | TransferLeadership):
            return await self._ask_replica(request.group, request)
        return _fault("INVALID", f"tablet servers do not answer {type(request).__name__}")

    async def _ask_replica(self, tablet_id: str, request: AlterTablet | ChangeReplicas | TransferLeadership) -> bytes:
        replica = self._replicas.get(tablet_id)
        if replica is None:
            return _fault("NOT_FOUND", f"no tablet {tablet_id} here")
        if isinstance(request, AlterTablet):
            return encode(await replica.alter_schema(request))
        if isinstance(request, TransferLeadership):
            return encode(await replica.transfer_leadership(request))
        if request.change is ChangeKind.ADD_LEARNER and replica.leads:
            problem = await self._create_learner(replica, request)
            if problem is not None:
                return _fault("CHANGE_REFUSED", problem)
        return encode(await replica.change_configuration(request))

    async def _create_learner(self, replica: Strategy, request: ChangeReplicas) -> str | None:
        """Have the replica created that is to be added, with no configuration of its own; else why it can't be.

        One that is not added in the end holds nothing and does nothing.
        """
        contacts = replicas_of(replica.members())
        create = msgspec.structs.replace(
            replica.created,
            server_id=request.server_id,
            founding=False,
            voters=contacts,
            awaits_index=request.config_index,
        )
        timeout_s = min(request.timeout_s, self._config.knobs.master_call_timeout_ms / 1e3)
        try:
            reply = decode_reply(await self._ports.network.call(request.address, encode(create), timeout_s))
        except (Unreachable, CallLost, Refused) as error:
            return f"{request.server_id} did not create a replica: {error}"
        return reply.message if isinstance(reply, ErrorReply) else None

    async def _create_or_delete(self, request: CreateTablet | DeleteTablet) -> bytes:
        try:
            if self._node_log is None:
                return _fault("SHUTTING_DOWN", "this tablet server is not serving")
            if isinstance(request, CreateTablet):
                return await self._create(self._node_log, request)
            if request.server_id not in ("", self._config.node_id):
                return _fault("INVALID", f"{self._config.node_id} has no replicas of {request.server_id}")
            if request.removed_at is not None:
                return await self._bury(self._node_log, request.tablet_id, request.removed_at)
            return await self._delete(self._node_log, request.tablet_id)
        except DiskFull:
            return encode(ErrorReply("TIMED_OUT", "the disk is full", definite=False))

    async def _create(self, log: NodeLog, request: CreateTablet) -> bytes:
        existing = self._replicas.get(request.tablet_id)
        failed = isinstance(existing, FailedReplica) or request.tablet_id in self._unreadable
        if failed and not request.founding:
            return await self._rebuild(log, request)
        if existing is not None:
            return await self._await_addition(existing, request)
        if request.tablet_id in self._deleted:
            return _fault("INVALID", f"tablet {request.tablet_id} was deleted here")
        tombstone = self._tombstones.get(request.tablet_id)
        if tombstone is not None and (reason := stays_away(tombstone, request)) is not None:
            return _fault("INVALID", reason)
        if request.tablet_id in self._unreadable:
            return _fault("INVALID", self._unreadable[request.tablet_id])
        if self._config.node_id != request.server_id:
            return _fault(
                "INVALID", f"tablet {request.tablet_id} of {request.server_id} is not for {self._ports.node_id}"
            )
        if request.design not in STRATEGIES:
            return _fault("UNSUPPORTED_DESIGN", f"tablets of the design {request.design!r} can't be hosted here")
        await pass_by(self._ports.failpoints, "tserver.before_create")
        await metadata.save(self._ports.disk, TabletMeta(request.tablet_id, request, tombstone))
        await pass_by(self._ports.failpoints, "tserver.after_create")
        await self._open(log, request)
        self._heartbeats.changed(request.tablet_id)
        self._log.info("created tablet %s of table %s", request.tablet_id, request.table_name)
        return _DONE

    async def _await_addition(self, existing: Strategy, request: CreateTablet) -> bytes:
        """A replica that is here already is to be added: no deletion that was decided before may hit it (M9)."""
        if not request.founding and request.awaits_index > existing.created.awaits_index:
            created = msgspec.structs.replace(existing.created, awaits_index=request.awaits_index)
            meta = TabletMeta(request.tablet_id, created, self._tombstones.get(request.tablet_id))
            await metadata.save(self._ports.disk, meta)
            existing.created = created
            self._heartbeats.changed(request.tablet_id)
        return _DONE

    async def _rebuild(self, log: NodeLog, request: CreateTablet) -> bytes:
        """A failed replica that its group has removed begins anew with nothing, to be added as a learner (G7).

        Where they are damaged its votes are forgotten, which is safe once its removal is committed: whoever lacks that
        entry can't be elected. The record without founders comes first: a crash after it leaves a failed replica, never
        a founding one.
        """
        if request.server_id in [member.node_id for member in request.voters]:
            return _fault("INVALID", f"{request.server_id} is still a member of {request.tablet_id}: remove it first")
        known, (hard_state, last) = self._tombstones.get(request.tablet_id), log.remains(request.tablet_id)
        if hard_state != HardState() or known is None:
            known = Tombstone(OpId(0, request.awaits_index), hard_state, last)
        await metadata.save(self._ports.disk, TabletMeta(request.tablet_id, request, known))
        self._tombstones[request.tablet_id] = known
        self._host.observer.replica_deleted(request.tablet_id, self._config.node_id, for_good=False)
        await log.destroy(request.tablet_id)
        self._unreadable.pop(request.tablet_id, None)
        await self._open(log, request)
        self._heartbeats.changed(request.tablet_id)
        self._log.info("tablet %s begins anew", request.tablet_id)
        return _DONE

    async def _open(self, log: NodeLog, created: CreateTablet) -> None:
        self._streams.learn(created.voters)
        replica = STRATEGIES[created.design](self._host, created)
        tablet_id = created.tablet_id

        def changed() -> None:
            self._heartbeats.changed(tablet_id)

        def failed(error: BaseException) -> None:
            self._replica_stopped(replica, error)

        self._replicas[tablet_id] = replica
        view, tombstone = log.group(tablet_id), self._tombstones.get(tablet_id)
        if tombstone is not None:
            view.remember(tombstone.hard_state)
        try:
            await replica.open(self._streams, view, changed, failed)
        except Quarantined as error:
            self._replicas[tablet_id] = FailedReplica(created, QUARANTINED, str(error))
            self._host.observer.replica_failed(tablet_id, damaged=True, reason=str(error))
        self._probes.meet(_addresses([replica], self._config.address))

    def _replica_stopped(self, replica: Strategy, error: BaseException) -> None:
        """A state machine that raised, or damage, stops its replica alone (G7); whatever else does stops the node."""
        if not isinstance(error, MachineFailed | Quarantined):
            self._on_failure(error)
            return
        tablet_id, damaged = replica.created.tablet_id, isinstance(error, Quarantined)
        self._replicas[tablet_id] = FailedReplica(replica.created, QUARANTINED if damaged else FAILED, str(error))
        self._host.observer.replica_failed(tablet_id, damaged=damaged, reason=str(error))
        self._heartbeats.changed(tablet_id)
        closing = asyncio.create_task(replica.close(), name=f"{tablet_id}.close")
        self._closing[closing] = None
        closing.add_done_callback(self._closing.pop)

    async def _delete(self, log: NodeLog, tablet_id: str) -> bytes:
        """The tombstone comes first: a crash after it leaves data that the next start makes void."""
        if tablet_id in self._deleted:
            return _DONE
        await pass_by(self._ports.failpoints, "tserver.before_tombstone")
        await metadata.save(self._ports.disk, TabletMeta(tablet_id, None))
        await pass_by(self._ports.failpoints, "tserver.after_tombstone")
        self._deleted[tablet_id] = None
        self._unreadable.pop(tablet_id, None)
        self._host.observer.replica_deleted(tablet_id, self._config.node_id, for_good=True)
        replica = self._replicas.pop(tablet_id, None)
        if replica is not None:
            await replica.close()
        await log.destroy(tablet_id)
        self._log.info("deleted tablet %s", tablet_id)
        return _DONE

    async def _bury(self, log: NodeLog, tablet_id: str, removed_at: OpId) -> bytes:
        """Delete a replica that its group has removed, but for its vote; not if the group has added it again (M9).

        It is closed first, so that what the tombstone keeps is the last that it told anybody.
        """
        await pass_by(self._ports.failpoints, "tserver.before_tombstone")
        replica = self._replicas.get(tablet_id)
        if replica is None and tablet_id not in self._unreadable:
            return _DONE
        if replica is not None:
            committed, in_force = replica.configurations()
            reason = keeps(self._config.node_id, committed, in_force, replica.created.awaits_index, removed_at)
            if reason is not None:
                return _fault("CHANGE_REFUSED", reason)
            del self._replicas[tablet_id]
            await replica.close()
        tombstone = Tombstone(removed_at, *log.remains(tablet_id))
        try:
            await metadata.save(self._ports.disk, TabletMeta(tablet_id, None, tombstone))
        except DiskFull:
            if replica is not None:
                self._replicas[tablet_id] = FailedReplica(replica.created, FAILED, "removed, and its disk is full")
            raise
        self._unreadable.pop(tablet_id, None)
        self._tombstones[tablet_id] = tombstone
        self._host.observer.replica_deleted(tablet_id, self._config.node_id, for_good=False)
        await pass_by(self._ports.failpoints, "tserver.after_tombstone")
        await log.destroy(tablet_id)
        self._log.info("buried tablet %s: the configuration at %d has it no more", tablet_id, removed_at.index)
        return _DONE

    def _fence_changed(self) -> None:
        self._ends.look()
        for replica in self._replicas.values():
            replica.on_fence()

    def _clock_peers(self) -> Iterable[str]:
        """Addresses of the nodes that share a tablet with this one, in the order in which they were met."""
        return _addresses(self._replicas.values(), self._config.address)

    def _reports(self, tablet_ids: Iterable[str] | None) -> tuple[TabletReport, ...]:
        chosen = (*self._replicas, *self._unreadable) if tablet_ids is None else tuple(tablet_ids)
        here = (self._replicas[tablet_id].report() for tablet_id in chosen if tablet_id in self._replicas)
        return (*here, *(unreadable_report(tablet_id) for tablet_id in chosen if tablet_id in self._unreadable))

    def _status(self) -> bytes:
        groups = tuple(replica.status() for replica in self._replicas.values())
        ports = self._ports
        present = tuple(group for group in groups if group is not None)
        streams = self._streams.states()
        policies = {
            name: replica.policy_in_force for name, replica in self._replicas.items() if replica.policy_in_force
        }
        status = StatusReply(ports.node_id, "tserver", ports.incarnation, ports.clock.wall_ns(), present, streams)
        return encode(msgspec.structs.replace(status, policies=policies) if policies else status)

"""What a tablet server does for quorum tables: it coordinates for clients, and lets coordinators at its replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from cluster.client.client import ClusterClient
from cluster.config import NodeConfig
from cluster.log.node import NodeLog, Quarantined
from cluster.log.view import GroupLog
from cluster.nodelog import node_logger
from cluster.quorum.calls import ReplicaCalls
from cluster.quorum.coordinator import Coordinator
from cluster.quorum.hints import HINTS_GROUP, Hinting
from cluster.quorum.ids import MutationIds
from cluster.quorum.merkle_repair import RepairAborted, RepairRange, Repairs
from cluster.quorum.messages import (
    PageRead,
    QuorumReply,
    QuorumRequest,
    ReadPartition,
    ReadReplica,
    RepairTable,
    ReplicaRequest,
    StopRepairs,
    Stored,
    WritePartition,
    decode_quorum_request,
    encode_quorum_reply,
)
from cluster.quorum.mutation_reconciliation import Reconciling
from cluster.quorum.observer import UNOBSERVED, QuorumObserver
from cluster.quorum.replica import PartitionReplica
from cluster.quorum.replica_sets import NotLocated, ReplicaLocator, ReplicaSet, Snitch
from cluster.wire.identity import PeerCheck, stranger
from cluster.wire.known_masters import KnownMasters
from cluster.wire.messages import ErrorReply
from harness.errors import UNDECODABLE
from harness.ports.api import Peer, Ports

_MASTERS_TIMEOUT_S = 4.0


class QuorumService:
    """Answers requests that follow `cluster.quorum.messages.MARK`; `replicas` are this server's own, by tablet.

    What nodes ask each other is taken from peers of this cluster only, as `check` knows them (G9).
    """

    def __init__(
        self,
        ports: Ports,
        config: NodeConfig,
        replicas: Mapping[str, object],
        check: PeerCheck,
        masters: Callable[[], KnownMasters],
        observer: QuorumObserver = UNOBSERVED,
    ) -> None:
        self._ports, self._replicas, self._check = ports, replicas, check
        self._observer, self._masters = observer, masters
        self._log: NodeLog | None = None
        self._locator = ReplicaLocator(ports.clock, self._client)
        snitch = Snitch(ports.node_id, config.zone)
        calls = self._calls = ReplicaCalls(ports.node_id, ports.network, ports.clock, snitch, self._own)
        address, grace_ms = self._locator.address, config.knobs.deletion_grace_ms
        self._hinting = Hinting(ports, self._hints_view, address, calls, grace_ms, config.flaws)
        self._ids = MutationIds(ports.node_id, ports.clock, ports.disk, config.flaws, observer.id_made)
        self._coordinator = Coordinator(ports, config, self._locator, snitch, calls, self._hinting, self._ids)
        self._coordinator.on_acknowledged = observer.write_acknowledged
        self._repairs = Repairs(ports, config.knobs, calls, self._first_of)
        self._reconciling = Reconciling(ports, config.knobs, calls, self._logged)

    async def start(self, log: NodeLog) -> None:
        """Go on with the hints that the log holds; damaged ones are given up, for repair makes up for hints.

        Raises CorruptLog where it is damaged which mutation ids were given out.
        """
        self._log = log
        await self._ids.recover()
        spawn = partial(log.spawn, group="")
        self._repairs.start(spawn)
        self._reconciling.start(spawn)
        if not log.knows(HINTS_GROUP):
            return
        try:
            await self._hinting.recover()
        except Quarantined as error:
            node_logger(self._ports.node_id).error("hints are lost: %s", error)
            await log.destroy(HINTS_GROUP)

    def close(self) -> None:
        """Carry nothing on."""
        self._reconciling.close()
        self._repairs.close()
        self._coordinator.close()
        self._hinting.close()

    async def answer(self, peer: Peer, payload: bytes) -> bytes:
        """Answer one request, given without its mark: an encoded reply or ErrorReply."""
        try:
            request = decode_quorum_request(payload)
        except UNDECODABLE as error:
            return encode_quorum_reply(ErrorReply("INVALID", str(error), definite=True))
        return encode_quorum_reply(await self._reply(peer, request))

    async def _reply(self, peer: Peer, request: QuorumRequest) -> QuorumReply:
        if isinstance(request, WritePartition):
            return await self._coordinator.write(request)
        if isinstance(request, ReadPartition):
            return await self._coordinator.read(request)
        if isinstance(request, ReadReplica):
            return await self._read_own(request)
        if isinstance(request, RepairTable):
            return await self._repair(request)
        if isinstance(request, StopRepairs):
            self._repairs.stop()
            return Stored()
        reason = self._check.refusal(peer)
        return await self._own(request) if reason is None else stranger(reason)

    async def _own(self, request: ReplicaRequest) -> QuorumReply:
        replica = self._replicas.get(request.tablet_id)
        if not isinstance(replica, PartitionReplica):
            return _absent(request.tablet_id, replica)
        reply = await replica.answer(request, self._calls)
        self._observer.replica_answers(request, reply)
        return reply

    async def _read_own(self, request: ReadReplica) -> QuorumReply:
        try:
            replicas = await self._locator.locate(request.table, request.slice.partition)
        except NotLocated as error:
            return error.error_reply
        replica = self._replicas.get(replicas.tablet_id)
        page = await replica.read(request.slice) if isinstance(replica, PartitionReplica) else None
        if page is None:
            return _absent(replicas.tablet_id, replica)
        return PageRead(page, (self._ports.node_id,))

    async def _repair(self, request: RepairTable) -> QuorumReply:
        try:
            tablets = await self._locator.tablets(request.table)
            return await self._repairs.repair([RepairRange(*each) for each in tablets], request.timeout_s)
        except NotLocated as error:
            return error.error_reply
        except RepairAborted as error:
            return ErrorReply("REPAIR_ABORTED", str(error), definite=False)

    def _first_of(self) -> Iterator[RepairRange]:
        """The tablets that this server is the first replica of: one of them repairs each in the background."""
        for replica in list(self._replicas.values()):
            if isinstance(replica, PartitionReplica) and not replica.logged:
                replicas = replica.replica_set
                if replicas.endpoints[0].node_id == self._ports.node_id:
                    yield RepairRange(replicas, replica.tokens)

    def _logged(self) -> Iterator[ReplicaSet]:
        """The tablets of logged tables that have a replica here, with their replica sets as of now."""
        for replica in list(self._replicas.values()):
            if isinstance(replica, PartitionReplica) and replica.logged:
                yield replica.replica_set

    def _client(self) -> ClusterClient:
        return ClusterClient(self._ports, [each.address for each in self._masters().masters], _MASTERS_TIMEOUT_S)

    def _hints_view(self) -> GroupLog:
        assert self._log is not None
        return self._log.group(HINTS_GROUP)


def _absent(tablet_id: str, replica: object) -> ErrorReply:
    """Nothing was done; a replica that does not serve may come back, and its hints are kept for it."""
    kind = "NOT_FOUND" if replica is None else "SHUTTING_DOWN"
    return ErrorReply(kind, f"no replica of {tablet_id} serves here", definite=True)

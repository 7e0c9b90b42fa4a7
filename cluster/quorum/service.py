"""What a tablet server does for quorum tables: it coordinates for clients, and lets coordinators at its replicas."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from cluster.client.client import ClusterClient
from cluster.config import NodeConfig
from cluster.log.node import NodeLog, Quarantined
from cluster.log.view import GroupLog
from cluster.nodelog import node_logger
from cluster.quorum.calls import ReplicaCalls
from cluster.quorum.coordinator import Coordinator
from cluster.quorum.hinting import HINTS_GROUP, Hinting
from cluster.quorum.locating import Locator, NotLocated
from cluster.quorum.messages import (
    PageRead,
    QuorumReply,
    ReadPartition,
    ReadReplica,
    ReplicaRequest,
    WritePartition,
    decode_quorum_request,
    encode_quorum_reply,
)
from cluster.quorum.replica import PartitionReplica
from cluster.quorum.replica_sets import Snitch
from cluster.wire.messages import Fault
from harness.levels import data_centre_of
from harness.ports import Ports

_MASTERS_TIMEOUT_S = 1.0


class QuorumService:
    """Answers requests that follow `cluster.quorum.messages.MARK`; `find` gives this server's replica of a tablet."""

    def __init__(self, ports: Ports, config: NodeConfig, find: Callable[[str], object]) -> None:
        self._ports, self._config, self._find = ports, config, find
        self._log: NodeLog | None = None
        self._locator = Locator(ports.clock, self._client)
        snitch = Snitch(ports.node_id, config.zone)
        calls = ReplicaCalls(ports.node_id, ports.network, ports.clock, snitch, self._own)
        self._hinting = Hinting(ports, self._hints_view, self._locator.address, calls)
        self._coordinator = Coordinator(ports, data_centre_of(config.zone), self._locator, snitch, calls, self._hinting)

    async def start(self, log: NodeLog) -> None:
        """Go on with the hints that the log holds; damaged ones are given up, for repair makes up for hints."""
        self._log = log
        if not log.knows(HINTS_GROUP):
            return
        try:
            await self._hinting.recover()
        except Quarantined as error:
            node_logger(self._ports.node_id).error("hints are lost: %s", error)
            await log.destroy(HINTS_GROUP)

    def close(self) -> None:
        """Carry nothing on."""
        self._coordinator.close()
        self._hinting.close()

    async def answer(self, payload: bytes) -> bytes:
        """Answer one request, given without its mark: an encoded reply or Fault."""
        try:
            request = decode_quorum_request(payload)
        except msgspec.MsgspecError as error:
            return encode_quorum_reply(Fault("INVALID", str(error), definite=True))
        if isinstance(request, WritePartition):
            return encode_quorum_reply(await self._coordinator.write(request))
        if isinstance(request, ReadPartition):
            return encode_quorum_reply(await self._coordinator.read(request))
        if isinstance(request, ReadReplica):
            return encode_quorum_reply(await self._read_own(request))
        return encode_quorum_reply(await self._own(request))

    async def _own(self, request: ReplicaRequest) -> QuorumReply:
        replica = self._find(request.tablet_id)
        if not isinstance(replica, PartitionReplica):
            return _absent(request.tablet_id, replica)
        return await replica.answer(request)

    async def _read_own(self, request: ReadReplica) -> QuorumReply:
        try:
            replicas = await self._locator.locate(request.table, request.slice.partition)
        except NotLocated as error:
            return error.fault
        replica = self._find(replicas.tablet_id)
        page = await replica.read(request.slice) if isinstance(replica, PartitionReplica) else None
        if page is None:
            return _absent(replicas.tablet_id, replica)
        return PageRead(page, (self._ports.node_id,))

    def _client(self) -> ClusterClient:
        masters = [master.address for master in self._config.masters]
        return ClusterClient(self._ports, masters, _MASTERS_TIMEOUT_S)

    def _hints_view(self) -> GroupLog:
        assert self._log is not None
        return self._log.group(HINTS_GROUP)


def _absent(tablet_id: str, replica: object) -> Fault:
    """Nothing was done; a replica that does not serve may come back, and its hints are kept for it."""
    kind = "NOT_FOUND" if replica is None else "SHUTTING_DOWN"
    return Fault(kind, f"no replica of {tablet_id} serves here", definite=True)

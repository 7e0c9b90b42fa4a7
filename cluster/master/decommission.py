"""Tablet servers that are to be emptied, as operators tell the leader master (M11)."""

from __future__ import annotations

from cluster.master.contract import Mutation, Operation, carry_out
from cluster.master.locks import LockClass, LockKey
from cluster.master.manager import CatalogManager, LeaderTerm, not_found
from cluster.master.placement import replica_load
from cluster.master.records import ServerRecord
from cluster.wire.operating import DecommissionReply, DecommissionServer


async def decommission(manager: CatalogManager, request: DecommissionServer) -> DecommissionReply:
    """Note that a server is to be emptied, or not; the scan moves its replicas (`cluster.master.replication`).

    Raises Refusal (NOT_FOUND, NOT_THE_LEADER: definite; TIMED_OUT: unknown).
    """
    locks = (LockKey(LockClass.SERVER, request.server_id),)

    def mutate(leadership: LeaderTerm) -> Mutation | None:
        known = leadership.caches.servers.get(request.server_id)
        if known is None and request.server_id not in manager.servers.addresses():
            raise not_found(f"no tablet server {request.server_id} was ever heard of")
        if (known is not None and known.leaving) == request.leaving:
            return None
        revision = 1 if known is None else known.revision + 1
        return Mutation(servers=(ServerRecord(request.server_id, revision, request.leaving),))

    leadership = await manager.lead()
    await carry_out(manager, leadership, Operation("decommission", lambda leadership: locks, mutate))
    manager.wake.set()
    return decommission_state(leadership, request.server_id)


def decommission_state(leadership: LeaderTerm, server_id: str) -> DecommissionReply:
    """What is left on the server, by committed configurations."""
    left = replica_load(leadership.caches.tablets.values()).get(server_id, 0)
    return DecommissionReply(server_id, server_id in leadership.caches.leaving, left)

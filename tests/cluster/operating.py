"""What operators ask of a running cluster, as calls on its client: who the masters are (M12), which tablet servers are
to be emptied (M11)."""

from __future__ import annotations

from cluster.client.client import ClusterClient
from cluster.raft.types import Member
from cluster.wire.messages import ConfigurationReply
from cluster.wire.operating import ChangeMasters, DecommissionReply, DecommissionServer, GetDecommission


async def remove_master(client: ClusterClient, server_id: str) -> ConfigurationReply:
    """Have a master leave, the leader too; it may be dead as long as a majority of the others lives.

    Raises DefiniteError (`change-refused` says why) and IndefiniteError, like all calls here; each may be repeated.
    """
    return await _change(client, None, server_id)


async def replace_master(client: ClusterClient, lost: str, server_id: str, address: str) -> ConfigurationReply:
    """Put a new server in the place of one whose disk is gone."""
    return await _change(client, Member(server_id, address), lost)


async def decommission(client: ClusterClient, server_id: str, leaving: bool = True) -> DecommissionReply:
    """Begin to empty a tablet server, or let it stay after all."""
    return await client.ask_leader(DecommissionServer(server_id, leaving), DecommissionReply)


async def decommission_state(client: ClusterClient, server_id: str) -> DecommissionReply:
    """How far it is emptied: it may go once it is `leaving` and has no `replicas`."""
    return await client.ask_leader(GetDecommission(server_id), DecommissionReply)


async def _change(client: ClusterClient, add: Member | None, remove: str | None) -> ConfigurationReply:
    return await client.ask_leader(ChangeMasters(add, remove, 0.9 * client.patience_s), ConfigurationReply)

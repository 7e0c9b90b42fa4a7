"""What operators ask of a running cluster: who the masters are (M12), which tablet servers are to be emptied (M11), who
is to lead a group (§3.10), how far ranges are closed (R4).

Functions raise DefiniteError (its kind and reason are the refusal's) and IndefiniteError.
"""

from __future__ import annotations

from typing import Final

from cluster.client.client import ClusterClient
from cluster.raft.types import Member
from cluster.wire.messages import CATALOG_GROUP, ConfigurationReply, TabletLocation
from cluster.wire.operating import (
    ChangeMasters,
    DecommissionReply,
    DecommissionServer,
    GetDecommission,
    GetRanges,
    LeadershipReply,
    RangesReply,
    TransferLeadership,
)
from harness.errors import DefiniteError

_OF_AN_ATTEMPT: Final = 0.9
"""The share of an attempt's time that a leader is left to carry a change of the masters out."""


async def change_masters(client: ClusterClient, add: Member | None, remove: str | None) -> ConfigurationReply:
    """Have a master join, one leave (the leader too; it may be dead as long as a majority of the others lives), or a
    new one take the place of one whose disk is gone; may be repeated."""
    return await client.ask_leader(ChangeMasters(add, remove, _OF_AN_ATTEMPT * client.patience_s), ConfigurationReply)


async def decommission(client: ClusterClient, server_id: str, leaving: bool = True) -> DecommissionReply:
    """Begin to empty a tablet server, or let it stay after all; may be repeated."""
    return await client.ask_leader(DecommissionServer(server_id, leaving), DecommissionReply)


async def decommission_state(client: ClusterClient, server_id: str) -> DecommissionReply:
    """How far it is emptied: it may go once it is `leaving` and has no `replicas`."""
    return await client.ask_leader(GetDecommission(server_id), DecommissionReply)


async def transfer_leadership(
    client: ClusterClient, address: str, group: str, target: str, timeout_s: float
) -> LeadershipReply:
    """Have the node at this address, which leads the group, hand over to another voter; asked once."""
    return await client.ask_once(address, TransferLeadership(group, target, timeout_s), LeadershipReply)


async def ranges_of(client: ClusterClient, address: str) -> RangesReply:
    """What the tablet server at this address knows to be closed of its ranges; asked once."""
    return await client.ask_once(address, GetRanges(), RangesReply)


async def leader_address(client: ClusterClient, group: str) -> str:
    """Where the masters know the leader of a group to be: of a tablet by its id, or of the `catalog`.

    Raises DefiniteError where there is no such tablet (`not-found`), or nobody is known to lead it (`no-leader`).
    """
    if group == CATALOG_GROUP:
        masters = await client.catalog.masters()
        leader, among = masters.leader, masters.voters
    else:
        tablet = await _tablet(client, group)
        leader, among = tablet.leader_hint or "", tablet.replicas
    for replica in among:
        if replica.node_id == leader:
            return replica.address
    raise DefiniteError("no-leader", f"nobody is known to lead {group}")


async def _tablet(client: ClusterClient, tablet_id: str) -> TabletLocation:
    found = await client.catalog.tablet_locations([tablet_id])
    if not found.tablets:
        raise DefiniteError("not-found", f"there is no tablet {tablet_id}")
    return found.tablets[0]

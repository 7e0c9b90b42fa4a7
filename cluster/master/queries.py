"""Questions to the leader, answered from its caches under proven leadership (M2, M5)."""

from __future__ import annotations

from cluster.master.manager import CatalogManager, Leadership, not_found
from cluster.master.records import TableRecord, TabletRecord, TabletState, creation_done, table_info
from cluster.wire.messages import (
    DoneReply,
    GetTableLocations,
    IsCreateTableDone,
    ListTablesReply,
    Replica,
    TableLocationsReply,
    TabletLocation,
    TabletServersReply,
)


async def is_create_table_done(manager: CatalogManager, request: IsCreateTableDone) -> DoneReply:
    """Whether all tablets run; raises Refusal (NOT_FOUND, NOT_THE_LEADER)."""
    leadership = await manager.lead()
    table = _table_named(leadership, request.name)
    return DoneReply(creation_done(leadership.caches.tablets_of(table.table_id)))


async def list_tables(manager: CatalogManager) -> ListTablesReply:
    """Tables that are not removed, by name; raises Refusal (NOT_THE_LEADER)."""
    leadership = await manager.lead()
    return ListTablesReply(tuple(table_info(table) for table in leadership.caches.named_tables()))


async def table_locations(manager: CatalogManager, request: GetTableLocations) -> TableLocationsReply:
    """Where the table's tablets are, from their records and the tserver map; raises Refusal (NOT_FOUND, …)."""
    leadership = await manager.lead()
    table = _table_named(leadership, request.name)
    tablets = leadership.caches.tablets_of(table.table_id)
    return TableLocationsReply(table.table_id, tuple(_location(manager, leadership, tablet) for tablet in tablets))


async def list_tablet_servers(manager: CatalogManager) -> TabletServersReply:
    """Every tserver this master has heard of, and which of them are live; raises Refusal (NOT_THE_LEADER)."""
    await manager.lead()
    known, live = manager.servers.entries(), manager.servers.live(manager.ports.clock.monotonic_ns())
    return TabletServersReply(
        tuple(Replica(entry.node_id, entry.address) for entry in known),
        tuple(entry.node_id for entry in live),
        tuple(entry.zone for entry in known),
    )


def _table_named(leadership: Leadership, name: str) -> TableRecord:
    table = leadership.caches.table_named(name)
    if table is None:
        raise not_found(f"there is no table named {name!r}")
    return table


def _location(manager: CatalogManager, leadership: Leadership, tablet: TabletRecord) -> TabletLocation:
    """Only a running tablet's replicas are told: one that is still CREATING may yet be replaced, with all it holds."""
    voters = tablet.config.voters if tablet.config is not None and tablet.state == TabletState.RUNNING else ()
    hint = leadership.hints.get(tablet.tablet_id)
    return TabletLocation(
        tablet.tablet_id,
        tablet.partition,
        tuple(manager.servers.located(voter) for voter in voters),
        str(tablet.state),
        None if hint is None else hint.leader,
    )

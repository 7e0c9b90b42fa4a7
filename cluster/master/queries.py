"""Questions to the leader, answered from its caches under proven leadership (M2, M5)."""

from __future__ import annotations

from typing import TypeAlias

from cluster.master.manager import CatalogManager, Leadership, not_found
from cluster.master.records import TableRecord, TableState, TabletRecord, TabletState, creation_done, table_info
from cluster.membership import replicas_of
from cluster.wire.messages import (
    CatalogReply,
    DoneReply,
    GetTableLocations,
    GetTableSchema,
    GetTabletLocations,
    IsAlterTableDone,
    IsCreateTableDone,
    ListMasters,
    ListTables,
    ListTablesReply,
    ListTabletServers,
    MastersReply,
    Replica,
    TableLocationsReply,
    TableSchemaReply,
    TabletLocation,
    TabletLocationsReply,
    TabletServersReply,
)

Query: TypeAlias = (
    IsCreateTableDone
    | IsAlterTableDone
    | ListTables
    | GetTableSchema
    | GetTableLocations
    | GetTabletLocations
    | ListTabletServers
    | ListMasters
)
"""What changes nothing."""


async def answer(manager: CatalogManager, query: Query) -> CatalogReply:
    """Answer a query; raises Refusal (NOT_THE_LEADER and what each says below)."""
    match query:
        case GetTableLocations():
            return await table_locations(manager, query)
        case GetTabletLocations():
            return await tablet_locations(manager, query)
        case GetTableSchema():
            return await table_schema(manager, query)
        case IsCreateTableDone():
            return await is_create_table_done(manager, query)
        case IsAlterTableDone():
            return await is_alter_table_done(manager, query)
        case ListTables():
            return await list_tables(manager)
        case ListTabletServers():
            return await list_tablet_servers(manager)
        case ListMasters():
            return await list_masters(manager)


async def is_create_table_done(manager: CatalogManager, request: IsCreateTableDone) -> DoneReply:
    """Whether all tablets run; raises Refusal (NOT_FOUND, NOT_THE_LEADER)."""
    leadership = await manager.lead()
    table = table_named(leadership, request.name)
    return DoneReply(creation_done(leadership.caches.tablets_of(table.table_id)), table.table_id, table.version)


async def is_alter_table_done(manager: CatalogManager, request: IsAlterTableDone) -> DoneReply:
    """Whether every tablet has the latest schema; raises Refusal (NOT_FOUND, NOT_THE_LEADER)."""
    table = table_named(await manager.lead(), request.name)
    return DoneReply(table.state != TableState.ALTERING, table.table_id, table.version)


async def table_schema(manager: CatalogManager, request: GetTableSchema) -> TableSchemaReply:
    """The table's schema, and what every tablet is known to have of it; raises Refusal (NOT_FOUND, NOT_THE_LEADER)."""
    table = table_named(await manager.lead(), request.name)
    return TableSchemaReply(
        table.table_id,
        table.name,
        str(table.state),
        table.columns,
        table.version,
        table.fully_applied_columns,
        table.fully_applied_version,
        table.replication_factor,
        table.design,
    )


async def list_tables(manager: CatalogManager) -> ListTablesReply:
    """Tables that are not removed, by name; raises Refusal (NOT_THE_LEADER)."""
    leadership = await manager.lead()
    return ListTablesReply(tuple(table_info(table) for table in leadership.caches.named_tables()))


async def table_locations(manager: CatalogManager, request: GetTableLocations) -> TableLocationsReply:
    """Where the table's tablets are, from their records and the tserver map; raises Refusal (NOT_FOUND, …)."""
    leadership = await manager.lead()
    table = table_named(leadership, request.name)
    tablets = leadership.caches.tablets_of(table.table_id)
    return TableLocationsReply(table.table_id, tuple(_location(manager, leadership, tablet) for tablet in tablets))


async def tablet_locations(manager: CatalogManager, request: GetTabletLocations) -> TabletLocationsReply:
    """Where these tablets are; raises Refusal (NOT_THE_LEADER)."""
    leadership = await manager.lead()
    tablets = leadership.caches.tablets
    known = tuple(_location(manager, leadership, tablets[each]) for each in request.tablet_ids if each in tablets)
    return TabletLocationsReply(known, tuple(each for each in request.tablet_ids if each not in tablets))


async def list_masters(manager: CatalogManager) -> MastersReply:
    """The masters' committed configuration and its leader, which answers; raises Refusal (NOT_THE_LEADER)."""
    await manager.lead()
    configuration = manager.configuration()
    voters, learners = replicas_of(configuration.voters), replicas_of(configuration.learners)
    return MastersReply(voters, learners, manager.ports.node_id, configuration.index)


async def list_tablet_servers(manager: CatalogManager) -> TabletServersReply:
    """Every tserver this master has heard of, and which of them are live; raises Refusal (NOT_THE_LEADER)."""
    await manager.lead()
    known, live = manager.servers.entries(), manager.servers.live(manager.ports.clock.monotonic_ns())
    return TabletServersReply(
        tuple(Replica(entry.node_id, entry.address) for entry in known),
        tuple(entry.node_id for entry in live),
        tuple(entry.zone for entry in known),
    )


def replicas_of_tablet(leadership: Leadership, tablet: TabletRecord) -> tuple[Replica, ...]:
    """The tablet's voters, from its record (M2), at the addresses of then; see `ServerMap.located`.

    With the flaw they are those that this leader has heard of: nobody, after an election (KUDU-1353).
    """
    if "cold-replica-map" in leadership.flaws:
        return tuple(leadership.heard_of.get(tablet.tablet_id, {}).values())
    return () if tablet.config is None else tablet.config.voters


def table_named(leadership: Leadership, name: str) -> TableRecord:
    table = leadership.caches.table_named(name)
    if table is None:
        raise not_found(f"there is no table named {name!r}")
    return table


def _location(manager: CatalogManager, leadership: Leadership, tablet: TabletRecord) -> TabletLocation:
    """Only a running tablet's replicas are told: one that is still CREATING may yet be replaced, with all it holds."""
    voters = replicas_of_tablet(leadership, tablet) if tablet.state == TabletState.RUNNING else ()
    hint = leadership.hints.get(tablet.tablet_id)
    return TabletLocation(
        tablet.tablet_id,
        tablet.partition,
        tuple(manager.servers.located(voter) for voter in voters),
        str(tablet.state),
        None if hint is None else hint.leader,
    )

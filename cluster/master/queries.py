"""Questions, answered from the leader's caches under proven leadership, or within an age (M2, M5, M13)."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import msgspec

from cluster.groups.membership import replicas_of
from cluster.master.manager import CatalogManager, LeaderTerm, not_found
from cluster.master.records import TableRecord, TableState, TabletRecord, TabletState, creation_done, table_info
from cluster.wire.messages import (
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

Answer: TypeAlias = (
    DoneReply
    | ListTablesReply
    | TableSchemaReply
    | TableLocationsReply
    | TabletLocationsReply
    | TabletServersReply
    | MastersReply
)
"""What a query is answered with; each tells its age."""


async def answer(manager: CatalogManager, query: Query) -> Answer:
    """Answer a query, by the leader or within the age that it allows (M13).

    Raises Refusal (NOT_THE_LEADER, TOO_STALE; NOT_FOUND for a table that there is not).
    """
    leadership, age_ms = await manager.view(query.max_staleness_ms)
    reply = _reply(manager, leadership, query)
    return msgspec.structs.replace(reply, age_ms=age_ms) if age_ms else reply


def _reply(manager: CatalogManager, leadership: LeaderTerm, query: Query) -> Answer:
    match query:
        case GetTableLocations():
            return _table_locations(manager, leadership, table_of(leadership, query))
        case GetTabletLocations():
            return _tablet_locations(manager, leadership, query)
        case GetTableSchema():
            return _table_schema(table_of(leadership, query))
        case IsCreateTableDone():
            table = table_of(leadership, query)
            done = creation_done(leadership.caches.tablets_of(table.table_id))
            return DoneReply(done, table.table_id, table.version)
        case IsAlterTableDone():
            table = table_of(leadership, query)
            return DoneReply(table.state != TableState.ALTERING, table.table_id, table.version)
        case ListTables():
            return ListTablesReply(tuple(table_info(table) for table in leadership.caches.named_tables()))
        case ListTabletServers():
            return _tablet_servers(manager)
        case ListMasters():
            return _masters(manager)


def _table_schema(table: TableRecord) -> TableSchemaReply:
    """The table's schema, and what every tablet is known to have of it."""
    return TableSchemaReply(
        table.table_id,
        table.name,
        str(table.state),
        table.columns,
        table.version,
        table.fully_applied_columns,
        table.fully_applied_version,
        table.replicas,
        table.design,
        policy=table.policy or msgspec.UNSET,
    )


def _table_locations(manager: CatalogManager, leadership: LeaderTerm, table: TableRecord) -> TableLocationsReply:
    """Where the table's tablets are, from their records and the tserver map."""
    tablets = leadership.caches.tablets_of(table.table_id)
    found = tuple(_location(manager, leadership, tablet) for tablet in tablets)
    return TableLocationsReply(table.table_id, found, design=table.design, policy=table.policy or msgspec.UNSET)


def _tablet_locations(
    manager: CatalogManager, leadership: LeaderTerm, request: GetTabletLocations
) -> TabletLocationsReply:
    """Where these tablets are."""
    tablets = leadership.caches.tablets
    known = tuple(_location(manager, leadership, tablets[each]) for each in request.tablet_ids if each in tablets)
    return TabletLocationsReply(known, tuple(each for each in request.tablet_ids if each not in tablets))


def _masters(manager: CatalogManager) -> MastersReply:
    """The masters' committed configuration and its leader, which answers."""
    configuration = manager.configuration()
    voters, learners = replicas_of(configuration.voters), replicas_of(configuration.learners)
    return MastersReply(voters, learners, manager.known_leader() or "", configuration.index)


def _tablet_servers(manager: CatalogManager) -> TabletServersReply:
    """Every tserver this master has heard of, and which of them are live."""
    known, live = manager.servers.entries(), manager.servers.live(manager.ports.clock.monotonic_ns())
    return TabletServersReply(
        tuple(Replica(entry.node_id, entry.address) for entry in known),
        tuple(entry.node_id for entry in live),
        tuple(entry.zone for entry in known),
    )


def replicas_of_tablet(leadership: LeaderTerm, tablet: TabletRecord) -> tuple[Replica, ...]:
    """The replicas that clients are told of, from the tablet's record (M2), at the addresses of then.

    See `ServerMap.located`.

    With the flaw they are those that this leader has heard of: nobody, after an election (KUDU-1353).
    """
    if "cold-replica-map" in leadership.flaws:
        return tuple(leadership.heard_of.get(tablet.tablet_id, {}).values())
    if tablet.config is None:
        return ()
    return tablet.config.serving(leadership.caches.tables[tablet.table_id].replicas)


class NamesTable(Protocol):
    """A request for a table, which it names by its name, by its id, or by both."""

    @property
    def name(self) -> str: ...

    @property
    def table_id(self) -> str: ...


def table_of(leadership: LeaderTerm, request: NamesTable) -> TableRecord:
    """The table that is meant, which isn't removed; raises Refusal (NOT_FOUND)."""
    name, table_id = request.name, request.table_id
    table = leadership.caches.live_tables.get(table_id) if table_id else leadership.caches.table_named(name)
    if table is None:
        raise not_found(f"there is no table {table_id}" if table_id else f"there is no table named {name!r}")
    if name and table.name != name:
        raise not_found(f"the table {table_id} is not named {name!r}")
    return table


def _location(manager: CatalogManager, leadership: LeaderTerm, tablet: TabletRecord) -> TabletLocation:
    """Only a running tablet's replicas are told: one that is still CREATING may yet be replaced, with all it holds."""
    voters = replicas_of_tablet(leadership, tablet) if tablet.state == TabletState.RUNNING else ()
    return TabletLocation(
        tablet.tablet_id,
        tablet.partition,
        tuple(manager.servers.located(voter) for voter in voters),
        str(tablet.state),
        tablet.leader,
    )

"""The calls of the metadata plane (M5): what clients ask masters, and what they are answered.

Questions may be answered by a follower master if they allow an age, `max_staleness_ms` (M13); without it only the
leader answers, as of now. Replies tell theirs, `age_ms`: 0 where the leader answers.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from cluster.store.schema import AlterStep, Column
from cluster.wire.nouns import Replica, RequestId, TableInfo, TabletLocation


class CreateTable(msgspec.Struct, frozen=True, tag="CreateTable"):
    """Create a table; its tablets come up afterwards. Columns without ids get them in their order.

    `design` is one of `DESIGNS`. Answered by `CreateTableReply`, or TRY_AGAIN while too few tablet servers are live.
    """

    request_id: RequestId
    name: str
    columns: tuple[Column, ...]
    buckets: int
    replication_factor: int
    design: str = "raft"


class AlterTable(msgspec.Struct, frozen=True, tag="AlterTable"):
    """Carry these steps out in their order, and give the table `new_name` if one is named; all of it or nothing.

    Tablets follow afterwards (`IsAlterTableDone`). Answered by `AlterTableReply`.
    """

    request_id: RequestId
    name: str
    steps: tuple[AlterStep, ...] = ()
    new_name: str | None = None


class DeleteTable(msgspec.Struct, frozen=True, tag="DeleteTable"):
    """Remove a table and its tablets for good; replicas go afterwards. Answered by `DeleteTableReply`."""

    request_id: RequestId
    name: str


class IsCreateTableDone(msgspec.Struct, frozen=True, tag="IsCreateTableDone"):
    """Whether every tablet runs."""

    name: str
    max_staleness_ms: int | None = None


class IsAlterTableDone(msgspec.Struct, frozen=True, tag="IsAlterTableDone"):
    """Whether every tablet has the table's latest schema."""

    name: str
    max_staleness_ms: int | None = None


class ListTables(msgspec.Struct, frozen=True, tag="ListTables"):
    max_staleness_ms: int | None = None


class GetTableSchema(msgspec.Struct, frozen=True, tag="GetTableSchema"):
    name: str
    max_staleness_ms: int | None = None


class GetTableLocations(msgspec.Struct, frozen=True, tag="GetTableLocations"):
    name: str
    max_staleness_ms: int | None = None


class GetTabletLocations(msgspec.Struct, frozen=True, tag="GetTabletLocations"):
    tablet_ids: tuple[str, ...]
    max_staleness_ms: int | None = None


class ListTabletServers(msgspec.Struct, frozen=True, tag="ListTabletServers"):
    max_staleness_ms: int | None = None


class ListMasters(msgspec.Struct, frozen=True, tag="ListMasters"):
    max_staleness_ms: int | None = None


class AskFreshness(msgspec.Struct, frozen=True, tag="AskFreshness"):
    """A follower master asks the leader how far the log is committed (M13). Answered by `FreshnessReply`."""


CatalogRequest: TypeAlias = (
    CreateTable
    | AlterTable
    | DeleteTable
    | IsCreateTableDone
    | IsAlterTableDone
    | ListTables
    | GetTableSchema
    | GetTableLocations
    | GetTabletLocations
    | ListTabletServers
    | ListMasters
    | AskFreshness
)

# ---- replies ----


class CreateTableReply(msgspec.Struct, frozen=True, tag="CreateTableReply"):
    table_id: str


class AlterTableReply(msgspec.Struct, frozen=True, tag="AlterTableReply"):
    """`version` is that of the schema after this alteration; it rises with every one, renamings of tables included."""

    table_id: str
    version: int


class DeleteTableReply(msgspec.Struct, frozen=True, tag="DeleteTableReply"):
    table_id: str


class DoneReply(msgspec.Struct, frozen=True, tag="DoneReply"):
    """Masters name the table, and the version of its schema."""

    done: bool
    table_id: str = ""
    version: int = 0
    age_ms: int = 0


class ListTablesReply(msgspec.Struct, frozen=True, tag="ListTablesReply"):
    tables: tuple[TableInfo, ...]
    age_ms: int = 0


class TableSchemaReply(msgspec.Struct, frozen=True, tag="TableSchemaReply"):
    """`columns` are the latest schema, `version` its number.

    While the table is ALTERING, `fully_applied` is the latest that every tablet is known to have, of the version
    `fully_applied_version`; else it is None.
    """

    table_id: str
    name: str
    state: str
    columns: tuple[Column, ...]
    version: int
    fully_applied: tuple[Column, ...] | None
    fully_applied_version: int
    replication_factor: int
    design: str
    age_ms: int = 0


class TableLocationsReply(msgspec.Struct, frozen=True, tag="TableLocationsReply"):
    """Where a table's tablets are, and its replication design: coordinators of quorum tables go by both."""

    table_id: str
    tablets: tuple[TabletLocation, ...]
    age_ms: int = 0
    design: str = "raft"


class TabletLocationsReply(msgspec.Struct, frozen=True, tag="TabletLocationsReply"):
    """Tablets in the order they were asked for; those of which there is no record are `unknown`."""

    tablets: tuple[TabletLocation, ...]
    unknown: tuple[str, ...]
    age_ms: int = 0


class TabletServersReply(msgspec.Struct, frozen=True, tag="TabletServersReply"):
    """Every tserver the master has heard of and their `zones`; `live` are the node ids of those heard of lately."""

    servers: tuple[Replica, ...]
    live: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    age_ms: int = 0


class MastersReply(msgspec.Struct, frozen=True, tag="MastersReply"):
    """The masters' committed configuration, set at `config_index`, and which of them leads and answers."""

    voters: tuple[Replica, ...]
    learners: tuple[Replica, ...]
    leader: str
    config_index: int
    age_ms: int = 0


class FreshnessReply(msgspec.Struct, frozen=True, tag="FreshnessReply"):
    """All that was committed when the leader's last round was sent that a quorum acknowledged, `age_ns` ago by its
    clock, lies at `index` or below."""

    index: int
    age_ns: int


CatalogReply: TypeAlias = (
    CreateTableReply
    | AlterTableReply
    | DeleteTableReply
    | DoneReply
    | ListTablesReply
    | TableSchemaReply
    | TableLocationsReply
    | TabletLocationsReply
    | TabletServersReply
    | MastersReply
    | FreshnessReply
)

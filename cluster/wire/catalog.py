"""The calls of the metadata plane (M5): what clients ask masters, and what they are answered.

Questions may be answered by a follower master if they allow an age, `max_staleness_ms` (M13); without it only the
leader answers, as of now. Replies tell theirs, `age_ms`: 0 where the leader answers.

A request for a table names it by its name or by its id, which stays the same when it is renamed; where both are given
they have to be of one table.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from cluster.store.schema import AlterStep, Column
from cluster.wire.nouns import Replica, Replicas, RequestId, TableInfo, TabletLocation, voters_wanted

GLOBAL: Final = "global"
"""The policy by which a table is closed ahead of time (R6)."""


class CreateTable(msgspec.Struct, frozen=True, tag=True):
    """Create a table; its tablets come up afterwards. Columns without ids get them in their order.

    `design` is one of `DESIGNS`. `policy` is how its ranges are closed, `lag:MS` or `global`, if not as knobs say (R6).
    Answered by `CreateTableReply`; TRY_AGAIN while too few tablet servers are live, POLICY_UNMET where leases are too
    short for the policy.
    """

    request_id: RequestId
    name: str
    columns: tuple[Column, ...]
    buckets: int
    replicas: Replicas = msgspec.field(name="replication_factor")
    design: str = "raft"
    policy: str | msgspec.UnsetType = msgspec.UNSET


class AlterTable(msgspec.Struct, frozen=True, tag=True):
    """Carry these steps out in their order, and give the table `new_name` and `policy` if they are named, all of it or
    nothing.

    Tablets follow afterwards (`IsAlterTableDone`). Answered by `AlterTableReply`, or POLICY_UNMET where leases are too
    short for the policy by the round trips that leaseholders have measured.
    """

    request_id: RequestId
    name: str = ""
    steps: tuple[AlterStep, ...] = ()
    new_name: str | None = None
    table_id: str = ""
    policy: str | msgspec.UnsetType = msgspec.UNSET


class DeleteTable(msgspec.Struct, frozen=True, tag=True):
    """Remove a table and its tablets for good; replicas go afterwards. Answered by `DeleteTableReply`."""

    request_id: RequestId
    name: str = ""
    table_id: str = ""


class PlaceTable(msgspec.Struct, frozen=True, tag=True):
    """Say anew where a table's replicas are to stand; they move afterwards, one at a time. Answered by
    `AlterTableReply`, or UNKNOWN_ZONE and TOO_FEW_NODES while its zones have too few live tablet servers."""

    request_id: RequestId
    replicas: Replicas
    name: str = ""
    table_id: str = ""


class IsCreateTableDone(msgspec.Struct, frozen=True, tag=True):
    """Whether every tablet runs."""

    name: str = ""
    max_staleness_ms: int | None = None
    table_id: str = ""


class IsAlterTableDone(msgspec.Struct, frozen=True, tag=True):
    """Whether every tablet has the table's latest schema."""

    name: str = ""
    max_staleness_ms: int | None = None
    table_id: str = ""


class ListTables(msgspec.Struct, frozen=True, tag=True):
    max_staleness_ms: int | None = None


class GetTableSchema(msgspec.Struct, frozen=True, tag=True):
    name: str = ""
    max_staleness_ms: int | None = None
    table_id: str = ""


class GetTableLocations(msgspec.Struct, frozen=True, tag=True):
    name: str = ""
    max_staleness_ms: int | None = None
    table_id: str = ""


class GetTabletLocations(msgspec.Struct, frozen=True, tag=True):
    tablet_ids: tuple[str, ...]
    max_staleness_ms: int | None = None


class ListTabletServers(msgspec.Struct, frozen=True, tag=True):
    max_staleness_ms: int | None = None


class ListMasters(msgspec.Struct, frozen=True, tag=True):
    max_staleness_ms: int | None = None


class AskFreshness(msgspec.Struct, frozen=True, tag=True):
    """A follower master asks the leader how far the log is committed (M13). Answered by `FreshnessReply`."""


CatalogRequest: TypeAlias = (
    CreateTable
    | AlterTable
    | DeleteTable
    | PlaceTable
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


class CreateTableReply(msgspec.Struct, frozen=True, tag=True):
    table_id: str


class AlterTableReply(msgspec.Struct, frozen=True, tag=True):
    """`version` is that of the schema after this alteration; it rises with every one, renamings of tables included."""

    table_id: str
    version: int


class DeleteTableReply(msgspec.Struct, frozen=True, tag=True):
    table_id: str


class DoneReply(msgspec.Struct, frozen=True, tag=True):
    """Masters name the table, and the version of its schema."""

    done: bool
    table_id: str = ""
    version: int = 0
    age_ms: int = 0


class ListTablesReply(msgspec.Struct, frozen=True, tag=True):
    tables: tuple[TableInfo, ...]
    age_ms: int = 0


class TableSchemaReply(msgspec.Struct, frozen=True, tag=True):
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
    replicas: Replicas = msgspec.field(name="replication_factor")
    design: str
    age_ms: int = 0
    policy: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def replication_factor(self) -> int:
        """How many voters each tablet is to have."""
        return voters_wanted(self.replicas)


class TableLocationsReply(msgspec.Struct, frozen=True, tag=True):
    """Where a table's tablets are, and its replication design: coordinators of quorum tables go by both. Clients go by
    its policy until the tablets tell."""

    table_id: str
    tablets: tuple[TabletLocation, ...]
    age_ms: int = 0
    design: str = "raft"
    policy: str | msgspec.UnsetType = msgspec.UNSET


class TabletLocationsReply(msgspec.Struct, frozen=True, tag=True):
    """Tablets in the order they were asked for; those of which there is no record are `unknown`."""

    tablets: tuple[TabletLocation, ...]
    unknown: tuple[str, ...]
    age_ms: int = 0


class TabletServersReply(msgspec.Struct, frozen=True, tag=True):
    """Every tserver the master has heard of and their `zones`; `live` are the node ids of those heard of lately."""

    servers: tuple[Replica, ...]
    live: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    age_ms: int = 0


class MastersReply(msgspec.Struct, frozen=True, tag=True):
    """The masters' committed configuration, set at `config_index`, and which of them leads and answers."""

    voters: tuple[Replica, ...]
    learners: tuple[Replica, ...]
    leader: str
    config_index: int
    age_ms: int = 0


class FreshnessReply(msgspec.Struct, frozen=True, tag=True):
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

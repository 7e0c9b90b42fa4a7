"""The calls of the metadata plane (M5) as the client library makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from cluster.client.sessions import ClientSessions, Ticket
from cluster.store.schema import AlterStep, Column
from cluster.wire.messages import (
    AlterTable,
    AlterTableReply,
    CreateTable,
    CreateTableReply,
    DeleteTable,
    DeleteTableReply,
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
    PlaceTable,
    Replicas,
    Request,
    RequestId,
    TableInfo,
    TableLocationsReply,
    TableSchemaReply,
    TabletLocationsReply,
    TabletServersReply,
)

ReplyType = TypeVar("ReplyType")


class AskMaster(Protocol):
    """How the leader master is asked: until it answers, or until the deadline."""

    async def __call__(
        self, make: Callable[[], Request], reply_type: type[ReplyType], *, ticket: Ticket | None = None
    ) -> ReplyType:
        """Raises DefiniteError, IndefiniteError."""


class CatalogClient:
    """Every call of M5. Changes take effect once, whatever is lost on the way (M14); tablets follow them afterwards.
    A table is named by its name, by its id, or by both.

    Methods raise DefiniteError (its kind is the error's: `not-found`, `already-present`, `invalid`, `try-again` …) or
    IndefiniteError, at the latest at the client's deadline.
    """

    def __init__(self, ask: AskMaster, sessions: ClientSessions) -> None:
        self._ask, self._sessions = ask, sessions

    async def create_table(
        self,
        name: str,
        columns: Sequence[Column],
        buckets: int,
        replicas: Replicas,
        design: str = "raft",
        policy: str = "",
    ) -> CreateTableReply:
        """Create a table; its tablets come up afterwards (`is_create_done`). `policy` is how they are closed, `lag:MS`
        or `global`, if not as knobs say; `policy-unmet` where leases are too short for it."""
        told = policy or msgspec.UNSET
        return await self._change(
            lambda request_id: CreateTable(request_id, name, tuple(columns), buckets, replicas, design, told),
            CreateTableReply,
        )

    async def alter_table(
        self,
        name: str = "",
        steps: Sequence[AlterStep] = (),
        new_name: str | None = None,
        table_id: str = "",
        policy: str | None = None,
    ) -> AlterTableReply:
        """Change a table's columns, its name, or the policy by which it is closed (`create_table`); its tablets follow
        afterwards (`is_alter_done`)."""
        told = msgspec.UNSET if policy is None else policy
        return await self._change(
            lambda request_id: AlterTable(request_id, name, tuple(steps), new_name, table_id, told), AlterTableReply
        )

    async def place_table(self, replicas: Replicas, name: str = "", table_id: str = "") -> AlterTableReply:
        """Say anew where a table's replicas are to stand; they move afterwards."""
        return await self._change(lambda request_id: PlaceTable(request_id, replicas, name, table_id), AlterTableReply)

    async def delete_table(self, name: str = "", table_id: str = "") -> DeleteTableReply:
        """Remove a table for good."""
        return await self._change(lambda request_id: DeleteTable(request_id, name, table_id), DeleteTableReply)

    async def _change(self, make: Callable[[RequestId], Request], reply_type: type[ReplyType]) -> ReplyType:
        """A change under one identity, however often it is sent."""
        with Ticket(self._sessions) as ticket:
            return await self._ask(lambda: make(ticket.request_id), reply_type, ticket=ticket)

    async def is_create_done(self, name: str = "", table_id: str = "") -> DoneReply:
        """Whether every tablet of the table runs."""
        return await self._ask(lambda: IsCreateTableDone(name, table_id=table_id), DoneReply)

    async def is_alter_done(self, name: str = "", table_id: str = "") -> DoneReply:
        """Whether every tablet has the table's latest schema."""
        return await self._ask(lambda: IsAlterTableDone(name, table_id=table_id), DoneReply)

    async def list_tables(self) -> tuple[TableInfo, ...]:
        """Tables that are not removed, by name."""
        return (await self._ask(ListTables, ListTablesReply)).tables

    async def table_schema(self, name: str = "", table_id: str = "") -> TableSchemaReply:
        """The table's schema, and what every tablet is known to have of it."""
        return await self._ask(lambda: GetTableSchema(name, table_id=table_id), TableSchemaReply)

    async def table_locations(self, name: str = "", table_id: str = "") -> TableLocationsReply:
        """The table's tablets and where they are, by bucket."""
        return await self._ask(lambda: GetTableLocations(name, table_id=table_id), TableLocationsReply)

    async def tablet_locations(self, tablet_ids: Sequence[str]) -> TabletLocationsReply:
        """Where these tablets are, deleted and replaced ones included."""
        return await self._ask(lambda: GetTabletLocations(tuple(tablet_ids)), TabletLocationsReply)

    async def tablet_servers(self) -> TabletServersReply:
        """Every tablet server that the leader master has heard of."""
        return await self._ask(ListTabletServers, TabletServersReply)

    async def masters(self) -> MastersReply:
        """The masters, and which of them leads."""
        return await self._ask(ListMasters, MastersReply)

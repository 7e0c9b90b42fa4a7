"""Operations of the workload `catalog` on the reference cluster: table names are numbers there, ids short integers.

`checkers.catalog.calls` says what stands in the history. The table with the number n is called `cN`; tables with other
names are passed over. Ids are the first 60 bits of the cluster's own.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from msgspec.structs import replace

from cluster.client.client import ClusterClient
from cluster.deploy.row_ops import name_number, step_of
from cluster.master.records import TableState, TabletState
from cluster.store.schema import Column
from cluster.wire.messages import (
    DoneReply,
    GetTableLocations,
    GetTableSchema,
    GetTabletLocations,
    IsAlterTableDone,
    IsCreateTableDone,
    ListTables,
    ListTablesReply,
    TableLocationsReply,
    TableSchemaReply,
    TabletLocation,
    TabletLocationsReply,
)
from harness.errors import DefiniteError
from harness.history.ops import Mop, Op

COLUMNS: Final = (Column(0, "value", "int64"),)
REPLICATION_FACTOR: Final = 3

TABLE_STATES: Final = tuple(map(str, TableState))
TABLET_STATES: Final = tuple(map(str, TabletState))
"""A state's place is its number in histories."""

REMEMBERED: Final = 16
"""How many tablets' ids a client remembers."""

NAME: Final = re.compile(r"c(\d+)")

AnyQuestion = TypeVar(
    "AnyQuestion",
    IsCreateTableDone,
    IsAlterTableDone,
    ListTables,
    GetTableSchema,
    GetTableLocations,
    GetTabletLocations,
)
ReplyType = TypeVar("ReplyType")


def table_name(number: int) -> str:
    return f"c{number}"


def short_id(text: str) -> int:
    return int(text[:15], 16)


class CatalogOps:
    """What one client does for each `f`; raises DefiniteError and IndefiniteError, like all clients."""

    def __init__(self, client: ClusterClient, rows_table: str) -> None:
        self._client, self._catalog = client, client.catalog
        self._rows_table = rows_table
        self._tablets: dict[int, str] = {}
        self._changes: Mapping[str, Callable[[Mop], Awaitable[tuple[Mop, ...]]]] = {
            "create": self._create,
            "delete": self._delete,
            "alter": self._alter,
            "rename": self._rename,
            "reshape": self._reshape,
        }
        self._questions: Mapping[str, Callable[[Op], Awaitable[tuple[Mop, ...]]]] = {
            "list": self._list,
            "columns": self._columns,
            "tablets": self._ask_tablets,
            "schema": self._schema,
            "created": self._created,
            "altered": self._altered,
            "locations": self._locations,
        }

    async def invoke(self, op: Op) -> Op:
        """Carry one operation out; its completion has the micro-operations of the answer."""
        if op.f in self._changes:
            return op.complete("ok", mops=await self._changes[op.f](op.mops[0]))
        try:
            return op.complete("ok", mops=await self._questions[op.f](op))
        except DefiniteError as error:
            # To a question it is an answer that there is no such table; other refusals are none.
            if op.f not in QUESTIONS or error.kind != "not-found":
                raise
            return op.complete("ok", mops=(replace(op.mops[0], value=None, row=0, column=1),))

    # ---- changes ----

    async def _create(self, mop: Mop) -> tuple[Mop, ...]:
        name = table_name(mop.partition)
        reply = await self._catalog.create_table(name, COLUMNS, max(1, mop.column), REPLICATION_FACTOR)
        return (replace(mop, value=short_id(reply.table_id), values=(REPLICATION_FACTOR,)),)

    async def _delete(self, mop: Mop) -> tuple[Mop, ...]:
        reply = await self._catalog.delete_table(table_name(mop.partition))
        return (replace(mop, value=short_id(reply.table_id)),)

    async def _alter(self, mop: Mop) -> tuple[Mop, ...]:
        reply = await self._catalog.alter_table(table_name(mop.partition), (step_of(mop.expected or 0, mop.column),))
        return (replace(mop, value=short_id(reply.table_id), values=(reply.version,)),)

    async def _rename(self, mop: Mop) -> tuple[Mop, ...]:
        reply = await self._catalog.alter_table(table_name(mop.partition), (), table_name(mop.row))
        return (replace(mop, value=short_id(reply.table_id), values=(reply.version,)),)

    async def _reshape(self, mop: Mop) -> tuple[Mop, ...]:
        """Alter the table whose rows are read and written meanwhile; the answer tells its version after that."""
        reply = await self._catalog.alter_table(self._rows_table, (step_of(mop.partition, mop.column),))
        return (replace(mop, row=reply.version),)

    # ---- questions ----

    async def _ask(self, op: Op, question: AnyQuestion, reply_type: type[ReplyType]) -> ReplyType:
        """To the leader. With a value, as old as `op.bound` allows: to the master that the value names by number, or to
        one after another until one may answer."""
        if op.value is None:
            return await self._client.ask_leader(question, reply_type)
        aged = replace(question, max_staleness_ms=(op.bound or 0) // 1_000_000)
        if "master" in op.value:
            return await self._client.ask_master(op.value["master"], aged, reply_type)
        return await self._client.ask_any_master(aged, reply_type)

    async def _columns(self, op: Op) -> tuple[Mop, ...]:
        """Of the table whose rows are read and written: its schema's version, and by id what columns are called."""
        reply = await self._ask(op, GetTableSchema(self._rows_table), TableSchemaReply)
        numbers = [(column.id, name_number(column.name)) for column in reply.columns]
        return tuple(
            Mop("column", 0, each, row=reply.version, column=number) for each, number in numbers if number is not None
        )

    async def _list(self, op: Op) -> tuple[Mop, ...]:
        found = (await self._ask(op, ListTables(), ListTablesReply)).tables
        tables = [(NAME.fullmatch(info.name), info) for info in found]
        return tuple(
            Mop(
                "table",
                int(named[1]),
                short_id(info.table_id),
                row=info.version,
                column=_place(TABLE_STATES, info.state),
            )
            for named, info in tables
            if named
        )

    async def _schema(self, op: Op) -> tuple[Mop, ...]:
        reply = await self._ask(op, GetTableSchema(_named(op)), TableSchemaReply)
        more = (_place(TABLE_STATES, reply.state), reply.replication_factor, reply.fully_applied_version)
        return (replace(op.mops[0], value=short_id(reply.table_id), row=reply.version, values=more),)

    async def _created(self, op: Op) -> tuple[Mop, ...]:
        return _done(op.mops[0], await self._ask(op, IsCreateTableDone(_named(op)), DoneReply))

    async def _altered(self, op: Op) -> tuple[Mop, ...]:
        return _done(op.mops[0], await self._ask(op, IsAlterTableDone(_named(op)), DoneReply))

    async def _locations(self, op: Op) -> tuple[Mop, ...]:
        reply = await self._ask(op, GetTableLocations(_named(op)), TableLocationsReply)
        self._remember(reply.tablets)
        buckets = max((tablet.partition.buckets for tablet in reply.tablets), default=1)
        answered = replace(op.mops[0], value=short_id(reply.table_id), column=buckets)
        return (answered, *map(_tablet, reply.tablets))

    def _remember(self, tablets: tuple[TabletLocation, ...]) -> None:
        """The last ones seen, whose records are asked for later."""
        for tablet in tablets:
            key = short_id(tablet.tablet_id)
            self._tablets.pop(key, None)
            self._tablets[key] = tablet.tablet_id
        for key in list(self._tablets)[:-REMEMBERED]:
            del self._tablets[key]

    async def _ask_tablets(self, op: Op) -> tuple[Mop, ...]:
        """What became of the tablets that this client has seen."""
        reply = await self._ask(op, GetTabletLocations(tuple(self._tablets.values())), TabletLocationsReply)
        known = [
            Mop("known", 0, short_id(tablet.tablet_id), column=_place(TABLET_STATES, tablet.state))
            for tablet in reply.tablets
        ]
        return (*known, *(Mop("unknown", 0, short_id(tablet_id)) for tablet_id in reply.unknown))


QUESTIONS: Final = ("schema", "created", "altered", "locations")
"""What is asked about one table."""

FS: Final = ("create", "delete", "alter", "rename", "reshape", "list", *QUESTIONS, "tablets", "columns")
"""What `CatalogOps` carries out."""


def _named(op: Op) -> str:
    return table_name(op.mops[0].partition)


def _done(mop: Mop, reply: DoneReply) -> tuple[Mop, ...]:
    return (replace(mop, value=short_id(reply.table_id), row=reply.version, values=(int(reply.done),)),)


def _tablet(tablet: TabletLocation) -> Mop:
    state = _place(TABLET_STATES, tablet.state)
    return Mop("tablet", tablet.partition.bucket, short_id(tablet.tablet_id), row=len(tablet.replicas), column=state)


def _place(names: tuple[str, ...], state: str) -> int:
    return names.index(state) if state in names else len(names)

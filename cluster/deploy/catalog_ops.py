"""Operations of the workload `catalog` on the reference cluster: table names are numbers there, ids short integers.

`checkers.catalog.calls` says what stands in the history. The table with the number n is called `cN`; tables with other
names are passed over. Ids are the first 60 bits of the cluster's own.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from msgspec.structs import replace

from cluster.client.client import ClusterClient
from cluster.deploy.row_ops import name_number, step_of
from cluster.master.records import TableState, TabletState
from cluster.store.schema import Column
from cluster.wire.messages import DoneReply, ListTables, ListTablesReply, TabletLocation
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
        self._by_f: Mapping[str, Callable[[Mop], Awaitable[tuple[Mop, ...]]]] = {
            "create": self._create,
            "delete": self._delete,
            "alter": self._alter,
            "rename": self._rename,
            "reshape": self._reshape,
            "schema": self._schema,
            "created": self._created,
            "altered": self._altered,
            "locations": self._locations,
        }

    async def invoke(self, op: Op) -> Op:
        """Carry one operation out; its completion has the micro-operations of the answer."""
        if op.f == "list":
            return op.complete("ok", mops=await self._list(op))
        if op.f == "columns":
            return op.complete("ok", mops=await self._columns())
        if op.f == "tablets":
            return op.complete("ok", mops=await self._ask_tablets())
        mop = op.mops[0]
        try:
            return op.complete("ok", mops=await self._by_f[op.f](mop))
        except DefiniteError as error:
            # To a question it is an answer that there is no such table; other refusals are none.
            if op.f not in QUESTIONS or error.kind != "not-found":
                raise
            return op.complete("ok", mops=(replace(mop, value=None, row=0, column=1),))

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

    async def _columns(self) -> tuple[Mop, ...]:
        """Of the table whose rows are read and written: its schema's version, and by id what columns are called."""
        reply = await self._catalog.table_schema(self._rows_table)
        numbers = [(column.id, name_number(column.name)) for column in reply.columns]
        return tuple(
            Mop("column", 0, each, row=reply.version, column=number) for each, number in numbers if number is not None
        )

    async def _list(self, op: Op) -> tuple[Mop, ...]:
        """By the leader; or by the master that `op.value` names by number, as old as `op.bound` allows."""
        if op.value is None:
            found = await self._catalog.list_tables()
        else:
            request = ListTables(max_staleness_ms=(op.bound or 0) // 1_000_000)
            found = (await self._client.ask_master(op.value["master"], request, ListTablesReply)).tables
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

    async def _schema(self, mop: Mop) -> tuple[Mop, ...]:
        reply = await self._catalog.table_schema(table_name(mop.partition))
        more = (_place(TABLE_STATES, reply.state), reply.replication_factor, reply.fully_applied_version)
        return (replace(mop, value=short_id(reply.table_id), row=reply.version, values=more),)

    async def _created(self, mop: Mop) -> tuple[Mop, ...]:
        return await self._done(mop, self._catalog.is_create_done)

    async def _altered(self, mop: Mop) -> tuple[Mop, ...]:
        return await self._done(mop, self._catalog.is_alter_done)

    async def _done(self, mop: Mop, ask: Callable[[str], Awaitable[DoneReply]]) -> tuple[Mop, ...]:
        reply = await ask(table_name(mop.partition))
        return (replace(mop, value=short_id(reply.table_id), row=reply.version, values=(int(reply.done),)),)

    async def _locations(self, mop: Mop) -> tuple[Mop, ...]:
        reply = await self._catalog.table_locations(table_name(mop.partition))
        self._remember(reply.tablets)
        buckets = max((tablet.partition.buckets for tablet in reply.tablets), default=1)
        return (replace(mop, value=short_id(reply.table_id), column=buckets), *map(_tablet, reply.tablets))

    def _remember(self, tablets: tuple[TabletLocation, ...]) -> None:
        """The last ones seen, whose records are asked for later."""
        for tablet in tablets:
            key = short_id(tablet.tablet_id)
            self._tablets.pop(key, None)
            self._tablets[key] = tablet.tablet_id
        for key in list(self._tablets)[:-REMEMBERED]:
            del self._tablets[key]

    async def _ask_tablets(self) -> tuple[Mop, ...]:
        """What became of the tablets that this client has seen."""
        reply = await self._catalog.tablet_locations(tuple(self._tablets.values()))
        known = [
            Mop("known", 0, short_id(tablet.tablet_id), column=_place(TABLET_STATES, tablet.state))
            for tablet in reply.tablets
        ]
        return (*known, *(Mop("unknown", 0, short_id(tablet_id)) for tablet_id in reply.unknown))


QUESTIONS: Final = ("schema", "created", "altered", "locations")
"""What is asked about one table."""

FS: Final = ("create", "delete", "alter", "rename", "reshape", "list", *QUESTIONS, "tablets", "columns")
"""What `CatalogOps` carries out."""


def _tablet(tablet: TabletLocation) -> Mop:
    state = _place(TABLET_STATES, tablet.state)
    return Mop("tablet", tablet.partition.bucket, short_id(tablet.tablet_id), row=len(tablet.replicas), column=state)


def _place(names: tuple[str, ...], state: str) -> int:
    return names.index(state) if state in names else len(names)

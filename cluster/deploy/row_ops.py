"""Typed rows of the workload `catalog`, whose columns come and go meanwhile, on the reference cluster.

A read or write asks for a column by a wish, a `Mop.column` below 0, and its completion says the *id* of the column that
it was carried out on, under whichever schema the client knew. An id is given once, so whatever a column is called, its
cells are registers: addressed by row and id, unset until they are written, and unset again when the row is erased.

- A scan (`f` is `scan`) has a read of the wished column for each row that it is asked for; rows that it did not find
  read nil.
- An erasure (`erase`) is of a whole row. Its completion has the value 1, or 0 if there was no row.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from msgspec.structs import replace

from cluster.client.client import ClusterClient
from cluster.client.reading import ReadResult
from cluster.client.rows import Row, ServedChange, TypedTable
from cluster.deploy.timed_reads import ClientPlace, served_as, wish_of
from cluster.store.cells import Value
from cluster.store.schema import (
    AddColumn,
    AlterStep,
    Column,
    DropColumn,
    RenameColumn,
    bucket_of,
    encode_key,
    key_columns,
)
from harness.errors import DefiniteError, HarnessError, IndefiniteError
from harness.history.ops import Mop, Op
from harness.ports.api import Clock, node_of

BASE: Final = "value"
"""The column that nobody alters."""

COLUMNS: Final = (
    Column(-1, "row", "int64", nullable=False, key=True),
    Column(-1, "salt", "int32", nullable=False, key=True),
    Column(-1, BASE, "int64"),
)

ADD, DROP, RENAME, DROP_SECOND = range(4)
"""What an alteration does to the column that it names, as histories tell it (`Mop.column`)."""

WRONG_NULL: Final = -1_000
"""Stands in the history for a null where a cell that was never written reads another default: nobody writes it."""

WRONG_ROW: Final = -1_001
"""Stands in the history for a row that a scan told twice, out of order or under a key that no row has."""

PAGE: Final = 3
"""Rows in a page of a scan that names no other size, so few that a tablet's rows take several."""

_ATTEMPTS = 3
_LOOK_AGAIN_NS = 2_000_000_000
"""So long a client goes without the column that it wishes for before it asks whether there is one now."""


def step_of(number: int, change: int) -> AlterStep:
    """The column number n is called xn, and yn once it was renamed. Half of them have defaults."""
    if change in (DROP, DROP_SECOND):
        return DropColumn(f"{'x' if change == DROP else 'y'}{number}")
    if change == RENAME:
        return RenameColumn(f"x{number}", f"y{number}")
    return AddColumn(Column(-1, f"x{number}", "int64", default=-1 - number if number % 2 else None))


def wished(column: int) -> tuple[str, ...]:
    """The names that will do, best first: -1 is the base column, -2 is x0 or else y0, -3 y0 or else x0, and so on."""
    number, other = divmod(-column - 2, 2)
    if column == -1:
        return (BASE,)
    names = (f"x{number}", f"y{number}")
    return (*(names[::-1] if other else names), BASE)


def name_number(name: str) -> int | None:
    """A column's name as histories hold it; None for parts of the key."""
    if name == BASE:
        return 0
    return 1 + 2 * int(name[1:]) + (name[0] == "y") if name[0] in "xy" and name[1:].isdigit() else None


def key_of(number: int, buckets: int) -> dict[str, Value]:
    """The key of a row, in the bucket `number` modulo `buckets`, as keys are spread (`harness.protocols.Sharded`)."""
    salt = 0
    while bucket_of(encode_key(COLUMNS, {"row": number, "salt": salt}), buckets) != number % buckets:
        salt += 1
    return {"row": number, "salt": salt}


def of_base_column(op: Op) -> Op:
    """The operation on the column that nobody alters, whose id its micro-operations have in the history."""
    return replace(op, mops=tuple(replace(mop, column=-1) for mop in op.mops))


class RowOps:
    """One client's reads, writes, scans and erasures of the table's rows; raises DefiniteError and IndefiniteError."""

    def __init__(
        self, client: ClusterClient, table: str, buckets: int, clock: Clock, place: ClientPlace | None = None
    ) -> None:
        self._place = place
        self._client, self._name, self._buckets, self._clock = client, table, buckets, clock
        self._table: TypedTable | None = None
        self._look_again_ns = 0
        self._keys: dict[int, dict[str, Value]] = {}

    async def read(self, op: Op) -> Op:
        """The cell of the wished column; nil where it reads as one that was never written."""
        mop, key = op.mops[0], self._key(op.mops[0].partition)

        async def attempt(table: TypedTable, name: str) -> Op:
            read = await table.get(key, (name,), **wish_of(op))
            column = table.columns[name]
            value = None if read.value is None else _in_history(column, read.value[name])
            return op.complete("ok", mops=(replace(mop, value=value, column=column.id),), **self._told(op, read))

        return await self._on_wished(mop, attempt)

    async def write(self, op: Op) -> Op:
        """Upsert the row with this cell."""
        mop, key = op.mops[0], self._key(op.mops[0].partition)

        async def attempt(table: TypedTable, name: str) -> Op:
            done = await table.upsert({**key, name: mop.value})
            changed = replace(mop, column=table.columns[name].id)
            node = None if self._place is None else node_of(done.node)
            times = {"requested_ts": done.requested, "served_ts": done.reply.timestamp}
            return op.complete("ok", mops=(changed,), node=node, **times)

        return await self._on_wished(mop, attempt)

    async def scan(self, op: Op) -> Op:
        """The wished column of the rows that the operation's reads name, from a scan of the whole table; `op.value` may
        say in which pages."""
        page = PAGE if op.value is None else int(op.value["page"])

        async def attempt(table: TypedTable, name: str) -> Op:
            keys = tuple(column.name for column in key_columns(COLUMNS))
            read = await table.scan(columns=(*keys, name), page=page, **wish_of(op))
            column = table.columns[name]
            found = self._found(read.value, column)
            asked = {mop.partition: mop for mop in op.mops}
            strange = [each for each, value in found.items() if each not in asked and value == WRONG_ROW]
            mops = (replace(asked.get(each, op.mops[0]), partition=each) for each in (*asked, *strange))
            shown = tuple(replace(mop, value=found.get(mop.partition), column=column.id) for mop in mops)
            return op.complete("ok", mops=shown, **self._told(op, read))

        return await self._on_wished(op.mops[0], attempt)

    def _told(self, op: Op, read: ReadResult[Any]) -> dict[str, Any]:
        """How a read was served, where that is to be told: a strong scan has a time for each of its pages."""
        strong_scan = op.f == "scan" and op.mode is None
        return (
            {}
            if self._place is None or strong_scan
            else served_as(op, self._place, read.served, read.timestamp, read.node)
        )

    def _found(self, rows: Sequence[Row], column: Column) -> dict[int, int | None]:
        """What a scan told of each row: its cell, or WRONG_ROW. Keys come once, in order, and only those of rows."""
        found: dict[int, int | None] = {}
        last = b""
        for row in rows:
            key = {name: row[name] for name in ("row", "salt")}
            number, encoded = row["row"], encode_key(COLUMNS, key)
            known = number if type(number) is int and number >= 0 else None
            wrong = known is None or key != self._key(known) or encoded <= last
            found[known or 0] = WRONG_ROW if wrong else _in_history(column, row[column.name])
            last = encoded
        return found

    async def erase(self, op: Op) -> Op:
        """Remove the row, with the cells of all its columns."""
        mop, key = op.mops[0], self._key(op.mops[0].partition)
        table = await self._opened()
        try:
            done = await table.delete(key)
        except DefiniteError as error:
            if error.kind != "row-absent":
                raise
            return op.complete("ok", mops=(replace(mop, value=0),))
        times = {"requested_ts": done.requested, "served_ts": done.reply.timestamp}
        return op.complete("ok", mops=(replace(mop, value=1),), **times)

    async def hold(self, transaction: str, number: int, value: int, requested: int | None) -> ServedChange:
        """Lay a row with this value in the base column for a transaction."""
        return await (await self._opened()).hold(transaction, {**self._key(number), BASE: value}, requested)

    async def _opened(self) -> TypedTable:
        if self._table is None:
            self._table = await self._client.open_table(self._name)
        return self._table

    def _key(self, number: int) -> dict[str, Value]:
        if number not in self._keys:
            self._keys[number] = key_of(number, self._buckets)
        return self._keys[number]

    async def _on_wished(self, mop: Mop, attempt: Callable[[TypedTable, str], Awaitable[Op]]) -> Op:
        """Try the wished column, and another name if it is called otherwise by now: nothing was carried out then."""
        table = await self._opened()
        for _ in range(_ATTEMPTS - 1):
            try:
                return await attempt(table, await self._wish(table, mop.column))
            except DefiniteError as error:
                if error.kind != "unknown-column":
                    raise
        return await attempt(table, BASE)

    async def _wish(self, table: TypedTable, column: int) -> str:
        """The best name that there is, as far as this client knows; now and then it looks for what it misses."""
        names = wished(column)
        best = next(name for name in names if name in table.columns or name == BASE)
        now_ns = self._clock.monotonic_ns()
        if best == names[-1] and len(names) > 1 and now_ns >= self._look_again_ns:
            self._look_again_ns = now_ns + _LOOK_AGAIN_NS
            with suppress(DefiniteError, IndefiniteError):  # What is known may be good still.
                await table.refresh()
        return next(name for name in names if name in table.columns or name == BASE)


def _in_history(column: Column, value: Value) -> int | None:
    """A cell as histories hold it: nil is what a cell reads that was never written, the column's default."""
    if value == column.default:
        return None
    if value is None:
        return WRONG_NULL
    if type(value) is not int:
        raise HarnessError(f"the cell of a row held {value!r}, which no operation wrote")
    return value

"""A table's rows as the client library reads and changes them: by the names of columns, under its schema."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from heapq import merge
from typing import NamedTuple, Protocol, TypeAlias, TypeVar, Unpack

import msgspec

from cluster.client.reading import ReadResult, ReadWish, WishedRead
from cluster.store.cells import Value
from cluster.store.schema import (
    Column,
    InvalidSchema,
    after,
    bucket_of,
    decode_key,
    encode_key,
    encode_prefix,
    fits,
    key_columns,
)
from cluster.wire.messages import Done, Request, RequestId, TableLocationsReply, TableSchemaReply
from cluster.wire.rows import ChangeRow, GetRow, RowChangeKind, ScanRows, TypedRow, TypedRowsReply
from cluster.wire.staleness import HowServed
from harness.errors import DefiniteError

Row: TypeAlias = dict[str, Value]

T = TypeVar("T")
ReplyType = TypeVar("ReplyType")

MAY_BE_OLD = ("schema-changed", "unknown-column")
"""Errors that may come of a schema which is not the latest."""

REFRESHES = 3
"""How often one call learns the schema anew."""


Learn: TypeAlias = Callable[[str], Awaitable[tuple[TableSchemaReply, TableLocationsReply]]]
"""How the schema of a table is learnt, and where its tablets are now."""


class AskTablet(Protocol):
    """How the tablet of a partition is read."""

    async def __call__(
        self, table: str, partition: int, make: Callable[[str], Request], reply_type: type[ReplyType], asked: WishedRead
    ) -> tuple[ReplyType, str]:
        """(The reply, and the node that gave it); what a node fixes of `asked` stands. Raises DefiniteError."""


class ServedChange(NamedTuple):
    """A change's reply, the node that gave it, and the timestamp that the client had asked for."""

    reply: Done
    node: str
    requested: int


class ChangeTablet(Protocol):
    """How the tablet of a partition is changed, once."""

    async def __call__(
        self,
        table: str,
        partition: int,
        make: Callable[[RequestId, str, int], Request],
        requested: int | None = None,
    ) -> ServedChange:
        """Raises DefiniteError, IndefiniteError."""


class _Pages:
    """A scan under one schema, from the first row of the prefix on; `replies` are those that came, and their nodes."""

    def __init__(
        self, schema: TableSchemaReply, columns: Sequence[Column], first: bytes, limit: int, asked: WishedRead
    ) -> None:
        self.schema, self.columns, self.first, self.limit, self.asked = schema, columns, first, limit, asked
        self.replies: list[tuple[TypedRowsReply, str]] = []

    def make(self, bucket: int, first: bytes) -> Callable[[str], Request]:
        """A page of a bucket from `first` on, at the time that is asked for when it is made."""
        ids, last, schema, asked = _ids(self.columns), after(self.first), self.schema, self.asked

        def make(tablet_id: str) -> Request:
            return ScanRows(
                tablet_id,
                schema.table_id,
                bucket,
                first,
                last,
                ids,
                schema.version,
                self.limit,
                asked.as_of,
                asked.bound,
                asked.begun,
            )

        return make


class TypedTable:
    """A handle of one table with a primary key; made by `ClusterClient.open_table`.

    It stays with the tablets of its table, also under another name, as long as they are found there. It learns the
    schema anew where tablets say that it has changed, and then goes on: values are given and found by the names that
    columns have in the schema it knows. Methods raise DefiniteError (`invalid`; `row-present`, `row-absent`;
    `unknown-column`; …), and changes IndefiniteError, at the client's deadline.
    """

    def __init__(self, name: str, learn: Learn, read: AskTablet, change: ChangeTablet) -> None:
        self.name = name
        self._learn, self._read, self._change = learn, read, change
        self._schema: TableSchemaReply | None = None
        self._buckets = 0

    @property
    def columns(self) -> Mapping[str, Column]:
        """The columns by name, in the schema that is known: after a call, the one under which it was carried out."""
        return {} if self._schema is None else {column.name: column for column in self._schema.columns}

    async def refresh(self) -> TableSchemaReply:
        """Learn the schema that the leader master tells now."""
        self._schema, locations = await self._learn(self.name)
        if not key_columns(self._schema.columns):
            raise DefiniteError("invalid", f"the table {self.name!r} has no primary key: it is addressed by integers")
        self._buckets = max((tablet.partition.buckets for tablet in locations.tablets), default=1)
        return self._schema

    # ---- changes ----

    async def insert(self, values: Mapping[str, Value]) -> ServedChange:
        """Add a row, with the defaults of columns that are not named; `row-present` if there is one of its key."""
        return await self._change_row("insert", values, "row-present")

    async def upsert(self, values: Mapping[str, Value]) -> ServedChange:
        """Add a row, or change those columns of it that are named."""
        return await self._change_row("upsert", values, "")

    async def update(self, values: Mapping[str, Value]) -> ServedChange:
        """Change the columns that are named; `row-absent` if there is no row of this key."""
        return await self._change_row("update", values, "row-absent")

    async def delete(self, key: Mapping[str, Value]) -> ServedChange:
        """Remove a row; `row-absent` if there is none."""
        return await self._change_row("delete", key, "row-absent")

    async def hold(self, transaction: str, values: Mapping[str, Value], requested: int | None = None) -> ServedChange:
        """Lay what an `upsert` would write, for a transaction: `ClusterClient.settle` commits it, or lets it go."""
        return await self._change_row("upsert", values, "", transaction, requested)

    async def _change_row(
        self,
        kind: RowChangeKind,
        values: Mapping[str, Value],
        otherwise: str,
        transaction: str | msgspec.UnsetType = msgspec.UNSET,
        requested: int | None = None,
    ) -> ServedChange:
        async def attempt(schema: TableSchemaReply) -> ServedChange:
            row = _key(schema, values)
            cells = tuple(_cell(schema, name, value) for name, value in values.items() if not _is_key(schema, name))

            def make(request_id: RequestId, tablet_id: str, time: int) -> Request:
                names = request_id, tablet_id, schema.table_id, bucket, row
                return ChangeRow(*names, kind, cells, schema.version, time, transaction)

            bucket = bucket_of(row, self._buckets)
            return await self._change(self.name, bucket, make, requested)

        done = await self._under_schema(attempt)
        if not done.reply.applied:
            raise DefiniteError(otherwise, f"{self.name!r}: {otherwise.replace('-', ' ')}")
        return done

    # ---- reads ----

    async def get(
        self, key: Mapping[str, Value], columns: Sequence[str] | None = None, **wish: Unpack[ReadWish]
    ) -> ReadResult[Row | None]:
        """The row of this key with these columns, or all; None if there is none. Strong, or as wished."""
        asked = WishedRead(wish)

        async def attempt(schema: TableSchemaReply) -> ReadResult[Row | None]:
            row, chosen = _key(schema, key), _chosen(schema, columns)
            ids, bucket = _ids(chosen), bucket_of(row, self._buckets)

            def make(tablet_id: str) -> Request:
                return GetRow(
                    tablet_id,
                    schema.table_id,
                    bucket,
                    row,
                    ids,
                    schema.version,
                    asked.as_of,
                    asked.bound,
                    asked.begun,
                )

            reply, node = await self._read(self.name, bucket, make, TypedRowsReply, asked)
            found = next((_row(schema, chosen, found) for found in reply.rows), None)
            return ReadResult(found, reply.timestamp, node, reply.served or HowServed())

        return await self._under_schema(attempt)

    async def scan(
        self,
        prefix: Sequence[Value] = (),
        columns: Sequence[str] | None = None,
        page: int = 1_000,
        **wish: Unpack[ReadWish],
    ) -> ReadResult[list[Row]]:
        """The rows whose first key columns have the values of `prefix`, all without, in key order.

        Each page of each tablet is read at a time of its own, the answer tells the earliest; all at one where the read
        is as of a time or within a bound. Then the nodes that answered stand one after the other.
        """
        asked = WishedRead(wish)

        async def attempt(schema: TableSchemaReply) -> ReadResult[list[Row]]:
            try:
                first = encode_prefix(schema.columns, prefix)
            except InvalidSchema as error:
                raise DefiniteError("invalid", str(error)) from error
            pages = _Pages(schema, _chosen(schema, columns), first, page, asked)
            if asked.bounded:
                asked.exactly(await self._negotiated(pages))
            found = [await self._scan_bucket(pages, bucket) for bucket in range(self._buckets)]
            rows = [_row(schema, pages.columns, row) for row in merge(*found, key=lambda row: row.row)]
            nodes = dict.fromkeys(node for _, node in pages.replies)
            last = pages.replies[-1][0].served or HowServed()
            return ReadResult(rows, min(reply.timestamp for reply, _ in pages.replies), " ".join(nodes), last)

        return await self._under_schema(attempt)

    async def _negotiated(self, pages: _Pages) -> int:
        """The freshest time within the bound that every tablet can serve without waiting, as far as they know (R7)."""
        pages.asked.negotiating(True)
        told = [
            await self._read(self.name, bucket, pages.make(bucket, pages.first), TypedRowsReply, pages.asked)
            for bucket in range(self._buckets)
        ]
        return min(reply.timestamp for reply, _ in told)

    async def _scan_bucket(self, pages: _Pages, bucket: int) -> list[TypedRow]:
        first, found, more = pages.first, list[TypedRow](), True
        while more:
            made = pages.make(bucket, first)
            reply, node = await self._read(self.name, bucket, made, TypedRowsReply, pages.asked)
            pages.replies.append((reply, node))
            found.extend(reply.rows)
            more = reply.more
            first = found[-1].row + b"\x00" if more else first
        return found

    async def _under_schema(self, attempt: Callable[[TableSchemaReply], Awaitable[T]]) -> T:
        """Again under the schema of now, where what was known turns out to be old."""
        for _ in range(REFRESHES):
            known = self._schema
            try:
                return await attempt(known or await self.refresh())
            except DefiniteError as error:
                if error.kind not in MAY_BE_OLD or (known is None and error.kind == "unknown-column"):
                    raise
                self._schema = None
        return await attempt(await self.refresh())


def _is_key(schema: TableSchemaReply, name: str) -> bool:
    return any(column.key and column.name == name for column in schema.columns)


def _key(schema: TableSchemaReply, values: Mapping[str, Value]) -> bytes:
    try:
        return encode_key(schema.columns, values)
    except InvalidSchema as error:
        raise DefiniteError("invalid", str(error)) from error


def _named(schema: TableSchemaReply, name: str) -> Column:
    for column in schema.columns:
        if column.name == name:
            return column
    raise DefiniteError("unknown-column", f"the table {schema.name!r} has no column {name!r}")


def _cell(schema: TableSchemaReply, name: str, value: Value) -> tuple[int, Value]:
    column = _named(schema, name)
    if not fits(column, value):
        held = "null" if value is None else repr(value)
        raise DefiniteError("invalid", f"the column {name!r} is a {column.type} and can't hold {held}")
    return column.id, value


def _chosen(schema: TableSchemaReply, names: Sequence[str] | None) -> list[Column]:
    return list(schema.columns) if names is None else [_named(schema, name) for name in names]


def _ids(columns: Iterable[Column]) -> tuple[int, ...]:
    return tuple(column.id for column in columns if not column.key)


def _row(schema: TableSchemaReply, chosen: Sequence[Column], found: TypedRow) -> Row:
    keys = {
        column.name: value
        for column, value in zip(key_columns(schema.columns), decode_key(schema.columns, found.row), strict=True)
    }
    values = iter(found.values)
    return {column.name: keys[column.name] if column.key else next(values) for column in chosen}

"""Reads and changes of typed rows, addressed by their primary key (`cluster.store.schema`).

Columns are named by id. `schema_version` is that of the schema the client knows: a tablet that lacks a column which a
newer schema may have says SCHEMA_BEHIND, and one that a newer schema has dropped SCHEMA_CHANGED. So has a tablet whose
table is another one than `table_id`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, final

import msgspec

from cluster.store.cells import Value
from cluster.wire.nouns import RequestId
from cluster.wire.staleness import Bound, HowServed

RowChangeKind: TypeAlias = Literal["insert", "upsert", "update", "delete"]


@final
class ChangeRow(msgspec.Struct, frozen=True, tag=True):
    """Change one row; `cells` are columns that are no key, and their values.

    Answered by `Done`: `insert` is not applied where the row is there, `update` and `delete` where it isn't. A row that
    is inserted gets the defaults of columns that are not named. With a `transaction` it is laid for that, as by
    `HoldCells`, and written when that is settled.
    """

    request_id: RequestId
    tablet_id: str
    table_id: str
    partition: int
    row: bytes
    kind: RowChangeKind
    cells: tuple[tuple[int, Value], ...]
    schema_version: int
    requested: int | None = None
    transaction: str | msgspec.UnsetType = msgspec.UNSET


class GetRow(msgspec.Struct, frozen=True, tag=True):
    """A read of one row; the time is chosen as by `ReadCell`. Answered by `TypedRowsReply`."""

    tablet_id: str
    table_id: str
    partition: int
    row: bytes
    columns: tuple[int, ...]
    schema_version: int
    as_of: int | None = None
    bound: Bound | msgspec.UnsetType = msgspec.UNSET
    begun: int | msgspec.UnsetType = msgspec.UNSET


class ScanRows(msgspec.Struct, frozen=True, tag=True):
    """A read of the tablet's rows from `first` (inclusive) to `last` (exclusive; None is the end), in key order.

    All at one time, which is chosen as by `ReadCell`; at most `limit`.
    """

    tablet_id: str
    table_id: str
    partition: int
    first: bytes
    last: bytes | None
    columns: tuple[int, ...]
    schema_version: int
    limit: int = 1_000
    as_of: int | None = None
    bound: Bound | msgspec.UnsetType = msgspec.UNSET
    begun: int | msgspec.UnsetType = msgspec.UNSET


class TypedRow(msgspec.Struct, frozen=True, array_like=True):
    """A row's key, and its values of the columns that were asked for, in that order."""

    row: bytes
    values: tuple[Value, ...]


class TypedRowsReply(msgspec.Struct, frozen=True, tag=True):
    """The rows that there are, and the HLC timestamp the read was served at; `more`: the limit cut it off."""

    rows: tuple[TypedRow, ...]
    timestamp: int
    schema_version: int
    more: bool = False
    served: HowServed | msgspec.UnsetType = msgspec.UNSET


TypedRequest: TypeAlias = ChangeRow | GetRow | ScanRows

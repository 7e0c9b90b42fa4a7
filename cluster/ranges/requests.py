"""What a request of a table's rows touches, what is wrong with it, and what it comes to on a state (G2). Pure.

A typed row is there if its marker is, a cell of its own. Every change of a row writes the marker, so that the marker
stands for the row: latches, timestamp cache and newest versions need look at nothing else. Which cells a change writes
is decided by the schema in force when it is evaluated: a row that is inserted then gets a cell for every column that
has a default. A cell that was never written belongs to a row older than its column, and reads the column's default.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from cluster.ranges.tablet import AlterSchema, Put, TabletMachine
from cluster.store.cells import Key, Span, Value, is_value, point, rows, same_value
from cluster.store.schema import Column, InvalidSchema, decode_key, fits
from cluster.wire.messages import (
    Cell,
    CompareAndSet,
    Done,
    ErrorReply,
    HoldCells,
    ReadCell,
    ReadReply,
    ReadRows,
    RowsReply,
    SettleHold,
    WriteCell,
    WriteCells,
)
from cluster.wire.rows import ChangeRow, GetRow, ScanRows, TypedRow, TypedRowsReply

Change: TypeAlias = WriteCell | WriteCells | CompareAndSet | ChangeRow | HoldCells | SettleHold
Read: TypeAlias = ReadCell | ReadRows | GetRow | ScanRows
ReadAnswer: TypeAlias = ReadReply | RowsReply | TypedRowsReply | ErrorReply

MARKER = -1
"""The marker's column."""


def marker_of(request: ChangeRow | GetRow) -> Key:
    return request.partition, request.row, MARKER


def scanned(scan: ScanRows) -> Span:
    """What a scan touches: every row of the span, there or not."""
    last = (scan.partition, scan.last, MARKER) if scan.last is not None else (scan.partition + 1, b"", MARKER)
    return (scan.partition, scan.first, MARKER), last


# ---- changes ----


def problem(puts: tuple[Put, ...]) -> str | None:
    """Why a change that writes these can't be carried out on any state; None if it can."""
    if not puts:
        return "a change has to write something"
    for put in puts:
        if not is_value(put.value):
            return "a value must be null, a boolean, a number, text or bytes"
    if len(puts) > 1 and len(dict.fromkeys(put.key for put in puts)) < len(puts):
        return "a cell can't be written twice by one change"
    return None


def puts_of(change: Change) -> tuple[Put, ...]:
    """What it writes, if it writes; of a typed row its marker, which stands for all."""
    partition = change.partition
    if type(change) is WriteCells or type(change) is HoldCells:
        return tuple(Put((partition, cell.row, cell.column), cell.value) for cell in change.cells)
    if type(change) is ChangeRow:
        return (Put(marker_of(change), True),)
    assert type(change) is not SettleHold, "what is held is known to the state"
    return (Put((partition, change.row, change.column), change.value),)


def laid_for(change: Change) -> str | None:
    """The transaction for which a change is laid, to be written when that is settled; None if it is written now."""
    if type(change) is HoldCells:
        return change.transaction
    if type(change) is ChangeRow and change.transaction is not msgspec.UNSET:
        return change.transaction
    return None


def points_of(puts: tuple[Put, ...]) -> tuple[Span, ...]:
    """What a change that writes these touches."""
    return tuple([point(put.key) for put in puts])


def decide(change: Change, puts: tuple[Put, ...], state: TabletMachine, timestamp: int) -> tuple[tuple[Put, ...], Done]:
    """Which of its `puts` it writes on this state at `timestamp`, all or none, and its answer."""
    if type(change) is CompareAndSet:
        version = state.read(change.cell)
        found = None if version is None else version.value
        if not same_value(found, change.expected):
            return (), Done(applied=False, found=found, timestamp=timestamp)
    elif type(change) is ChangeRow:
        return decide_row(change, state, timestamp)
    return puts, Done(applied=True, found=None, timestamp=timestamp)


# ---- reads ----


def bad_bound(read: Read) -> ErrorReply | None:
    """Why a read's time can't be chosen anywhere; None if it can."""
    bound = read.bound
    if bound is msgspec.UNSET:
        return None
    given = (read.as_of, bound.min_timestamp, bound.max_staleness, True if bound.anywhere else None)
    if sum(each is not None for each in given) > 1:
        return ErrorReply("TWO_BOUNDS", "a read has one time, one bound, or is strong", definite=True)
    if (bound.min_timestamp or 0) < 0 or (bound.max_staleness or 0) < 0:
        return ErrorReply("NEGATIVE_BOUND", "a bound lies below 0", definite=True)
    return None


def asked_time(read: Read) -> int:
    """The time that a read has to be served at, or the least where it has a bound, once that is fixed."""
    if read.as_of is not None:
        return read.as_of
    return 0 if read.bound is msgspec.UNSET else read.bound.min_timestamp or 0


def is_strong(read: Read) -> bool:
    """Whether it has to find all that was acknowledged before it began."""
    return read.as_of is None and (read.bound is msgspec.UNSET or read.bound.anywhere)


def is_plain(read: Read) -> bool:
    """Whether it is strong, and not wished to be served in a certain way."""
    return read.as_of is None and read.bound is msgspec.UNSET


def by_the_clock(read: Read) -> bool:
    """Whether its time depends on the clock of who is asked first."""
    bounded = read.bound is not msgspec.UNSET and read.bound.max_staleness is not None
    return bounded or (read.as_of is not None and read.as_of < 0)


def with_time_fixed(read: Read, now: int) -> Read:
    """With its time told by what the clock shows to whom is asked first."""
    if read.as_of is not None and read.as_of < 0:
        return msgspec.structs.replace(read, as_of=max(0, now + read.as_of))
    if read.bound is msgspec.UNSET or read.bound.max_staleness is None:
        return read
    least = max(0, now - read.bound.max_staleness)
    return msgspec.structs.replace(
        read, bound=msgspec.structs.replace(read.bound, min_timestamp=least, max_staleness=None)
    )


def nothing(read: Read, timestamp: int) -> ReadReply | RowsReply | TypedRowsReply:
    """The answer to a read that only asks for a time: this one."""
    if isinstance(read, ReadCell):
        return ReadReply(None, timestamp)
    return RowsReply((), timestamp) if isinstance(read, ReadRows) else TypedRowsReply((), timestamp, 0)


def is_bounded(read: Read) -> bool:
    """Whether its time is to be chosen, as fresh as can be, no lower than `asked_time`."""
    return read.bound is not msgspec.UNSET and not read.bound.anywhere


def spans_of(read: Read) -> tuple[Span, ...]:
    """What it touches."""
    if isinstance(read, ReadCell):
        return (point((read.partition, read.row, read.column)),)
    if isinstance(read, GetRow):
        return (point(marker_of(read)),)
    if isinstance(read, ScanRows):
        return (scanned(read),)
    return tuple(rows(read.partition, each.first, each.last) for each in read.ranges)


def carry_out(read: Read, spans: tuple[Span, ...], versions: TabletMachine, timestamp: int) -> ReadAnswer:
    """What it finds at `timestamp`; `spans` is what it touches."""
    if isinstance(read, ReadCell):
        version = versions.read(spans[0][0], timestamp)
        return ReadReply(None if version is None else version.value, timestamp)
    if isinstance(read, GetRow):
        return get_row(read, versions, timestamp)
    if isinstance(read, ScanRows):
        return scan_rows(read, versions, timestamp)
    found = [cell for span in spans for cell in versions.scan(span, timestamp)]
    return RowsReply(tuple(Cell(_number(key), key[2], version.value) for key, version in found), timestamp)


def _number(key: Key) -> int:
    assert isinstance(key[1], int), "a table is addressed by integers or by keys"
    return key[1]


# ---- changes of rows ----


def row_refusal(change: ChangeRow, schema: AlterSchema) -> ErrorReply | None:
    """Why a change can't be carried out under this schema; None if it can."""
    by_id = {column.id: column for column in schema.columns}
    refused = _unknown([each for each, _ in change.cells if each not in by_id], change.schema_version, schema)
    if refused is not None:
        return refused
    problem = _problem(change, by_id)
    if problem is None and change.kind in ("insert", "upsert"):
        needed = _needed(change, schema)
        if needed is not None and change.schema_version > schema.version:
            return _behind(change.schema_version, schema)
        problem = needed
    return None if problem is None else ErrorReply("INVALID", problem, definite=True)


def decide_row(change: ChangeRow, state: TabletMachine, timestamp: int) -> tuple[tuple[Put, ...], Done]:
    """What it writes on this state at `timestamp`, and its answer."""
    marker = marker_of(change)
    version = state.read(marker)
    present = version is not None and version.value is not None
    if present if change.kind == "insert" else not present and change.kind != "upsert":
        return (), Done(applied=False, found=None, timestamp=timestamp)
    cells = dict(change.cells)
    if change.kind == "delete":
        cells = {column.id: None for column in schema_cells(state.schema_in_force)}
    elif not present:
        cells = {column.id: cells.get(column.id, column.default) for column in schema_cells(state.schema_in_force)}
    puts = [Put(marker, None if change.kind == "delete" else True)]
    for column in schema_cells(state.schema_in_force):
        key = (change.partition, change.row, column.id)
        if column.id in cells and _needs_cell(column, key, cells[column.id], state):
            puts.append(Put(key, cells[column.id]))
    return tuple(puts), Done(applied=True, found=None, timestamp=timestamp)


def schema_cells(schema: AlterSchema) -> Iterator[Column]:
    """The columns that have cells: keys have none."""
    return (column for column in schema.columns if not column.key)


def _needs_cell(column: Column, key: Key, value: Value, state: TabletMachine) -> bool:
    """A null needs none where there is none: it reads null anyway, unless the column has a default."""
    return value is not None or column.default is not None or state.read(key) is not None


def _problem(change: ChangeRow, by_id: dict[int, Column]) -> str | None:
    try:
        decode_key(list(by_id.values()), change.row)
    except InvalidSchema as error:
        return str(error)
    if len({each: None for each, _ in change.cells}) < len(change.cells):
        return "a column can't be given twice by one change"
    for each, value in change.cells:
        column = by_id[each]
        if column.key:
            return f"the key column {column.name!r} can't be changed"
        if not fits(column, value):
            held = "null" if value is None else repr(value)
            return f"the column {column.name!r} is a {column.type} and can't hold {held}"
    return None


def _needed(change: ChangeRow, schema: AlterSchema) -> str | None:
    given = dict(change.cells)
    for column in schema_cells(schema):
        if not column.nullable and column.default is None and column.id not in given:
            return f"the column {column.name!r} needs a value"
    return None


def _unknown(ids: list[int], version: int, schema: AlterSchema) -> ErrorReply | None:
    """What to say of columns that this tablet does not have: it may be behind, or the client."""
    if not ids:
        return None
    if version > schema.version:
        return _behind(version, schema)
    message = f"the column {ids[0]} is gone since version {version} of the schema; it is {schema.version} now"
    return ErrorReply("SCHEMA_CHANGED", message, definite=True)


def _behind(version: int, schema: AlterSchema) -> ErrorReply:
    message = f"this tablet has version {schema.version} of the schema, and not yet {version}"
    return ErrorReply("SCHEMA_BEHIND", message, definite=True)


# ---- reads of rows ----


def get_row(read: GetRow, versions: TabletMachine, timestamp: int) -> TypedRowsReply | ErrorReply:
    """The row at `timestamp`, if it is there."""
    schema = versions.schema_in_force
    columns = _columns(read.columns, read.schema_version, schema)
    if isinstance(columns, ErrorReply):
        return columns
    marker = versions.read(marker_of(read), timestamp)
    if marker is None or marker.value is None:
        return TypedRowsReply((), timestamp, schema.version)
    values = tuple(_value(column, (read.partition, read.row, column.id), versions, timestamp) for column in columns)
    return TypedRowsReply((TypedRow(read.row, values),), timestamp, schema.version)


def scan_rows(read: ScanRows, versions: TabletMachine, timestamp: int) -> TypedRowsReply | ErrorReply:
    """The rows of the span at `timestamp`, in order."""
    schema = versions.schema_in_force
    columns = _columns(read.columns, read.schema_version, schema)
    if isinstance(columns, ErrorReply):
        return columns
    cells = dict(versions.scan(scanned(read), timestamp))
    present = [key for key in cells if key[2] == MARKER]
    rows = []
    for partition, row, _ in present[: read.limit]:
        assert isinstance(row, bytes)
        values = []
        for column in columns:
            key = (partition, row, column.id)
            found = cells.get(key)
            values.append(found.value if found is not None else _value(column, key, versions, timestamp))
        rows.append(TypedRow(row, tuple(values)))
    return TypedRowsReply(tuple(rows), timestamp, schema.version, len(present) > len(rows))


def _columns(ids: tuple[int, ...], version: int, schema: AlterSchema) -> list[Column] | ErrorReply:
    by_id = {column.id: column for column in schema_cells(schema)}
    refused = _unknown([each for each in ids if each not in by_id], version, schema)
    return refused if refused is not None else [by_id[each] for each in ids]


def _value(column: Column, key: Key, versions: TabletMachine, timestamp: int) -> Value:
    """A null that was written is null; what was never written is the default of a column younger than its row."""
    version = versions.read(key, timestamp)
    return column.default if version is None else version.value

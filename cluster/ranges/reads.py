"""What a read touches, and what it finds at its timestamp. Pure."""

from __future__ import annotations

from typing import TypeAlias

from cluster.ranges import rows as typed
from cluster.ranges.rows import RowVersions
from cluster.store.cells import Key, Span, point, rows
from cluster.wire.messages import Cell, ErrorReply, ReadCell, ReadReply, ReadRows, RowsReply
from cluster.wire.rows import GetRow, ScanRows, TypedRowsReply

Read: TypeAlias = ReadCell | ReadRows | GetRow | ScanRows


def spans_of(read: Read) -> tuple[Span, ...]:
    """What it touches."""
    if isinstance(read, ReadCell):
        return (point((read.partition, read.row, read.column)),)
    if isinstance(read, GetRow):
        return (point(typed.marker_of(read)),)
    if isinstance(read, ScanRows):
        return (typed.scanned(read),)
    return tuple(rows(read.partition, each.first, each.last) for each in read.ranges)


def carry_out(
    read: Read, spans: tuple[Span, ...], versions: RowVersions, timestamp: int
) -> ReadReply | RowsReply | TypedRowsReply | ErrorReply:
    """What it finds at `timestamp`; `spans` is what it touches."""
    if isinstance(read, ReadCell):
        version = versions.read(spans[0][0], timestamp)
        return ReadReply(None if version is None else version.value, timestamp)
    if isinstance(read, GetRow):
        return typed.get(read, versions, timestamp)
    if isinstance(read, ScanRows):
        return typed.scan(read, versions, timestamp)
    found = [cell for span in spans for cell in versions.scan(span, timestamp)]
    return RowsReply(tuple(Cell(_number(key), key[2], version.value) for key, version in found), timestamp)


def _number(key: Key) -> int:
    assert isinstance(key[1], int), "a table is addressed by integers or by keys"
    return key[1]

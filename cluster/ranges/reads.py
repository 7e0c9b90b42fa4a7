"""What a read touches, and what it finds at its timestamp. Pure."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from cluster.store.cells import Key, Span, point, rows
from cluster.store.mvcc import Version
from cluster.wire.messages import Cell, ReadReply, ReadRow, ReadRows, RowsReply

Read: TypeAlias = ReadRow | ReadRows


class Versions(Protocol):
    """The part of a range's state that reads look at."""

    def read(self, key: Key, as_of: int) -> Version | None:
        """The version of a cell in force at `as_of`."""

    def scan(self, span: Span, as_of: int) -> list[tuple[Key, Version]]:
        """The cells of a span in force at `as_of`, in order."""


def spans_of(read: Read) -> tuple[Span, ...]:
    """What it touches."""
    if isinstance(read, ReadRow):
        return (point((read.partition, read.row, read.column)),)
    return tuple(rows(read.partition, each.first, each.last) for each in read.ranges)


def carry_out(read: Read, versions: Versions, timestamp: int) -> ReadReply | RowsReply:
    """What it finds at `timestamp`."""
    if isinstance(read, ReadRow):
        version = versions.read((read.partition, read.row, read.column), timestamp)
        return ReadReply(None if version is None else version.value, timestamp)
    found = [cell for span in spans_of(read) for cell in versions.scan(span, timestamp)]
    return RowsReply(tuple(Cell(key[1], key[2], version.value) for key, version in found), timestamp)

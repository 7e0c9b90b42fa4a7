"""Mutations of one partition, as a client states them and as they are sent and stored (Q1). Pure.

A mutation is a partition's key and what is written there: contents like any others, so that applying one is merging.
Its timestamp is the client's. Bytes begin with the format version.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from cluster.log.frames import OtherVersion
from cluster.quorum.deletions import Deletion, RangeDeletion, add_range, joined
from cluster.quorum.keys import ABOVE, KeyBytes, KeySpan
from cluster.quorum.rows import (
    PartitionContents,
    QuorumCell,
    QuorumRow,
    canonical,
    deletions_in,
    merge_rows,
    timestamps_of,
)
from cluster.store.cells import Value, is_value
from harness.errors import UNDECODABLE

T = TypeVar("T")

QUORUM_FORMAT = 1
"""Version of the encodings of mutations, slices and pages."""

_WORD = 1 << 63


class InvalidMutation(ValueError):
    """A mutation that no replica can take, in one sentence."""


class PartitionMutation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is written to one partition: all of it becomes visible at once."""

    partition: KeyBytes
    contents: PartitionContents


@dataclass(slots=True)
class MutationBuilder:
    """Gathers what one write says; the same timestamp for all of it, and the coordinator's clock for its deletions.

    Within one mutation a deletion wins over what it covers, as at any tie: statements in whatever order are one write.
    """

    partition: KeyBytes
    timestamp: int
    local_time_ms: int
    _deletion: Deletion | None = None
    _ranges: list[RangeDeletion] = field(default_factory=list)
    _rows: dict[KeyBytes, QuorumRow] = field(default_factory=dict)

    def write(self, key: KeyBytes, values: Mapping[int, Value], insert: bool = True) -> MutationBuilder:
        """Write cells of a row, by column; None deletes one. `insert` makes the row exist without any."""
        cells = tuple([self._cell(column, values[column]) for column in sorted(values)])
        return self._add(QuorumRow(key, cells, self.timestamp if insert else None))

    def delete_row(self, key: KeyBytes) -> MutationBuilder:
        """Delete a row."""
        return self._add(QuorumRow(key, (), None, self._deleted))

    def delete_range(self, span: KeySpan) -> MutationBuilder:
        """Delete all rows of a span."""
        add_range(self._ranges, RangeDeletion(*span, self._deleted))
        return self

    def delete_partition(self) -> MutationBuilder:
        """Delete everything that the partition holds."""
        self._deletion = self._deleted
        return self

    def build(self) -> PartitionMutation:
        """All that was said so far, as one mutation."""
        rows = [self._rows[key] for key in sorted(self._rows)]
        return PartitionMutation(self.partition, canonical(self._deletion, self._ranges, rows))

    @property
    def _deleted(self) -> Deletion:
        return Deletion(self.timestamp, self.local_time_ms)

    def _cell(self, column: int, value: Value) -> QuorumCell:
        return QuorumCell(column, self.timestamp, value, self.local_time_ms if value is None else 0)

    def _add(self, row: QuorumRow) -> MutationBuilder:
        if row.silent:
            return self
        old = self._rows.get(row.key)
        self._rows[row.key] = row if old is None else merge_rows(old, row)
        return self


def stamped(mutation: PartitionMutation, local_time_ms: int) -> PartitionMutation:
    """The mutation with its deletions taken at this time: that of whoever coordinates it, not of its client (Q8)."""

    def cell(each: QuorumCell) -> QuorumCell:
        return each if each.live else QuorumCell(each.column, each.timestamp, None, local_time_ms)

    return _rewritten(mutation, cell, lambda each: Deletion(each.timestamp, local_time_ms), lambda marker: marker)


def as_new(mutation: PartitionMutation, timestamp: int) -> PartitionMutation:
    """The mutation as if it were written at this time: every timestamp in it is replaced."""

    def cell(each: QuorumCell) -> QuorumCell:
        return QuorumCell(each.column, timestamp, each.value, each.local_time_ms)

    return _rewritten(mutation, cell, lambda each: Deletion(timestamp, each.local_time_ms), lambda _: timestamp)


def _rewritten(
    mutation: PartitionMutation,
    cell: Callable[[QuorumCell], QuorumCell],
    deletion: Callable[[Deletion], Deletion],
    marker: Callable[[int], int],
) -> PartitionMutation:
    """The mutation with each cell, deletion and marker in it replaced; ranges may join by that."""

    def taken(each: Deletion | None) -> Deletion | None:
        return None if each is None else deletion(each)

    contents = mutation.contents
    rows = [
        QuorumRow(
            row.key,
            tuple([cell(each) for each in row.cells]),
            None if row.marker is None else marker(row.marker),
            taken(row.deletion),
        )
        for row in contents.rows
    ]
    ranges = joined(RangeDeletion(each.start, each.end, deletion(each.deletion)) for each in contents.ranges)
    return PartitionMutation(mutation.partition, canonical(taken(contents.deletion), ranges, rows))


def deletes(mutation: PartitionMutation) -> bool:
    """Whether anything in it is a deletion."""
    contents = mutation.contents
    if contents.deletion is not None or contents.ranges:
        return True
    return any(row.deletion is not None or not all(cell.live for cell in row.cells) for row in contents.rows)


# ---- checking what others sent ----


def check_mutation(mutation: PartitionMutation) -> None:
    """Raises InvalidMutation unless the contents are canonical and of types and bounds that can be stored."""
    contents = mutation.contents
    if contents.empty:
        raise InvalidMutation("the mutation writes nothing")
    if not _rises(row.key for row in contents.rows) or not _are_disjoint(contents.ranges):
        raise InvalidMutation("rows or ranges are out of order")
    for row in contents.rows:
        if row.silent:
            raise InvalidMutation("a row says nothing")
        if not _rises(cell.column for cell in row.cells) or not all(is_value(cell.value) for cell in row.cells):
            raise InvalidMutation("the cells of a row are out of order or hold what no cell can")
    if not all(-_WORD <= number < _WORD for number in _numbers(contents)):
        raise InvalidMutation("a timestamp has more than 64 bits")
    if canonical(contents.deletion, contents.ranges, contents.rows) != contents:
        raise InvalidMutation("the mutation holds what its own deletions cover")


def _rises(keys: Iterable[KeyBytes] | Iterable[int]) -> bool:
    listed: list[KeyBytes | int] = list(keys)
    return all(one < other for one, other in itertools.pairwise(listed))  # type: ignore[operator]


def _are_disjoint(ranges: tuple[RangeDeletion, ...]) -> bool:
    pairs = itertools.pairwise(ranges)
    return all(each.start < each.end <= ABOVE for each in ranges) and all(one.end <= two.start for one, two in pairs)


def _numbers(contents: PartitionContents) -> Iterator[int]:
    yield from timestamps_of(contents)
    for deletion in deletions_in(contents):
        yield deletion.local_time_ms
    for row in contents.rows:
        for cell in row.cells:
            yield from (cell.column, cell.local_time_ms)


# ---- bytes ----

_encode = msgspec.msgpack.Encoder().encode
_mutations = msgspec.msgpack.Decoder(PartitionMutation)


class _MutationHead(msgspec.Struct, frozen=True, array_like=True):
    """The beginning of an encoded `PartitionMutation`."""

    partition: KeyBytes


_heads = msgspec.msgpack.Decoder(_MutationHead)


def encode_mutation(mutation: PartitionMutation) -> bytes:
    """For the wire, the log and hints."""
    return encode_versioned(mutation)


def decode_mutation(data: bytes) -> PartitionMutation:
    """The mutation in these bytes, unchecked; raises OtherVersion, InvalidMutation."""
    return _decoded(_mutations, data)


def partition_in(data: bytes) -> KeyBytes:
    """The partition of the mutation in these bytes, of which nothing else is decoded; raises like `decode_mutation`."""
    return _decoded(_heads, data).partition


def _decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    try:
        return decode_versioned(decoder, data)
    except UNDECODABLE as error:
        raise InvalidMutation(f"these bytes are no mutation: {error}") from error


def encode_versioned(item: msgspec.Struct) -> bytes:
    """MessagePack behind a byte that says which format it has."""
    return bytes((QUORUM_FORMAT,)) + _encode(item)


def decode_versioned(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    """What `encode_versioned` made bytes of; raises OtherVersion, msgspec.MsgspecError."""
    if data[:1] != bytes((QUORUM_FORMAT,)):
        raise OtherVersion(f"the bytes have format {data[:1].hex() or 'none'}; this program reads {QUORUM_FORMAT}")
    return decoder.decode(memoryview(data)[1:])

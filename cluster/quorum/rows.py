"""Rows of a quorum partition and how they merge: last write wins, cell by cell (Q1). Pure.

`merge_contents` is associative, commutative and idempotent, and its results are canonical: contents that mean the same
are equal. Of two writes of a cell the greater timestamp wins; at one timestamp a deletion wins, then the greater value,
as in Cassandra. What a deletion covers is dropped in its presence, so that nothing shadowed is kept or sent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import attrgetter

import msgspec

from cluster.quorum.deletions import Deletion, RangeDeletion, clip_ranges, covering, joined, latest, merge_ranges
from cluster.quorum.keys import KeyBytes, encode_key
from cluster.store.cells import Value


class QuorumCell(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One write of one cell; without a value it deletes the cell, and `local_time_ms` is its coordinator's clock."""

    column: int
    timestamp: int
    value: Value
    local_time_ms: int = 0

    @property
    def live(self) -> bool:
        """Whether it holds a value."""
        return self.value is not None


class QuorumRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is known of one row: cells by column, rising; `marker` is the timestamp of its insertion, if it has one."""

    key: KeyBytes
    cells: tuple[QuorumCell, ...]
    marker: int | None = None
    deletion: Deletion | None = None

    @property
    def live(self) -> bool:
        """Whether readers see the row: it was inserted, or one of its cells has a value."""
        return self.marker is not None or any(cell.value is not None for cell in self.cells)

    @property
    def silent(self) -> bool:
        """Whether nothing is known of it, so that contents have no place for it."""
        return not self.cells and self.marker is None and self.deletion is None


class PartitionContents(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is known of a partition, or of a part of it: a deletion of all, ranges of deletions, rows by key, rising.

    Canonical: see `merge_contents` and `cluster.quorum.deletions`. Nothing in it is covered by another part of it.
    """

    deletion: Deletion | None = None
    ranges: tuple[RangeDeletion, ...] = ()
    rows: tuple[QuorumRow, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing is known, not even a deletion."""
        return self.deletion is None and not self.ranges and not self.rows


NOTHING = PartitionContents()
_key = attrgetter("key")


def supersedes(new: QuorumCell, old: QuorumCell) -> bool:
    """Whether the first of two writes of a cell wins, and they differ."""
    if new.timestamp != old.timestamp:
        return new.timestamp > old.timestamp
    if new.value is None or old.value is None:
        # A deletion wins a tie; of two, that which is kept longer.
        return new.value is None and (old.value is not None or new.local_time_ms > old.local_time_ms)
    return encode_key((new.value,)) > encode_key((old.value,))


def merge_rows(one: QuorumRow, other: QuorumRow) -> QuorumRow:
    """Both writes of one row; what its own deletion covers is gone."""
    cells = {cell.column: cell for cell in one.cells}
    for cell in other.cells:
        old = cells.get(cell.column)
        if old is None or supersedes(cell, old):
            cells[cell.column] = cell
    merged = tuple([cells[column] for column in sorted(cells)])
    marker = max((mark for mark in (one.marker, other.marker) if mark is not None), default=None)
    deletion = latest(one.deletion, other.deletion)
    row = QuorumRow(one.key, merged, marker, deletion)
    return row if deletion is None else _without_covered(row, deletion)


def uncovered(row: QuorumRow, cover: Deletion | None) -> QuorumRow | None:
    """What a deletion of more than the row leaves of it; None if that is nothing."""
    if cover is None:
        return row
    if row.deletion is not None and row.deletion <= cover:
        row = QuorumRow(row.key, row.cells, row.marker, None)
    row = _without_covered(row, cover)
    return None if row.silent else row


def _without_covered(row: QuorumRow, cover: Deletion) -> QuorumRow:
    bound = cover.timestamp
    if (row.marker is None or row.marker > bound) and all(cell.timestamp > bound for cell in row.cells):
        return row
    marker = row.marker if row.marker is not None and row.marker > bound else None
    return QuorumRow(row.key, tuple([cell for cell in row.cells if cell.timestamp > bound]), marker, row.deletion)


def merge_contents(contents: Sequence[PartitionContents]) -> PartitionContents:
    """Everything that any of several canonical contents knows, canonical."""
    if len(contents) == 1:
        return contents[0]
    deletion: Deletion | None = None
    rows: dict[KeyBytes, QuorumRow] = {}
    for each in contents:
        deletion = latest(deletion, each.deletion)
        for row in each.rows:
            old = rows.get(row.key)
            rows[row.key] = row if old is None else merge_rows(old, row)
    ranges = merge_ranges([each.ranges for each in contents if each.ranges])
    return canonical(deletion, ranges, [rows[key] for key in sorted(rows)])


def canonical(
    deletion: Deletion | None, ranges: Sequence[RangeDeletion], rows: Sequence[QuorumRow]
) -> PartitionContents:
    """Contents of which nothing is covered by a deletion among them; ranges are a canonical list, rows sorted."""
    if deletion is not None:
        ranges = [each for each in ranges if each.deletion > deletion]
    if deletion is not None or ranges:
        cover = covering(ranges, deletion)
        left = [uncovered(row, cover(row.key)) for row in rows]
        rows = [row for row in left if row is not None]
    return PartitionContents(deletion, tuple(ranges), tuple(rows))


def clip_contents(contents: PartitionContents, start: KeyBytes, end: KeyBytes) -> PartitionContents:
    """The part of it that lies in a span; a deletion of the whole partition stays."""
    rows = contents.rows
    low, high = bisect_left(rows, start, key=_key), bisect_left(rows, end, key=_key)
    ranges = tuple(clip_ranges(contents.ranges, start, end)) if contents.ranges else ()
    return PartitionContents(contents.deletion, ranges, rows[low:high])


def join_contents(pieces: Sequence[PartitionContents]) -> PartitionContents:
    """Contents of spans that follow each other, as one; they agree on the deletion of the partition."""
    if len(pieces) == 1:
        return pieces[0]
    deletion: Deletion | None = None
    for each in pieces:
        deletion = latest(deletion, each.deletion)
    ranges = joined(each for piece in pieces for each in piece.ranges)
    return PartitionContents(deletion, tuple(ranges), tuple([row for piece in pieces for row in piece.rows]))


def without_deletions(contents: PartitionContents, unneeded: Callable[[Deletion], bool]) -> PartitionContents:
    """Canonical contents less the deletions that nobody needs any more, those of cells included.

    Nothing that they covered is left in canonical contents; the caller knows that nothing is left elsewhere.
    """
    deletion = contents.deletion
    if deletion is not None and unneeded(deletion):
        deletion = None
    ranges = tuple([each for each in contents.ranges if not unneeded(each.deletion)])
    rows = [_row_without(row, unneeded) for row in contents.rows]
    return PartitionContents(deletion, ranges, tuple([row for row in rows if row is not None]))


def _row_without(row: QuorumRow, unneeded: Callable[[Deletion], bool]) -> QuorumRow | None:
    if row.deletion is None and all(cell.value is not None for cell in row.cells):
        return row
    deletion = row.deletion if row.deletion is not None and not unneeded(row.deletion) else None
    cells = tuple([cell for cell in row.cells if cell.value is not None or not unneeded(deletion_of(cell))])
    left = QuorumRow(row.key, cells, row.marker, deletion)
    return None if left.silent else left


def deletion_of(cell: QuorumCell) -> Deletion:
    """What a cell without a value is."""
    return Deletion(cell.timestamp, cell.local_time_ms)


def deletions_in(contents: PartitionContents) -> list[Deletion]:
    """Every deletion in it but those of cells: of the partition, of ranges, of rows."""
    found = [contents.deletion, *[each.deletion for each in contents.ranges], *[row.deletion for row in contents.rows]]
    return [each for each in found if each is not None]


def timestamps_of(contents: PartitionContents) -> list[int]:
    """Every timestamp in it: of deletions, cells and markers."""
    found = [each.timestamp for each in deletions_in(contents)]
    for row in contents.rows:
        found += [cell.timestamp for cell in row.cells]
        if row.marker is not None:
            found.append(row.marker)
    return found


def oldest_timestamp(contents: PartitionContents) -> int | None:
    """The lowest timestamp in it; None where it is empty."""
    return min(timestamps_of(contents), default=None)

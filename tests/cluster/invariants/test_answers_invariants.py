"""Changes and reads of a range are what their requests come to at their place of the log, or an invariant breaks."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from watched_cluster import GROUP, Cluster

from cluster.invariants.answers import ANSWERED, CLOSED_BELOW, EXCLUSIVE, READS_FOUND, RECOMPUTED, ShadowCells
from cluster.observer import Observer
from cluster.ranges.lease_record import Lease
from cluster.ranges.requests import MARKER, Change, Read, ReadAnswer, spans_of
from cluster.ranges.tablet import Put, WriteBatch
from cluster.store.cells import Key, Value, point
from cluster.store.hlc import ClockReading, Timestamp
from cluster.wire.messages import (
    Cell,
    CompareAndSet,
    Done,
    ErrorReply,
    ReadCell,
    ReadReply,
    ReadRows,
    RequestId,
    RowRange,
    RowsReply,
    WriteCell,
    WriteCells,
    encode,
)
from cluster.wire.rows import ChangeRow, GetRow, ScanRows, TypedRow, TypedRowsReply

CELL: Key = (0, 1, 0)
ROW = b"r"
MARK: Key = (0, ROW, MARKER)


def name(sequence: int) -> RequestId:
    return RequestId(1, sequence, 0)


def write(value: Value, sequence: int = 1) -> WriteCell:
    return WriteCell(name(sequence), GROUP, *CELL, value)


def swap(expected: Value, value: Value, sequence: int = 1) -> CompareAndSet:
    return CompareAndSet(name(sequence), GROUP, *CELL, expected, value)


def change_row(kind: str, *cells: tuple[int, Value], sequence: int = 1) -> ChangeRow:
    return ChangeRow(name(sequence), GROUP, "table", 0, ROW, kind, cells, 1)  # type: ignore[arg-type]


def batch(change: Change, timestamp: int, done: Done | bool, puts: dict[Key, Value]) -> WriteBatch:
    told = Done(done, None, timestamp) if isinstance(done, bool) else done
    written = tuple(Put(key, value) for key, value in puts.items())
    return WriteBatch(change.request_id, 1, timestamp, 0, ClockReading(timestamp), 100, written, encode(told))


def carry_out(observer: Observer, change: Change, timestamp: int, done: Done | bool, puts: dict[Key, Value]) -> None:
    """Evaluated, placed, applied and answered."""
    observer.change_begun(GROUP, change, [point(key) for key in puts or {CELL: None}], timestamp)
    made = batch(change, timestamp, done, puts)
    observer.timestamp_closed(GROUP, 1, 0, None, change.request_id)
    observer.batch_applied(GROUP, made, 0)
    observer.change_ended(GROUP, change.request_id)
    observer.change_answered(GROUP, change.request_id, made.answer)


COMES_TO: list[tuple[Change, Done | bool, dict[Key, Value], bool]] = [
    (write(8), True, {CELL: 8}, True),
    (write(8), True, {CELL: 9}, False),
    (write(8), True, {(0, 2, 0): 8}, False),
    (write(8), False, {}, False),
    (swap(7, 8), True, {CELL: 8}, True),
    (swap(7.0, 8), True, {CELL: 8}, False),
    (swap(6, 8), Done(False, 7, 20), {}, True),
    (swap(6, 8), Done(False, 6, 20), {}, False),
    (swap(6, 8), Done(False, 7, 20), {CELL: 8}, False),
    (WriteCells(name(1), GROUP, 0, (Cell(1, 0, 8), Cell(2, 0, 9))), True, {CELL: 8, (0, 2, 0): 9}, True),
    (WriteCells(name(1), GROUP, 0, (Cell(1, 0, 8), Cell(2, 0, 9))), True, {CELL: 8}, False),
    (change_row("insert", (1, 5)), True, {MARK: True, (0, ROW, 1): 5, (0, ROW, 2): None}, True),
    (change_row("insert", (1, 5)), True, {MARK: True, (0, ROW, 1): 6}, False),
    (change_row("update", (1, 5)), True, {MARK: True, (0, ROW, 1): 5}, False),
    (change_row("update", (1, 5)), False, {}, True),
    (change_row("delete"), False, {}, True),
    (change_row("upsert", (1, 5)), True, {MARK: True, (0, ROW, 1): 5}, True),
]


@pytest.mark.parametrize(("change", "done", "puts", "fine"), COMES_TO)
def test_a_change_comes_to_what_its_request_does_at_its_place(
    cluster: Cluster, change: Change, done: Done | bool, puts: dict[Key, Value], fine: bool
) -> None:
    if not isinstance(change, ChangeRow):
        carry_out(cluster.a, write(7, sequence=9), 10, True, {CELL: 7})
    carry_out(cluster.a, change, 20, done, puts)
    cluster.b.batch_applied(GROUP, batch(change, 20, done, puts), 0)
    assert [name for name, _ in cluster.breaches] == ([] if fine else [RECOMPUTED])


def get(found: ReadAnswer, as_of: int) -> tuple[Read, ReadAnswer, int]:
    return GetRow(GROUP, "table", 0, ROW, (1, 2), 1), found, as_of


WHOLE = ReadRows(GROUP, 0, (RowRange(0, None),))
ALL = ScanRows(GROUP, "table", 0, b"", None, (1,), 1)
READS: list[tuple[Read, ReadAnswer, int, bool]] = [
    (ReadCell(GROUP, *CELL), ReadReply(8, 25), 25, True),
    (ReadCell(GROUP, *CELL), ReadReply(7, 19), 19, True),
    (ReadCell(GROUP, *CELL), ReadReply(7, 20), 20, False),
    (ReadCell(GROUP, *CELL), ReadReply(None, 9), 9, True),
    (ReadCell(GROUP, *CELL), ReadReply(8, 24), 25, False),
    (WHOLE, RowsReply((Cell(1, 0, 8),), 25), 25, True),
    (WHOLE, RowsReply((), 25), 25, False),
    (WHOLE, RowsReply((), 5), 5, True),
]
ROWS: list[tuple[Read, ReadAnswer, int, bool]] = [
    (*get(TypedRowsReply((TypedRow(ROW, (5, "default")),), 25, 1), 25), True),
    (*get(TypedRowsReply((TypedRow(ROW, (6, None)),), 25, 1), 25), False),
    (*get(TypedRowsReply((), 25, 1), 25), False),
    (*get(TypedRowsReply((), 9, 1), 9), True),
    (ALL, TypedRowsReply((TypedRow(ROW, (5,)),), 25, 1), 25, True),
    (ALL, TypedRowsReply((TypedRow(ROW, (5,)),), 25, 1, more=True), 25, False),
    (ALL, ErrorReply("SCHEMA_CHANGED", "", True), 25, True),
]


@pytest.mark.parametrize(("read", "found", "as_of", "fine"), [*READS, *ROWS])
def test_a_read_finds_what_was_written_by_its_time(
    cluster: Cluster, read: Read, found: ReadAnswer, as_of: int, fine: bool
) -> None:
    if isinstance(read, GetRow | ScanRows):
        carry_out(cluster.a, change_row("insert", (1, 5)), 10, True, {MARK: True, (0, ROW, 1): 5})
    else:
        carry_out(cluster.a, write(7), 10, True, {CELL: 7})
        carry_out(cluster.a, write(8, 2), 20, True, {CELL: 8})
    cluster.a.read_found(GROUP, read, spans_of(read), as_of, found)
    assert [name for name, _ in cluster.breaches] == ([] if fine else [READS_FOUND])


def test_a_client_is_told_what_the_log_says(cluster: Cluster) -> None:
    carry_out(cluster.a, write(7), 10, True, {CELL: 7})
    first = encode(Done(True, None, 10))
    cluster.b.change_answered(GROUP, name(1), first)
    cluster.b.change_answered(GROUP, name(1), encode(ErrorReply("TIMED_OUT", "", False)))
    cluster.b.change_answered(GROUP, name(2), encode(ErrorReply("SESSION_ENDED", "", False)))
    assert cluster.breaches == []
    cluster.b.change_answered(GROUP, name(1), encode(Done(True, None, 11)))
    cluster.b.change_answered(GROUP, name(2), first)
    assert cluster.breaches == [(ANSWERED, ("b",)), (ANSWERED, ("b",))]


def test_a_cell_that_is_being_changed_is_nobody_else_s(cluster: Cluster) -> None:
    other = (0, 2, 0)
    cluster.a.change_begun(GROUP, write(7), [point(CELL)], 10)
    cluster.a.change_begun(GROUP, replace(write(7, 2), row=2), [point(other)], 10)
    cluster.b.change_begun(GROUP, write(7, 3), [point(CELL)], 10)
    cluster.b.change_ended(GROUP, name(3))
    cluster.b.read_found(GROUP, ReadCell(GROUP, *CELL), (point(CELL),), 5, ReadReply(None, 5))
    assert cluster.breaches == []
    cluster.a.change_begun(GROUP, write(8, 4), [point(CELL)], 10)
    cluster.a.read_found(GROUP, ReadCell(GROUP, *other), (point(other),), 5, ReadReply(None, 5))
    cluster.a.read_found(GROUP, WHOLE, spans_of(WHOLE), 5, RowsReply((), 5))
    assert cluster.breaches == [(EXCLUSIVE, ("a",))] * 3
    cluster.a.opened(GROUP, "a", None, ())
    cluster.a.change_begun(GROUP, write(8, 5), [point(CELL)], 10)
    assert len(cluster.breaches) == 3, "what it had under way has ended with the replica"


def test_nothing_is_closed_that_a_change_under_way_may_write(cluster: Cluster) -> None:
    for sequence, lowest in ((1, 30), (2, 10), (3, 21)):
        cluster.a.change_begun(GROUP, replace(write(7, sequence), row=sequence), [point((0, sequence, 0))], lowest)
    cluster.a.timestamp_closed(GROUP, 1, 20, None, name(2))
    assert cluster.breaches == [], "its own place is fixed"
    cluster.a.timestamp_closed(GROUP, 1, 21, None, name(1))
    assert cluster.breaches == [(CLOSED_BELOW, ("a",))]
    cluster.a.change_ended(GROUP, name(3))
    cluster.a.timestamp_closed(GROUP, 1, 40, None, name(4))
    assert len(cluster.breaches) == 1
    cluster.a.change_begun(GROUP, replace(write(7, 5), row=5), [point((0, 5, 0))], 50)
    cluster.a.lease_recorded(GROUP, None, Lease("a", 2, 2, Timestamp(60), Timestamp(900)))
    cluster.a.timestamp_closed(GROUP, 2, 70, None, name(6))
    assert len(cluster.breaches) == 1, "what was begun under the lease before is refused"


def test_of_many_versions_of_a_cell_the_oldest_are_not_known() -> None:
    cells = ShadowCells()
    for at in range(1, 1_001):
        cells.write(CELL, at, at)
    assert cells.read(CELL, 1_000) == (True, 1_000) and cells.read(CELL, 900) == (True, 900)
    assert cells.read(CELL, 1) == (False, None)
    assert list(cells.within(spans_of(WHOLE)[0])) == [CELL]

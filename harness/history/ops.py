"""Operations: the one noun that generators make, clients carry out, histories record and checkers judge."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import msgspec

from harness.cell_address import CellAddress

OpType: TypeAlias = Literal["invoke", "ok", "fail", "info"]

NEMESIS_PROCESS = -1
"""Process id of the nemesis; every negative process belongs to a nemesis, never to a client."""


FEED_PROCESS = -2
"""Process id of what feeds of changes told, which no client did."""


class Mop(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One micro-operation on one cell, addressed by (table, partition, row, column).

    `f` is `r`, `w`, `append`, `cas`, `add`, …; `value` is the integer read or written (the new one for `cas`, null
    for nil and for reads not yet answered); `values` the list read, for lists; `expected` what a `cas` compares with.
    `delete` and `page` are about rows of a partition and not about a cell: `values` are the bounds, see there.
    """

    f: str
    partition: int
    value: int | None = None
    expected: int | None = None
    values: tuple[int | None, ...] | None = None
    table: int = 0
    row: int = 0
    column: int = 0

    @property
    def cell(self) -> CellAddress:
        return CellAddress(self.partition, self.row, self.column)


class Op(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event of a history: an invocation or a completion (`ok` took effect, `fail` did not, `info` unknown).

    `index` is the position in the one total order of events and `time` ns since the run's start; both are -1 until the
    interpreter, the only writer of histories, sets them. Fields that do not apply are None. Source: `runs.md`.

    Of quorum tables (Q1): `write_ts` is the timestamp that the client chose for a write, stated in its invocation;
    `mode` the consistency level, `data_centre` the coordinator's, `replication` the replication factors as
    `dc1:3,dc2:3`, `replicas` the names, joined by commas, of those whose answers made the coordinator's.

    Of reads that need not be of now, or by the leaseholder (R7): `min_ts` is the least time that would do, `route` how
    it was served, `blocked_ns` how long it waited there, `closed_ts` what was closed there and `unblocked_ts` up to
    when nothing was open that a read could wait for. `requested_ts` of a change is the time that its client asked for,
    `region` where the client is, `latest_ts` the latest time that it can have been when it completed.
    """

    type: OpType
    process: int
    f: str
    mops: tuple[Mop, ...] = ()
    value: Any = None
    index: int = -1
    time: int = -1
    session: int | None = None
    phase: str | None = None
    txn: int | None = None
    mode: str | None = None
    bound: int | None = None
    page: int | None = None
    requested_ts: int | None = None
    served_ts: int | None = None
    write_ts: int | None = None
    data_centre: str | None = None
    replication: str | None = None
    replicas: str | None = None
    node: str | None = None
    clock: str | None = None
    request_id: str | None = None
    error_class: str | None = None
    error: str | None = None
    region: str | None = None
    route: str | None = None
    min_ts: int | None = None
    latest_ts: int | None = None
    closed_ts: int | None = None
    unblocked_ts: int | None = None
    blocked_ns: int | None = None

    def complete(self, type: OpType, **changes: Any) -> Op:
        """The completion of this invocation with the given type and changed fields."""
        return msgspec.structs.replace(self, type=type, **changes)


def watched(op: Op, rows: Iterable[tuple[int, int, int | None]], mark: int) -> Op:
    """The completion of a `watch`: the commits after its `requested_ts` (None: all) in the order in which they were
    told, each as (timestamp, key, new value), and the mark at or below which none will follow."""
    return op.complete("ok", value=[list(row) for row in rows], served_ts=mark)


def feed_events(op: Op) -> tuple[Op, ...]:
    """What a completed `watch` told, as the events of a change feed (see `checkers/snapshots/change_feed.py`); none of
    any other completion."""
    if op.f != "watch" or op.type != "ok":
        return ()
    told: list[tuple[int | None, str, tuple[Mop, ...]]]
    told = [(timestamp, "feed-row", (write(key, value),)) for timestamp, key, value in op.value or ()]
    told.append((op.served_ts, "feed-resolved", ()))
    return tuple(
        Op("info", FEED_PROCESS, f, mops, phase=op.phase, session=op.session, served_ts=timestamp)
        for timestamp, f, mops in told
    )


def read(partition: int) -> Mop:
    """A read of one cell."""
    return Mop("r", partition)


def write(partition: int, value: int | None) -> Mop:
    """A write of one cell."""
    return Mop("w", partition, value)


def cas(partition: int, expected: int | None, new: int) -> Mop:
    """A compare-and-set of one cell: `new` replaces `expected` or nothing happens."""
    return Mop("cas", partition, new, expected)


def delete(partition: int, first: int | None = None, last: int | None = None, table: int = 0) -> Mop:
    """A deletion of the partition's rows `first` to `last`, both included; None is open, so by default of all of them.
    A single cell is deleted by a `w` of nil."""
    return Mop("delete", partition, values=(first, last), table=table)


def page(
    partition: int,
    first: int | None = None,
    last: int | None = None,
    limit: int | None = None,
    end: int | None = None,
    table: int = 0,
) -> Mop:
    """What one page of a read covers: the partition's rows `first` to `last`, both included, None is open; with a
    `limit` of rows it may end sooner, at row `end` (None: it reached `last`).

    The cells found stand beside it as micro-operations `r`; a cell within the bounds that is not among them was absent.
    """
    return Mop("page", partition, values=(first, last, limit, end), table=table)

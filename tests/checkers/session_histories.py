"""Small histories for tests of session guarantees: rows of operations, many histories side by side in one table."""

import random
from dataclasses import dataclass, field, replace

from checkers.columns.mops import flatten_mops, joined
from harness.history.ops import Mop, Op
from harness.history.table import to_table


@dataclass(frozen=True)
class Row:
    """One operation: events `begin` and `end` (None: never completed), its session, and its micro-operations as (f,
    row, value); a list read has a tuple."""

    begin: int
    end: int | None
    session: int
    mops: tuple
    status: str = "ok"
    mode: str | None = None
    served_ts: int | None = None
    requested_ts: int | None = None
    bound: int | None = None
    partition: int = 0
    times: dict = field(default_factory=dict)


def _mop(row, f, cell, value):
    listed = tuple(value) if isinstance(value, tuple) else None
    return Mop(f, row.partition, None if listed is not None else value, None, listed, row=cell)


def events_of(rows, first_index=0, process_base=0):
    """The rows' events in order; every operation has a process of its own session, unique if it never completed."""
    marks = []
    for number, row in enumerate(rows):
        mops = tuple(_mop(row, *mop) for mop in row.mops)
        asked = tuple(replace_value(mop) for mop in mops)
        session, process = process_base + row.session, 1000 * process_base + number
        fields = {
            "session": session,
            "mode": row.mode,
            "requested_ts": row.requested_ts,
            "bound": row.bound,
            **row.times,
        }
        call = Op("invoke", process, "txn", asked, **fields)
        marks.append((row.begin, call))
        if row.end is not None:
            marks.append((row.end, call.complete(row.status, mops=mops, served_ts=row.served_ts)))
    marks.sort(key=lambda mark: mark[0])
    return [
        call.complete(call.type, index=first_index + place, time=1000 * (first_index + place))
        for place, (_, call) in enumerate(marks)
    ]


def replace_value(mop):
    return mop if mop.f != "r" else Mop("r", mop.partition, table=mop.table, row=mop.row, column=mop.column)


def side_by_side(histories):
    """One table with each history in its own partition and with its own sessions."""
    events = []
    for number, rows in enumerate(histories):
        moved = [replace(row, partition=number) for row in rows]
        events += events_of(moved, len(events), process_base=100 * number)
    return to_table(events)


def flattened(table, projection, rows=997):
    """The rows of a table as kernels get them, flattened `rows` operations at a time."""
    return joined([flatten_mops(batch, projection) for batch in table.to_batches(max_chunksize=rows)], projection)


def guilty(findings):
    """By anomaly the histories (see `side_by_side`) that show it."""
    found = {}
    for finding in findings.kept:
        found.setdefault(finding.anomaly, set()).add(finding.key.partition)
    return found


def intervals(random_: random.Random, count: int, sessions: int, overlapping: bool = False):
    """(begin, end, session) of operations, overlapping across sessions and, on demand, within them."""
    events, open_by_lane, made = 0, {}, []
    while len(made) < count or open_by_lane:
        lane = random_.randrange(sessions * (2 if overlapping else 1))
        if lane in open_by_lane:
            begin = open_by_lane.pop(lane)
            made.append((begin, events, lane % sessions))
        elif len(made) + len(open_by_lane) < count:
            open_by_lane[lane] = events
        else:
            continue
        events += 1
    return sorted(made)

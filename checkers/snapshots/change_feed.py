"""The model `change-feed`: every commit once, and nothing at or below a resolved mark after it.

A feed's events are unsolicited events of the history (any process; type `info`, invocation and completion are one):

Their process is negative best, so that no other model takes them for operations of a client.

- `f` = `feed-row`: a committed change. `session` is the feed (one stream; a restarted feed is another session),
  `served_ts` the commit timestamp, `mops` the cells with their new values (`w`).
- `f` = `feed-resolved`: the promise that no change at or below `served_ts` will follow. `session` is the feed; `mops`
  may name tables that the feed covers (one micro-operation a table, of which only the table counts).
- `requested_ts` of either: the feed begins behind that timestamp (none: from the beginning).

A feed covers the tables that its events name; if none names one, all tables. What must arrive are acknowledged client
writes (`w`, `cas`, `append`) with a commit timestamp (`served_ts`) above the feed's beginning and at or below its last
mark. Writes of unknown outcome may arrive or not, but one that a feed told at some time was committed then, and must
arrive in the others. Of an operation that writes a cell several times the last value alone is a commit's. One that
appends several elements to a list commits them at one time, and each has a row.

A row is matched with the write of its cell, value and timestamp; only where that names none, and one operation alone
wrote the value, is it the row of that. What remains can only be of writes whose timestamps are not known, each of which
has one, and no two commits of a cell have the same.

On Spark tasks judge either cells, and are told of each feed no more than its first and its highest mark, where it
begins and which tables it covers; or the order of rows and marks in a range of time, and are told the highest mark of
each feed before (`FeedDealer`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from checkers.columns.codes import NIL, READ, WRITE, Ints
from checkers.columns.mops import ADDRESS, Columns, MopProjection, joined, key_of, selected, unsupported_rows
from checkers.engines.api import Engine
from checkers.engines.exchange import buckets_of, scattered, split
from checkers.engines.grouped import Sharing, judge_mops
from checkers.explain.conclude import conclude
from checkers.findings import Finding, Findings
from checkers.options import CheckOptions
from checkers.snapshots.feed_table import APPENDED, MARK, NAMING, ROW, FeedTable
from checkers.snapshots.snapshot_sentences import say_feed
from checkers.source import Source
from checkers.verdict import Verdict

_CELLS: Final = 1
_ORDER: Final = 2
"""What a task judges of feeds."""

EVENTS_PER_RANGE: Final = 1 << 21
_MOST_RANGES: Final = 64
"""Of a long history ranges are longer."""

EXPANDED: Final = 12
"""To judge feeds takes 9.9 times what they take in a shuffle (`bench/task_memory.py`)."""

PROJECTION: Final = MopProjection(
    {"r": READ, "w": WRITE, "cas": WRITE, "append": APPENDED},
    extras=("session", "served_ts", "requested_ts"),
    op_kinds={"feed-row": ROW, "feed-resolved": MARK},
    skipped_fs=frozenset(),
    list_kinds=(4, 5),
)

ANOMALIES: Final = (
    "resolved-went-back",
    "row-below-resolved",
    "duplicate-row",
    "unwritten-row",
    "wrong-timestamp",
    "missing-row",
)


def judge_change_feed(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Whether change feeds tell every commit once, in time for their marks; unknown if there is no feed at all."""
    kernel, dealer = FeedKernel(options.explain), FeedDealer(2 * source.rows)
    found = judge_mops(
        engine, source, PROJECTION, (), kernel, options.explain, Sharing(dealer=dealer, expanded=EXPANDED)
    )
    return conclude("change-feed", source, engine, found, dict.fromkeys(ANOMALIES, say_feed), _doubts(found.figures))


def _doubts(figures: Mapping[str, int]) -> tuple[str, ...]:
    """Why what is not refuted is not valid either."""
    if not figures.get("rows") and not figures.get("marks"):
        return ("The history has no events of a change feed (feed-row, feed-resolved).",)
    if rows := figures.get("rows_undecided", 0):
        which = "row of a feed" if rows == 1 else "rows of feeds"
        why = "without a timestamp, or of elements that were appended more than once"
        return (f"{rows} {which} can't be matched: {why}.",)
    if writes := figures.get("writes_undecided", 0):
        many = f"{writes} acknowledged write{'s' if writes > 1 else ''}"
        return (f"Of {many} nobody knows whether a feed ought to tell them.",)
    return ()


@dataclass(frozen=True, slots=True)
class FeedDealer:
    """See `Dealer`: a task judges cells or a range of time, as the column `duty` says; `copy` is 1 for rows that it is
    only told. A history has about `events` events.

    Of marks before a row the highest alone matters, and of all marks of a feed the first and the highest, so of what is
    dealt at once no more than two a feed go to all tasks.
    """

    events: int
    names: tuple[str, ...] = ("copy", "duty")
    most_buckets: int = 64

    @property
    def ranges(self) -> int:
        """In how many ranges of time the order of rows and marks is judged."""
        return max(1, min(_MOST_RANGES, -(-self.events // EVENTS_PER_RANGE)))

    def __call__(self, rows: Columns, buckets: int, again: bool) -> Iterator[tuple[int, bytes]]:
        if not again:
            yield from self._by_cell(_of_cells(rows), buckets, again)
            for place, data in _by_time(_of_order(rows), self._range_of, self.ranges):
                yield self.most_buckets + place, data
        elif rows["duty"][0] == _CELLS:
            yield from self._by_cell(rows, buckets, again)
        else:
            yield from _by_time(rows, lambda invoke: self._part_of(invoke, buckets), buckets)

    def _by_cell(self, rows: Columns, buckets: int, again: bool) -> Iterator[tuple[int, bytes]]:
        told = np.isin(rows["kind"], (MARK, NAMING))
        yield from split(selected(rows, ~told), ADDRESS, buckets, again)
        told_all = selected(rows, told)
        home = buckets_of(told_all, ("session",), buckets, again)
        for bucket in range(buckets):
            copy = np.where(home == bucket, told_all["copy"], 1)
            for _, data in split(told_all | {"copy": copy}, (), 1):
                yield bucket, data

    def _range_of(self, invoke: Ints) -> Ints:
        return np.minimum(invoke // self._span, self.ranges - 1)

    def _part_of(self, invoke: Ints, parts: int) -> Ints:
        within = invoke - self._range_of(invoke) * self._span
        return np.minimum(within // -(-self._span // parts), parts - 1)

    @property
    def _span(self) -> int:
        return self.events // self.ranges + 1


def _of_cells(rows: Columns) -> Columns:
    """What tasks that judge cells need of a history's rows."""
    marks = selected(rows, rows["kind"] == MARK)
    known = np.unique(np.concatenate((_highest(marks), _ends(marks, (-marks["place"], -marks["invoke"])))))
    parts = [selected(rows, rows["kind"] != MARK), _naming(rows), selected(marks, known)]
    copy = np.repeat((0, 0, 1), [len(part["kind"]) for part in parts])
    return joined(parts, PROJECTION) | {"copy": copy, "duty": np.full(len(copy), _CELLS)}


def _of_order(rows: Columns) -> Columns:
    """What tasks that judge the order of rows and marks need of a history's rows."""
    mine = selected(rows, np.isin(rows["kind"], (ROW, MARK)))
    count = len(mine["kind"])
    return mine | {"copy": np.zeros(count, np.int64), "duty": np.full(count, _ORDER)}


def _by_time(rows: Columns, place_of: Callable[[Ints], Ints], places: int) -> Iterator[tuple[int, bytes]]:
    """The rows by their place in time; each place is told of each feed the highest mark before it."""
    mine = selected(rows, rows["copy"] == 0)
    yield from scattered(mine, place_of(mine["invoke"]))
    marks = selected(rows, rows["kind"] == MARK)
    place = np.where(marks["copy"] == 0, place_of(marks["invoke"]), -1)
    for one in range(places):
        before = selected(marks, place < one)
        told = selected(before, _highest(before))
        for _, data in split(told | {"copy": np.ones(len(told["kind"]), np.int64)}, (), 1):
            yield one, data


def _highest(marks: Columns) -> Ints:
    """The highest mark of each feed, of equal ones the first."""
    return _ends(marks, (-marks["place"], -marks["invoke"], marks["served_ts"]))


def _ends(marks: Columns, by: tuple[Ints, ...]) -> Ints:
    """The last mark of each feed in this order (see `np.lexsort`)."""
    order = np.lexsort((*by, marks["session"]))
    session = marks["session"][order]
    return order[np.append(session[1:] != session[:-1], np.ones(min(1, len(order)), np.bool_))]


def _naming(rows: Columns) -> Columns:
    """A row for each feed and table that rows of it name, or none, of the latest beginning that they state."""
    of = selected(rows, np.isin(rows["kind"], (ROW, MARK)))
    named = of["size"] > 0
    table = np.where(named, of["table"], 0)
    said, at = np.unique(np.stack((of["session"], table, named)), axis=1, return_inverse=True)
    found: Columns = {name: np.zeros(said.shape[1], np.int64) for name in PROJECTION.names}
    found["session"], found["table"], found["size"] = said
    found["kind"] = np.full(said.shape[1], NAMING)
    found["served_ts"], found["requested_ts"] = np.full((2, said.shape[1]), NIL)
    np.maximum.at(found["requested_ts"], at.ravel(), of["requested_ts"])
    return found


@dataclass(frozen=True, slots=True)
class FeedKernel:
    """Judges all feeds of a history; `explain` instances of each anomaly are kept."""

    explain: int

    def __call__(self, rows: Columns) -> Findings:
        """Findings; their figures count feeds, their rows and marks, rows that could not be matched, and
        writes of unknown timestamps that feeds may have had to tell."""
        problems = unsupported_rows(rows, "not reads, writes or appends of integers, nor events of a feed")
        if problems:
            return Findings(ops=len(rows["kind"]), unsupported=problems)
        # A history as a whole has both duties, and tells of its feeds by itself.
        duty = rows["duty"][0] if "duty" in rows else _CELLS | _ORDER
        if "copy" not in rows:
            rows = joined([rows, _naming(rows)], PROJECTION)
            rows["copy"] = np.zeros(len(rows["kind"]), np.int64)
        table = FeedTable.of(rows)
        in_order = {"resolved-went-back": table.marks_back, "row-below-resolved": table.rows_below}
        of_cells = {
            "duplicate-row": table.duplicates,
            "unwritten-row": table.unwritten,
            "wrong-timestamp": table.mistimed,
            "missing-row": table.missing,
        }
        asked = (in_order if duty & _ORDER else {}) | (of_cells if duty & _CELLS else {})
        found = {name: look() for name, look in asked.items()}
        kept = [_finding(table, name, *pair) for name in asked for pair in found[name][: self.explain]]
        counts = {name: len(pairs) for name, pairs in found.items() if pairs}
        marks = int((table.is_mark & table.is_mine).sum())
        if not duty & _CELLS:
            return Findings(marks, 0, counts, tuple(kept), figures={"marks": marks})
        naming = table.rows["kind"] == NAMING
        figures = {
            "feeds": len(np.unique(table.feed[naming & table.is_mine])),
            "rows": int(table.is_row.sum()),
            "marks": marks,
            "rows_undecided": int(table.undecided().sum()),
            "writes_undecided": table.untold() + table.tied(),
        }
        return Findings(int((table.is_mine & ~naming).sum()), table.cells, counts, tuple(kept), figures=figures)


def _finding(table: FeedTable, name: str, row: int, other: int) -> Finding:
    def stated(place: int) -> dict[str, Any] | None:
        if place < 0:
            return None
        value, stamp = int(table.rows["value"][place]), int(table.rows["served_ts"][place])
        return {"value": None if value == NIL else value, "ts": None if stamp == NIL else stamp}

    feed = int(table.rows["session"][row if table.feed[row] >= 0 and name != "missing-row" else other])
    ops = (int(table.rows["invoke"][row]), int(table.rows["invoke"][other]) if other >= 0 else -1)
    facts = {
        "mine": stated(row),
        "other": stated(other),
        "feed": feed,
        "by_row": other >= 0 and bool(table.is_row[other]),
    }
    facts["told_by"] = int(table.rows["session"][row]) if table.feed[row] >= 0 else None
    return Finding(name, ops[0], key_of(table.rows, row), ops, facts)

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
arrive in the others. Of an operation that writes a cell several times the last value alone is a commit's.

A row is matched with the write of its cell, value and timestamp; only where that names none, and one operation alone
wrote the value, is it the row of that. What remains can only be of writes whose timestamps are not known, each of which
has one, and no two commits of a cell have the same.

On Spark cells are judged by many tasks. Of each feed all of them are told the marks, where it begins and which tables
it covers (`FeedDealer`); one of them judges the marks themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from checkers.columns.codes import FAIL, NEVER, NIL, OK, READ, WRITE, Ints
from checkers.columns.dense import together
from checkers.columns.mops import ADDRESS, Columns, MopProjection, joined, key_of, selected, unsupported_rows
from checkers.columns.spans import spread
from checkers.engines.api import Engine
from checkers.engines.exchange import buckets_of, split
from checkers.engines.grouped import Sharing, judge_mops
from checkers.findings import Finding, Findings, refuse_unsupported
from checkers.options import CheckOptions
from checkers.snapshots.explain import explain_feed
from checkers.source import Source
from checkers.verdict import Verdict

ROW: Final = 2
MARK: Final = 3
APPENDED: Final = 7
NAMING: Final = 6
"""What rows of a feed say of it as a whole: a table that it covers, or none, and where it begins."""

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
    kernel, dealer = FeedKernel(options.explain), FeedDealer()
    found = judge_mops(
        engine, source, PROJECTION, (), kernel, options.explain, Sharing(dealer=dealer, expanded=EXPANDED)
    )
    refuse_unsupported(found, source.path, "change-feed")
    doubt = _doubt(found.figures)
    return Verdict(
        False if found.counts else "unknown" if doubt else True,
        "change-feed",
        explain_feed(source, found.kept),
        found.counts,
        found.ops,
        engine=engine.name,
        reason=None if found.counts else doubt,
        details=dict(found.figures),
    )


def _doubt(figures: Mapping[str, int]) -> str | None:
    """Why what is not refuted is not valid either, or None."""
    if not figures.get("rows") and not figures.get("marks"):
        return "The history has no events of a change feed (feed-row, feed-resolved)."
    if rows := figures.get("rows_undecided", 0):
        which = "row of a feed states no timestamp" if rows == 1 else "rows of feeds state no timestamps"
        return f"{rows} {which} and can't be matched."
    if writes := figures.get("writes_undecided", 0):
        return (
            f"Of {writes} acknowledged write{'s' if writes > 1 else ''} nobody knows whether a feed ought to tell them."
        )
    return None


@dataclass(frozen=True, slots=True)
class FeedDealer:
    """See `Dealer`: rows go to their cell's task, marks and what names tables to all. `copy` is 1 where a task is only
    told of them; the one where it is 0 judges them. So that marks do not become most of the work, tasks are few."""

    names: tuple[str, ...] = ("copy",)
    most_buckets: int = 64

    def __call__(self, rows: Columns, buckets: int, finer: bool) -> Iterator[tuple[int, bytes]]:
        rows = rows if "copy" in rows else _with_naming(rows)
        told = np.isin(rows["kind"], (MARK, NAMING))
        yield from split(selected(rows, ~told), ADDRESS, buckets, finer)
        told_all = selected(rows, told)
        home = buckets_of(told_all, ("session",), buckets, finer)
        for bucket in range(buckets):
            copy = np.where(home == bucket, told_all["copy"], 1)
            for _, data in split(told_all | {"copy": copy}, (), 1):
                yield bucket, data


def _with_naming(rows: Columns) -> Columns:
    """The rows, and one for each feed and table that rows of it name, of the latest beginning that they state."""
    more = _naming(rows)
    return joined([rows, more], PROJECTION) | {"copy": np.zeros(len(rows["kind"]) + len(more["kind"]), np.int64)}


def _naming(rows: Columns) -> Columns:
    of = selected(rows, rows["kind"] == ROW)
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
        table = _FeedTable.of(rows)
        found = {
            "resolved-went-back": table.marks_back(),
            "row-below-resolved": table.rows_below(),
            "duplicate-row": table.duplicates(),
            "unwritten-row": table.unwritten(),
            "wrong-timestamp": table.mistimed(),
            "missing-row": table.missing(),
        }
        kept = [_finding(table, name, *pair) for name in ANOMALIES for pair in found[name][: self.explain]]
        counts = {name: len(pairs) for name, pairs in found.items() if pairs}
        mine = table.is_mine
        told_of = mine & ~table.is_row & (table.feed >= 0)
        figures = {"feeds": len(np.unique(table.feed[told_of])), "rows": int(table.is_row.sum())}
        figures["marks"] = int((table.is_mark & mine).sum())
        figures["rows_undecided"] = int(table.undecided().sum())
        figures["writes_undecided"] = table.untold() + table.tied()
        ops = int((mine & (table.rows["kind"] != NAMING)).sum())
        return Findings(ops, table.cells, counts, tuple(kept), figures=figures)


Pairs = list[tuple[int, int]]
"""Rows that show an anomaly, each with another row that proves it (-1: none)."""


@dataclass(frozen=True, slots=True)
class _FeedTable:
    """Rows in order of events. `is_mine` are those that are judged here; of others this task is only told. `feed`
    numbers the sessions of feeds (-1 elsewhere), `cell` and `version` cells and their values; `write` is by row of a
    feed the row of the client's write of that value (-1 none, -2 several)."""

    rows: Columns
    feed: Ints
    feeds: int
    cell: Ints
    cells: int
    version: Ints
    is_row: np.ndarray
    is_mark: np.ndarray
    is_mine: np.ndarray
    write: Ints

    @staticmethod
    def of(rows: Columns) -> _FeedTable:
        rows = rows if "copy" in rows else _with_naming(rows)
        order = np.lexsort((rows["place"], rows["invoke"]))
        rows = selected(rows, order)
        cell, cells = together([rows[name] for name in ADDRESS])
        rows["status"] = np.where(_replaced(rows, cell), FAIL, rows["status"])
        rows["kind"] = np.where(rows["kind"] == APPENDED, WRITE, rows["kind"])
        is_row, is_mark = rows["kind"] == ROW, rows["kind"] == MARK
        of_feed = is_row | is_mark | (rows["kind"] == NAMING)
        names, numbers = np.unique(rows["session"][of_feed], return_inverse=True)
        feed = np.full(len(order), -1)
        feed[of_feed] = numbers
        version, count = together([cell, rows["value"]])
        writer = np.full(count, -1)
        writes = np.flatnonzero((rows["kind"] == WRITE) & (rows["status"] != FAIL))
        writer[version[writes]] = writes
        several = np.bincount(version[writes], minlength=count) > 1
        writer[several] = -2
        write = np.where(is_row, writer[version], -1)
        is_mine = rows["copy"] == 0
        return _FeedTable(rows, feed, len(names), cell, cells, version, is_row, is_mark, is_mine, write)

    def _highest_before(self) -> Ints:
        """By event of a feed: the row of the highest mark of the feed before it, -1 if there is none."""
        row = np.flatnonzero(self.feed >= 0)
        row = row[np.argsort(self.feed[row], kind="stable")]
        feed, marks = self.feed[row], row[self.is_mark[row]]
        # Marks in order of their timestamps, of equal ones the first last: none before it is above it.
        rising = marks[np.lexsort((-marks, self.rows["served_ts"][marks]))]
        rank = np.zeros(len(self.feed), np.int64)
        rank[rising] = np.arange(1, len(rising) + 1)
        width = len(rising) + 1
        best = np.maximum.accumulate(feed * width + rank[row])
        before = np.concatenate(([-1], best[:-1]))
        known = (before // width == feed) & (before % width > 0)
        highest = np.full(len(self.feed), -1)
        highest[row[known]] = rising[before[known] % width - 1]
        return highest

    def _against_marks(self, chosen: np.ndarray, equal: bool) -> Pairs:
        highest, stamp = self._highest_before(), self.rows["served_ts"]
        row = np.flatnonzero(chosen & (highest >= 0) & (stamp != NIL))
        mark = stamp[highest[row]]
        wrong = row[(stamp[row] < mark) | (equal & (stamp[row] == mark))]
        return [(int(r), int(highest[r])) for r in wrong]

    def marks_back(self) -> Pairs:
        return self._against_marks(self.is_mark & self.is_mine, equal=False)

    def rows_below(self) -> Pairs:
        return self._against_marks(self.is_row, equal=True)

    def duplicates(self) -> Pairs:
        """Rows that repeat an earlier row of the feed: the same cell and timestamp, or value where one of them has no
        timestamp and one operation alone wrote it."""
        stamp = self.rows["served_ts"]
        timed, alone = (np.flatnonzero(self.is_row & chosen) for chosen in (stamp != NIL, self.write != -2))
        by_time = _firsts((self.feed, self.cell, stamp), timed, timed)
        by_value = _firsts((self.feed, self.version), alone, alone)
        untimed = (stamp[alone] == NIL) | (stamp[by_value] == NIL)
        row, of = np.concatenate((timed, alone[untimed])), np.concatenate((by_time, by_value[untimed]))
        row, of = row[row != of], of[row != of]
        _, once = np.unique(row, return_index=True)
        return list(zip(row[once].tolist(), of[once].tolist(), strict=True))

    def unwritten(self) -> Pairs:
        """Rows of values that nobody wrote, or had begun to write when they were told."""
        write = np.flatnonzero((self.rows["kind"] == WRITE) & (self.rows["status"] != FAIL))
        begun = np.full(int(self.version.max(initial=-1)) + 1, NEVER)
        np.minimum.at(begun, self.version[write], self.rows["invoke"][write])
        early = self.rows["invoke"] < begun[self.version]
        return [(int(row), -1) for row in np.flatnonzero(self.is_row & early)]

    def mistimed(self) -> Pairs:
        """Rows with timestamps at which nothing can have given the cell that value: the cell has another commit of that
        time, or got another value then by another row, or the value was told at more times than it was written."""
        stamp, write = self.rows["served_ts"], self.rows["kind"] == WRITE
        row = np.flatnonzero(self.is_row & (self.write != -1) & (stamp != NIL))
        commit = np.flatnonzero(write & (self.rows["status"] == OK) & (stamp != NIL))
        row = row[_firsts((self.version, stamp), commit, row) < 0]
        if not len(row):
            return []
        spare = self._spare()
        at_time = _firsts((self.cell, stamp), commit, row)
        earlier = _firsts((self.cell, stamp), row, row)
        at_time = np.where((at_time < 0) & self._apart(earlier, row), earlier, at_time)
        wrong = [(int(r), int(w)) for r, w in zip(row[at_time >= 0], at_time[at_time >= 0], strict=True)]
        row = row[at_time < 0]
        surplus = row[_ranks(self.version[row], stamp[row]) >= spare[self.version[row]]]
        known, first = _firsts((self.version,), commit, surplus), _firsts((self.version,), row, surplus)
        return sorted([*wrong, *zip(surplus.tolist(), np.where(known < 0, first, known).tolist(), strict=True)])

    def _spare(self) -> Ints:
        """By version how many writes of it there may have been at times that they do not state."""
        write = np.flatnonzero((self.rows["kind"] == WRITE) & (self.rows["status"] != FAIL))
        write = write[(self.rows["status"][write] != OK) | (self.rows["served_ts"][write] == NIL)]
        return np.bincount(self.version[write], minlength=int(self.version.max(initial=0)) + 1)

    def _told_commits(self) -> Ints:
        """The first row of each commit that only feeds tell the time of."""
        stamp = self.rows["served_ts"]
        row = np.flatnonzero(self.is_row & (self.write != -1) & (stamp != NIL))
        row = row[self._spare()[self.version[row]] > 0]
        commit = np.flatnonzero((self.rows["kind"] == WRITE) & (self.rows["status"] == OK) & (stamp != NIL))
        row = row[_firsts((self.cell, stamp), commit, row) < 0]
        return row[_firsts((self.cell, stamp), row, row) == row]

    def _apart(self, earlier: Ints, row: Ints) -> np.ndarray:
        """Which rows tell another value than the earlier ones, and not one that the same operation wrote."""
        one, other = self.write[earlier], self.write[row]
        same_write = (one >= 0) & (other >= 0) & (self.rows["invoke"][one] == self.rows["invoke"][other])
        apart: np.ndarray = (self.version[earlier] != self.version[row]) & ~same_write
        return apart

    def missing(self) -> Pairs:
        """Acknowledged writes, and what another feed told, that a feed ought to have told by its last mark."""
        last = self._last_marks()
        feed, write = self._due(last)
        lacking = ~self._told(feed, write)
        return sorted(zip(write[lacking].tolist(), last[feed[lacking]].tolist(), strict=True))

    def untold(self) -> int:
        """How many acknowledged writes state no timestamp, so that a feed with a mark which does not tell them, or
        tells one of several of their value, may have had to."""
        write = np.flatnonzero(
            (self.rows["kind"] == WRITE) & (self.rows["status"] == OK) & (self.rows["served_ts"] == NIL)
        )
        if not len(write):
            return 0
        table = self.rows["table"]
        write = write[np.argsort(table[write], kind="stable")]
        feed, named = self._covered(np.unique(table[write]))
        marked = self._last_marks()[feed] >= 0
        feed, named = feed[marked], named[marked]
        begin, end = (np.searchsorted(table[write], named, side) for side in ("left", "right"))
        due, of = spread(begin, end)
        told = self._among(feed[of], write[due], np.flatnonzero(self.is_row), (self.version,))
        tried = (self.rows["kind"] == WRITE) & (self.rows["status"] != FAIL)
        alone = np.bincount(self.version[tried])[self.version[write[due]]] == 1
        return len(np.unique(due[~(told & alone)]))

    def tied(self) -> int:
        """How many acknowledged writes of a cell state the timestamp of another: a row may be of either."""
        stamp = self.rows["served_ts"]
        write = np.flatnonzero((self.rows["kind"] == WRITE) & (self.rows["status"] == OK) & (stamp != NIL))
        ids, _ = together((self.cell[write], stamp[write]))
        return int((np.bincount(ids)[ids] > 1).sum()) if len(ids) else 0

    def _last_marks(self) -> Ints:
        """By feed the row of its highest mark, the first of equal ones; -1 if there is none."""
        stamp = self.rows["served_ts"]
        marks = np.flatnonzero(self.is_mark & (stamp != NIL))
        rising = marks[np.lexsort((-marks, stamp[marks]))]
        last = np.full(self.feeds, -1)
        last[self.feed[rising]] = rising
        return last

    def _due(self, last: Ints) -> tuple[Ints, Ints]:
        """Feeds, and commits that each ought to have told by its last mark: those to tables that the feed's events name
        (all, if none does) above its beginning. It takes time by what is due, not by feeds times writes."""
        stamp, table = self.rows["served_ts"], self.rows["table"]
        write = np.flatnonzero((self.rows["kind"] == WRITE) & (self.rows["status"] == OK) & (stamp != NIL))
        write = np.concatenate((write, self._told_commits()))
        write = write[np.lexsort((stamp[write], table[write]))]
        feed, named = self._covered(np.unique(table[write]))
        marked = last[feed] >= 0
        feed, named = feed[marked], named[marked]
        begin = np.full(self.feeds, NIL)
        of_feed = np.flatnonzero(self.feed >= 0)
        np.maximum.at(begin, self.feed[of_feed], self.rows["requested_ts"][of_feed])
        after = _Sorted.of(table[write], stamp[write])
        low, high = after.place(named, begin[feed]), after.place(named, stamp[last[feed]])
        due, of = spread(low, np.maximum(low, high))
        return feed[of], write[due]

    def _covered(self, written: Ints) -> tuple[Ints, Ints]:
        """Feeds and the tables that each covers, of those that are `written`."""
        naming = np.flatnonzero((self.feed >= 0) & (self.rows["size"] > 0))
        _, once = np.unique(together((self.feed[naming], self.rows["table"][naming]))[0], return_index=True)
        feed, table = self.feed[naming[once]], self.rows["table"][naming[once]]
        there = np.isin(table, written)
        unnamed = np.setdiff1d(np.arange(self.feeds), feed)
        of_all, all_tables = np.repeat(unnamed, len(written)), np.tile(written, len(unnamed))
        return np.concatenate((feed[there], of_all)), np.concatenate((table[there], all_tables))

    def _told(self, feed: Ints, write: Ints) -> np.ndarray:
        """Which of the writes have a row of that feed: by cell and timestamp, or else by a value that nobody else wrote
        or that is told without a timestamp."""
        told = np.flatnonzero(self.is_row)
        found = self._among(feed, write, told, (self.cell, self.rows["served_ts"]))
        left = np.flatnonzero(~found)
        by_value = (self.write[told] != -2) | (self.rows["served_ts"][told] == NIL)
        told = told[by_value & np.isin(self.version[told], self.version[write[left]])]
        found[left] = self._among(feed[left], write[left], told, (self.version,))
        return found

    def undecided(self) -> np.ndarray:
        """Rows without a timestamp of which nobody knows whose they are, or whether they come too late for a mark."""
        untimed = self.is_row & (self.rows["served_ts"] == NIL)
        return untimed & ((self.write == -2) | (self._highest_before() >= 0))

    def _among(self, feed: Ints, write: Ints, told: Ints, names: tuple[Ints, ...]) -> np.ndarray:
        """Which of the writes have the same names as one of the rows that their feed told."""
        ids, count = together(
            [np.concatenate((feed, self.feed[told]))] + [np.concatenate((name[write], name[told])) for name in names]
        )
        there = np.zeros(count, np.bool_)
        there[ids[len(write) :]] = True
        return there[ids[: len(write)]]


def _replaced(rows: Columns, cell: Ints) -> np.ndarray:
    """By row whether it is a write of a cell that the same operation writes once more later."""
    found = np.zeros(len(cell), np.bool_)
    write = np.flatnonzero((rows["kind"] == WRITE) & (rows["size"] > 1))
    if len(write):
        ids, count = together((rows["invoke"][write], cell[write]))
        last = np.full(count, -1)
        np.maximum.at(last, ids, write)
        found[write] = write != last[ids]
    return found


def _firsts(names: tuple[Ints, ...], among: Ints, rows: Ints) -> Ints:
    """By row the first of some others that has the same names, -1 if there is none."""
    ids, count = together([np.concatenate((name[among], name[rows])) for name in names])
    first = np.full(count, -1)
    first[ids[: len(among)][::-1]] = among[::-1]
    return first[ids[len(among) :]]


def _ranks(version: Ints, stamp: Ints) -> Ints:
    """By row how many other timestamps its version has in the rows before that timestamp first comes."""
    ids, _ = together([version, stamp])
    _, first = np.unique(ids, return_index=True)
    of = version[first]
    order = np.lexsort((first, of))
    begins = np.flatnonzero(np.diff(of[order], prepend=-1))
    rank = np.empty(len(first), np.int64)
    rank[order] = np.arange(len(first)) - np.repeat(begins, np.diff(np.append(begins, len(first))))
    return rank[ids]


class _Sorted(NamedTuple):
    """Pairs of a group and a number, sorted, as one number each: groups have numbers, and so have their numbers."""

    groups: Ints
    numbers: Ints
    keys: Ints

    @staticmethod
    def of(group: Ints, number: Ints) -> _Sorted:
        groups, numbers = np.unique(group), np.unique(number)
        keys = np.searchsorted(groups, group) * (len(numbers) + 1) + np.searchsorted(numbers, number, "right")
        return _Sorted(groups, numbers, keys)

    def place(self, group: Ints, number: Ints) -> Ints:
        """How many pairs are in groups before, or in the same one (which there is) at or below that number."""
        key = np.searchsorted(self.groups, group) * (len(self.numbers) + 1)
        return np.searchsorted(self.keys, key + np.searchsorted(self.numbers, number, "right"), "right")


def _finding(table: _FeedTable, name: str, row: int, other: int) -> Finding:
    def told(place: int) -> dict[str, Any] | None:
        if place < 0:
            return None
        value, stamp = int(table.rows["value"][place]), int(table.rows["served_ts"][place])
        return {"value": None if value == NIL else value, "ts": None if stamp == NIL else stamp}

    feed = int(table.rows["session"][row if table.feed[row] >= 0 and name != "missing-row" else other])
    ops = (int(table.rows["invoke"][row]), int(table.rows["invoke"][other]) if other >= 0 else -1)
    facts = {"mine": told(row), "other": told(other), "feed": feed, "by_row": other >= 0 and bool(table.is_row[other])}
    facts["told_by"] = int(table.rows["session"][row]) if table.feed[row] >= 0 else None
    return Finding(name, ops[0], key_of(table.rows, row), ops, facts)

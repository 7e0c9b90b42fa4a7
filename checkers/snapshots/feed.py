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

On Spark cells are judged by many tasks. Of each feed all of them are told the marks, where it begins and which tables
it covers (`FeedDealer`); one of them judges the marks themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from checkers.columns.codes import NIL, READ, WRITE
from checkers.columns.mops import ADDRESS, Columns, MopProjection, joined, key_of, selected, unsupported_rows
from checkers.engines.api import Engine
from checkers.engines.exchange import buckets_of, split
from checkers.engines.grouped import Sharing, judge_mops
from checkers.findings import Finding, Findings, refuse_unsupported
from checkers.options import CheckOptions
from checkers.snapshots.explain import explain_feed
from checkers.snapshots.feed_table import APPENDED, MARK, NAMING, ROW, FeedTable
from checkers.source import Source
from checkers.verdict import Verdict

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
        which = "row of a feed" if rows == 1 else "rows of feeds"
        return (
            f"{rows} {which} can't be matched: without a timestamp, or of elements that were appended more than once."
        )
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
        table = FeedTable.of(rows if "copy" in rows else _with_naming(rows))
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


def _finding(table: FeedTable, name: str, row: int, other: int) -> Finding:
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

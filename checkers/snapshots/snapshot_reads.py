"""The model `snapshot-reads`: reads at a timestamp are final, complete and the same everywhere.

Columns: `requested_ts` is the T of a read. One that asks for none, or for a bound, has the T that it says it was served
at, `served_ts`: what it showed is there for good as well. `served_ts` of an acknowledged write is its commit timestamp
(a compare-and-set writes too); `bound` (ns) of a read is how old its answer may be. Writes without `served_ts`, or of
unknown outcome, have a commit timestamp that is not known: of their versions only what reads themselves show is
concluded. A read that says it was served at another time than asked for is judged at the one asked for; whether it is
right at the other is not decided.

What operations state of themselves is judged too: a read was served no earlier than `min_ts`; nothing is acknowledged
with a `served_ts` above `latest_ts`, the latest time that it can have been by then; and a read within a bound did not
wait (`blocked_ns`) where it could have been served at once, at `unblocked_ts`. What a session is promised goes by how
its operations were asked for (`mode_pairs`).

Where several writes gave a cell one value, and all of them state their timestamps, a read at T shows the last of them
at or below T, or else the first: it can't be right if it shows another. If some state none, it may show one of these;
such a read is right if the last commit at or below T is of its value, else it is undecided. Bounded reads are refuted
if all writes of their value are too old, else undecided.

The bound is judged on the harness's clock alone, `invoke_time` and `complete_time`: a read with bound B must not
certainly miss a write that completed B or longer before the read began (order of versions: `columns.versions`). Nodes'
HLC times (`served_ts` of reads) are not compared with it: an HLC may run ahead of its node's clock and nodes' clocks
apart, so that a low reading proves nothing by itself. Operations without times (`clock` none) have no bound to judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from checkers.columns.codes import NEVER, NIL, OK, READ, WRITE, Ints
from checkers.columns.dense import together
from checkers.columns.instances import Instances, make_instances
from checkers.columns.mops import ADDRESS, FEED_EVENTS, HELD, Columns, MopProjection, key_of, unsupported_rows
from checkers.columns.versions import (
    Versions,
    grouped_order,
    order_by_row,
    ordered_versions,
    replaced_versions,
    sorted_cells,
    values_unwritten,
)
from checkers.engines.api import Engine
from checkers.engines.grouped import Sharing, judge_mops
from checkers.explain.conclude import conclude
from checkers.findings import Finding, Findings
from checkers.options import CheckOptions
from checkers.snapshots.mode_pairs import MODES, behind
from checkers.snapshots.snapshot_order import (
    AHEAD,
    ANOMALIES,
    BEHIND,
    BELOW_MINIMUM,
    IN_VAIN,
    LATE_COMMIT,
    STALE,
    Accused,
    InCells,
    SnapshotPromises,
    Snapshots,
    broken_promises,
    judge_snapshots,
    record_each,
)
from checkers.snapshots.snapshot_sentences import say_read
from checkers.source import Source
from checkers.verdict import Verdict, reads_of_several, values_of_nobody, writes_of_two_orders

PROJECTION: Final = MopProjection(
    {"r": READ, "w": WRITE, "cas": WRITE},
    extras=(
        *("requested_ts", "served_ts", "bound", "invoke_time", "complete_time"),
        *("min_ts", "latest_ts", "unblocked_ts", "blocked_ns", "session"),
    ),
    codes={"asked": MODES},
    keep_failed=False,
    skipped_fs=FEED_EVENTS | HELD,
)

EXPANDED: Final = 8
"""To judge a cell's reads takes 5.4 times what they take in a shuffle (`python -m bench task_memory`)."""


def judge_snapshot_reads(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Whether reads at a timestamp, and reads of bounded staleness, kept their promise; unknown if there are none."""
    kernel = SnapshotKernel(options.explain)
    found = judge_mops(engine, source, PROJECTION, ADDRESS, kernel, options.explain, Sharing(expanded=EXPANDED))
    sentences = dict.fromkeys(ANOMALIES, say_read)
    figures = {"cells": found.keys} | found.figures
    return conclude("snapshot-reads", source, engine, replace(found, figures=figures), sentences, _doubts(figures))


def _doubts(figures: Mapping[str, int]) -> list[str]:
    """Why what is not refuted is not valid either."""
    if not figures.get("snapshot_reads") and not figures.get("bounded_reads"):
        return ["No read that succeeded states a timestamp or a bound."]
    doubts = [
        _reads(figures.get("reads_served_elsewhen", 0), "what was there at another time than asked for"),
        reads_of_several(figures.get("reads_undecided", 0)),
        values_of_nobody(figures.get("values_unwritten", 0)),
        writes_of_two_orders(figures.get("writes_untimely", 0)),
        _reads(figures.get("reads_of_ties", 0), "one of several commits of a cell that state one timestamp"),
        _reads(figures.get("reads_intermediate", 0), "a value that its own operation wrote over"),
    ]
    if untimed := figures.get("bounded_reads_untimed", 0):
        doubts.append(f"Of {untimed} bounded read{'s' if untimed > 1 else ''} the history states no times.")
    return [doubt for doubt in doubts if doubt]


def _reads(count: int, what: str) -> str | None:
    return f"{count} read{'s show' if count > 1 else ' shows'} {what}." if count else None


@dataclass(frozen=True, slots=True)
class SnapshotKernel:
    """Judges many cells at once; `explain` instances of each anomaly are kept."""

    explain: int

    def __call__(self, rows: Columns) -> Findings:
        """Findings; their figures count reads at a timestamp, bounded reads, those of them that no time is known of,
        reads that show one of several writes, nobody knows which, and what `_doubts` names."""
        problems = unsupported_rows(rows, "not reads, writes or compare-and-sets of integers")
        if problems:
            return Findings(ops=len(rows["kind"]), unsupported=problems)
        table = _ReadTable.of(rows)
        out = make_instances(len(ANOMALIES), self.explain)
        by_stamp = table.commits_in_order()
        tied, intermediate = table.open_reads(by_stamp)
        table.judge_snapshots(by_stamp, out)
        table.judge_late_commits(out)
        table.judge_bounds(out)
        table.judge_statements(out)
        counts = {name: int(count) for name, count in zip(ANOMALIES, out.counts, strict=True) if count}
        figures = {
            "snapshot_reads": int(table.asked.sum()),
            "bounded_reads": int(table.bounded.sum()),
            "bounded_reads_untimed": int((table.bounded & ~table.timed).sum()),
            "reads_served_elsewhen": table.elsewhen,
            "reads_undecided": int(table.undecided().sum()),
            "reads_of_ties": tied,
            "reads_intermediate": intermediate,
            "values_unwritten": table.unwritten,
            "writes_untimely": table.untimely,
        }
        return Findings(len(table.cell), table.cells, counts, tuple(_findings(table, out)), figures=figures)


@dataclass(frozen=True, slots=True)
class _ReadTable:
    """Rows sorted by cell and invocation; `asked` are reads at a timestamp, `bounded` reads with a bound, `commits`
    acknowledged writes with a timestamp; `order` is `since` and `settled` by row. `version` is of reads at a timestamp
    what they show (see `_matched`); `stamp` is by version its commit timestamp, NIL if not known. `several` says by row
    whether several wrote its value, `unwritten` how many values were read that nobody wrote; `nobodys` flags versions
    that no operation left: these, and those that their own operation wrote over. `untimely` is how many writes of
    cells with bounded reads contradict real time by their timestamps, where these don't order the cell; `elsewhen` how
    many reads were served at another time than asked for. `requested_ts` of a read that asks for none is when it was
    served."""

    rows: Columns
    cell: Ints
    cells: int
    order: tuple[Ints, Ints]
    several: np.ndarray
    version: Ints
    unclear: np.ndarray
    writer: Ints
    stamp: Ints
    asked: np.ndarray
    bounded: np.ndarray
    commits: np.ndarray
    unwritten: int
    nobodys: np.ndarray
    untimely: int
    elsewhen: int

    @staticmethod
    def of(rows: Columns) -> _ReadTable:
        rows, cell, begin = sorted_cells(rows)
        read = rows["kind"] == READ
        asked_none, served = read & (rows["requested_ts"] == NIL), rows["served_ts"]
        elsewhen = int((read & ~asked_none & (served != NIL) & (served != rows["requested_ts"])).sum())
        rows = rows | {"requested_ts": np.where(asked_none, served, rows["requested_ts"])}
        version, count = together([cell, rows["value"]])
        versions, timed = ordered_versions(rows, cell, len(begin) - 1, version, count, cell)
        replaced = replaced_versions(rows, cell, version, versions)
        order, several = order_by_row(rows, version, cell, versions, timed), versions.unclear[version]
        unwritten = values_unwritten(rows, version, versions)
        commits = ~read & (rows["status"] == OK) & (rows["served_ts"] != NIL)
        asked, bounded = read & (rows["requested_ts"] != NIL), read & (rows["bound"] != NIL)
        of_value = version
        version, unclear, writer = _matched(rows, version, versions, asked, commits)
        stamp = np.full(len(writer), NIL)
        known = commits & ~unclear[version]
        stamp[version[known]] = rows["served_ts"][known]
        shown = (version, unclear, writer, stamp)
        nobodys = np.zeros(len(writer), np.bool_)
        if unwritten:
            nobodys[version[read & (rows["value"] != NIL) & (versions.writer == -1)[of_value]]] = True
        nobodys[replaced.every] = True
        # A read at a timestamp goes by what is stated; one within a bound goes by the order that there is none of.
        untimely = int(np.isin(cell[versions.untimely], cell[bounded]).sum())
        chosen = (asked, bounded, commits)
        return _ReadTable(
            rows, cell, len(begin) - 1, order, several, *shown, *chosen, unwritten, nobodys, untimely, elsewhen
        )

    @property
    def timed(self) -> np.ndarray:
        """Rows of operations whose times are known."""
        known: np.ndarray = self.rows["complete_time"] != NIL
        return known

    def undecided(self) -> np.ndarray:
        """Reads that may be wrong, if they show another write than they have to. A read at a timestamp that shows the
        value of the last commit is right by that, whoever else wrote the value."""
        at = np.flatnonzero(self.asked & self.unclear[self.version])
        last = _last_commit(self.rows, self.cell, np.flatnonzero(self.commits), at)
        found = self.bounded & self.several
        found[at[(last < 0) | (self.version[last] != self.version[at])]] = True
        return found

    def _sorted(self, chosen: np.ndarray, by: Ints) -> InCells:
        """The chosen rows by cell and the given column."""
        row = np.flatnonzero(chosen)
        order, begin = grouped_order(self.cell[row], self.cells, by[row])
        return InCells(row[order], begin)

    def until(self) -> Ints:
        """By version, the time at which it was committed at the latest."""
        until = np.where(self.stamp == NIL, NEVER, self.stamp)
        asked = np.flatnonzero(self.asked)
        np.minimum.at(until, self.version[asked], self.rows["requested_ts"][asked])
        return until

    def commits_in_order(self) -> InCells:
        """The commits by cell and timestamp."""
        return self._sorted(self.commits, self.rows["served_ts"])

    def open_reads(self, by_stamp: InCells) -> tuple[int, int]:
        """How many reads at a timestamp show one of several commits that state the same; and how many reads what an
        operation wrote over itself."""
        row, stamp, over = by_stamp.rows, self.rows["served_ts"], 0
        if self.nobodys.any():
            row = row[~self.nobodys[self.version[row]]]
            left = self.nobodys & (self.writer >= 0)
            over = int(left[self.version[self.asked | self.bounded]].sum())
        stamp = stamp[row]
        alike = np.flatnonzero(stamp[1:] == stamp[:-1])
        one, other = row[alike], row[alike + 1]
        apart = (self.cell[one] == self.cell[other]) & (self.version[one] != self.version[other])
        tied = np.union1d(self.version[one[apart]], self.version[other[apart]])
        return int(np.isin(self.version[self.asked], tied).sum()) if len(tied) else 0, over

    def judge_snapshots(self, by_stamp: InCells, out: Instances) -> None:
        time, until = np.ascontiguousarray(self.rows["requested_ts"]), self.until()
        unset = self.version[self.asked & (self.rows["value"] == NIL) & (self.writer[self.version] == -1)]
        until[unset] = NIL
        by_time = self._sorted(self.asked, time)
        known = self.stamp.copy()
        known[unset] = NIL + 1
        stamp = np.where(self.commits, self.rows["served_ts"], known[self.version])
        judged = ~self.unclear[self.version]
        reads, commits = (by_time.rows, by_time.begin, time), (by_stamp.rows, by_stamp.begin, stamp)
        events = (self.rows["invoke"], self.rows["complete"])
        judge_snapshots(Snapshots(*reads, *commits, self.version, until, self.nobodys, *events, judged), out)

    def judge_late_commits(self, out: Instances) -> None:
        invoke, complete = self.rows["invoke"], self.rows["complete"]
        bounded_above = self.until()[self.version] != NEVER
        committed = (self.rows["kind"] == WRITE) & ~self.unclear[self.version] & bounded_above
        commits, reads = self._sorted(self.commits | committed, invoke), self._sorted(self.asked, complete)
        stamp = np.where(self.commits, self.rows["served_ts"], self.until()[self.version])
        time = np.ascontiguousarray(self.rows["requested_ts"])
        # Nothing may be committed at the time of a read either.
        broken_promises(commits, reads, SnapshotPromises(invoke, invoke, complete, time, stamp - 1), LATE_COMMIT, out)

    def judge_bounds(self, out: Instances) -> None:
        horizon = np.where(self.bounded, self.rows["invoke_time"] - np.where(self.bounded, self.rows["bound"], 0), 0)
        reads = self._sorted(self.bounded & self.timed, horizon)
        written = (self.rows["kind"] == WRITE) & (self.rows["status"] == OK) & self.timed
        writes = self._sorted(written, self.rows["complete_time"])
        # A write that completed at the horizon itself must be seen.
        times = (horizon + 1, np.ascontiguousarray(self.rows["complete_time"]))
        broken_promises(reads, writes, SnapshotPromises(self.rows["invoke"], *times, *self.order), STALE, out)

    def judge_statements(self, out: Instances) -> None:
        rows, read = self.rows, self.rows["kind"] == READ
        served, least = rows["served_ts"], rows["min_ts"]
        within = read & (served != NIL) & (least != NIL)
        done = (rows["status"] == OK) & (served != NIL) & (rows["latest_ts"] != NIL)
        wrong = {
            BELOW_MINIMUM: within & (served < least),
            AHEAD: done & (served > rows["latest_ts"]),
            IN_VAIN: within & (rows["blocked_ns"] > 0) & (rows["unblocked_ts"] >= least),
        }
        for code, chosen in wrong.items():
            at = np.flatnonzero(chosen)
            record_each(Accused(at, np.full(len(at), -1)), rows["invoke"], self.cell, code, out)
        record_each(Accused(*behind(rows, self.cell)), rows["invoke"], self.cell, BEHIND, out)


def _matched(
    rows: Columns, version: Ints, versions: Versions, asked: np.ndarray, commits: np.ndarray
) -> tuple[Ints, np.ndarray, Ints]:
    """By row the version written or read at a timestamp; by version whether it is unclear and the row of its write.

    Where several wrote a value and all of them state their timestamps, each commit is a version of its own. A read at T
    shows the last of them at or below T, else the initial state if it shows nil, else the first.
    """
    write = rows["kind"] == WRITE
    unclear = versions.unclear.copy()
    unclear[version[write & ~commits]] = False
    every = np.flatnonzero(write & unclear[version])
    every = every[np.lexsort((rows["served_ts"][every], version[every]))]
    reads = np.flatnonzero(asked & unclear[version])
    last = _last_commit(rows, version, every, reads)
    first = every[np.minimum(np.searchsorted(version[every], version[reads]), max(0, len(every) - 1))]
    shown = np.where((last < 0) & (rows["value"][reads] != NIL), first, last)
    ids, count = together([version[every], rows["served_ts"][every]])
    matched = version.copy()
    matched[every] = len(unclear) + ids
    matched[reads[shown >= 0]] = matched[shown[shown >= 0]]
    writer = np.concatenate((versions.writer, np.empty(count, np.int64)))
    writer[matched[every]] = every
    writer[: len(unclear)][unclear] = -1
    return matched, np.concatenate((versions.unclear & ~unclear, np.zeros(count, np.bool_))), writer


def _last_commit(rows: Columns, within: Ints, commits: Ints, reads: Ints) -> Ints:
    """By read the last of the commits of equal `within` at or below its T, -1 if there is none."""
    row = np.concatenate((commits, reads))
    is_read = np.arange(len(row)) >= len(commits)
    time = np.concatenate((rows["served_ts"][commits], rows["requested_ts"][reads]))
    order = np.lexsort((is_read, time, within[row]))
    place = np.maximum.accumulate(np.where(is_read[order], -1, np.arange(len(order))))
    last = np.where(place >= 0, row[order[np.maximum(place, 0)]], -1)
    last[within[last] != within[row[order]]] = -1
    found = np.empty(len(row), np.int64)
    found[order] = last
    return found[len(commits) :]


def _stated(table: _ReadTable, row: int) -> dict[str, Any]:
    names = ("requested_ts", "served_ts", "bound", "value", "min_ts", "latest_ts", "unblocked_ts", "blocked_ns")
    told = {name: int(table.rows[name][row]) for name in names}
    return {name: None if value == NIL else value for name, value in told.items()}


def _findings(table: _ReadTable, out: Instances) -> list[Finding]:
    found = []
    for code, name in enumerate(ANOMALIES):
        for order, _, row, other, _, _ in out.kept[code, : out.counts[code]].tolist():
            writer = int(table.writer[table.version[row]])
            ops = (
                int(table.rows["invoke"][row]),
                int(table.rows["invoke"][other]) if other >= 0 else -1,
                int(table.rows["invoke"][writer]) if writer >= 0 else -1,
            )
            stamp = int(table.stamp[table.version[row]])
            facts: dict[str, Any] = {
                "mine": _stated(table, row),
                "other": _stated(table, other) if other >= 0 else None,
            }
            facts |= {"committed": None if stamp == NIL else stamp, "nobodys": bool(table.nobodys[table.version[row]])}
            found.append(Finding(name, int(order), key_of(table.rows, row), ops, facts))
    return found

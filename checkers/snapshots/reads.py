"""The model `snapshot-reads`: reads at a timestamp are final, complete and the same everywhere.

Columns: `requested_ts` is the T of a read; `served_ts` of an acknowledged write is its commit timestamp (a compare-and-
set writes too); `bound` (ns) of a read is how old its answer may be. Writes without `served_ts`, or of unknown outcome,
have a commit timestamp that is not known: of their versions only what reads themselves show is concluded.

The bound is judged on the harness's clock alone, `invoke_time` and `complete_time`: a read with bound B must not
certainly miss a write that completed B or longer before the read began (order of versions: `columns.versions`). Nodes'
HLC times (`served_ts` of reads) are not compared with it: an HLC may run ahead of its node's clock and nodes' clocks
apart, so that a low reading proves nothing by itself. Operations without times (`clock` none) have no bound to judge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from checkers.columns.codes import NEVER, NIL, OK, READ, WRITE, Ints
from checkers.columns.dense import together
from checkers.columns.instances import Instances, make_instances
from checkers.columns.mops import ADDRESS, Columns, MopProjection, key_of, unsupported_rows
from checkers.columns.versions import Versions, grouped_order, ordered_versions, sorted_cells
from checkers.engines.api import Engine
from checkers.engines.grouped import Sharing, judge_mops
from checkers.findings import Finding, Findings, refuse_unsupported
from checkers.options import CheckOptions
from checkers.snapshots.explain import explain_reads
from checkers.snapshots.snapshot_order import (
    ANOMALIES,
    Answers,
    BoundedReads,
    InCells,
    Snapshots,
    judge_snapshots,
    late_commits,
    stale_reads,
)
from checkers.source import Source
from checkers.verdict import Verdict

PROJECTION: Final = MopProjection(
    {"r": READ, "w": WRITE, "cas": WRITE},
    extras=("requested_ts", "served_ts", "bound", "invoke_time", "complete_time"),
    keep_failed=False,
)

EXPANDED: Final = 8
"""To judge a cell's reads takes 5.4 times what they take in a shuffle (`bench/task_memory.py`)."""


def judge_snapshot_reads(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Whether reads at a timestamp, and reads of bounded staleness, kept their promise; unknown if there are none."""
    kernel = SnapshotKernel(options.explain)
    found = judge_mops(engine, source, PROJECTION, ADDRESS, kernel, options.explain, Sharing(expanded=EXPANDED))
    refuse_unsupported(found, source.path, "snapshot-reads")
    promised = bool(found.figures.get("snapshot_reads") or found.figures.get("bounded_reads"))
    return Verdict(
        not found.counts if found.counts or promised else "unknown",
        "snapshot-reads",
        explain_reads(source, found.kept),
        found.counts,
        found.ops,
        engine=engine.name,
        reason=None if found.counts or promised else "No read that succeeded states a timestamp or a bound.",
        details={"cells": found.keys} | found.figures,
    )


@dataclass(frozen=True, slots=True)
class SnapshotKernel:
    """Judges many cells at once; `explain` instances of each anomaly are kept."""

    explain: int

    def __call__(self, rows: Columns) -> Findings:
        """Findings; their figures count reads at a timestamp, bounded reads, and reads of unclear versions."""
        problems = unsupported_rows(rows, "not reads, writes or compare-and-sets of integers")
        if problems:
            return Findings(ops=len(rows["kind"]), unsupported=problems)
        table = _ReadTable.of(rows)
        out = make_instances(len(ANOMALIES), self.explain)
        table.judge_snapshots(out)
        table.judge_late_commits(out)
        table.judge_bounds(out)
        counts = {name: int(count) for name, count in zip(ANOMALIES, out.counts, strict=True) if count}
        figures = {
            "snapshot_reads": int(table.asked.sum()),
            "bounded_reads": int(table.bounded.sum()),
            "reads_undecided": int((table.asked & table.versions.unclear[table.version]).sum()),
        }
        return Findings(len(table.cell), table.cells, counts, tuple(_findings(table, out)), figures=figures)


@dataclass(frozen=True, slots=True)
class _ReadTable:
    """Rows sorted by cell and invocation; `asked` are reads at a timestamp, `bounded` reads with a bound, `commits`
    acknowledged writes with a timestamp; `stamp` is by version its commit timestamp, NIL if not known."""

    rows: Columns
    cell: Ints
    cells: int
    version: Ints
    versions: Versions
    stamp: Ints
    asked: np.ndarray
    bounded: np.ndarray
    commits: np.ndarray

    @staticmethod
    def of(rows: Columns) -> _ReadTable:
        rows, cell, begin = sorted_cells(rows)
        version, count = together([cell, rows["value"]])
        versions, _ = ordered_versions(rows, cell, len(begin) - 1, version, count, cell)
        read = rows["kind"] == READ
        commits = ~read & (rows["status"] == OK) & (rows["served_ts"] != NIL)
        stamp = np.full(count, NIL)
        known = commits & ~versions.unclear[version]
        stamp[version[known]] = rows["served_ts"][known]
        asked, bounded = read & (rows["requested_ts"] != NIL), read & (rows["bound"] != NIL)
        return _ReadTable(rows, cell, len(begin) - 1, version, versions, stamp, asked, bounded, commits)

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

    def judge_snapshots(self, out: Instances) -> None:
        time, until = np.ascontiguousarray(self.rows["requested_ts"]), self.until()
        unset = self.version[(self.rows["value"] == NIL) & ~self.versions.unclear[self.version]]
        until[unset] = NIL
        by_time = self._sorted(self.asked, time)
        by_stamp = self._sorted(self.commits, self.rows["served_ts"])
        known = self.stamp.copy()
        known[unset] = NIL + 1
        stamp = np.where(self.commits, self.rows["served_ts"], known[self.version])
        judged = ~self.versions.unclear[self.version]
        reads, commits = (by_time.rows, by_time.begin, time), (by_stamp.rows, by_stamp.begin, stamp)
        events = (self.rows["invoke"], self.rows["complete"])
        judge_snapshots(Snapshots(*reads, *commits, self.version, until, *events, judged), out)

    def judge_late_commits(self, out: Instances) -> None:
        invoke, complete = self.rows["invoke"], self.rows["complete"]
        bounded_above = self.until()[self.version] != NEVER
        committed = (self.rows["kind"] == WRITE) & ~self.versions.unclear[self.version] & bounded_above
        commits, reads = self._sorted(self.commits | committed, invoke), self._sorted(self.asked, complete)
        stamp = np.where(self.commits, self.rows["served_ts"], self.until()[self.version])
        time = np.ascontiguousarray(self.rows["requested_ts"])
        late_commits(commits, reads, Answers(invoke, complete, stamp, time), out)

    def judge_bounds(self, out: Instances) -> None:
        timed = self.rows["complete_time"] != NIL
        judged = ~self.versions.unclear[self.version]
        horizon = np.where(self.bounded, self.rows["invoke_time"] - np.where(self.bounded, self.rows["bound"], 0), 0)
        reads = self._sorted(self.bounded & timed & judged, horizon)
        written = (self.rows["kind"] == WRITE) & (self.rows["status"] == OK) & timed & judged
        writes = self._sorted(written, self.rows["complete_time"])
        by_row = (self.version, horizon, self.rows["complete_time"], self.rows["invoke"])
        stale_reads(reads, writes, BoundedReads(*by_row, self.versions.since, self.versions.settled), out)


def _told(table: _ReadTable, row: int) -> dict[str, Any]:
    names = ("requested_ts", "served_ts", "bound", "value")
    told = {name: int(table.rows[name][row]) for name in names}
    return {name: None if value == NIL else value for name, value in told.items()}


def _findings(table: _ReadTable, out: Instances) -> list[Finding]:
    found = []
    for code, name in enumerate(ANOMALIES):
        for order, _, row, other, _, _ in out.kept[code, : out.counts[code]].tolist():
            writer = int(table.versions.writer[table.version[row]])
            ops = (
                int(table.rows["invoke"][row]),
                int(table.rows["invoke"][other]) if other >= 0 else -1,
                int(table.rows["invoke"][writer]) if writer >= 0 else -1,
            )
            facts = {"mine": _told(table, row), "other": _told(table, other) if other >= 0 else None}
            stamp = int(table.stamp[table.version[row]])
            facts["committed"] = None if stamp == NIL else stamp  # type: ignore[assignment]
            found.append(Finding(name, int(order), key_of(table.rows, row), ops, facts))
    return found

"""The model `snapshot-reads`: reads at a timestamp are final, complete and the same everywhere.

Columns: `requested_ts` is the T of a read; `served_ts` of an acknowledged write is its commit timestamp (a compare-and-
set writes too); `bound` (ns) of a read is how old its answer may be. Writes without `served_ts`, or of unknown outcome,
have a commit timestamp that is not known: of their versions only what reads themselves show is concluded.

The bound is judged on the harness's clock alone, `invoke_time` and `complete_time`: a read with bound B must not
certainly miss a write that completed B or longer before the read began (order of versions: `kernels.versions`). Nodes'
HLC times (`served_ts` of reads) are not compared with it: an HLC may run ahead of its node's clock and nodes' clocks
apart, so that a low reading proves nothing by itself. Operations without times (`clock` none) have no bound to judge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from checkers.engines.api import Engine
from checkers.engines.grouped import judge_mops
from checkers.findings import Finding, Findings, Key
from checkers.kernels.columns import NEVER, NIL, Ints
from checkers.kernels.dense import together
from checkers.kernels.instances import Instances, make_instances
from checkers.kernels.snapshot_order import ANOMALIES, Snapshots, judge_snapshots, late_commits, stale_reads
from checkers.kernels.versions import READ, WRITE, Versions, grouped_order, ordered_versions, sorted_cells
from checkers.mops import ADDRESS, OK, Columns, MopProjection, strangers
from checkers.options import CheckOptions
from checkers.snapshots.words import explain_reads
from checkers.source import Source
from checkers.verdict import Verdict
from harness.errors import UserError

PROJECTION: Final = MopProjection(
    {"r": READ, "w": WRITE, "cas": WRITE},
    extras=("requested_ts", "served_ts", "bound", "invoke_time", "complete_time"),
    keep_failed=False,
)


def judge_snapshot_reads(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Whether reads at a timestamp, and reads of bounded staleness, kept their promise."""
    kernel = SnapshotKernel(options.explain)
    found = judge_mops(engine, source, PROJECTION, ADDRESS, kernel, options.explain)
    if found.unsupported:
        raise UserError(
            f"{source.path}, event {found.unsupported[0]}: not reads, writes or compare-and-sets of integers, so the "
            "model snapshot-reads can't judge it."
        )
    return Verdict(
        not found.counts,
        "snapshot-reads",
        explain_reads(source, found.kept),
        found.counts,
        found.ops,
        engine=engine.name,
        details={"cells": found.keys} | found.figures,
    )


@dataclass(frozen=True, slots=True)
class SnapshotKernel:
    """Judges many cells at once; `explain` instances of each anomaly are kept."""

    explain: int

    def __call__(self, rows: Columns) -> Findings:
        """Findings; their figures count reads at a timestamp, bounded reads, and reads of unclear versions."""
        strange = strangers(rows)
        if strange:
            return Findings(ops=len(rows["kind"]), unsupported=strange)
        table = _Table.of(rows)
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
class _Table:
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
    def of(rows: Columns) -> _Table:
        rows, cell, begin = sorted_cells(rows)
        version, count = together([cell, rows["value"]])
        versions, _ = ordered_versions(rows, cell, len(begin) - 1, version, count, cell)
        read = rows["kind"] == READ
        commits = ~read & (rows["status"] == OK) & (rows["served_ts"] != NIL)
        stamp = np.full(count, NIL)
        known = commits & ~versions.unclear[version]
        stamp[version[known]] = rows["served_ts"][known]
        asked, bounded = read & (rows["requested_ts"] != NIL), read & (rows["bound"] != NIL)
        return _Table(rows, cell, len(begin) - 1, version, versions, stamp, asked, bounded, commits)

    def _sorted(self, chosen: np.ndarray, by: Ints) -> tuple[Ints, Ints]:
        """The chosen rows by cell and the given column, and where cells begin."""
        row = np.flatnonzero(chosen)
        order, begin = grouped_order(self.cell[row], self.cells, by[row])
        return row[order], begin

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
        by_time, read_begin = self._sorted(self.asked, time)
        by_stamp, commit_begin = self._sorted(self.commits, self.rows["served_ts"])
        known = self.stamp.copy()
        known[unset] = NIL + 1
        stamp = np.where(self.commits, self.rows["served_ts"], known[self.version])
        judged = ~self.versions.unclear[self.version]
        columns = (stamp, self.version, until, self.rows["invoke"], self.rows["complete"], judged)
        judge_snapshots(Snapshots(by_time, read_begin, time, by_stamp, commit_begin, *columns), out)

    def judge_late_commits(self, out: Instances) -> None:
        invoke, complete = self.rows["invoke"], self.rows["complete"]
        bounded_above = self.until()[self.version] != NEVER
        committed = (self.rows["kind"] == WRITE) & ~self.versions.unclear[self.version] & bounded_above
        commits, commit_begin = self._sorted(self.commits | committed, invoke)
        reads, read_begin = self._sorted(self.asked, complete)
        stamp = np.where(self.commits, self.rows["served_ts"], self.until()[self.version])
        time = np.ascontiguousarray(self.rows["requested_ts"])
        late_commits(commits, commit_begin, reads, read_begin, invoke, complete, stamp, time, out)

    def judge_bounds(self, out: Instances) -> None:
        timed = self.rows["complete_time"] != NIL
        judged = ~self.versions.unclear[self.version]
        horizon = np.where(self.bounded, self.rows["invoke_time"] - np.where(self.bounded, self.rows["bound"], 0), 0)
        reads, read_begin = self._sorted(self.bounded & timed & judged, horizon)
        written = (self.rows["kind"] == WRITE) & (self.rows["status"] == OK) & timed & judged
        writes, write_begin = self._sorted(written, self.rows["complete_time"])
        order = (self.version, horizon, self.rows["complete_time"], self.versions.since, self.versions.settled)
        stale_reads(reads, read_begin, writes, write_begin, *order, self.rows["invoke"], out)


def _address(rows: Columns, row: int) -> Key:
    table, partition, line, column = (int(rows[name][row]) for name in ADDRESS)
    return table, partition, line, column


def _told(table: _Table, row: int) -> dict[str, Any]:
    names = ("requested_ts", "served_ts", "bound", "value")
    told = {name: int(table.rows[name][row]) for name in names}
    return {name: None if value == NIL else value for name, value in told.items()}


def _findings(table: _Table, out: Instances) -> list[Finding]:
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
            found.append(Finding(name, int(order), _address(table.rows, row), ops, facts))
    return found

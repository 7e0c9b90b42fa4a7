"""What a report needs of a saved run, read tolerantly: whatever is missing or broken is named, not fatal.

A history is reduced to what plots need: exact counts per second, and a bounded sample of single operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.importers.detect import open_source
from harness.errors import ELSEWHERE, UNDECODABLE, UserError
from harness.history.journal import read_journal
from harness.history.rundir import RunDir
from harness.history.saved import open_saved
from harness.history.table import batches
from harness.verdict.facts import conclude_run, load_faults
from harness.verdict.faults import Fault
from harness.verdict.leaderships import Leadership
from harness.verdict.run_seal import is_verdict_of
from results.neighbours import MOST_GROUPS, FindingGroup, find_neighbours, grouped

MAX_SAMPLE = 24_000
COLUMNS = ["process", "phase", "f", "type", "invoke_time", "complete_time", "value", "error_class", "error"]
TYPES = ("ok", "info", "fail")
OUTCOMES = ("ok", "info", ELSEWHERE, "fail")
"""How operations are counted: one that a node refused because others serve what it is about was answered."""


@dataclass(slots=True)
class Series:
    """Operations of one `f` and type: how many in each second, and a sample of (time s, latency s)."""

    per_second: np.ndarray[Any, Any] = field(default_factory=lambda: np.zeros(64, np.int64))
    times_s: list[np.ndarray[Any, Any]] = field(default_factory=list)
    latencies_s: list[np.ndarray[Any, Any]] = field(default_factory=list)

    @property
    def count(self) -> int:
        return int(self.per_second.sum())

    def sample(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Times and latencies of the sampled operations that completed."""
        empty = np.zeros(0)
        return np.concatenate([empty, *self.times_s]), np.concatenate([empty, *self.latencies_s])

    def add(self, times_s: np.ndarray[Any, Any], latencies_s: np.ndarray[Any, Any], stride: int) -> None:
        """Count all operations; keep every `stride`-th, and what took longest among the rest of the batch."""
        counts = np.bincount(times_s.astype(np.int64), minlength=len(self.per_second))
        counts[: len(self.per_second)] += self.per_second
        self.per_second = counts
        kept = np.zeros(len(times_s), bool)
        kept[::stride] = True
        kept[np.argsort(-np.nan_to_num(latencies_s))[: len(times_s) // (4 * stride)]] = True
        kept &= ~np.isnan(latencies_s)
        self.times_s.append(times_s[kept])
        self.latencies_s.append(latencies_s[kept])


@dataclass(slots=True)
class MissedOperations:
    """Operations of one error class and type: how many by `f`, and what the first of them was told."""

    message: str
    by_f: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Points:
    """Client operations by (f, outcome), the length of the history, and the nemesis' own operations as they were saved.

    `stride` above 1 means that single operations are a sample (the slowest are kept); counts are always exact.
    `phases` counts client operations by phase, `begins_s` says when each phase began; `missed` are those that did not
    succeed, by error class and type.
    """

    series: dict[tuple[str, str], Series] = field(default_factory=dict)
    end_s: float = 0.0
    stride: int = 1
    phases: dict[str, int] = field(default_factory=dict)
    begins_s: dict[str, float] = field(default_factory=dict)
    missed: dict[tuple[str, str], MissedOperations] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)

    @property
    def fs(self) -> tuple[str, ...]:
        """Every `f` in order of first appearance."""
        return tuple(dict.fromkeys(f for f, _ in self.series))

    def count_class(self, f: str, error_class: str) -> int:
        """Operations of one `f` and error class, however they ended."""
        return sum(missed.by_f[f] for (each, _), missed in self.missed.items() if each == error_class)

    def count(self, f: str, type: str) -> int:
        series = self.series.get((f, type))
        return series.count if series else 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in one batch of the history table."""
        process = batch["process"].to_numpy(zero_copy_only=False)
        self.steps += batch.filter(pa.array(process < 0)).to_pylist()
        clients = batch.filter(pa.array(process >= 0))
        if clients.num_rows == 0:
            return
        begin = clients["invoke_time"].to_numpy(zero_copy_only=False) / 1e9
        end = clients["complete_time"].cast(pa.float64()).to_numpy(zero_copy_only=False) / 1e9
        self.end_s = max(self.end_s, float(begin.max()), float(np.nan_to_num(end).max()))
        labels = [np.asarray(clients[name].to_pylist(), dtype=object) for name in ("f", "type")]
        elsewhere = pc.fill_null(pc.equal(clients["error_class"].cast(pa.string()), ELSEWHERE), False)
        labels[1][elsewhere.to_numpy(zero_copy_only=False)] = ELSEWHERE
        for f in dict.fromkeys(labels[0]):
            for type in dict.fromkeys(labels[1]):
                chosen = (labels[0] == f) & (labels[1] == type)
                if chosen.any():
                    series = self.series.setdefault((f, type), Series())
                    series.add(begin[chosen], end[chosen] - begin[chosen], self.stride)
        self._add_missed(clients)
        for phase, begin_s in zip(clients["phase"].to_pylist(), begin.tolist(), strict=True):
            self.phases[phase or "main"] = self.phases.get(phase or "main", 0) + 1
            self.begins_s[phase or "main"] = min(self.begins_s.get(phase or "main", begin_s), begin_s)

    def _add_missed(self, clients: pa.RecordBatch) -> None:
        rows = clients.filter(pc.not_equal(clients["type"].cast(pa.string()), "ok"))
        told = (rows[name].to_pylist() for name in ("error_class", "type", "f", "error"))
        for error_class, type, f, error in zip(*told, strict=True):
            missed = self.missed.setdefault((error_class or "none", type), MissedOperations(error or ""))
            missed.by_f[f] += 1


def read_points(rundir: RunDir) -> Points | None:
    """The points of a run from its table, else from its journal's sealed prefix; None if it has neither.

    Raises UserError, OSError or ValueError for a history that can't be read.
    """
    points = Points()
    if rundir.history_parquet.exists():
        saved = open_saved(rundir.history_parquet)
        points.stride = max(1, saved.manifest.rows // MAX_SAMPLE)
        for batch in saved.batches(COLUMNS, texts=()):
            points.add(batch)
    elif rundir.journal.exists():
        for batch in journal_batches(rundir):
            points.add(batch.select(COLUMNS))
    else:
        return None
    return points


def journal_batches(rundir: RunDir) -> Iterator[pa.RecordBatch]:
    """The table of what the journal holds so far."""
    return batches(read_journal(rundir.journal))


def decoded(value: object) -> dict[str, Any]:
    """The value column of an operation, which is JSON; another database's nemesis may say anything there."""
    try:
        found = msgspec.json.decode(value) if isinstance(value, str) else None
    except UNDECODABLE:
        return {}
    return found if isinstance(found, dict) else {}


T = TypeVar("T")

_BADNESS = ("valid", "unknown", "invalid")


@dataclass(frozen=True, slots=True)
class Saved:
    """The parts of a run: `run`, `outcome` and `verdict` as their JSON files hold them; empty where there is none.

    `points` is None when there is no readable history. `gaps` says in sentences what could not be read. `groups` are
    the anomalies by key and time.
    """

    rundir: RunDir
    run: Mapping[str, Any]
    outcome: Mapping[str, Any]
    verdict: Mapping[str, Any]
    faults: tuple[Fault, ...]
    points: Points | None
    leaders: tuple[Leadership, ...] = ()
    gaps: tuple[str, ...] = field(default=())
    groups: tuple[FindingGroup, ...] = ()

    @property
    def options(self) -> Mapping[str, Any]:
        """Everything the user gave."""
        options = self.run.get("options")
        return options if isinstance(options, dict) else {}

    @property
    def checkers(self) -> Mapping[str, Mapping[str, Any]]:
        """The checkers' own verdicts, by name."""
        found = self.verdict.get("checkers")
        return {n: v for n, v in found.items() if isinstance(v, dict)} if isinstance(found, dict) else {}


def load(rundir: RunDir) -> Saved:
    """Read what is there; never raises for what is not."""
    gaps: list[str] = []
    run = _tolerant(gaps, lambda: _object(rundir, rundir.run_json)) or {}
    outcome = _tolerant(gaps, lambda: _object(rundir, rundir.outcome_json)) or {}
    verdict = _tolerant(gaps, lambda: _object(rundir, rundir.verdict_json)) or {}
    faults = _tolerant(gaps, lambda: load_faults(rundir)) or ()
    points = _tolerant(gaps, lambda: _points(rundir))
    leaders = _tolerant(gaps, lambda: _leaders(rundir)) or ()
    if verdict:
        verdict = _believed(gaps, rundir, verdict)
    else:
        gaps.append("This run has no verdict: it ended before it was judged. `assay check` judges what was saved.")
    groups = _tolerant(gaps, lambda: _groups(rundir, verdict)) or ()
    return Saved(rundir, run, outcome, verdict, faults, points, leaders, tuple(dict.fromkeys(gaps)), groups)


def _leaders(rundir: RunDir) -> tuple[Leadership, ...]:
    return msgspec.convert(rundir.read_json(rundir.leaders_json) or (), tuple[Leadership, ...])


def _points(rundir: RunDir) -> Points | None:
    """The history to be drawn; raises UserError if it is damaged, as for judging it."""
    if rundir.history_parquet.exists():
        open_source(rundir.history_parquet, "parquet")
    return read_points(rundir)


def _groups(rundir: RunDir, verdict: Mapping[str, Any]) -> tuple[FindingGroup, ...]:
    """The anomalies by key and time, with what happened around them."""
    checkers = verdict.get("checkers")
    groups = grouped(checkers if isinstance(checkers, dict) else {})
    if groups:
        find_neighbours(groups[:MOST_GROUPS], open_source(rundir.path))
    return tuple(groups)


def _believed(gaps: list[str], rundir: RunDir, verdict: dict[str, Any]) -> dict[str, Any]:
    """The saved verdict if it is one on these files, and its word what its own checkers and the run's facts come to,
    else with the worst word."""
    checkers = verdict.get("checkers")
    anew = _tolerant(gaps, lambda: conclude_run(rundir, checkers if isinstance(checkers, dict) else {}))
    saved, word = verdict.get("overall"), "unknown" if anew is None else anew.overall
    if saved not in _BADNESS:
        return verdict
    words = [saved, word]
    if saved != word:
        gaps.append(
            f"verdict.json says {saved}, but what the run saved comes to {word}: a file was changed, or can't be read. "
            "`assay check` judges the run anew."
        )
    if not is_verdict_of(rundir, verdict):
        words.append("unknown")
        gaps.append(
            "verdict.json is not what was said of these files, word for word (or an older assay said it): "
            "`assay check` judges the run anew."
        )
    overall = max(words, key=_BADNESS.index)
    whys = {"unknown": "harness", saved: verdict.get("why"), **({} if anew is None else {anew.overall: anew.why})}
    return {**verdict, "overall": overall, "why": whys[overall]}


def _object(rundir: RunDir, path: Path) -> dict[str, Any]:
    value = rundir.read_json(path)
    return value if isinstance(value, dict) else {}


def _tolerant(gaps: list[str], read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (UserError, OSError, ValueError, msgspec.MsgspecError) as error:
        gaps.append(str(error))
        return None

"""What a report needs of a saved run, read tolerantly: whatever is missing or broken is named, not fatal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from checkers.importers.detect import open_source
from harness.errors import UserError
from harness.history.rundir import RunDir
from harness.verdict.facts import conclude_run, load_faults
from harness.verdict.faults import Fault
from harness.verdict.leaderships import Leadership
from harness.verdict.run_seal import is_verdict_of
from results.neighbours import MOST_GROUPS, FindingGroup, find_neighbours, grouped
from results.points import Points, read_points

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
    return {**verdict, "overall": max(words, key=_BADNESS.index)}


def _object(rundir: RunDir, path: Path) -> dict[str, Any]:
    value = rundir.read_json(path)
    return value if isinstance(value, dict) else {}


def _tolerant(gaps: list[str], read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (UserError, OSError, ValueError, msgspec.MsgspecError) as error:
        gaps.append(str(error))
        return None

"""A saved run as whoever makes it again needs it: its options, what it found, and of what it was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import msgspec

from assay.night.records import RunFinding
from assay.night.signature import evidence_of, families_of, symptom_of
from assay.options import RunOptions
from harness.errors import UserError
from harness.history.rundir import RunDir, is_run
from harness.verdict.facts import RunRecord, read_record


@dataclass(frozen=True, slots=True)
class SavedRun:
    """A finished run; `findings` are what it found of the database, one of each family, none of a run that was not
    refuted; `trace` the digest of a simulation's steps, `load_s` how long its load lasted."""

    rundir: RunDir
    record: RunRecord
    options: RunOptions
    overall: str
    findings: tuple[RunFinding, ...]
    trace: str | None
    load_s: float = 0.0

    @property
    def path(self) -> Path:
        return self.rundir.path

    @property
    def finding(self) -> RunFinding | None:
        """The one that is the run's, as nights group runs."""
        return self.findings[0] if self.findings else None

    @property
    def history_start_s(self) -> float:
        """When the history began, seconds since the run did."""
        outcome = self.rundir.read_json(self.rundir.outcome_json)
        return int((outcome or {}).get("history_start_ns") or 0) / 1e9

    def refuted(self, to: str, anomaly: str | None = None) -> RunFinding:
        """Its finding, or the one of this name; raises UserError where there is none to do something about (`to`: such
        as `shrink`)."""
        if not self.findings:
            raise UserError(f"{self.path} is {self.overall}, so there is nothing to {to}.")
        if anomaly is None:
            return self.findings[0]
        found = [each for each in self.findings if each.name in (anomaly, symptom_of(anomaly))]
        if not found:
            names = ", ".join(each.name for each in self.findings)
            raise UserError(f"No {anomaly} refutes {self.path}; what does: {names}.")
        return found[0]

    def beside(self, wanted: RunFinding) -> dict[str, str]:
        """Its findings of other families, each in a sentence, by their names."""
        return {each.name: each.title for each in self.findings if each.family != wanted.family}


def saved_run(path: Path) -> SavedRun:
    """The run that is saved there; raises UserError for what is none, and for one that did not end."""
    if not is_run(path):
        raise UserError(f"{path} is no run directory.")
    rundir = RunDir(path.resolve())
    record, verdict = read_record(rundir), rundir.read_json(rundir.verdict_json)
    if not isinstance(verdict, dict):
        raise UserError(f"{path} did not end: it has no verdict to go by.")
    found = families_of(evidence_of(rundir))
    options = options_from(record.options)
    return SavedRun(rundir, record, options, str(verdict.get("overall")), found, verdict.get("trace"), _load_s(verdict))


def _load_s(verdict: Mapping[str, Any]) -> float:
    try:
        return float(verdict["adequacy"]["details"]["load_s"]["lasted"])
    except (KeyError, TypeError, ValueError):
        return 0.0


_BESIDE = frozenset({"command", "checkers", "faults"})
"""What `run.json` says beside the options."""


def options_from(saved: Mapping[str, Any]) -> RunOptions:
    """Options as they were saved; raises UserError for those that there are none of."""
    known = {each.name for each in fields(RunOptions)}
    if unknown := sorted(set(saved) - known - _BESIDE):
        raise UserError(f"There is no option {unknown[0]!r} of a run, which was saved of one.")
    own = {name: value for name, value in saved.items() if name in known}
    try:
        return msgspec.convert(own, RunOptions, dec_hook=lambda kind, value: kind(value))
    except msgspec.ValidationError as error:
        raise UserError(f"The options of a run can't be read: {error}.") from error

"""Outcomes of runs, a line a run in a file: a campaign that is begun again leaves out what the file has."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from assay.runner import RunResult
from harness.errors import UNDECODABLE, UserError


class CampaignOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one run; `command`, without its store, is what it is known by. `anomalies` are what clients saw,
    `invariants` those that broke; a run of another `commit` (None: not known) is not this one."""

    command: str
    commit: str | None
    overall: str
    anomalies: tuple[str, ...] = ()
    invariants: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    ops: int = 0
    cpu_s: float = 0.0

    @property
    def found(self) -> bool:
        """Whether a checker refuted the run (a cluster that merely did not recover proves no flaw)."""
        return self.overall == "invalid" and bool(self.anomalies or self.invariants)


def outcome_of(result: RunResult, command: str, commit: str | None) -> CampaignOutcome:
    """The line of a result."""
    return CampaignOutcome(
        command=command,
        commit=commit,
        overall=result.overall,
        anomalies=tuple(name for name in result.anomalies if name not in result.invariants),
        invariants=result.invariants,
        reasons=result.reasons,
        ops=result.ops,
        cpu_s=round(result.cpu_s, 2),
    )


class CampaignRecord:
    """The outcomes of one commit's runs by command, and the file that each new one is appended to."""

    def __init__(self, path: Path, commit: str | None) -> None:
        self._path, self.commit = path, commit
        self._known: dict[str, CampaignOutcome] = {}
        for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else (), 1):
            try:
                outcome = msgspec.json.decode(line, type=CampaignOutcome)
            except UNDECODABLE as error:
                raise UserError(f"{path}, line {number}, is no outcome of a campaign: {error}.") from error
            if outcome.commit == commit:
                self._known[outcome.command] = outcome

    def __contains__(self, command: str) -> bool:
        return command in self._known

    def add(self, outcome: CampaignOutcome) -> None:
        """Keep it, in the file first."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(outcome) + b"\n")
        self._known[outcome.command] = outcome

    def of(self, commands: Iterable[str]) -> tuple[CampaignOutcome, ...]:
        """The outcomes of the commands among these that are known, in their order."""
        return tuple(self._known[command] for command in commands if command in self._known)

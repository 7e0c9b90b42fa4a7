"""Judging a saved run by the checkers that its workload names, and making its report."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checkers.api import check_run
from checkers.importers.detect import open_source
from checkers.options import CheckOptions
from checkers.verdict import Verdict, as_object
from harness.errors import UnwritableError, UserError
from harness.history.rundir import RunDir, open_run
from harness.verdict.facts import read_record
from harness.verdict.run_seal import broken_seal, is_verdict_of
from nemesis.registry import NEMESES
from workloads.registry import workload


def judge_saved_run(rundir: RunDir, cores: int | None = None) -> Mapping[str, Any]:
    """Every checker's verdict on a run, JSON-able, by name; found on `cores` cores (None: all)."""
    return {name: as_object(verdict) for name, verdict in judge_run(rundir, CheckOptions(cores=cores), "auto").items()}


def judge_run(rundir: RunDir, options: CheckOptions, engine: str) -> dict[str, Verdict]:
    """Judge all that the run's workload asks for; a run's failed compare-and-sets completed and saw another value."""
    return check_run(rundir.path, workload(read_record(rundir).workload).checkers, engine=engine, options=options)


def report_of(rundir: RunDir) -> Path | None:
    """The run's report, or None with a word on standard error: a failed plot never costs the verdict."""
    from results.report import build_report

    try:
        return build_report(rundir.path, colors())
    except Exception as error:  # noqa: BLE001 - the verdict is saved already and must still be told
        print(f"assay: the report could not be made: {type(error).__name__}: {error}", file=sys.stderr)
        return None


def rebuild_report(run_directory: Path, to: Path | None) -> tuple[Path, tuple[str, ...]]:
    """Build the report of a saved run again, in the run or where it is told; its path, and in sentences why the run's
    files are not those of one whole run. Raises UserError, or UnwritableError that says how to have it elsewhere."""
    from results.report import build_report

    if to is not None and not to.parent.is_dir():
        raise UserError(f"There is no directory {to.parent} for the report {to.name}.")
    try:
        return build_report(run_directory, colors(), to), unfit(open_run(run_directory))
    except UnwritableError as error:
        raise UnwritableError(f"{str(error).rstrip('.')}; name another file with --to.") from error


def unfit(rundir: RunDir) -> tuple[str, ...]:
    """Why the saved files are not those of one run: the seals of the run, of its verdict and of its history. Of one
    that was killed before it was sealed only the history is asked for."""
    found: list[str] = []
    try:
        sealed = any(path.exists() for path in (rundir.seal_json, rundir.outcome_json, rundir.verdict_json))
        found += broken_seal(rundir) if sealed else ()
        verdict = rundir.read_json(rundir.verdict_json)
        if sealed and not (isinstance(verdict, dict) and is_verdict_of(rundir, verdict)):
            found.append("verdict.json is not what was said of these files")
        open_source(rundir.path)
    except UserError as error:
        found.append(str(error).rstrip("."))
    return tuple(found)


def colors() -> Mapping[str, str]:
    """How the report shades each kind of fault."""
    return {name: info.color for name, info in NEMESES.items()}

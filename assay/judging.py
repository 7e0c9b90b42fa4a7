"""Judging a saved run by the checkers that its workload names, and making its report."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checkers.api import check_run
from checkers.engines.session import SparkOptions
from checkers.importers.detect import open_source
from checkers.models import MODELS
from checkers.options import CheckOptions
from checkers.verdict import Verdict, as_object
from harness.errors import UnwritableError, UserError
from harness.history.rundir import RunDir, open_run
from harness.verdict.facts import RunRecord, read_record
from harness.verdict.run_seal import broken_seal, is_verdict_of
from nemesis.registry import NEMESES
from workloads.registry import workload


def judge_saved_run(rundir: RunDir, cores: int | None = None, master: str | None = None) -> Mapping[str, Any]:
    """Every checker's verdict on a run, JSON-able, by name; found on `cores` cores (None: all), or by the Spark of this
    `master`."""
    options = CheckOptions(cores=cores, spark=SparkOptions(master))
    found = judge_run(rundir, options, "auto" if master is None else "spark")
    return {name: as_object(verdict) for name, verdict in found.items()}


def judge_run(rundir: RunDir, options: CheckOptions, engine: str) -> dict[str, Verdict]:
    """Judge all that the run was made for; a run's failed compare-and-sets completed and saw another value."""
    record = read_record(rundir)
    return check_run(rundir.path, checkers_of(record), engine=engine, options=options, settings=record.settings)


def checkers_of(record: RunRecord) -> tuple[str, ...]:
    """The models that a run is judged by, as it was saved; a workload's, where an older run does not say. Raises
    UserError for models that nobody has here: a plugin that was there then may lack now."""
    saved = record.options.get("checkers")
    models = tuple(map(str, saved)) if isinstance(saved, list) else workload(record.workload).checkers
    lacking = [name for name in models if name not in MODELS]
    if lacking:
        given = f"; it was made with the plugin {record.plugin}" if record.plugin else ""
        raise UserError(f"The run is judged by {', '.join(lacking)}, which is no model of ours{given}.")
    return models


def report_of(rundir: RunDir) -> Path | None:
    """The run's report, or None with a word on standard error: a failed plot never costs the verdict."""
    from results.report import build_report

    try:
        return build_report(rundir.path, colors())
    except Exception as error:  # noqa: BLE001 - the verdict is saved already and must still be told
        print(f"assay: the report could not be made: {type(error).__name__}: {error}", file=sys.stderr)
        return None


def rebuild_report(run_directory: Path, to: Path | None) -> tuple[Path, tuple[str, ...]]:
    """Build the report of a saved run again, in the run or where it is told (a name without an ending is a folder,
    which is made); its path, and in sentences why the run's files are not those of one whole run. Raises UserError, or
    UnwritableError that says how to have it elsewhere."""
    from results.report import build_report

    if to is not None and not to.parent.is_dir():
        raise UserError(f"There is no directory {to.parent} for the report {to.name}.")
    rundir = open_run(run_directory)
    try:
        if to is not None and not to.suffix:
            to.mkdir(exist_ok=True)
        return build_report(run_directory, colors(), to), unfit(rundir)
    except OSError as error:
        raise UnwritableError(f"The folder {to} can't be made: {error.strerror}.") from error
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

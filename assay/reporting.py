"""Making the report of a saved run, with the colours of the known faults."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from harness.errors import UnwritableError, UserError
from harness.history.rundir import RunDir
from nemesis.registry import NEMESES


def report_of(rundir: RunDir) -> Path | None:
    """The run's report, or None with a word on standard error: a failed plot never costs the verdict."""
    from results.report import build_report

    try:
        return build_report(rundir.path, colors())
    except Exception as error:  # noqa: BLE001 - the verdict is saved already and must still be told
        print(f"assay: the report could not be made: {type(error).__name__}: {error}", file=sys.stderr)
        return None


def rebuild_report(run_directory: Path, to: Path | None) -> str:
    """Build the report of a saved run again, in the run or where it is told, and return its path; raises UserError, or
    UnwritableError that says how to have it elsewhere."""
    from results.report import build_report

    if to is not None and not to.parent.is_dir():
        raise UserError(f"There is no directory {to.parent} for the report {to.name}.")
    try:
        return str(build_report(run_directory, colors(), to))
    except UnwritableError as error:
        raise UnwritableError(f"{str(error).rstrip('.')}; name another file with --to.") from error


def colors() -> Mapping[str, str]:
    """How the report shades each kind of fault."""
    return {name: info.style.color for name, info in NEMESES.items()}

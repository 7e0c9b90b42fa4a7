"""Judging a saved run by the checkers that its workload names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkers.api import check_run
from checkers.options import CheckOptions
from checkers.verdict import Verdict, as_object
from harness.history.rundir import RunDir
from harness.verdict.facts import read_record
from workloads.registry import workload


def judge_saved_run(rundir: RunDir, cores: int | None = None) -> Mapping[str, Any]:
    """Every checker's verdict on a run, JSON-able, by name; found on so many cores (None: all)."""
    return {name: as_object(verdict) for name, verdict in judge_run(rundir, CheckOptions(cores=cores), "auto").items()}


def judge_run(rundir: RunDir, options: CheckOptions, engine: str) -> dict[str, Verdict]:
    """Judge all that the run's workload asks for; a run's failed compare-and-sets completed and saw another value."""
    return check_run(rundir.path, workload(read_record(rundir).workload).checkers, engine=engine, options=options)

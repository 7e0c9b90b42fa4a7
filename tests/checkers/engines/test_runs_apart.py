"""Many runs judged by a task each are judged as by this process, one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
import pytest

from checkers.api import Judged, check_by_tasks, judge_runs
from checkers.engines.spark import SparkEngine
from checkers.options import CheckOptions

RUNS: Final = Path(__file__).parents[2] / "data" / "runs"


@pytest.mark.spark
def test_runs_are_judged_by_tasks_as_in_process(spark: SparkEngine, tmp_path: Path) -> None:
    asked = [(RUNS / name, ("register", "stats"), {}) for name in ("invalid", "containers")]
    asked[1:1] = [(tmp_path, ("register",), {}), (RUNS / "valid", ("nothing",), {})]
    here, there = (
        [msgspec.json.decode(msgspec.json.encode(each), type=Judged) for each in judged]
        for judged in (judge_runs(asked, "local", CheckOptions()), check_by_tasks(spark, asked, CheckOptions()))
    )
    for one, other in zip(here, there, strict=True):
        assert (one.error, one.bug, one.checkers.keys()) == (other.error, other.bug, other.checkers.keys())
        for name, found in one.checkers.items():
            assert {**found, "seconds": 0} == {**other.checkers[name], "seconds": 0}
    assert [each.checkers["register"]["valid"] for each in there if each.checkers] == [False, True]
    assert [each.error for each in there if each.error] == [
        f"{tmp_path} is a directory but not a run of assay: it has no run.json.",
        here[2].error,
    ]

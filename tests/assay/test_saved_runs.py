"""Runs that were saved once are judged as they were then, for ever: `tests/data/runs/README.md` says what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from command_line import assay

RUNS: Final = Path(__file__).parents[1] / "data" / "runs"
WHY: Final = {"invalid": "refuted", "unfinished": "harness", "quorum": "refuted"}
"""Nothing of it is saved: it follows from what is, as well of runs that were saved before there was such a word."""
JUDGED: Final[dict[str, Any]] = json.loads((RUNS / "judged.json").read_text())


@pytest.mark.parametrize("name", JUDGED)
def test_a_saved_run_is_judged_as_it_was(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = assay(capsys, "check", RUNS / name, "--json")
    [found] = answer.objects
    assert found["why"] == WHY.get(name)
    checkers = {checker: summary(verdict) for checker, verdict in found["checkers"].items()}
    judged = {"exit": answer.code, "overall": found["overall"], "reasons": found["reasons"], "checkers": checkers}
    assert judged == JUDGED[name]


def test_every_saved_run_is_small_and_whole() -> None:
    runs = [folder for folder in RUNS.iterdir() if folder.is_dir()]
    assert {folder.name for folder in runs} == set(JUDGED)
    for folder in runs:
        assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) < 300_000
        assert (folder / "seal.json").exists() == (folder.name != "unfinished")


def summary(verdict: dict[str, Any]) -> dict[str, Any]:
    """What must stay of a verdict: its word, how much was judged, and the operations that each anomaly cites."""
    anomalies = {
        kind: [[op["op"] for op in anomaly.get("ops", ())] for anomaly in found]
        for kind, found in verdict["anomalies"].items()
    }
    return {"valid": verdict["valid"], "ops": verdict["ops"], "counts": verdict.get("counts", {}), "ops_of": anomalies}

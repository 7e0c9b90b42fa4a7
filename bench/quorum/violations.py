"""Reads that the models refute, under the nemeses by which CEP-45 says that legacy replication tears pages."""

from __future__ import annotations

import tempfile
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from assay.compose import carry_out
from assay.options import RunOptions
from checkers.api import check_run
from harness.history.rundir import RunDir
from harness.run.spec import Silent

MODELS = ("write-atomicity", "monotonic-reads")
TABLES: dict[str, dict[str, str]] = {
    "legacy, blocking": {"table": "legacy", "read-repair": "blocking"},
    "legacy, none": {"table": "legacy", "read-repair": "none"},
    "logged": {"table": "logged"},
}
FAULTS: dict[str, dict[str, str]] = {
    "partial-write": {"slices": "0.8", "limits": "0"},
    "short-read": {"slices": "0", "limits": "0.8"},
}
"""The nemesis, and the reads that it aims at: some of the rows, or all of them up to a limit."""
_CALM = "severity=mild,latency=lan"
_RATE, _SECONDS = 150.0, 30.0


def measure(reads: int, seed: int = 1) -> list[dict[str, Any]]:
    """A row for each nemesis and table: runs from `seed` on until so many reads were answered."""
    return [
        {"nemesis": nemesis, "table": table} | _until(reads, seed, nemesis, mix | options)
        for nemesis, mix in FAULTS.items()
        for table, options in TABLES.items()
    ]


def _until(reads: int, seed: int, nemesis: str, options: dict[str, str]) -> dict[str, Any]:
    found: Counter[str] = Counter()
    while found["reads"] < reads:
        found.update(_run(nemesis, seed + found["runs"], options))
    return {**found, **{f"{model}_per_1e5": round(found[model] * 1e5 / found["reads"], 1) for model in MODELS}}


def _run(nemesis: str, seed: int, options: dict[str, str]) -> dict[str, int]:
    """One run: pages that were read, and how many anomalies each model counts in them."""
    with tempfile.TemporaryDirectory() as directory:
        asked = RunOptions(
            "write-atomicity",
            nemesis=(nemesis,),
            time_limit=_SECONDS,
            rate=_RATE,
            concurrency=8,
            seed=seed,
            world=_CALM,
            workload_options={"keys": "4", "rows": "8", **options},
            store=Path(directory),
        )
        finished = carry_out(asked, _unjudged, Silent(), datetime(2026, 1, 1), lambda _: None)
        verdicts = check_run(finished.outcome.rundir.history_parquet, MODELS, engine="local")
    assert all(verdict.valid in (True, False) for verdict in verdicts.values()), verdicts
    counts = {model: sum(verdicts[model].counts.values()) for model in MODELS}
    return {"runs": 1, "reads": verdicts[MODELS[0]].details["pages"], **counts}


def _unjudged(_: RunDir) -> dict[str, Any]:
    return {}

"""One seed is the whole run: the same steps and the same history, byte for byte (`ARCHITECTURE.md`)."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from assay.compose import carry_out
from assay.options import RunOptions
from harness.history.rundir import RunDir
from harness.run.spec import Silent
from tests.support.replay import diverging_seeds

NEMESES = (("partition", "kill", "pause"), ("rotate-majority", "leader-returns", "power-cut"))
SEEDS = range(99, 99 + len(NEMESES))
"""Each of the nemeses once."""


def unjudged(rundir: RunDir) -> Mapping[str, Any]:
    return {"register": {"valid": True}}


def run_seed(seed: int) -> str:
    """The digest of every step of a short run, and of its journal's bytes."""
    with tempfile.TemporaryDirectory() as store:
        nemesis = NEMESES[seed % len(NEMESES)]
        options = RunOptions(
            "register", nemesis=nemesis, time_limit=6.0, seed=seed, store=Path(store), keep_journal=True
        )
        finished = carry_out(options, unjudged, Silent(), datetime(2026, 1, 1), print)
        journal = finished.outcome.rundir.journal.read_bytes()
        return f"{finished.trace}/{hashlib.blake2b(journal).hexdigest()}"


def test_same_seed_same_steps_and_same_history() -> None:
    assert diverging_seeds(f"{Path(__file__)}:run_seed", SEEDS) == []


def test_other_seeds_are_other_runs() -> None:
    assert len({run_seed(seed) for seed in (1, 2, 3)}) == 3

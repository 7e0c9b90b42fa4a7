"""Runs of known commands, which are saved nowhere: one by one, or many with results as they come."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from assay.known_commands import CLEAN_COMMANDS, Command, command_of
from assay.options import RunOptions, validate
from assay.runner import Keep, RunResult, run_all
from cluster.flaws import Flaw

SEED_STRIDE = 1_000
"""Each clean command has seeds of its own, so that one odd world does not stand for all of them."""


def clean_run(command: Command, seed: int) -> RunOptions:
    """The run of a clean command for a campaign's seed."""
    return command.options(SEED_STRIDE * CLEAN_COMMANDS.index(command) + seed)


def flawed_options(flaw: Flaw, seed: int) -> RunOptions:
    """The run that finds a flaw."""
    return command_of(flaw).options(seed, flaw.name)


def try_seed(options: RunOptions) -> RunResult:
    """One run in the simulator, saved nowhere."""
    return next(try_seeds([options], jobs=1))


def try_seeds(runs: Sequence[RunOptions], jobs: int) -> Iterator[RunResult]:
    """Runs in the simulator, saved nowhere; results as they come."""
    with tempfile.TemporaryDirectory(prefix="assay-torture-") as store:
        checked = [validate(replace(options, store=Path(store))) for options in runs]
        asked = {options.command(): each for options, each in zip(checked, runs, strict=True)}
        for result in run_all(checked, max(1, min(jobs, len(checked))), Keep.NOTHING):
            yield msgspec.structs.replace(result, options=asked[result.options.command()])


def found(result: RunResult) -> bool:
    """Whether the checkers refuted the run (a cluster that merely did not recover proves no flaw)."""
    return result.overall == "invalid" and bool(result.anomalies)

"""`make demo`: the same torture test twice, on the cluster as it is and with a known bug switched on."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from assay.compose import Finished, carry_out
from assay.judging import judge_saved_run, report_of
from assay.options import RunOptions, validate
from assay.progress import RunProgress
from assay.run_command import tell
from assay.telling import anomaly_sentences
from harness.errors import HarnessError, UserError

FLAW = "apply-uncommitted"
SIMULATED = RunOptions("register", nemesis=("partition", "kill"), time_limit=60.0, seed=2)
IN_DOCKER = RunOptions("register", on="docker", nemesis=("partition", "kill"), time_limit=30.0, seed=1)
CONTAINER_SEEDS = 3
"""Time in containers is real, so that a seed does not decide everything: the flaw gets this many tries."""


def tell_steps(sentence: str) -> None:
    """What takes long is told; the seed and the world go without saying, for the command has them."""
    if not sentence.startswith(("seed ", "world: ")):
        tell(sentence)


def show(options: RunOptions) -> Finished:
    """Carry a run out and print what came of it."""
    print(f"$ {options.command()}", flush=True)
    with RunProgress(options.time_limit) as progress:
        finished = carry_out(validate(options), judge_saved_run, progress, datetime.now(UTC), tell_steps)
    verdict = finished.outcome.verdict
    faults = dict(verdict.adequacy.details.get("faults", {}))
    observed = ", ".join(f"{counts['observed']} {kind}" for kind, counts in faults.items())
    ok = sum(dict(verdict.adequacy.details.get("ok_by_f", {})).values())
    print(f"{verdict.overall.upper()}: {ok} operations succeeded; faults observed in effect: {observed}.")
    for sentence in anomaly_sentences(verdict.checkers, limit=1) or list(verdict.reasons):
        print(f"  {sentence}")
    print(f"  report: {report_of(finished.outcome.rundir)}\n", flush=True)
    return finished


def demonstrate(options: RunOptions, tries: int) -> int:
    """The valid run, then the flawed one; 0 if the first is valid and a try of the second is refuted."""
    print("A replicated database under partitions and kills:", flush=True)
    if show(options).outcome.verdict.overall != "valid":
        return 1
    print(f"The same with a known bug, {FLAW} (entries take effect before they are committed):", flush=True)
    for attempt in range(tries):
        flawed = replace(options, flaw=(FLAW,), seed=options.seed + attempt)
        if show(flawed).outcome.verdict.overall == "invalid":
            return 0
    print(f"The bug was not found in {tries} tries.")
    return 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration; exit code 0 if it shows what it should."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--on", choices=("sim", "docker"), default="sim")
    parser.add_argument("--store", type=Path, default=Path("store"))
    chosen = parser.parse_args(arguments)
    options, tries = (IN_DOCKER, CONTAINER_SEEDS) if chosen.on == "docker" else (SIMULATED, 1)
    try:
        return demonstrate(replace(options, store=chosen.store), tries)
    except (UserError, HarnessError) as error:
        print(f"assay: {error}", file=sys.stderr)
        return 254 if isinstance(error, UserError) else 255


if __name__ == "__main__":
    sys.exit(main())

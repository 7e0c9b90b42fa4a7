"""`make torture`: every flaw has to be found within its seeds, and clean seeds have to be valid and never vacuous."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from assay.options import RunOptions, validate
from assay.seeds import Keep, SeedResult, run_all
from cluster.flaws import FLAWS, Flaw
from nemesis.scripts import SCRIPTS

SEEDS_PER_FLAW = 50
CLEAN_SEEDS = 200
TIME_LIMIT_S = 40.0
CLEAN_NEMESES = (
    ("partition", "kill"),
    ("partition", "kill", "pause"),
    ("partition",),
    *((script,) for script in SCRIPTS),
)
"""Clean seeds take these in turn: the mixed faults, and every nemesis that waits for states."""


def flawed_options(flaw: Flaw, seed: int) -> RunOptions:
    """The run that finds a flaw."""
    return RunOptions(
        flaw.workload, nemesis=(flaw.nemesis,), time_limit=TIME_LIMIT_S, seed=seed, flaw=(flaw.name,), world=flaw.world
    )


def clean_options(seed: int) -> RunOptions:
    """The run of a clean seed."""
    nemesis = CLEAN_NEMESES[seed % len(CLEAN_NEMESES)]
    return RunOptions("register", nemesis=nemesis, time_limit=TIME_LIMIT_S, seed=seed)


def try_seed(options: RunOptions) -> SeedResult:
    """One run in the simulator, saved nowhere."""
    return next(try_seeds([options], jobs=1))


def try_seeds(runs: Sequence[RunOptions], jobs: int) -> Iterator[SeedResult]:
    """Runs in the simulator, saved nowhere; results in their order."""
    with tempfile.TemporaryDirectory(prefix="assay-torture-") as store:
        results = run_all([validate(replace(options, store=Path(store))) for options in runs], jobs, Keep.NOTHING)
        for options, result in zip(runs, results, strict=True):
            yield replace(result, options=options)


def found(result: SeedResult) -> bool:
    """Whether the checkers refuted the history (a cluster that merely did not recover proves no flaw)."""
    return result.overall == "invalid" and bool(result.anomalies)


@dataclass(frozen=True, slots=True)
class FlawRecord:
    """How a flaw was found: by which seeds of those tried, and whether the first of them is valid without the flaw."""

    flaw: Flaw
    tried: int
    finders: tuple[SeedResult, ...]
    clean: SeedResult | None


def hunt(flaw: Flaw, seeds: int, jobs: int) -> FlawRecord:
    """Try all seeds of a flaw, then the first that found it without the flaw."""
    runs = [flawed_options(flaw, seed) for seed in range(1, seeds + 1)]
    results = list(progress(try_seeds(runs, jobs), flaw.name, seeds))
    finders = tuple(result for result in results if found(result))
    clean = try_seed(replace(finders[0].options, flaw=())) if finders else None
    return FlawRecord(flaw, seeds, finders, clean)


def progress(results: Iterable[SeedResult], what: str, total: int) -> Iterator[SeedResult]:
    console = Console(stderr=True)
    yield from track(results, what, total=total, console=console, transient=True, disable=not console.is_terminal)


def print_flaws(records: Sequence[FlawRecord]) -> None:
    """The track record."""
    table = Table("flaw", "nemesis", "seeds that found it", "first", "anomalies", "without the flaw", box=None)
    for record in records:
        first = record.finders[0] if record.finders else None
        names = dict.fromkeys(name for result in record.finders for name in result.anomalies)
        table.add_row(
            record.flaw.name,
            record.flaw.nemesis,
            f"{len(record.finders)} of {record.tried}",
            str(first.options.seed) if first else "none",
            ", ".join(names),
            record.clean.overall if record.clean else "",
        )
    Console(width=160).print(table)


def print_clean(results: Sequence[SeedResult]) -> None:
    """The clean seeds: how many were valid, and what is wrong with the others."""
    valid = sum(result.overall == "valid" for result in results)
    ops = sum(result.ops for result in results)
    cpu_s = sum(result.cpu_s for result in results)
    print(f"clean seeds: {valid} of {len(results)} valid; {ops} operations in {cpu_s:.0f} CPU-seconds")
    for result in results:
        if result.overall != "valid":
            print(f"  {result.overall}: {result.options.command()}\n    {'; '.join(result.reasons)}")


def succeeded(records: Sequence[FlawRecord], clean: Sequence[SeedResult]) -> bool:
    """Every flaw found, and valid without it; every clean seed valid."""
    flaws = all(record.clean is not None and record.clean.overall == "valid" for record in records)
    return flaws and all(result.overall == "valid" for result in clean)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaigns; exit code 0 if all is as it has to be."""
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument("--flaw", action="append", choices=list(FLAWS), help="only these flaws")
    parser.add_argument("--seeds", type=int, default=SEEDS_PER_FLAW, help="seeds for each flaw")
    parser.add_argument("--clean-seeds", type=int, default=CLEAN_SEEDS, help="seeds without a flaw")
    chosen = parser.parse_args(arguments)
    jobs = os.cpu_count() or 1
    records = [hunt(FLAWS[name], chosen.seeds, jobs) for name in chosen.flaw or FLAWS]
    runs = [clean_options(seed) for seed in range(1, chosen.clean_seeds + 1)]
    clean = list(progress(try_seeds(runs, jobs), "clean seeds", len(runs)))
    print_flaws(records)
    print_clean(clean)
    return 0 if succeeded(records, clean) else 1


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench.quorum`: CEP-45's goals, measured, legacy replication against mutation tracking.

Prints a JSON object for each figure. Without `--full` sizes are small, and no figure means much.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from bench._measure import machine
from bench.quorum import lag, plots, reads, repairs, restart, speed, violations
from harness.errors import UserError

Figures: TypeAlias = Iterable[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class BenchSizes:
    """How much is measured, and where pictures go (None: nowhere)."""

    full: bool
    pictures: Path | None

    def of(self, small: int, full: int) -> int:
        """One of the two."""
        return full if self.full else small


def _lag(sizes: BenchSizes) -> Figures:
    found = lag.measure(sizes.of(5, 60))
    if sizes.pictures:
        plots.plot_lag(found, sizes.pictures / "replication-lag.png")
    return [each.figures() for each in found]


def _repair(sizes: BenchSizes) -> Figures:
    tables, missing = ((16, 64), (10, 1_000, 10_000)) if sizes.full else ((4,), (10, 100))
    rows = [row for mib in tables for some in missing for row in repairs.disk_load(mib, some)]
    if sizes.pictures:
        plots.plot_repair(rows, sizes.pictures / "repair-disk-load.png")
    return rows


def _streaming(sizes: BenchSizes) -> Figures:
    rows = [row for mib in ((1, 16) if sizes.full else (1,)) for row in repairs.over_streaming(mib)]
    if sizes.pictures:
        asked = plots.Bars("wire_bytes", "bytes sent for one cell", True, sizes.pictures / "over-streaming.png")
        plots.plot_bars(rows, "design", lambda row: f"partition of {row['partition_mib']} MiB", asked)
    return rows


def _reads(sizes: BenchSizes) -> Figures:
    rows = reads.disk_reads(sizes.of(60, 1_000))
    if sizes.pictures:
        label, path = "data reads from disk for each read", sizes.pictures / "disk-reads.png"
        asked = plots.Bars("disk_reads_of_each", label, False, path)
        plots.plot_bars(rows, "design", lambda row: f"factor {row['replication']}, {row['replicas']}", asked)
    return rows


def _wire(sizes: BenchSizes) -> Figures:
    rows = reads.wire(sizes.of(100, 100_000), (0, 1, 10, 100, 1_000) if sizes.full else (0, 10))
    if sizes.pictures:
        plots.plot_wire(rows, sizes.pictures / "bytes-of-reads.png")
    return rows


def _violations(sizes: BenchSizes) -> Figures:
    rows = violations.measure(sizes.of(300, 5_000))
    if sizes.pictures:
        for model in violations.MODELS:
            label, path = f"violations of {model} in 100 000 reads", sizes.pictures / f"violations-{model}.png"
            asked = plots.Bars(f"{model}_per_1e5", label, False, path)
            plots.plot_bars(rows, "table", lambda row: row["nemesis"], asked)
    return rows


def _speed(sizes: BenchSizes) -> Figures:
    return _drawn_speed(sizes, list(speed.in_simulator(sizes.of(200, 2_000), sizes.of(1, 5))), "simulator")


def _docker(sizes: BenchSizes) -> Figures:
    return _drawn_speed(sizes, asyncio.run(speed.in_docker(sizes.of(2, 6), sizes.of(1, 4))), "containers")


def _drawn_speed(sizes: BenchSizes, rows: list[dict[str, Any]], where: str) -> Figures:
    if sizes.pictures:
        label, path = "logged's throughput in that of legacy", sizes.pictures / f"speed-{where}.png"
        asked = plots.Bars("logged_of_legacy_throughput", label, False, path)
        plots.plot_bars(rows, "where", lambda row: row["what"], asked)
    return rows


def _reconciling(sizes: BenchSizes) -> Figures:
    return [speed.reconciling(sizes.of(1_000, 100_000))]


def _restart(sizes: BenchSizes) -> Figures:
    return restart.measure(sizes.of(10_000, 1_000_000))


ROWS: dict[str, Callable[[BenchSizes], Figures]] = {
    "lag": _lag,
    "repair": _repair,
    "streaming": _streaming,
    "reads": _reads,
    "wire": _wire,
    "violations": _violations,
    "speed": _speed,
    "reconciling": _reconciling,
    "restart": _restart,
    "docker": _docker,
}
"""What can be measured, by name."""


def main() -> int:
    """Measure the rows that were asked for: all that need no containers, if none was."""
    parser = argparse.ArgumentParser(prog="python -m bench.quorum", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"some of: {', '.join(ROWS)}")
    parser.add_argument("--full", action="store_true", help="the sizes of docs/mutation-tracking.md")
    parser.add_argument("--plots", type=Path, metavar="DIRECTORY", help="write pictures there")
    asked = parser.parse_args()
    if unknown := [row for row in asked.rows if row not in ROWS]:
        parser.error(f"there is no row {unknown[0]!r}: it is one of {', '.join(ROWS)}")
    sizes = BenchSizes(asked.full, asked.plots)
    for row in asked.rows or [name for name in ROWS if name != "docker"]:
        try:
            for figures in ROWS[row](sizes):
                print(json.dumps({"row": row, **figures, "machine": machine()}), flush=True)
        except UserError as error:
            print(error, file=sys.stderr)
            return 254
    return 0


if __name__ == "__main__":
    sys.exit(main())

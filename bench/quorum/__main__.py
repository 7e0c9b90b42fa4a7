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
class Sizes:
    """How much is measured, and where pictures go (None: nowhere)."""

    full: bool
    pictures: Path | None

    def of(self, small: int, full: int) -> int:
        """One of the two."""
        return full if self.full else small


def _lag(sizes: Sizes) -> Figures:
    found = lag.measure(sizes.of(5, 60))
    if sizes.pictures:
        plots.plot_lag(found, sizes.pictures / "replication-lag.png")
    return [each.figures() for each in found]


def _repair(sizes: Sizes) -> Figures:
    tables, missing = ((16, 64), (10, 1_000, 10_000)) if sizes.full else ((4,), (10, 100))
    rows = [row for mib in tables for some in missing for row in repairs.disk_load(mib, some)]
    if sizes.pictures:
        plots.plot_repair(rows, sizes.pictures / "repair-disk-load.png")
    return rows


def _streaming(sizes: Sizes) -> Figures:
    return [row for mib in ((1, 16) if sizes.full else (1,)) for row in repairs.over_streaming(mib)]


def _reads(sizes: Sizes) -> Figures:
    return reads.disk_reads(sizes.of(60, 1_000))


def _wire(sizes: Sizes) -> Figures:
    rows = reads.wire(sizes.of(100, 100_000), (0, 1, 10, 100, 1_000) if sizes.full else (0, 10))
    if sizes.pictures:
        plots.plot_wire(rows, sizes.pictures / "bytes-of-reads.png")
    return rows


def _violations(sizes: Sizes) -> Figures:
    return violations.measure(sizes.of(300, 5_000))


def _speed(sizes: Sizes) -> Figures:
    return speed.in_simulator(sizes.of(200, 2_000), sizes.of(1, 5))


def _docker(sizes: Sizes) -> Figures:
    return asyncio.run(speed.in_docker(sizes.of(2, 6), sizes.of(1, 4)))


def _reconciling(sizes: Sizes) -> Figures:
    return [speed.reconciling(sizes.of(1_000, 100_000))]


def _restart(sizes: Sizes) -> Figures:
    return restart.measure(sizes.of(10_000, 1_000_000))


ROWS: dict[str, Callable[[Sizes], Figures]] = {
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
    sizes = Sizes(asked.full, asked.plots)
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

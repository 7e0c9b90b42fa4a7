"""What Spark's driver gets, holds and sends from n to 10 n operations: `python -m bench.growth --model register`.

The histories have 5 % of operations of unknown outcome and the given share of anomalies,
spread evenly. `tests/checkers` has what measures. Figures are printed as a table.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "checkers"))

from growth import measured, save
from growth_histories import KINDS

from checkers.engines.spark import SparkEngine
from checkers.options import CheckOptions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=list(KINDS), default="register")
    parser.add_argument("--operations", type=float, default=1e6)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--part-rows", type=float, default=1e6)
    asked = parser.parse_args()
    kind = KINDS[asked.model]
    print("| model | operations | anomalies | to the driver, B | peak, MiB | largest closure, B | read | s | valid |")
    print("|---|---|---|---|---|---|---|---|---|")
    for size in (int(asked.operations), int(10 * asked.operations)):
        with TemporaryDirectory(prefix="assay-growth-") as folder:
            batches = kind.make(size, asked.share)
            place = save(batches, Path(folder) / "h.parquet", int(asked.part_rows), kind.dictionary)
            engine = SparkEngine()
            begin = time.perf_counter()
            verdict, found = measured(place, asked.model, engine, CheckOptions())
            seconds = time.perf_counter() - begin
            engine.close()
        peak = f"{found.peak / 2**20:.1f}"
        print(
            f"| {asked.model} | {size} | {asked.share:.1%} | {found.told} | {peak} | {found.closure} | "
            f"{found.read} | {seconds:.1f} | {verdict.valid} |",
            flush=True,
        )
    cpu = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(f"CPU seconds of this process and its children: {cpu:.0f}")


if __name__ == "__main__":
    main()

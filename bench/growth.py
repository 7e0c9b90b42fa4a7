"""What Spark's driver gets, holds and sends from n to 10 n operations: `python -m bench.growth --model register`.

The histories have 5 % of operations of unknown outcome and the given share of anomalies,
spread evenly. `tests/checkers` has what measures. Figures are printed as a table; what is shown are operations of
examples, which the driver holds. With `--engine local` they are the
processor time that one process takes.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "checkers"))

from growth import cost, measured, save
from growth_histories import KINDS

from checkers.engines.local import LocalEngine
from checkers.engines.spark import SparkEngine
from checkers.options import CheckOptions


def of_driver(place: Path, model: str) -> dict[str, Any]:
    """What Spark's driver took of a history."""
    engine = SparkEngine()
    begin = time.perf_counter()
    verdict, found = measured(place, model, engine, CheckOptions())
    seconds = time.perf_counter() - begin
    engine.close()
    told = {"to the driver, B": found.told, "peak, MiB": f"{found.peak / 2**20:.1f}"}
    told |= {"largest closure, B": found.closure, "read": found.read, "shown": found.shown}
    return told | {"s": f"{seconds:.1f}", "valid": verdict.valid}


def of_time(place: Path, model: str) -> dict[str, Any]:
    """The processor time that judging it in one process takes."""
    verdict, seconds = cost(place, model, LocalEngine())
    return {"user CPU s": f"{seconds:.2f}", "valid": verdict.valid}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=list(KINDS), default="register")
    parser.add_argument("--operations", type=float, default=1e6)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--part-rows", type=float, default=1e6)
    parser.add_argument("--engine", choices=("spark", "local"), default="spark")
    asked = parser.parse_args()
    look = of_driver if asked.engine == "spark" else of_time
    look_at(asked, 1_000, look)  # compiles, and loads what judging needs
    for size in (int(asked.operations), int(10 * asked.operations)):
        row = {"model": asked.model, "operations": size, "anomalies": f"{asked.share:.1%}"}
        row |= look_at(asked, size, look)
        if size == int(asked.operations):
            print("| " + " | ".join(row) + " |\n|" + "---|" * len(row))
        print("| " + " | ".join(map(str, row.values())) + " |", flush=True)
    cpu = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(f"CPU seconds of this process and its children: {cpu:.0f}")


def look_at(asked: argparse.Namespace, size: int, look: Callable[[Path, str], dict[str, Any]]) -> dict[str, Any]:
    """What there is to say of a history of that size, which is made for it and removed."""
    kind = KINDS[asked.model]
    with TemporaryDirectory(prefix="assay-growth-") as folder:
        batches = kind.make(size, asked.share)
        place = save(batches, Path(folder) / "h.parquet", int(asked.part_rows), kind.dictionary)
        return look(place, asked.model)


if __name__ == "__main__":
    main()

"""The local engine on one core and on more, in turns: `python -m bench.checkers_cores`.

Each model judges one history from Parquet to the verdict, verified; the medians of the times on the clock and of CPU
seconds are printed, with the load. Compare on a machine that does nothing else: threads find no core that others have.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from bench._measure import machine
from bench.checkers_memory import HISTORIES
from bench.checkers_transactions import settings
from checkers.api import judge_source
from checkers.engines.local import LocalEngine
from checkers.importers.detect import open_source
from checkers.made.registers import RegisterShape, write_register_history
from checkers.options import CheckOptions
from checkers.verdict import Verdict


def judged(model: str, path: Path, cores: int) -> tuple[Verdict, float, float]:
    """The verdict, the seconds on the clock and those of all threads."""
    begin, used = time.perf_counter(), time.process_time()
    engine, source = LocalEngine(cores), open_source(path, verify=False)
    engine.verify(source)
    verdict = judge_source(source, model, engine, CheckOptions(settings=settings(model)))
    seconds = time.perf_counter() - begin, time.process_time() - used
    return msgspec.structs.replace(verdict, seconds=0.0), *seconds


def compare(model: str, path: Path, cores: list[int], turns: int) -> None:
    """One model, in turns; the verdicts have to be the same."""
    first, _, _ = judged(model, path, cores[0])
    times: dict[int, list[tuple[float, float]]] = {count: [] for count in cores}
    for _ in range(turns):
        for count in cores:
            verdict, seconds, used = judged(model, path, count)
            if verdict != first:
                sys.exit(f"{model}: on {count} cores the verdict is another one")
            times[count].append((seconds, used))
    for count, told in times.items():
        seconds, used = (statistics.median(column) for column in zip(*told, strict=True))
        print(f"{model:<16} {count} cores: {seconds:.2f} s, CPU {used:.2f} s  [{machine()}]", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("register-of-many-keys", *HISTORIES), action="append")
    parser.add_argument("--operations", type=lambda text: int(float(text)), default=1_000_000)
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--turns", type=int, default=5)
    asked = parser.parse_args()
    many: int = asked.operations
    with tempfile.TemporaryDirectory(prefix="assay-bench-") as folder:
        for model in asked.model or ("register-of-many-keys", *HISTORIES):
            path = Path(folder) / f"{model}.parquet"
            if model in HISTORIES:
                HISTORIES[model](many, path)
            else:
                write_register_history(RegisterShape(10 * many, keys=many // 10), path)
            compare(model if model in HISTORIES else "register", path, asked.cores, asked.turns)


if __name__ == "__main__":
    main()

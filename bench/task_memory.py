"""What one task takes to judge all that meets in it: `python -m bench.task_memory`.

For each model, bytes of the shuffle for an operation, and the most that the process holds above what it held before a
task's kernel got them (`VmHWM`, reset through `clear_refs`): what is judged expands so many times, which the model's
`expanded` (`shuffle.EXPANDED`, if it names none) has to cover. The whole history is one bucket here.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from bench._measure import machine, status_bytes
from checkers.api import judge_source
from checkers.engines import flows, grouped, keyed
from checkers.engines.spark import SparkEngine
from checkers.importers.detect import open_source
from checkers.made.generate import BASES, MadeHistory, write_made
from checkers.options import CheckOptions
from checkers.source import Source

OTHERWISE: Final = ("list-append", "rw-register", "bank", "cas-register", "stats")
"""Models that are judged in windows or batches, or by the means of others."""


class OneTask(SparkEngine):
    """Stands for a session of one task, which is this process; keeps what was measured."""

    def __init__(self) -> None:
        super().__init__()
        self.measured: list[tuple[int, int]] = []

    @property
    def cores(self) -> int:
        return 1

    def task_bytes(self) -> int:
        return 1 << 60

    def parts(self, rows: int, rows_each: int, each_core: int = 1) -> int:
        return 1

    def located(self, source: Source) -> Source:
        return source

    def judged(self, source: Source, plan: Any) -> Any:
        """What the plan says of the whole history; bytes of the shuffle, and of what it took besides."""
        parts = [data for _, data in plan.split(source.batches(plan.columns), 1)]
        size = sum(map(len, parts))
        Path("/proc/self/clear_refs").write_text("5")
        before = status_bytes("VmRSS")
        found = plan.judge(parts) if parts else None
        self.measured.append((size, max(0, status_bytes("VmHWM") - before)))
        return None if found is None else plan.combine([found])


def _run_plan(engine: OneTask, source: Source, plan: Any, buckets: int, **_: Any) -> Any:
    return engine.judged(source, plan)


def _run_sieved(engine: OneTask, source: Source, reader: Any, plan: Any, sieve: Any, buckets: int) -> Any:
    return engine.judged(source, plan), ()


def child(model: str, small: Path, large: Path) -> None:
    """Judge a small history, so that all is loaded, then measure with a large one."""
    for module in (flows, grouped):
        module.run_plan = _run_plan  # type: ignore[attr-defined]
    keyed.run_sieved = _run_sieved  # type: ignore[attr-defined,assignment]
    engine = OneTask()
    for path in (small, large):
        engine.measured.clear()
        source = open_source(path)
        verdict = judge_source(source, model, engine, CheckOptions())
    size, grown = max(engine.measured, key=lambda pair: pair[1] / max(1, pair[0]))
    words = f"{size / source.rows:.0f} B an operation in a shuffle, {(size + grown) / source.rows:.0f} B to judge it"
    print(f"{model}, {source.rows} operations, {verdict.valid}: {words}, {1 + grown / size:.1f} times  [{machine()}]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=float, default=1e5)
    parser.add_argument("--keys", type=int, default=100)
    parser.add_argument("--model", choices=tuple(BASES), action="append")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child[0], Path(asked.child[1]), Path(asked.child[2]))
        return
    for model in asked.model or [model for model in BASES if model not in OTHERWISE]:
        with tempfile.TemporaryDirectory(prefix="assay-bench-") as folder:
            paths = [Path(folder) / "small.parquet", Path(folder) / "large.parquet"]
            for path, count in zip(paths, (1_000, int(asked.operations)), strict=True):
                write_made(MadeHistory(model, count, keys=asked.keys if BASES[model].keys_are else None), path)
            command = [sys.executable, "-m", "bench.task_memory", "--child", model, *map(str, paths)]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()

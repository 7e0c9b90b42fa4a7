"""What one task takes to judge a history that is not split: `python -m bench.task_memory`.

For each such model, bytes of the shuffle for an operation, and the most that the process holds above what it held
before its kernel got them (`VmHWM`, reset through `clear_refs`), which `shuffle.EXPANDED` has to cover.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench._measure import machine, status_bytes
from checkers.catalog.judge import CatalogFlow
from checkers.engines.flows import FlowPlan
from checkers.engines.grouped import ByKeys, MopPlan
from checkers.findings import merged
from checkers.importers.detect import open_source
from checkers.isolation.judge import PROJECTION
from checkers.isolation.levels import IsolationKernel
from checkers.linearizability.driver import Budget
from checkers.linearizability.objects.judge import OBJECT_MODELS, ObjectKernel
from checkers.made.generate import MadeHistory, write_made
from checkers.options import CheckOptions

OPTIONS: Final = CheckOptions()


def _isolation() -> Any:
    return MopPlan(PROJECTION, ByKeys(()), IsolationKernel(OPTIONS.explain), OPTIONS.explain)


def _rows() -> Any:
    kernel = ObjectKernel("multi-register", OPTIONS.explain, Budget(OPTIONS.time_limit_s, OPTIONS.memory_mib << 20))
    return MopPlan(OBJECT_MODELS["multi-register"].projection, ByKeys(()), kernel, OPTIONS.explain)


def _catalog() -> Any:
    return FlowPlan(CatalogFlow(OPTIONS.explain, 10**10, 10**6), partial(merged, explain=OPTIONS.explain))


PLANS: Final[dict[str, Callable[[], Any]]] = {"isolation": _isolation, "multi-register": _rows, "catalog": _catalog}


def child(model: str, small: Path, large: Path) -> None:
    """Judge a small history, so that all is loaded, then measure with a large one."""
    plan = PLANS[model]()
    for path in (small, large):
        source = open_source(path)
        parts = [data for _, data in plan.split(source.batches(plan.columns), 1)]
        size = sum(map(len, parts))
        Path("/proc/self/clear_refs").write_text("5")
        before = status_bytes("VmRSS")
        found = plan.judge(parts)
        grown = status_bytes("VmHWM") - before
    words = f"{size / source.rows:.0f} B an operation in a shuffle, {(size + grown) / source.rows:.0f} B to judge it"
    print(f"{model}, {source.rows} operations: {words}, {1 + grown / size:.1f} times  [{machine()}]", flush=True)
    assert found.ops > 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=float, default=1e5)
    parser.add_argument("--keys", type=int, default=100)
    parser.add_argument("--model", choices=tuple(PLANS), action="append")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child[0], Path(asked.child[1]), Path(asked.child[2]))
        return
    for model in asked.model or PLANS:
        with tempfile.TemporaryDirectory(prefix="assay-bench-") as folder:
            paths = [Path(folder) / "small.parquet", Path(folder) / "large.parquet"]
            for path, count in zip(paths, (1_000, int(asked.operations)), strict=True):
                write_made(MadeHistory(model, count, keys=asked.keys), path)
            command = [sys.executable, "-m", "bench.task_memory", "--child", model, *map(str, paths)]
            subprocess.run(command, check=False)


if __name__ == "__main__":
    main()

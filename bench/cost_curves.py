"""How cost grows with length: `python -m bench.cost_curves` draws docs/cost-curves.png and prints its table.

CPU time of the local engine, from Parquet to the verdict, in one process after its kernels are compiled; the median of
several runs of short histories. A curve n log n is fitted through each (the median of the ratios). With --figures what
was measured is kept in a file and not measured again.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import numpy as np
import pyarrow.parquet as pq

from bench._measure import machine
from checkers.api import judge_source
from checkers.engines.local import LocalEngine
from checkers.made.registers import RegisterShape, write_register_history
from checkers.made.transactions import TxnShape, write_txn_history
from checkers.source import Source
from harness.history.saved import open_saved

Curve: TypeAlias = dict[int, float]
"""CPU seconds by number of operations."""

_WARM: Final = 10_000

_RUNS_COST: Final = 1_000_000
"""A history is judged so often that all its runs together have about so many operations, at least once, at most 9."""


class Figure(msgspec.Struct, frozen=True):
    """What was measured: the median CPU seconds of a history of n operations, and how loaded the machine was."""

    model: str
    n: int
    cpu_s: float
    load: float


PICTURE: Final = Path(__file__).parent.parent / "docs" / "cost-curves.png"


def _registers(count: int, path: Path) -> None:
    write_register_history(RegisterShape(count, keys=100), path)


def _sessions(count: int, path: Path) -> None:
    write_register_history(RegisterShape(count, keys=max(1, count // 2000), clients=50), path)


def _lists(count: int, path: Path) -> None:
    write_txn_history(TxnShape(count, "list-append"), path)


MODELS: Final[Mapping[str, Callable[[int, Path], None]]] = {
    "register": _registers,
    "list-append": _lists,
    "monotonic-reads": _sessions,
}


def _cpu_seconds(model: str, path: Path) -> float:
    source = Source(path, "parquet", pq.read_metadata(path).num_rows, saved=open_saved(path))
    begin = time.process_time()
    verdict = judge_source(source, model, LocalEngine())
    seconds = time.process_time() - begin
    if verdict.valid is not True:
        raise SystemExit(f"{model} of {path.name}: {verdict.valid} {verdict.reason or ''}")
    return seconds


def measure(model: str, count: int) -> Figure:
    """The median CPU time of a valid history of so many operations or transactions."""
    with tempfile.TemporaryDirectory() as folder:
        warm, path = Path(folder) / "warm.parquet", Path(folder) / "history.parquet"
        MODELS[model](_WARM, warm)
        _cpu_seconds(model, warm)
        MODELS[model](count, path)
        runs = min(9, max(1, _RUNS_COST // count))
        seconds = statistics.median(_cpu_seconds(model, path) for _ in range(runs))
    return Figure(model, count, seconds, os.getloadavg()[0])


def factor(curve: Curve) -> float:
    """Seconds for each n log2 n."""
    return statistics.median(seconds / (n * math.log2(n)) for n, seconds in curve.items())


def draw(curves: Mapping[str, Curve], path: Path) -> None:
    """Time against length, and what is left of it when n log n is divided out."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for model, curve in curves.items():
        n, seconds = np.array(list(curve)), np.array(list(curve.values()))
        (points,) = left.loglog(n, seconds, "o", label=model)
        left.loglog(n, factor(curve) * n * np.log2(n), "-", color=points.get_color(), linewidth=1)
        right.semilogx(n, 1e9 * seconds / (n * np.log2(n)), "o-", label=model)
    left.set(title="CPU time, with n log n fitted", xlabel="operations or transactions", ylabel="seconds")
    right.set(title="CPU time / (n log2 n)", xlabel="operations or transactions", ylabel="ns")
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=100)


def _row(figure: Figure) -> str:
    per = 1e9 * figure.cpu_s / (figure.n * math.log2(figure.n))
    return f"| {figure.model} | {figure.n} | {figure.cpu_s:.3f} | {per:.1f} | {figure.load:.1f} |\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=tuple(MODELS), action="append")
    parser.add_argument("--most", type=float, default=1e7, help="the longest history")
    parser.add_argument("--figures", type=Path, help="a file of JSON lines")
    parser.add_argument("--picture", type=Path, default=PICTURE)
    arguments = parser.parse_args()
    sys.stdout.write(f"machine: {machine()}\n| model | n | CPU s | ns / (n log2 n) | load |\n")
    kept = arguments.figures.read_bytes() if arguments.figures and arguments.figures.exists() else b""
    known = {(f.model, f.n): f for f in (msgspec.json.decode(line, type=Figure) for line in kept.splitlines())}
    sizes = [n for n in (round(10 ** (half / 2)) for half in range(8, 15)) if n <= arguments.most]
    curves: dict[str, Curve] = {}
    for model in arguments.model or MODELS:
        curves[model] = {}
        for n in sizes:
            figure = known.get((model, n)) or measure(model, n)
            curves[model][n] = figure.cpu_s
            sys.stdout.write(_row(figure))
            sys.stdout.flush()
            if arguments.figures and (model, n) not in known:
                with arguments.figures.open("ab") as file:
                    file.write(msgspec.json.encode(figure) + b"\n")
    draw(curves, arguments.picture)


if __name__ == "__main__":
    main()

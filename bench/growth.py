"""How cost grows with length: CPU time against n log n, and what Spark's driver gets, holds and sends.

Histories with anomalies, and what measures them, are those of `tests/checkers`, as the bounds that hold there are.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import numpy as np
import pyarrow.parquet as pq

from bench.histories import HISTORIES, written
from bench.judging import expected
from bench.measure import Row, chosen, kept_in, picture, power, spent
from checkers.api import judge_source
from checkers.engines.local import LocalEngine
from checkers.engines.spark import SparkEngine
from checkers.options import CheckOptions
from checkers.source import Source
from harness.history.saved import open_saved

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "checkers"))

from growth import cost, measured, save
from growth_histories import KINDS

Curve: TypeAlias = dict[int, float]
"""CPU seconds by number of operations."""

CURVES: Final[Mapping[str, tuple[int, int]]] = {"register": (100, 1), "list-append": (0, 1), "monotonic-reads": (0, 2)}
"""Histories whose curves are drawn: on how many keys they are (0: more for longer ones), operations of each unit."""

PICTURE: Final = Path(__file__).parent.parent / "docs" / "cost-curves.png"

_RUNS_COST: Final = 1_000_000
"""A history is judged so often that all its runs together have about as many operations, at least once, at most 9."""

Models: TypeAlias = Annotated[str, "registers, if none is named"]
Share: TypeAlias = Annotated[float, "of operations with an anomaly"]
PartRows: TypeAlias = Annotated[int, "operations of a part"]


# ---- n log n ----


def cost_curves(
    *models: str, most: Annotated[int, "the longest history"] = 10_000_000, plot: Path = PICTURE
) -> Iterator[Row]:
    """CPU time of the local engine from Parquet to the verdict, kernels compiled; of short histories medians.

    A row has seconds and ns / (n log2 n) of each model. A curve n log n is drawn through each, by the median of the
    ratios.
    """
    curves: dict[str, Curve] = {model: {} for model in chosen(models, CURVES)}
    for n in (round(10 ** (half / 2)) for half in range(8, 15)):
        if n <= most:
            row: Row = {"operations": power(n)}
            for model, curve in curves.items():
                curve[n] = _median_cpu_s(model, n)
                row |= {f"{model}_CPU_s": round(curve[n], 3), f"{model}_ns": round(1e9 * curve[n] / n_log_n(n), 1)}
            yield row
    _draw(curves, plot)


def n_log_n(n: int) -> float:
    return n * math.log2(n)


def _median_cpu_s(model: str, operations: int) -> float:
    keys, each = CURVES[model]
    with kept_in() as folder:
        _cpu_s(model, written(model, 10_000, keys, folder))
        path = written(model, operations // each, keys, folder)
        return statistics.median(_cpu_s(model, path) for _ in range(min(9, max(1, _RUNS_COST // operations))))


def _cpu_s(model: str, path: Path) -> float:
    source = Source(path, "parquet", pq.read_metadata(path).num_rows, saved=open_saved(path))
    with spent() as took:
        expected(judge_source(source, HISTORIES[model].model, LocalEngine()))
    return took.cpu_s


def _draw(curves: Mapping[str, Curve], path: Path) -> None:
    """Time against length, and what is left of it when n log n is divided out."""
    with picture(path, width=11, panels=2) as (left, right):
        for model, curve in curves.items():
            n, seconds = np.array(list(curve)), np.array(list(curve.values()))
            ratios = seconds / (n * np.log2(n))
            (points,) = left.loglog(n, seconds, "o", label=model)
            left.loglog(n, np.median(ratios) * n * np.log2(n), "-", color=points.get_color(), linewidth=1)
            right.semilogx(n, 1e9 * ratios, "o-", label=model)
        left.set(title="CPU time, with n log n fitted", xlabel="operations or transactions", ylabel="seconds")
        right.set(title="CPU time / (n log2 n)", xlabel="operations or transactions", ylabel="ns")
        right.set_ylim(bottom=0)
        for axes in (left, right):
            axes.grid(alpha=0.3)
            axes.legend()


# ---- ten times the operations ----


def growth(
    *models: Models, operations: int = 1_000_000, share: Share = 0.01, part_rows: PartRows = 1_000_000
) -> Iterator[Row]:
    """Of n and 10 n operations: bytes that reach Spark's driver, its peak, the largest closure, seconds.

    5 % of the operations have an unknown outcome, and the share of anomalies is spread evenly. `read` are operations
    that the driver reads itself, `shown` those of examples, which it holds.
    """
    yield from _grown(models, operations, share, part_rows, _of_driver)


def growth_local(
    *models: Models, operations: int = 100_000, share: Share = 0.01, part_rows: PartRows = 1_000_000
) -> Iterator[Row]:
    """The same histories in one process: the processor time that judging takes, the kernel's part left out."""
    yield from _grown(models, operations, share, part_rows, _of_time)


def _grown(
    models: Sequence[str], operations: int, share: float, part_rows: int, look: Callable[[Path, str], Row]
) -> Iterator[Row]:
    for model in chosen(models or ("register",), KINDS):
        row: Row = {"model": model, "anomalies": f"{share:.1%}"}
        for size in (1_000, operations, 10 * operations):
            with kept_in() as folder:
                kind = KINDS[model]
                place = save(kind.make(size, share), folder / "h.parquet", part_rows, kind.dictionary)
                figures = look(place, model)
            if size > 1_000:  # which compiles, and loads what judging needs
                row |= {f"{power(size)}: {name}": figure for name, figure in figures.items()}
        yield row


def _of_driver(place: Path, model: str) -> Row:
    engine = SparkEngine()
    with spent() as took:
        verdict, found = measured(place, model, engine, CheckOptions())
    engine.close()
    figures = {"B": found.told, "closure B": found.closure, "peak MB": round(found.peak / 1e6, 2)}
    counted = {"read": found.read, "shown": found.shown}
    return figures | {"s": round(took.wall_s, 1), "operations": counted, "valid": verdict.valid}


def _of_time(place: Path, model: str) -> Row:
    verdict, seconds = cost(place, model, LocalEngine())
    return {"CPU s": round(seconds, 2), "valid": verdict.valid}

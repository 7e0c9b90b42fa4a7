"""How much memory judging takes, in-process and of one task of Spark, each model in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from bench.histories import HISTORIES, title, written
from bench.judging import FEW, Count, Folder, Keys, expected
from bench.measure import Row, chosen, forget_peak, in_a_process, kept_in, status_bytes
from checkers.api import judge_source
from checkers.engines import flows, grouped, keyed
from checkers.engines.local import LocalEngine
from checkers.engines.spark import SparkEngine
from checkers.importers.detect import open_source
from checkers.made.generate import BASES, MadeHistory, write_made
from checkers.options import CheckOptions
from checkers.source import Source
from harness.history.saved import open_saved

R = TypeVar("R")

SMALL: Final = 20_000
"""Operations of the history that the process judges before."""

OTHERWISE: Final = ("list-append", "rw-register", "bank", "cas-register", "stats")
"""Models that are judged in windows or batches, or by the means of others."""


# ---- the local engine ----


def memory(
    *histories: str,
    count: Count = 1_000_000,
    keys: Keys = 0,
    cores: Annotated[Sequence[int], "how many cores judge"] = (1, 2),
    folder: Folder = None,
) -> Iterator[Row]:
    """The most that the process holds above what it held when it began, and the Arrow bytes of what it is given.

    Bytes are those of the batches that are read, decompressed; the process has judged a small history before.
    """
    with kept_in(folder) as place:
        for name in chosen(histories or FEW, HISTORIES):
            paths = written(name, SMALL, 0, place), written(name, count, keys, place)
            row: Row = {"history": title(name, count, keys)}
            for number in cores:
                read, grown = in_a_process("spawn", _peak, name, *paths, number)
                row |= {"columns_MB": round(read / 1e6, 1), f"peak_MB_on_{number}": round(grown / 1e6, 1)}
                row[f"times_on_{number}"] = round(grown / read, 2)
            yield row


def _peak(name: str, small: Path, large: Path, cores: int) -> tuple[int, int]:
    """Bytes that were read, and how far above what it held the process rose."""
    _judge_metered(name, small, cores)
    before = forget_peak()
    read = _judge_metered(name, large, cores)
    return read, status_bytes("VmHWM") - before


class Metered(Source):
    """A source that adds up the bytes of what it hands out, the last time that it was asked for these columns."""

    __slots__ = ()

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        total = 0
        for batch in Source.batches(self, columns):
            total += batch.nbytes
            yield batch
        READ[tuple(columns)] = total

    def mapped(self, columns: Sequence[str], work: Callable[[pa.RecordBatch], R], threads: int) -> Iterator[R]:
        def sized(batch: pa.RecordBatch) -> tuple[int, R]:
            return batch.nbytes, work(batch)

        total = 0
        for size, found in Source.mapped(self, columns, sized, threads):
            total += size
            yield found
        READ[tuple(columns)] = total


READ: dict[tuple[str, ...], int] = {}


def _judge_metered(name: str, path: Path, cores: int) -> int:
    """How many bytes were read for it."""
    READ.clear()
    source = Metered(path, "parquet", pq.read_metadata(path).num_rows, saved=open_saved(path))
    expected(judge_source(source, HISTORIES[name].model, LocalEngine(cores), HISTORIES[name].options))
    return sum(READ.values())


# ---- one task of Spark ----


def task_memory(
    *models: str, operations: Count = 100_000, keys: Annotated[int, "where it has any"] = 100
) -> Iterator[Row]:
    """Bytes of the shuffle for an operation, and with the most that the process then holds above what it held before.

    What is judged expands by a factor, which the model's `expanded` (`shuffle.EXPANDED`, if it names none) has to
    cover. The whole history is one bucket here.
    """
    for model in chosen(models or [model for model in BASES if model not in OTHERWISE], BASES):
        with kept_in() as folder:
            paths = folder / "small.parquet", folder / "large.parquet"
            for path, size in zip(paths, (1_000, operations), strict=True):
                write_made(MadeHistory(model, size, keys=keys if BASES[model].keys_are else None), path)
            yield {"model": model, **in_a_process("spawn", _task, model, *paths)}


def _task(model: str, small: Path, large: Path) -> Row:
    """Judges a small history, so that all is loaded, then measures with a large one."""
    for module in (flows, grouped):
        module.run_plan = _run_plan  # type: ignore[attr-defined]
    keyed.run_sieved = _run_sieved  # type: ignore[attr-defined,assignment]
    engine = OneTask()
    for path in (small, large):
        engine.measured.clear()
        source = open_source(path)
        verdict = judge_source(source, model, engine, CheckOptions())
    size, grown = max(engine.measured, key=lambda pair: pair[1] / max(1, pair[0]))
    figures = {"shuffled_B": round(size / source.rows), "judged_B": round((size + grown) / source.rows)}
    return {"operations": source.rows, **figures, "times": round(1 + grown / size, 1), "valid": verdict.valid}


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
        before = forget_peak()
        found = plan.judge(parts) if parts else None
        self.measured.append((sum(map(len, parts)), max(0, status_bytes("VmHWM") - before)))
        return None if found is None else plan.combine([found])


def _run_plan(engine: OneTask, source: Source, plan: Any, buckets: int, **_: Any) -> Any:
    return engine.judged(source, plan)


def _run_sieved(engine: OneTask, source: Source, reader: Any, plan: Any, sieve: Any, buckets: int) -> Any:
    return engine.judged(source, plan), ()

"""What reaches Spark's driver, what judging costs, and histories with anomalies spread evenly."""

from __future__ import annotations

import resource
import tracemalloc
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from checkers.api import judge_source
from checkers.engines import spark
from checkers.engines.api import Engine
from checkers.engines.spark import SparkEngine
from checkers.importers.detect import open_source
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.verdict import Verdict
from harness.history.parts import write_history

Row = dict[str, Any]


@dataclass(slots=True)
class Growth:
    """Bytes that reached the driver in all, the most that it held, the largest stage that it sent to workers, the
    operations that it read itself, and those that the verdict shows in its examples."""

    told: int = 0
    peak: int = 0
    closure: int = 0
    read: int = 0
    shown: int = 0


def measured(
    place: Path, model: str, engine: SparkEngine, options: CheckOptions, driver_here: bool = False
) -> tuple[Verdict, Growth]:
    """The verdict on a saved history, and what it took of the driver.

    With `driver_here` workers are in this process too, so its peak says nothing; the history is not verified, for that
    does not depend on the model.
    """
    growth = Growth()
    collected, in_worker, batches = SparkEngine.collected, spark._InWorker, Source.batches

    def counting(self: SparkEngine, frame: Any) -> list[Any]:
        rows = collected(self, frame)
        growth.told += sum(len(v) if isinstance(v, bytes | bytearray | str) else 8 for row in rows for v in row)
        return rows

    def sizing(stage: Any) -> Any:
        growth.closure = max(growth.closure, len(cloudpickle.dumps(stage)))
        return in_worker(stage)

    def reading(self: Source, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in batches(self, columns):
            growth.read += batch.num_rows
            yield batch

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Source, "batches", reading)
        patched.setattr(SparkEngine, "collected", counting)
        patched.setattr(spark, "_InWorker", sizing)
        source = open_source(place, verify=False)
        if driver_here:
            return judge_source(source, model, engine, options), growth
        tracemalloc.start()
        arrow = pa.total_allocated_bytes()
        engine.verify(source)
        verdict = judge_source(source, model, engine, options)
        growth.peak = tracemalloc.get_traced_memory()[1] + max(0, pa.total_allocated_bytes() - arrow)
        tracemalloc.stop()
    growth.shown = sum(len(example.ops) for examples in verdict.anomalies.values() for example in examples)
    return verdict, growth


def cost(place: Path, model: str, engine: Engine) -> tuple[Verdict, float]:
    """The verdict on a saved history, and the seconds that processors worked for it in this process.

    The kernel's are left out: to hand out a page takes it nothing or a long time, as the machine was used before (of
    one history 20 to 300 ns an operation, where the work itself takes 170 to 250 whatever its length)."""
    source = open_source(place, verify=False)
    began = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    verdict = judge_source(source, model, engine, CheckOptions())
    return verdict, resource.getrusage(resource.RUSAGE_SELF).ru_utime - began


def corrupted(
    batches: Iterable[pa.RecordBatch], share: float, change: Callable[[Row], bool]
) -> Iterator[pa.RecordBatch]:
    """Batches of which about that share of the operations has other micro-operations, evenly; `change` says whether it
    could be changed, if not the next one is."""
    every, since = round(1 / share) if share else 0, 0
    for batch in batches:
        if not every:
            yield batch
            continue
        changed: dict[int, list[Row]] = {}
        tried: set[int] = set()
        places = list(range(every - 1 - since % every, batch.num_rows, every))
        while places:
            rows = batch.select(_LOOKED_AT).take(pa.array(places)).to_pylist()
            could = [change(row) for row in rows]
            changed |= {place: row["mops"] for place, row, done in zip(places, rows, could, strict=True) if done}
            tried.update(places)
            following = (place + 1 for place, done in zip(places, could, strict=True) if not done)
            places = [place for place in following if place < batch.num_rows and place not in tried]
        since = (since + batch.num_rows) % every
        yield _replaced(batch, changed)


_LOOKED_AT = ["type", "f", "process", "invoke_index", "mops"]


def _replaced(batch: pa.RecordBatch, changed: dict[int, list[Row]]) -> pa.RecordBatch:
    """The batch with other micro-operations at these places."""
    if not changed:
        return batch
    mops = batch.column("mops")
    order = np.arange(batch.num_rows)
    order[list(changed)] = batch.num_rows + np.arange(len(changed))
    new = pa.array(list(changed.values()), type=mops.type)
    return batch.set_column(
        batch.schema.get_field_index("mops"), batch.schema.field("mops"), pa.concat_arrays([mops, new]).take(order)
    )


def unwritten(row: Row) -> bool:
    """Let a successful read of one cell show what nobody wrote."""
    if row["type"] != "ok" or row["process"] < 0 or row["mops"][0]["f"] != "r":
        return False
    row["mops"][0]["value"] = 10**15 + row["invoke_index"]
    return True


def shortened(row: Row) -> bool:
    """Let a successful read of a list miss its last half."""
    for mop in row["mops"] if row["type"] == "ok" else ():
        if mop["f"] == "r" and mop["values"] and len(mop["values"]) > 3:
            mop["values"] = mop["values"][: len(mop["values"]) // 2]
            return True
    return False


def lower_by_one(row: Row) -> bool:
    """Let a successful read of a page show its last row as another."""
    if row["type"] != "ok" or row["mops"][0]["f"] != "r":
        return False
    row["mops"][-1]["value"] = 10**15 + row["invoke_index"]
    return True


def save(batches: Iterable[pa.RecordBatch], place: Path, part_rows: int, dictionary: Collection[str] = ()) -> Path:
    """The history in parts; `dictionary` are its strings once all batches are made."""
    rows = max(1, min(65_536, part_rows // 4))
    write_history(
        _rows_each(batches, rows), place, part_rows=part_rows, dictionary=lambda: msgspec.json.encode(list(dictionary))
    )
    return place


def _rows_each(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The rows in batches of `rows` each, as histories are saved; the last may have fewer."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        for begin in range(0, batch.num_rows, rows):
            held.append(batch.slice(begin, rows))
            count += held[-1].num_rows
            if count >= rows:
                whole = pa.concat_batches(held)
                yield whole.slice(0, rows)
                held, count = [whole.slice(rows)], count - rows
    if count:
        yield pa.concat_batches(held)

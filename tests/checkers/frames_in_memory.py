"""Data frames as Spark has them, in this process: stages travel as bytes, partitions are dealt as a shuffle deals them.

What the engine does on a cluster is done in full, but for the JVM; so all models can be judged in many tasks, cheaply.
"""

from __future__ import annotations

import operator
import pickle
import re
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import Row

from checkers.engines import spark
from checkers.engines.spark import SparkEngine

Partition = list[pa.RecordBatch]

ROWS = 5
"""Of each batch after a shuffle; Spark's have thousands."""

COMPARED = {"<": operator.lt, ">=": operator.ge, "=": operator.eq}


class Frame:
    """Partitions of rows, made when they are asked for."""

    def __init__(self, make: Callable[[], list[Partition]]) -> None:
        self._make = make
        self._made: list[Partition] | None = None

    def partitions(self) -> list[Partition]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def _then(self, change: Callable[[list[Partition]], list[Partition]]) -> Frame:
        return Frame(lambda: change(self.partitions()))

    def mapInArrow(self, stage: Any, schema: Any) -> Frame:
        sent = cloudpickle.dumps(stage)

        def change(parts: list[Partition]) -> list[Partition]:
            return [list(pickle.loads(sent)(iter(part))) for part in parts]

        return self._then(change)

    def repartition(self, count: int) -> Frame:
        return self._dealt(count, lambda rows: range(rows.num_rows))

    def repartitionById(self, count: int, place: str) -> Frame:
        found = re.fullmatch(r"cast\(pmod\((\w+), (\d+)\) as int\)", place)
        assert found and int(found[2]) == count, place
        return self._dealt(count, lambda rows: rows.column(found[1]).to_pylist())

    def _dealt(self, count: int, places: Callable[[pa.RecordBatch], Iterable[int]]) -> Frame:
        def change(parts: list[Partition]) -> list[Partition]:
            if not any(parts):
                return [[] for _ in range(count)]
            rows = _whole([batch for part in parts for batch in part])
            dealt: list[list[int]] = [[] for _ in range(count)]
            for row, place in enumerate(places(rows)):
                dealt[place % count].append(row)
            return [_in_batches(rows.take(pa.array(mine, pa.int64()))) for mine in dealt]

        return self._then(change)

    def sortWithinPartitions(self, *columns: str) -> Frame:
        def ordered(part: Partition) -> Partition:
            rows = _whole(part)
            keys = list(zip(*(rows.column(name).to_pylist() for name in columns), strict=True))
            return _in_batches(rows.take(pa.array(sorted(range(len(keys)), key=keys.__getitem__), pa.int64())))

        return self._then(lambda parts: [ordered(part) if part else [] for part in parts])

    def where(self, condition: str) -> Frame:
        found = re.fullmatch(r"(\w+) (<|>=|=) (-?\d+)", condition)
        assert found, condition
        name, compare, number = found[1], COMPARED[found[2]], int(found[3])

        def those(batch: pa.RecordBatch) -> pa.RecordBatch:
            return batch.filter(
                pa.array([compare(value, number) for value in batch.column(name).to_pylist()], pa.bool_())
            )

        return self._then(lambda parts: [[those(batch) for batch in part] for part in parts])

    def union(self, other: Frame) -> Frame:
        return self._then(lambda parts: [*parts, *other.partitions()])

    def limit(self, count: int) -> Frame:
        def first(parts: list[Partition]) -> list[Partition]:
            batches = [batch for part in parts for batch in part]
            return [_in_batches(_whole(batches).slice(0, count)) if batches else []]

        return self._then(first)

    def persist(self, level: Any) -> Frame:
        return self

    def unpersist(self) -> None:
        self._made = None

    def collect(self) -> list[Any]:
        """The rows as Spark has them: going through one gives its values, not their names."""
        return [Row(**row) for part in self.partitions() for batch in part for row in batch.to_pylist()]


def _whole(part: Partition) -> pa.RecordBatch:
    return part[0] if len(part) == 1 else pa.concat_batches(part)


def _in_batches(rows: pa.RecordBatch) -> Partition:
    """In so small ones that what belongs together is in several."""
    return [rows.slice(begin, ROWS) for begin in range(0, rows.num_rows, ROWS)]


class Driver:
    """Stands for a session."""

    def __init__(self, cores: int) -> None:
        tracker = SimpleNamespace(getExecutorInfos=lambda: [None])
        profiles = SimpleNamespace(defaultResourceProfile=lambda: None)
        context = SimpleNamespace(
            statusTracker=lambda: tracker,
            resourceProfileManager=lambda: profiles,
            maxNumConcurrentTasks=lambda _: cores,
        )
        java = SimpleNamespace(sc=lambda: context)
        settings = SimpleNamespace(getAll=lambda: [("spark.master", f"local[{cores}]")])
        self.sparkContext = SimpleNamespace(getConf=lambda: settings, _jsc=java)

    def range(self, begin: int, end: int, step: int, parts: int) -> Frame:
        numbers = [list(range(begin + part, end, parts)) for part in range(parts)]
        return Frame(lambda: [[pa.RecordBatch.from_pydict({"id": pa.array(n, pa.int64())})] for n in numbers])

    def stop(self) -> None:
        """Nothing is held."""


def engine_in_memory(monkeypatch: pytest.MonkeyPatch, cores: int = 2) -> SparkEngine:
    """A Spark engine whose session is in this process, for as long as the test lasts."""
    monkeypatch.setattr(spark, "_parsed", str)  # Spark's own parser of schemas is in the JVM
    monkeypatch.setattr("pyspark.sql.functions.expr", str)
    engine = SparkEngine()
    engine._session = Driver(cores)
    return engine

"""Data frames as Spark has them, in this process: stages travel as bytes, partitions are dealt as a shuffle deals them.

What the engine does on a cluster is done in full, but for the JVM; so all models can be judged in many tasks, cheaply.
"""

from __future__ import annotations

import operator
import pickle
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import Row

from checkers.engines import spark
from checkers.engines.spark import SparkEngine

Partition = list[pa.RecordBatch]

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

    def repartition(self, count: int, column: str | None = None) -> Frame:
        def change(parts: list[Partition]) -> list[Partition]:
            dealt: list[Partition] = [[] for _ in range(count)]
            for number, batch in enumerate(batch for part in parts for batch in part):
                for row in range(batch.num_rows):
                    key = batch.column(column)[row].as_py() if column else number
                    dealt[hash((key, 7)) % count].append(batch.slice(row, 1))
            return dealt

        return self._then(change)

    def sortWithinPartitions(self, *columns: str) -> Frame:
        def key(row: pa.RecordBatch) -> list[Any]:
            return [row.column(name)[0].as_py() for name in columns]

        return self._then(lambda parts: [sorted(_rows(part), key=key) for part in parts])

    def where(self, condition: str) -> Frame:
        found = re.fullmatch(r"(\w+) (<|>=|=) (-?\d+)", condition)
        assert found, condition
        name, compare, number = found[1], found[2], int(found[3])

        def holds(row: pa.RecordBatch) -> bool:
            value = row.column(name)[0].as_py()
            return bool(COMPARED[compare](value, number))

        return self._then(lambda parts: [[row for row in _rows(part) if holds(row)] for part in parts])

    def union(self, other: Frame) -> Frame:
        return self._then(lambda parts: [*parts, *other.partitions()])

    def limit(self, count: int) -> Frame:
        return self._then(lambda parts: [[row for part in parts for row in _rows(part)][:count]])

    def persist(self, level: Any) -> Frame:
        return self

    def unpersist(self) -> None:
        self._made = None

    def collect(self) -> list[Any]:
        """The rows as Spark has them: going through one gives its values, not their names."""
        return [Row(**row) for part in self.partitions() for batch in part for row in batch.to_pylist()]


def _rows(part: Partition) -> Iterator[pa.RecordBatch]:
    return (batch.slice(row, 1) for batch in part for row in range(batch.num_rows))


class Driver:
    """Stands for a session."""

    def __init__(self, cores: int) -> None:
        tracker = SimpleNamespace(getExecutorInfos=lambda: [None])
        java = SimpleNamespace(sc=lambda: SimpleNamespace(statusTracker=lambda: tracker))
        settings = SimpleNamespace(getAll=lambda: [("spark.master", f"local[{cores}]")])
        self.sparkContext = SimpleNamespace(defaultParallelism=cores, getConf=lambda: settings, _jsc=java)

    def range(self, begin: int, end: int, step: int, parts: int) -> Frame:
        numbers = [list(range(begin + part, end, parts)) for part in range(parts)]
        return Frame(lambda: [[pa.RecordBatch.from_pydict({"id": pa.array(n, pa.int64())})] for n in numbers])

    def stop(self) -> None:
        """Nothing is held."""


def engine_in_memory(monkeypatch: pytest.MonkeyPatch, cores: int = 2) -> SparkEngine:
    """A Spark engine whose session is in this process, for as long as the test lasts."""
    monkeypatch.setattr(spark, "_parsed", str)  # Spark's own parser of schemas is in the JVM
    engine = SparkEngine()
    engine._session = Driver(cores)
    return engine

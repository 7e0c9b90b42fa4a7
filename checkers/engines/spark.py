"""The Spark engine: its session, and what every stage of its work needs. Workers read histories with the reader that
the local engine uses and run the same kernels in `mapInArrow` (`checkers.engines.shuffle`); only findings come back,
and the operations that are to be shown, from the row groups that may have them (`Locator`).
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checkers.columns.projection import Projection
from checkers.engines.api import TALLIED, KeyedKernel, R, Tally, Work, tally_of, total_tally
from checkers.engines.session import (
    EXECUTOR,
    SparkOptions,
    machine_memory,
    planned_task_bytes,
    start_session,
    stop_session,
    worker_fault,
)
from checkers.findings import Findings
from checkers.importers.integrity import JUDGED, BucketVerifier, PieceVerifier
from checkers.importers.integrity import SCHEMA as VERIFIED
from checkers.source import Source, chosen, rows_with
from checkers.verdict import Undecided
from harness.atomic_write import scratch_folder
from harness.errors import HarnessError, UserError
from harness.history.parts import schema
from harness.history.saved import HistoryReader, open_saved

Stage: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What workers do with the batches of a partition; picklable."""

_FEW_ROWS: Final = 20_000
"""Rows that make one part: to plan and start more tasks takes longer than they would save."""

_ROWS_VERIFIED: Final = 2_500_000
"""Operations that one task looks at to verify a history."""

_FEW_TABLES: Final = 8
"""Tasks of which the driver takes what they find to be shown as it is; of more one task makes one table."""

_ROWS_PER_GROUP: Final = 1 << 16

_BATCH_BYTES: Final = 1 << 22
"""Most bytes of batches that go from a worker to the JVM as one, for each costs it something."""


class SparkEngine:
    """Judges by tasks of a Spark session, which starts at first use and ends at `close`; see `Engine`.

    What is refused once is not tried again: a cluster is given more than a minute to take us on.
    """

    name = "spark"

    def __init__(self, options: SparkOptions | None = None) -> None:
        self._options = options or SparkOptions()
        self._session: Any = None
        self._refused: UserError | None = None
        self.skipped: list[str] = []

    def run(self, work: Work[R]) -> R:
        return work.on_spark(self)

    def judge_keys(self, source: Source, projection: Projection, kernel: KeyedKernel, explain: int) -> Findings:
        from checkers.engines.keyed import judge_keys_on_spark

        return judge_keys_on_spark(self, source, projection, kernel, explain)

    def tally(self, source: Source) -> Tally:
        from checkers.engines.shuffle import run_batches_on_spark

        return run_batches_on_spark(self, source, TALLIED, tally_of, total_tally) or {}

    def verify(self, source: Source) -> None:
        if source.saved is None or source.table is not None:
            return
        reader = source.saved.absolute()
        pieces = min(self.parts(source.rows, _ROWS_VERIFIED), max(1, reader.manifest.groups))
        try:
            looked_at = mapped(self.numbers(pieces, pieces), PieceVerifier(reader, pieces), VERIFIED)
            met = placed(looked_at, pieces).sortWithinPartitions("bucket")
            rows = self.collected(mapped(met, BucketVerifier(reader), VERIFIED))
        except (UserError, HarnessError):
            raise
        except Exception as error:
            raise worker_fault(error) or error from error
        if [int(row["data"]) for row in rows if row["bucket"] == JUDGED] != [source.rows]:
            raise HarnessError(f"Spark did not look at all of {source.path}.")

    def located(self, source: Source) -> Source:
        if source.saved is None:
            return source
        reader = source.saved.absolute()

        def find(wanted: Any, columns: list[str]) -> list[pa.Table]:
            pieces = min(self.parts(source.rows, _ROWS_VERIFIED), max(1, reader.manifest.groups))
            found = mapped(self.numbers(pieces, pieces), Locator(reader, pieces, wanted, tuple(columns)), "rows binary")
            if pieces > _FEW_TABLES:
                found = mapped(found.repartition(1), joined, "rows binary")
            return [pa.ipc.open_stream(row["rows"]).read_all() for row in self.collected(found)]

        return replace(source, located=FetchedOnce(find))

    def collected(self, frame: Any) -> list[Any]:
        """All rows of a frame, which must be few. What workers refuse the history for is raised here."""
        try:
            return frame.collect()
        except Exception as error:  # noqa: BLE001 - Spark wraps what workers raise
            raise _from_worker(error) or error from None

    @property
    def cores(self) -> int:
        """How many tasks run at once, whatever parallelism a setting asks for."""
        context = self._started().sparkContext._jsc.sc()
        return max(1, context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))

    def task_bytes(self) -> int:
        """What the Python side of one task may take, by the session's settings (`session.planned_task_bytes`)."""
        context = self._started().sparkContext
        settings = dict(context.getConf().getAll())
        executors = len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1
        return planned_task_bytes(settings, self.cores, executors, machine_memory())

    def parts(self, rows: int, rows_each: int, each_core: int = 1) -> int:
        """Into how many parts rows are split: one if they are few, else some for every core at least."""
        return 1 if rows <= _FEW_ROWS else max(each_core * self.cores, -(-rows // rows_each))

    def numbers(self, count: int, parts: int) -> Any:
        """The numbers below `count` as a data frame (column `id`) of that many partitions."""
        return self._started().range(0, count, 1, max(1, parts))

    def table(self, columns: dict[str, list[Any]]) -> Any:
        """A data frame of columns that are in memory here."""
        return self._started().createDataFrame(pa.table(columns))

    @contextmanager
    def reader(self, source: Source) -> Iterator[HistoryReader]:
        """The reader of the history for as long as the context lasts; what is in memory is written first."""
        if source.saved is not None:
            yield source.saved.absolute()
            return
        with scratch_folder("spark") as folder:
            path = Path(folder) / "history.parquet"
            assert source.table is not None
            table = source.table.replace_schema_metadata(schema().metadata)
            pq.write_table(table, path, row_group_size=_ROWS_PER_GROUP)
            yield open_saved(path)

    def _started(self) -> Any:
        if self._refused is not None:
            raise self._refused
        if self._session is None:
            try:
                self._session = start_session(self._options)
            except UserError as refused:
                self._refused = refused
                raise
            except Exception as error:
                self._refused = worker_fault(error)
                if self._refused is None:
                    raise
                raise self._refused from error
        return self._session

    def close(self) -> None:
        """Stop the session, if there is one."""
        if self._session is not None:
            stop_session(self._session)
            self._session = None


def mapped(frame: Any, stage: Stage, schema: str) -> Any:
    """The frame of all rows (columns as in `schema`, in SQL's words) that a stage makes of each partition's."""
    return frame.mapInArrow(_InWorker(stage), _parsed(schema))


def placed(rows: Any, parts: int) -> Any:
    """The rows in `parts` partitions, by their column `bucket`: n is in partition n, modulo their number. A hash of it
    would leave a third of the tasks without a bucket and others with several."""
    from pyspark.sql.functions import expr

    return rows.repartitionById(parts, expr(f"cast(pmod(bucket, {parts}) as int)"))


@cache
def _parsed(schema: str) -> Any:
    from pyspark.sql.types import StructType

    return StructType.fromDDL(schema)


@dataclass(frozen=True, slots=True)
class _InWorker:
    """A stage in a worker. Spark's workers collect all garbage after each task, which takes longer than a small task
    if they look at every module again; so what outlived a task is never looked at from then on."""

    stage: Stage

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gc.freeze()
        if EXECUTOR in os.environ:
            _say_compilations()
        return gathered(self.stage(batches))


def gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of all batches, small batches of them together."""
    held, size = list[pa.RecordBatch](), 0
    for batch in batches:
        if held and size + batch.nbytes > _BATCH_BYTES:
            yield pa.concat_batches(held)
            held, size = [], 0
        held.append(batch)
        size += batch.nbytes
    if held:
        yield pa.concat_batches(held)


@cache
def _say_compilations() -> None:
    """Have this worker say in its log when it compiles, which an archive with kernels for its processor spares it."""
    from numba.core import event

    class Compilation(event.Listener):
        def on_start(self, event: Any) -> None:
            print(f"assay compiles {event.data['dispatcher']}", file=sys.stderr, flush=True)

        def on_end(self, event: Any) -> None:
            pass

    event.register("numba:compile", Compilation())


_WORKERS_ERRORS: Final = {"UserError": UserError, "HarnessError": HarnessError, "Undecided": Undecided}


def _from_worker(error: Exception) -> Exception | None:
    """The error of ours that a worker died of, if it was one."""
    found = re.findall(r"^(?:\w+\.)+(UserError|HarnessError|Undecided): (.*)$", str(error), re.MULTILINE)
    return _WORKERS_ERRORS[found[-1][0]](found[-1][1]) if found else None


_PACKED: Final = pa.ipc.IpcWriteOptions(compression="zstd")


class FetchedOnce:
    """Operations by their invocation indices, each fetched once: a cycle is named and later explained by the same.

    `fetch` takes sorted indices and the names of columns. What is kept is what is to be shown, so it is little.
    """

    def __init__(self, fetch: Callable[[Any, list[str]], list[pa.Table]]) -> None:
        self._fetch = fetch
        self._known: dict[tuple[str, ...], tuple[Any, list[pa.Table]]] = {}

    def __call__(self, wanted: Any, columns: list[str]) -> list[pa.Table]:
        known, tables = self._known.get(tuple(columns), (np.zeros(0, np.int64), []))
        new = np.setdiff1d(wanted, known)
        if len(new):
            tables = [*tables, *self._fetch(new, columns)]
            self._known[tuple(columns)] = np.union1d(known, new), tables
        return [chosen(table, wanted) for table in tables]


@dataclass(frozen=True, slots=True)
class Locator:
    """Picklable: turns piece numbers into the operations with some invocation indices (sorted), as one table."""

    reader: HistoryReader
    pieces: int
    wanted: Any
    columns: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        yield from as_one(table for piece in numbers for table in self._found(piece))

    def _found(self, piece: int) -> Iterator[pa.Table]:
        for group in self.reader.groups_with(self.wanted, self.reader.groups_of(piece, self.pieces)):
            yield from rows_with(self.reader, range(group, group + 1), self.wanted, list(self.columns))


def joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A stage that makes one table of what several `Locator`s found."""
    yield from as_one(pa.ipc.open_stream(data).read_all() for batch in batches for data in batch.column(0).to_pylist())


def as_one(tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
    """A row of a column `rows`, unless there are none: each table for itself would bring its schema with it, and that
    the history's dictionary."""
    found = [table.replace_schema_metadata(None) for table in tables if table.num_rows]
    if found:
        table, sink = pa.concat_tables(found).combine_chunks(), pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=_PACKED) as writer:
            writer.write_table(table)
        yield pa.RecordBatch.from_arrays([pa.array([bytes(sink.getvalue())], pa.binary())], names=["rows"])

"""The Spark engine: reads Parquet, projects with native columns, shuffles by key, sorts within partitions and runs the
same kernels in `mapInArrow`, with the unfinished key carried from batch to batch. Only findings come back.
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checkers.engines.api import KeyedKernel, Tally
from checkers.engines.class_archive import archive_options
from checkers.findings import Findings, merged
from checkers.grouping import group, split_sorted
from checkers.kernels.columns import NEVER, NIL
from checkers.projection import FLAT, MISMATCH, UNSUPPORTED, Flat, Projection, concatenated, is_zero, part_of
from checkers.source import KEY_COLUMNS, Source
from harness.errors import HarnessError, UserError

Stage: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What workers do with the batches of a partition; picklable."""

_FEW_ROWS: Final = 20_000
"""So many rows make one part: to plan and start more tasks takes longer than they would save."""

_ROWS_PER_PARTITION: Final = 2_500_000

_JAVA_VERSION: Final = 17

_COMPILED_AFTER: Final = {
    "Tier4InvocationThreshold": 100_000,
    "Tier4MinInvocationThreshold": 10_000,
    "Tier4CompileThreshold": 200_000,
    "Tier4BackEdgeThreshold": 1_000_000,
}
"""The JVM's optimising compiler waits for loops over data; by default it also takes to the planning of queries, which
costs short sessions more than all their work."""


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Size of the session: worker threads, the JVM's heap, and how many rows (whole keys) a kernel call gets at least,
    so that a million keys take few calls."""

    cores: int = 2
    heap_mib: int = 2048
    kernel_rows: int = 1 << 19


def check_java() -> Path:
    """The Java runtime that Spark will use; raises UserError unless there is one that starts."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise UserError("The Spark engine needs a Java runtime (17 or newer): install one or use --engine local.")
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    if version.returncode != 0:
        raise UserError(f"The Java runtime {java} does not start: repair it or use --engine local.")
    return Path(java)


class SparkEngine:
    """See `Engine`. Starts its session at first use and keeps it until `close`."""

    name = "spark"

    def __init__(self, options: SparkOptions | None = None) -> None:
        self._options = options or SparkOptions()
        self._session: Any = None

    def judge_keys(self, source: Source, projection: Projection, kernel: KeyedKernel, explain: int) -> Findings:
        with self.frame(source) as frame:
            keys = source.key_columns()
            flat = _projected(frame, projection, keys)
            parts = self.parts(source.rows, _ROWS_PER_PARTITION)
            grouped = flat.repartition(parts, *keys).sortWithinPartitions(*keys, "invoke")
            work = _Partition(kernel, explain, self._options.kernel_rows)
            found = mapped(grouped, work, "findings binary").collect()
        told = [msgspec.msgpack.decode(row["findings"], type=Findings) for row in found]
        return merged(told or [kernel(group(concatenated([])))], explain)

    def tally(self, source: Source) -> Tally:
        with self.frame(source) as frame:
            rows = frame.where("process >= 0").groupBy("f", "type").count().collect()
        return {(row["f"], row["type"]): row["count"] for row in rows}

    @property
    def cores(self) -> int:
        """How many tasks run at once."""
        return self._options.cores

    def parts(self, rows: int, rows_each: int, each_core: int = 1) -> int:
        """Into how many parts rows are split: one if they are few, else some for every core at least."""
        return 1 if rows <= _FEW_ROWS else max(each_core * self.cores, -(-rows // rows_each))

    def numbers(self, count: int, parts: int) -> Any:
        """The numbers below `count` as a data frame (column `id`) of that many partitions."""
        return self._started().range(0, count, 1, max(1, parts))

    @contextmanager
    def frame(self, source: Source) -> Iterator[Any]:
        """The history as a data frame for as long as the context lasts."""
        from pyspark.sql.pandas.types import from_arrow_schema

        with self.parquet(source) as path:
            schema = from_arrow_schema(pq.read_schema(path))
            yield self._started().read.schema(schema).parquet(str(path))

    @contextmanager
    def parquet(self, source: Source) -> Iterator[Path]:
        """The history as a Parquet file for as long as the context lasts; what is in memory is written first."""
        if source.parquet is not None:
            yield source.parquet.resolve()
            return
        with tempfile.TemporaryDirectory(prefix="assay-spark-") as folder:
            path = Path(folder) / "history.parquet"
            pq.write_table(source.table, path, row_group_size=1 << 17)
            yield path

    def _started(self) -> Any:
        if self._session is None:
            self._session = start_session(self._options)
        return self._session

    def close(self) -> None:
        """Stop the session, if there is one."""
        if self._session is not None:
            self._session.stop()
            self._session = None


def mapped(frame: Any, stage: Stage, schema: str) -> Any:
    """The frame of all rows (columns as in `schema`, in SQL's words) that a stage makes of each partition's."""
    return frame.mapInArrow(_InWorker(stage), _parsed(schema))


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
        return self.stage(batches)


def start_session(options: SparkOptions) -> Any:
    """A quiet local session whose workers run this very interpreter; raises UserError without Java."""
    java = check_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": f"{options.heap_mib}m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": _jvm_options(java),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "131072",
        "spark.sql.shuffle.partitions": str(options.cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.shuffle.compress": "true",
        "spark.python.worker.reuse": "true",
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    }
    return _quiet_start(settings, options.cores)


def _jvm_options(java: Path) -> str:
    import pyspark

    log_settings = (Path(__file__).parent / "log4j2.properties").resolve().as_uri()
    archive = archive_options(java, Path(pyspark.__file__).parent)
    compiler = [f"-XX:{name}={count}" for name, count in _COMPILED_AFTER.items()]
    return " ".join((f"-Dlog4j2.configurationFile={log_settings}", "-XX:+UseParallelGC", *compiler, *archive))


def _quiet_start(settings: dict[str, str], cores: int) -> Any:
    """Start with the JVM's chatter on standard error held back; it is shown only if the start fails.

    Spark takes SIGINT for itself; it is given back, so that ctrl-c ends a run in order while Spark judges it.
    """
    from pyspark.sql import SparkSession

    on_interrupt = signal.getsignal(signal.SIGINT)
    builder = SparkSession.builder.master(f"local[{cores}]").appName("assay")
    for key, value in settings.items():
        builder = builder.config(key, value)
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as chatter:
        os.dup2(chatter.fileno(), 2)
        try:
            session = builder.getOrCreate()
            session.sparkContext.setLogLevel("OFF")
            return session
        except Exception as error:
            chatter.seek(0)
            said = chatter.read().decode(errors="replace").strip().splitlines()
            raise HarnessError(f"Spark does not start: {said[-1] if said else error}.") from error
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, on_interrupt)


def _projected(frame: Any, projection: Projection, key_columns: Sequence[str]) -> Any:
    """The columns of FLAT as native expressions, nemesis operations and what says nothing left out."""
    from pyspark.sql import functions as fn

    mop = fn.element_at("mops", 1)
    kind = _kind(fn, projection)
    known = fn.col("type") != "info"
    clients = frame.where(fn.col("process") >= 0)
    keys = [fn.coalesce(mop[name].cast("long"), fn.lit(0)).alias(name) for name in key_columns]
    columns = [
        *keys,
        fn.col("invoke_index").alias("invoke"),
        fn.when(known, fn.coalesce("complete_index", fn.lit(NEVER))).otherwise(fn.lit(NEVER)).alias("complete"),
        kind.cast("byte").alias("kind"),
        fn.coalesce(mop["value"], fn.lit(NIL)).alias("value"),
        fn.coalesce(mop["expected"], fn.lit(NIL)).alias("expected"),
    ]
    return clients.select(*columns).where("kind is not null")


def _kind(fn: Any, projection: Projection) -> Any:
    """The kind of an operation, null where it is left out."""
    mop, outcome = fn.element_at("mops", 1), fn.col("type")
    unsupported = fn.lit(UNSUPPORTED)
    missed = fn.col("error_class").isNull() | (fn.col("error_class") == MISMATCH)
    result = unsupported
    for f, kind in projection.kinds.items():
        mine = fn.when(outcome == "ok", fn.lit(kind))
        if f not in projection.only_ok:
            mine = mine.when(outcome == "info", fn.lit(kind))
        if f in projection.mismatched:
            mine = mine.when((outcome == "fail") & missed, fn.lit(projection.mismatched[f]))
        if f in projection.failed:
            mine = mine.when(outcome == "fail", fn.lit(projection.failed[f]))
        result = fn.when(mop["f"] == f, mine).otherwise(result)
    single = fn.coalesce(fn.size("mops"), fn.lit(0)) == 1
    reserved = fn.coalesce((mop["value"] == NIL) | (mop["expected"] == NIL), fn.lit(False))
    return fn.when(~single | reserved, unsupported).otherwise(result)


@dataclass(frozen=True, slots=True)
class _Partition:
    """What a worker does with its partition: batches in, findings out, whole keys to the kernel."""

    kernel: KeyedKernel
    explain: int
    kernel_rows: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: list[Findings] = []
        held: list[Flat] = []
        rows = 0
        for batch in batches:
            held.append(_flat(batch))
            rows += batch.num_rows
            if rows >= self.kernel_rows:
                whole, rest = _cut(concatenated(held))
                if len(whole.invoke):
                    found.append(self.kernel(split_sorted(whole)))
                held, rows = [rest], len(rest.invoke)
        if rows:
            found.append(self.kernel(split_sorted(concatenated(held))))
        if found:
            packed = msgspec.msgpack.encode(merged(found, self.explain))
            yield pa.RecordBatch.from_arrays([pa.array([packed], pa.binary())], names=["findings"])


def _flat(batch: pa.RecordBatch) -> Flat:
    zeros = np.broadcast_to(np.int64(0), batch.num_rows)
    have = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}
    address = tuple(have.get(name, zeros) for name in KEY_COLUMNS)
    return Flat(address, *(have[field.name] for field in list(FLAT)[len(KEY_COLUMNS) :]))


def _cut(flat: Flat) -> tuple[Flat, Flat]:
    """What is before the last key, and the last key, which may go on."""
    same = np.ones(len(flat.invoke), bool)
    for part in flat.address:
        if not is_zero(part):
            same &= part == part[-1]
    begin = len(same) - int(same.sum())
    return part_of(flat, slice(0, begin)), part_of(flat, slice(begin, None))

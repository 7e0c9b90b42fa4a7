"""Both engines over the same histories: the same verdict with the same anomalies."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from register_histories import Row, random_rows, table, write_history

from checkers.api import _judged as judged
from checkers.api import choose_engine
from checkers.columns.codes import NIL, READ, WRITE
from checkers.engines.local import LocalEngine
from checkers.engines.session import SparkOptions
from checkers.engines.spark import SparkEngine
from checkers.importers.detect import open_source
from checkers.made.registers import Anomaly, RegisterShape, write_register_history
from checkers.models import MODELS
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.verdict import Verdict
from harness.errors import UserError
from harness.history.columns import SCHEMA
from harness.history.parts import parquet_writer, schema

OPTIONS = CheckOptions(explain=5)


def both(source: Source, model: str, spark: SparkEngine, options: CheckOptions = OPTIONS) -> Verdict:
    """The verdict, the same by both engines."""
    one, other = (judged(MODELS[model], source, engine, options) for engine in (LocalEngine(), spark))
    assert other.engine == "spark"
    assert msgspec.structs.replace(other, engine="local", seconds=0.0) == msgspec.structs.replace(one, seconds=0.0)
    return one


@pytest.mark.spark
@pytest.mark.skipif(os.environ.get("ASSAY_TEST_SPARK") is not None, reason="of another session than this machine's")
def test_what_runs_at_once_is_what_there_are_cores_for(spark: SparkEngine) -> None:
    """By `spark.default.parallelism`, which the session has, tasks were given too little memory, and were unknown."""
    runtime = spark._started().sparkContext._jvm.java.lang.Runtime.getRuntime()
    assert spark.cores == runtime.availableProcessors()  # of a container with a quota fewer than the machine has


@pytest.mark.spark
@pytest.mark.parametrize("anomaly", ["none", "stale-read", "read-of-unwritten", "lost-update"])
def test_injected_anomalies_are_found_by_both(tmp_path: Path, spark: SparkEngine, anomaly: Anomaly) -> None:
    path = tmp_path / "h.parquet"
    write_register_history(RegisterShape(20_000, keys=50, anomaly=anomaly), path)
    source = open_source(path)
    verdict = both(source, "register", spark)
    assert (verdict.valid, verdict.counts) == ((True, {}) if anomaly == "none" else (False, {anomaly: 1}))
    assert verdict.ops == 20_000 and both(source, "stats", spark).valid is True


@pytest.mark.spark
def test_random_histories_are_judged_alike(tmp_path: Path, spark: SparkEngine) -> None:
    path = write_history(tmp_path / "h.parquet", [random_rows(Random(seed), 8, seed % 3 > 0) for seed in range(300)])
    for observed in ("observed", "absent"):
        verdict = both(open_source(path), "cas-register", spark, CheckOptions(explain=5, failed_cas=observed))  # type: ignore[arg-type]
        assert len(verdict.counts) >= 4 and verdict.details["keys_searched"] > 0


@pytest.mark.spark
def test_small_sources_and_refusals_are_alike(tmp_path: Path, spark: SparkEngine) -> None:
    assert both(open_source(write_history(tmp_path / "e.parquet", [])), "register", spark).valid == "unknown"
    path = tmp_path / "h.edn"
    path.write_text(
        '{:process 0 :type :invoke :f :write :value "a"} {:process 0 :type :ok :f :write :value "a"}\n'
        "{:process 0 :type :invoke :f :read} {:process 0 :type :ok :f :read :value :b}\n"
        "{:process :nemesis :type :info :f :start :value nil}\n"
    )
    assert both(open_source(path), "register", spark).counts == {"read-of-unwritten": 1}
    path.write_text("{:process 0 :type :invoke :f :frob :value 1}")
    for engine in (LocalEngine(), spark):
        with pytest.raises(UserError, match="event 0: not one read, write"):
            judged(MODELS["register"], open_source(path), engine, OPTIONS)


@pytest.mark.spark
def test_a_table_that_states_no_version_is_judged_alike(tmp_path: Path, spark: SparkEngine) -> None:
    """As checkers make them of a part of a history (`catalog-rows`)."""
    saved = open_source(write_history(tmp_path / "h.parquet", [random_rows(Random(3), 8, True)]))
    rows = [batch.cast(SCHEMA) for batch in saved.batches(SCHEMA.names)]
    bare = replace(saved, saved=None, table=pa.Table.from_batches(rows, schema=SCHEMA))
    assert both(bare, "register", spark).ops == both(saved, "register", spark).ops > 0


@pytest.mark.spark
@pytest.mark.parametrize("column", ["process", "mops.list.element.value"])
def test_damage_is_refused_alike(tmp_path: Path, spark: SparkEngine, column: str) -> None:
    """Only pages have checksums here, and no seal was looked at, so each engine finds it on its way."""
    path = tmp_path / "h.parquet"
    with parquet_writer(path, schema()) as writer:
        writer.write_table(table([random_rows(Random(seed), 8, True) for seed in range(20)]).cast(schema()))
    group = pq.read_metadata(path).row_group(0)
    places = {group.column(place).path_in_schema: group.column(place) for place in range(group.num_columns)}
    found = places[column]
    data = bytearray(path.read_bytes())
    data[(found.dictionary_page_offset or found.data_page_offset) + found.total_compressed_size - 2] ^= 8
    path.write_bytes(data)
    for engine in (LocalEngine(), spark):
        with pytest.raises(UserError, match=r"h\.parquet is damaged: it can't be read to its end as Parquet"):
            judged(MODELS["cas-register"], open_source(path), engine, OPTIONS)


@pytest.mark.spark
def test_a_process_with_a_local_session_can_not_judge_on_a_cluster(tmp_path: Path, spark: SparkEngine) -> None:
    """Its workers would be told to come to 127.0.0.1, and nobody would say so."""
    path = tmp_path / "history.parquet"
    write_register_history(RegisterShape(100, keys=3), path)
    judged(MODELS["register"], open_source(path), spark, OPTIONS)
    elsewhere = SparkEngine(SparkOptions("spark://127.0.0.1:1"))
    with pytest.raises(UserError, match="judge there in another process"):
        judged(MODELS["register"], open_source(path), elsewhere, OPTIONS)


def test_without_java_the_spark_engine_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows: list[Row] = [(WRITE, 1, NIL, 0, 1), (READ, 1, NIL, 2, 3)]
    source = open_source(write_history(tmp_path / "h.parquet", [rows]))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UserError, match="needs a Java runtime"):
        judged(MODELS["register"], source, choose_engine("spark", source), OPTIONS)
    assert choose_engine("auto", source).name == "local"


QUIET = """
import signal, sys
from pathlib import Path
from checkers.api import judge_source
from checkers.engines.spark import SparkEngine
from checkers.importers.detect import open_source

def ours(number, frame):
    raise AssertionError("nobody pressed ctrl-c")

signal.signal(signal.SIGINT, ours)
first, second = SparkEngine(), SparkEngine()
source = open_source(Path(sys.argv[1]))
print([judge_source(source, "register", engine).valid for engine in (first, second)])
assert signal.getsignal(signal.SIGINT) is ours
second.close()
print(first.tally(source))
first.close()
from pyspark import SparkContext
assert SparkContext._active_spark_context is None
"""


@pytest.mark.spark
def test_spark_is_quiet_leaves_ctrl_c_alone_and_stops_with_its_last_engine(tmp_path: Path) -> None:
    path = write_history(tmp_path / "h.parquet", [[(WRITE, 1, NIL, 0, 1)]])
    ran = subprocess.run([sys.executable, "-c", QUIET, str(path)], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("['unknown', 'unknown']\n{('write', 'ok'): 1}\n", ""), "nothing was read"

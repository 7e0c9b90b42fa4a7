"""Judging on a standalone Spark cluster whose machines have nothing of ours but the archive that `assay pack` made."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkers.api import judge_source
from checkers.engines.local import LocalEngine
from checkers.engines.session import SparkOptions
from checkers.engines.spark import SparkEngine
from checkers.importers.detect import open_source
from checkers.made.examples import EXAMPLES
from checkers.made.registers import Anomaly, RegisterShape, write_register_history
from checkers.models import MODELS
from harness.errors import UserError
from tests.support.corpus import CORPUS, OWN
from tests.support.standalone_cluster import Cluster, await_true, lacks

DEEP_TASK = Path(__file__).with_name("deep_task.py")

pytestmark = [
    pytest.mark.spark,
    pytest.mark.campaign,
    pytest.mark.skipif(lacks() is not None, reason=f"no cluster of namespaces here: {lacks()}"),
    pytest.mark.xdist_group("spark cluster"),
]


@pytest.fixture
def engine(cluster: Cluster, archive: Path) -> Iterator[SparkEngine]:
    """Which has all the cluster's cores until its test is over."""
    engine = SparkEngine(SparkOptions(cluster.master, cluster.settings(), archive))
    yield engine
    engine.close()


def one_of_each() -> list[tuple[str, Path]]:
    """An example for every model that has any."""
    places = [place for place in sorted(EXAMPLES.iterdir()) if place.name in MODELS]
    return [(place.name, path) for place in places for path in sorted(place.glob("*.edn"))[:1]]


def test_every_model_is_judged_as_in_process(cluster: Cluster, engine: SparkEngine) -> None:
    local = LocalEngine()
    for model, path in one_of_each():
        source = open_source(path)
        here, there = judge_source(source, model, local), judge_source(source, model, engine)
        assert (there.valid, there.counts, there.engine) == (here.valid, here.counts, "spark"), model
    logs = [path.read_text() for path in cluster.work.glob("*/*/stderr")]
    assert len(logs) >= 2, "both workers had an executor"
    assert [line for log in logs for line in log.splitlines() if line.startswith("assay compiles")] == []


def test_a_history_that_vanishes_is_one_sentence(cluster: Cluster, engine: SparkEngine) -> None:
    path = cluster.lent / "vanishing.parquet"
    write_register_history(RegisterShape(50_000, keys=10), path)
    source = open_source(path)
    path.unlink()
    with pytest.raises(UserError) as told:
        judge_source(source, "register", engine)
    assert "vanishing.parquet" in str(told.value) and "\n" not in str(told.value)


def test_a_worker_that_is_killed_costs_no_verdict(cluster: Cluster, engine: SparkEngine) -> None:
    path = cluster.lent / "large.parquet"
    write_register_history(RegisterShape(2_000_000, keys=100, anomaly="stale-read"), path)
    source = open_source(path)
    killed = threading.Thread(target=lambda: (time.sleep(2), cluster.machines["worker1"].kill()))
    killed.start()
    verdict = judge_source(source, "register", engine)
    killed.join()
    assert (verdict.valid, verdict.counts) == (False, {"stale-read": 1})


def check(cluster: Cluster, archive: Path, *arguments: str | Path) -> subprocess.Popen[str]:
    """`assay check` on the cluster, in a process of its own."""
    settings = [word for name, value in cluster.settings() for word in ("--spark-conf", f"{name}={value}")]
    where = ["--engine", "spark", "--spark-master", cluster.master, *settings, "--spark-archive", archive]
    command = [sys.executable, "-m", "assay.cli", "check", *arguments, *where]
    environment = os.environ | {"TMPDIR": str(cluster.lent)}
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


@pytest.mark.parametrize("table", [OWN / "index.tsv", CORPUS / "index.tsv"], ids=["own", "shared"])
def test_a_corpus_is_one_job(cluster: Cluster, archive: Path, table: Path) -> None:
    if not table.exists():
        pytest.skip(f"{table} is not there")
    told, errors = check(cluster, archive, "--manifest", table).communicate(timeout=900)
    agreements, _, rows = told.splitlines()[-1].split()[:3]
    assert int(agreements) == int(rows) > 50, told + errors


def large(cluster: Cluster) -> Path:
    path = cluster.lent / "six-million.parquet"
    if not path.exists():
        write_register_history(RegisterShape(6_000_000, keys=1_000), path)
    return path


HOT_KEYS: tuple[tuple[float, Anomaly, str], ...] = (
    (0.0, "none", "VALID"),
    (0.0, "stale-read", "INVALID"),
    (0.9, "none", "UNKNOWN"),
)


@pytest.mark.parametrize(("cas_share", "anomaly", "word"), HOT_KEYS)
def test_a_key_that_no_executor_takes(
    cluster: Cluster, archive: Path, cas_share: float, anomaly: Anomaly, word: str
) -> None:
    """Many tasks judge it, but for chains of compare-and-sets: those of one key meet in one task, and that is said.

    The key has 30 MB, and a bucket may have a quarter of what an executor has for Python.
    """
    path = cluster.lent / f"hot-{cas_share}-{anomaly}.parquet"
    write_register_history(RegisterShape(1_000_000, keys=1, cas_share=cas_share, anomaly=anomaly), path)
    little = ("--spark-conf", "spark.executor.memoryOverhead=48m")
    told, errors = check(cluster, archive, path, "--model", "register", *little).communicate(timeout=600)
    first, *reasons = told.splitlines()
    assert first.startswith(f"{word}: ") and "(1000000 operations, " in first, told + errors
    assert word != "UNKNOWN" or "that compare-and-sets link" in reasons[0], told


def test_a_driver_that_dies_leaves_no_executor(cluster: Cluster, archive: Path) -> None:
    process = check(cluster, archive, large(cluster), "--model", "register")
    await_true(cluster.executors)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    await_true(lambda: not cluster.executors())


def test_a_driver_that_dies_leaves_no_task(cluster: Cluster, archive: Path) -> None:
    """Not even one that will never look up from its work."""
    settings = [f"{name}={value}" for name, value in cluster.settings()]
    folder = cluster.lent / "begun"
    folder.mkdir()
    process = subprocess.Popen([sys.executable, DEEP_TASK, folder, cluster.master, archive, *settings])
    await_true(lambda: len(list(folder.iterdir())) == 2)
    assert cluster.processes("pyspark.daemon") >= 2
    process.kill()
    process.wait()
    await_true(lambda: not cluster.processes("pyspark.daemon"))


def test_a_driver_s_jvm_that_dies_is_one_sentence(cluster: Cluster, archive: Path) -> None:
    process = check(cluster, archive, large(cluster), "--model", "register")
    await_true(cluster.executors)
    time.sleep(3)  # to be in the midst of it
    jvm = next(pid for pid in children(process.pid) if "java" in Path("/proc", pid, "cmdline").read_text())
    os.kill(int(jvm), signal.SIGKILL)
    told, errors = process.communicate(timeout=120)
    assert (process.returncode, told) == (254, "") and len(errors.splitlines()) == 1, told + errors
    await_true(lambda: not cluster.executors())


def children(parent: int) -> list[str]:
    return [
        pid for task in Path("/proc", str(parent), "task").iterdir() for pid in (task / "children").read_text().split()
    ]

"""`assay check` on a standalone Spark cluster, each time with a session of its own: tables of histories, keys that no
executor takes, and drivers that die."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from checkers.made.registers import Anomaly, RegisterShape, register_batches, write_register_history
from harness.history.parts import write_history
from tests.support.cluster_driver import Heard, heard_in, kill_jvm
from tests.support.corpus import CORPUS, OWN
from tests.support.patience import until
from tests.support.standalone_cluster import Cluster, lacks

DEEP_TASK = Path(__file__).with_name("deep_task.py")

pytestmark = [
    pytest.mark.spark,
    pytest.mark.campaign,
    pytest.mark.skipif(lacks() is not None, reason=f"no cluster of namespaces here: {lacks()}"),
    pytest.mark.xdist_group("spark cluster"),
]


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
    told, errors = check(cluster, archive, "--manifest", table).communicate()
    agreements, _, rows = told.splitlines()[-1].split()[:3]
    assert int(agreements) == int(rows) > 50, told + errors


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
    told, errors = check(cluster, archive, path, "--model", "register", *little).communicate()
    first, *reasons = told.splitlines()
    assert first.startswith(f"{word}: ") and "(1000000 operations, " in first, told + errors
    assert word != "UNKNOWN" or "that compare-and-sets link" in reasons[0], told


def test_a_driver_that_dies_leaves_no_task(cluster: Cluster, archive: Path) -> None:
    """Not even one that will never look up from its work."""
    settings = [f"{name}={value}" for name, value in cluster.settings()]
    folder = cluster.lent / "begun"
    folder.mkdir()
    process = subprocess.Popen([sys.executable, DEEP_TASK, folder, cluster.master, archive, *settings])
    until(lambda: len(list(folder.iterdir())) == 2)
    assert cluster.processes("pyspark.daemon") >= 2
    process.kill()
    process.wait()
    until(lambda: not cluster.processes("pyspark.daemon"))


def test_a_driver_s_jvm_that_dies_is_one_sentence(cluster: Cluster, archive: Path, tmp_path: Path) -> None:
    """In mid-check: what is read was shuffled, and is to be judged."""
    path = cluster.lent / "six-million.parquet"
    write_register_history(RegisterShape(6_000_000, keys=1_000), path)
    told = [word for name, value in heard_in(tmp_path) for word in ("--spark-conf", f"{name}={value}")]
    process = check(cluster, archive, path, "--model", "register", *told)
    until(lambda: [log for log in tmp_path.iterdir() if Heard(log).is_judging()])
    kill_jvm(process.pid)
    said, errors = process.communicate()
    assert (process.returncode, said) == (254, "") and len(errors.splitlines()) == 1, said + errors
    until(lambda: not cluster.executors())


def test_a_part_that_vanished_is_a_sentence_and_254(cluster: Cluster, archive: Path) -> None:
    folder = cluster.lent / "vanished.parquet"
    batches = register_batches(RegisterShape(2_000, keys=10))
    write_history((batch.slice(at, 500) for batch in batches for at in range(0, 2_000, 500)), folder, part_rows=500)
    (folder / "part-00003.parquet").unlink()
    process = check(cluster, archive, folder, "--model", "register")
    said, errors = process.communicate()
    assert (process.returncode, said) == (254, "") and len(errors.splitlines()) == 1, said + errors
    assert "part-00003.parquet is missing" in errors

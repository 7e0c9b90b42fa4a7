"""Judging on a standalone Spark cluster whose machines have nothing of ours but the archive that `assay pack` made."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from standalone_cluster import Cluster, lacks, standalone_cluster

from checkers.api import judge_source
from checkers.engines.local import LocalEngine
from checkers.engines.session import SparkOptions
from checkers.engines.spark import SparkEngine
from checkers.importers.detect import open_source
from checkers.made.examples import EXAMPLES
from checkers.made.registers import RegisterShape, write_register_history
from checkers.models import MODELS
from harness.errors import UserError

pytestmark = [
    pytest.mark.spark,
    pytest.mark.campaign,
    pytest.mark.skipif(lacks() is not None, reason=f"no cluster of namespaces here: {lacks()}"),
    pytest.mark.xdist_group("spark cluster"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        before, tempfile.tempdir = tempfile.tempdir, str(cluster.lent)
        yield cluster
        tempfile.tempdir = before


@pytest.fixture(scope="module")
def engine(cluster: Cluster) -> Iterator[SparkEngine]:
    archive = cluster.home / "pack.tar.gz"
    # in a process of its own, for it has a local session
    subprocess.run([sys.executable, "-m", "assay.cli", "pack", "--to", archive], check=True)
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

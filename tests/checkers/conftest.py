"""Engines that a worker's tests share; Spark's session starts with the first test that uses it, and stays: to start one
costs as much as to judge a dozen histories.

Where ASSAY_TEST_SPARK says `cluster` it is one on a standalone cluster; else it is the master for a session on this
machine (`local[*]` if nothing is said).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkers.engines.api import Engine
from checkers.engines.local import LocalEngine
from checkers.engines.session import SparkOptions
from checkers.engines.spark import SparkEngine
from tests.support.cluster_driver import Driver
from tests.support.standalone_cluster import Cluster, standalone_cluster

ON_CLUSTER = "cluster"

PARALLELISM = ("spark.default.parallelism", "7")
"""A setting of the user's that says nothing of how many tasks run at once."""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Its workers see of this machine's files only what is made in temporary directories meanwhile."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        before, tempfile.tempdir = tempfile.tempdir, str(cluster.lent)
        yield cluster
        tempfile.tempdir = before


@pytest.fixture(scope="session")
def archive(cluster: Cluster) -> Path:
    """What `assay pack` makes."""
    path = cluster.home / "pack.tar.gz"
    # in a process of its own, for it has a local session
    subprocess.run([sys.executable, "-m", "assay.cli", "pack", "--to", path], check=True)
    return path


@pytest.fixture(scope="module")
def driver(cluster: Cluster, archive: Path) -> Iterator[Driver]:
    """Which has all the cluster's cores until the module's tests are over."""
    driver = Driver(cluster, archive)
    yield driver
    driver.close()


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkEngine]:
    asked = os.environ.get("ASSAY_TEST_SPARK")
    if asked == ON_CLUSTER:
        lent: Cluster = request.getfixturevalue("cluster")
        engine = SparkEngine(SparkOptions(lent.master, lent.settings(), request.getfixturevalue("archive")))
    else:
        engine = SparkEngine(SparkOptions(asked, settings=(PARALLELISM,)))
    yield engine
    engine.close()


@pytest.fixture
def spark_runs(spark: SparkEngine) -> SparkEngine:
    """For tests that name the engine by its name: what they start ends with them, unless a session runs already."""
    assert spark.cores > 0
    return spark


@pytest.fixture(scope="session")
def engines(spark: SparkEngine) -> dict[str, Engine]:
    """The engines that tests judge with, by their names."""
    return {"local": LocalEngine(), "spark": spark}

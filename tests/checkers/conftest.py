"""Engines that a worker's tests share; Spark's session starts with the first test that uses it, and stays: to start one
costs as much as to judge a dozen histories."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from checkers.engines.api import Engine
from checkers.engines.local import LocalEngine
from checkers.engines.spark import SparkEngine


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkEngine]:
    engine = SparkEngine()
    yield engine
    engine.close()


@pytest.fixture
def spark_runs(spark: SparkEngine) -> SparkEngine:
    """For tests that name the engine by its name: what they start ends with them, unless a session runs already."""
    assert spark.cores > 0
    return spark


@pytest.fixture(scope="session")
def engines(spark: SparkEngine) -> dict[str, Engine]:
    """By name."""
    return {"local": LocalEngine(), "spark": spark}

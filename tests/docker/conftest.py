"""Skips, aloud and with the reason, what needs a Docker engine where none answers; lends nodes in containers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.env.docker.engine import RUN_LABEL, connect_engine
from harness.env.docker.environment import DockerEnvironment
from harness.errors import UserError
from harness.protocols import Node
from harness.real.clock import RealClock

THREE_NODES = (Node("t1", "tserver"), Node("t2", "tserver"), Node("t3", "tserver"))


@pytest.fixture(scope="session")
def engine() -> Any:
    """The engine's client, or a skip (a failure where ASSAY_REQUIRE_DOCKER is set) that gives the reason."""
    try:
        return connect_engine()
    except UserError as error:
        if os.environ.get("ASSAY_REQUIRE_DOCKER"):
            pytest.fail(f"ASSAY_REQUIRE_DOCKER is set, but {error}")
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """One event loop for a module's tests."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def environment(engine: Any, runner: asyncio.Runner) -> Iterator[DockerEnvironment]:
    """Three nodes, set up once per module and removed after it."""
    environment = DockerEnvironment(RealClock())
    try:
        runner.run(environment.prepare(try_out=True))
        runner.run(environment.setup(THREE_NODES))
        yield environment
    finally:
        runner.run(environment.teardown())


@pytest.fixture(scope="session")
def left_of(engine: Any) -> Callable[[str], list[str]]:
    """Gives the names of the containers and networks that carry a run's label."""

    def find(run_id: str) -> list[str]:
        filters = {"label": f"{RUN_LABEL}={run_id}"}
        containers = engine.containers.list(all=True, filters=filters)
        return [each.name for each in (*containers, *engine.networks.list(filters=filters))]

    return find

"""CEP-45's two stories of torn writes in containers, step by step, with failpoints and cuts (Q2)."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.deploy.database_ssh import SshDatabase
from cluster.wire.messages import WIRE_VERSION
from harness.env.docker.environment import DockerEnvironment
from harness.ports import Hello
from harness.real.clock import RealClock
from harness.real.ports import real_ports
from tests.cluster.quorum.quorum_play import Stage
from tests.cluster.quorum.tear_stories import torn_by_read_repair, torn_by_short_read_protection

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]

READY_S = 60.0


@pytest.fixture(scope="module")
def database(engine: Any, runner: asyncio.Runner) -> Iterator[tuple[SshDatabase, DockerEnvironment]]:
    environment = DockerEnvironment(RealClock())
    database = SshDatabase(environment, 1, 5)
    try:
        runner.run(environment.prepare(try_out=True))
        runner.run(environment.setup(database.nodes))
        runner.run(database.install())
        for node in database.nodes:
            runner.run(database.start(node.name))
        runner.run(database.await_ready(READY_S))
        yield database, environment
    finally:
        runner.run(database.teardown())
        runner.run(environment.teardown())


@pytest.mark.parametrize("story", [torn_by_read_repair, torn_by_short_read_protection])
def test_legacy_replication_tears_a_write(
    database: tuple[SshDatabase, DockerEnvironment], runner: asyncio.Runner, story: Any
) -> None:
    async def play() -> None:
        with tempfile.TemporaryDirectory() as folder:  # whoever tests writes no files
            ports = real_ports(Hello("", "tester", 1, WIRE_VERSION), folder, seed=1)
            stage = Stage(*database, ports, table=story.__name__)
            await stage.make_table()
            try:
                await story(stage)
            finally:
                await ports.network.close()
                await stage.mend()
                for name in stage.others:
                    await stage.database.start(name)

    runner.run(play())

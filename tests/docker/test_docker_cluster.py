"""The reference cluster in containers, from eight nodes coming up to a leader that is killed under a client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.deploy.database_docker import DockerDatabase
from cluster.deploy.readiness import leaders
from harness.env.docker.environment import DockerEnvironment
from harness.errors import DefiniteError, IndefiniteError
from harness.ops import Mop, Op, cas, read, write
from harness.protocols import Client, ProcessState
from harness.real.clock import RealClock

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]

READY_S = 60.0
OPERATION_S = 5.0


class Cluster:
    """Three masters and five tablet servers with the table of registers, and one client."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.environment = DockerEnvironment(RealClock())
        self.database = DockerDatabase(self.environment)
        self.client: Client

    async def set_up(self) -> None:
        await self.environment.setup(self.database.nodes)
        await self.database.install()
        await asyncio.gather(*(self.database.start(node.name) for node in self.database.nodes))
        await self.database.await_ready(READY_S)
        await self.database.setup_workload("register", {})
        self.client = await self.database.open_client(0, OPERATION_S)

    async def tear_down(self) -> None:
        await self.database.teardown()
        await self.environment.teardown()

    def leader_of_a_tablet(self) -> str:
        statuses = self.runner.run(self.database.statuses())
        return next(node for group, node in leaders(statuses.values()).items() if node.startswith("t"))

    def leader_master(self) -> str:
        statuses = self.runner.run(self.database.statuses())
        return next(node for group, node in leaders(statuses.values()).items() if node.startswith("m"))

    def do(self, mop: Mop) -> Op:
        return self.runner.run(self.client.invoke(Op("invoke", 0, mop.f, (mop,))))

    def do_until_known(self, mop: Mop) -> Op:
        """Repeat an operation that may be repeated, while a new leader is found."""
        for _ in range(10):
            try:
                return self.do(mop)
            except (DefiniteError, IndefiniteError):
                continue
        return self.do(mop)

    def state(self, node: str) -> ProcessState:
        return self.runner.run(self.database.process_state(node))


@pytest.fixture(scope="module")
def cluster(engine: Any, runner: asyncio.Runner) -> Iterator[Cluster]:
    cluster = Cluster(runner)
    try:
        runner.run(cluster.set_up())
        yield cluster
    finally:
        runner.run(cluster.tear_down())


def test_eight_nodes_serve_reads_writes_and_compare_and_sets(cluster: Cluster) -> None:
    assert len(cluster.database.nodes) == 8
    assert cluster.do(read(1)).mops[0].value is None
    assert cluster.do(write(1, 7)).type == "ok"
    assert cluster.do(cas(1, 7, 8)).type == "ok"
    with pytest.raises(DefiniteError) as refused:
        cluster.do(cas(1, 7, 9))
    assert refused.value.kind == "cas-mismatch"
    assert cluster.do(read(1)).mops[0].value == 8


def test_acknowledged_writes_outlive_the_leaders_that_are_killed(cluster: Cluster) -> None:
    cluster.do_until_known(write(2, 20))
    killed = cluster.leader_of_a_tablet(), cluster.leader_master()
    before = {}
    for node in killed:
        alive = cluster.runner.run(cluster.database.status(node))
        assert alive is not None
        before[node] = alive.incarnation
        cluster.runner.run(cluster.database.kill(node))
        assert cluster.state(node) is ProcessState.DEAD
        assert cluster.runner.run(cluster.database.status(node)) is None
    assert cluster.do_until_known(read(2)).mops[0].value == 20
    assert cluster.do_until_known(write(2, 21)).type == "ok"
    for node in killed:
        cluster.runner.run(cluster.database.start(node))
    cluster.runner.run(cluster.database.await_ready(READY_S))
    for node in killed:
        status = cluster.runner.run(cluster.database.status(node))
        assert status is not None
        assert status.incarnation == before[node] + 1
    assert cluster.do_until_known(read(2)).mops[0].value == 21


def test_a_paused_node_is_silent_until_it_is_resumed(cluster: Cluster) -> None:
    cluster.runner.run(cluster.database.pause("t1"))
    assert cluster.state("t1") is ProcessState.PAUSED
    assert cluster.runner.run(cluster.database.status("t1")) is None
    cluster.runner.run(cluster.database.resume("t1"))
    assert cluster.state("t1") is ProcessState.RUNNING
    cluster.runner.run(cluster.database.await_ready(READY_S))


def test_every_node_leaves_a_log(cluster: Cluster) -> None:
    logs = cluster.runner.run(cluster.database.collect_logs())
    assert set(logs) == {f"{node.name}/node.log" for node in cluster.database.nodes}
    assert all(b"listening at" in log for log in logs.values())

"""Faults of disks and failpoints in containers: in effect as the nodes say from inside, and gone again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.deploy.database_docker import DockerDatabase
from harness.env.docker.environment import DockerEnvironment
from harness.errors import HarnessError
from harness.protocols import DiskState, GroupStatus, ProcessState
from harness.real.clock import RealClock

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]

SYNC = "disk.before_sync"
READY_S = 60.0
VOLUME_MIB = 64


class Nodes:
    """A master and three tablet servers with a table, whose data lies on small volumes."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.environment = DockerEnvironment(RealClock(), volume_mib=VOLUME_MIB)
        self.database = DockerDatabase(self.environment, 1, 3)

    async def set_up(self) -> None:
        await self.environment.setup(self.database.nodes)
        await self.database.install()
        await asyncio.gather(*(self.database.start(node.name) for node in self.database.nodes))
        await self.database.await_ready(READY_S)
        await self.database.setup_workload("register", {})

    async def tear_down(self) -> None:
        await self.database.teardown()
        await self.environment.teardown()

    async def write(self, count: int = 30) -> None:
        client = self.database.admin_client(20.0)
        for key in range(count):
            await client.write("registers", key, 0, 0, key)

    async def disk(self, node: str) -> DiskState:
        state = await self.database.probe_disk(node)
        assert state is not None
        return state

    async def back(self, node: str) -> None:
        await self.database.start(node)
        await self.database.await_ready(READY_S)
        await self.write()

    async def whole(self) -> None:
        """Wait until every tablet has three voters again: masters replace a damaged replica, one change at a time."""
        async with asyncio.timeout(READY_S):
            while not all(len(group.voters) == 3 for group in await self.tablets()):
                await self.environment.clock.sleep(0.2)

    async def tablets(self) -> list[GroupStatus]:
        statuses = (await self.database.statuses()).values()
        return [group for status in statuses if status for group in status.groups if group.group != "catalog"]


@pytest.fixture(scope="module")
def nodes(engine: Any, runner: asyncio.Runner) -> Iterator[Nodes]:
    nodes = Nodes(runner)
    try:
        runner.run(nodes.set_up())
        yield nodes
    finally:
        runner.run(nodes.tear_down())


def test_a_full_volume_is_seen_from_inside_until_it_has_room_again(nodes: Nodes) -> None:
    async def scenario() -> None:
        assert not (await nodes.disk("t1")).full
        await nodes.database.fill_disk("t1")
        assert (await nodes.disk("t1")).full
        assert not (await nodes.disk("t2")).full
        await nodes.write()
        await nodes.database.free_disk("t1")
        assert not (await nodes.disk("t1")).full
        await nodes.database.await_ready(READY_S)

    nodes.runner.run(scenario())


def test_slow_and_hung_disks_are_seen_from_inside_until_they_are_disarmed(nodes: Nodes) -> None:
    async def scenario() -> None:
        assert await nodes.database.arm("t1", SYNC, "delay", times=0, seconds=0.2)
        slow = await nodes.disk("t1")
        assert slow.ended and slow.sync_ms >= 200
        assert await nodes.database.arm("t1", SYNC, "hang", times=0)
        assert not (await nodes.disk("t1")).ended
        await nodes.write()
        await nodes.database.disarm("t1", SYNC)
        await asyncio.sleep(0.5)
        assert (await nodes.disk("t1")).ended
        assert (await nodes.database.acted("t1"))[SYNC] >= 2
        await nodes.database.await_ready(READY_S)

    nodes.runner.run(scenario())


@pytest.mark.parametrize(("point", "action"), [("before_fsync", "crash"), ("before_apply", "fail"), (SYNC, "fail")])
def test_an_armed_node_ends_there_and_the_node_itself_says_so(nodes: Nodes, point: str, action: Any) -> None:
    async def scenario() -> None:
        before = sum((await nodes.database.acted("t2")).values())
        assert await nodes.database.arm("t2", point, action)
        await nodes.write()
        for _ in range(50):
            if await nodes.database.process_state("t2") is ProcessState.DEAD:
                break
            await asyncio.sleep(0.1)
        assert await nodes.database.process_state("t2") is ProcessState.DEAD
        assert sum((await nodes.database.acted("t2")).values()) == before + 1
        await nodes.back("t2")

    nodes.runner.run(scenario())


def test_a_held_node_stops_and_goes_on(nodes: Nodes) -> None:
    async def scenario() -> None:
        assert await nodes.database.arm("t3", "before_append", "stop")
        await nodes.write()
        assert await nodes.database.process_state("t3") is ProcessState.PAUSED
        await nodes.database.disarm("t3")
        assert await nodes.database.process_state("t3") is ProcessState.RUNNING
        await nodes.database.await_ready(READY_S)

    nodes.runner.run(scenario())


@pytest.mark.parametrize("seed", range(3))
def test_a_flipped_bit_is_read_back_and_loses_nothing(nodes: Nodes, seed: int) -> None:
    async def scenario() -> None:
        with pytest.raises(HarnessError, match="t1 runs"):
            await nodes.database.damage("t1", "bit-flip", seed)
        await nodes.database.kill("t1")
        done = await nodes.database.damage("t1", "bit-flip", seed)
        assert done is not None
        before, after = done[1].split(" became ")
        assert (int(before, 16) ^ int(after, 16)).bit_count() == 1
        await nodes.back("t1")

    nodes.runner.run(scenario())


def test_a_wiped_node_is_another_server(nodes: Nodes) -> None:
    async def scenario() -> None:
        assert await nodes.database.server_id("t3") == "t3"
        await nodes.whole()
        await nodes.database.kill("t3")
        await nodes.database.wipe("t3")
        await nodes.back("t3")
        server = await nodes.database.server_id("t3")
        assert server is not None and server.startswith("t3.")

    nodes.runner.run(scenario())

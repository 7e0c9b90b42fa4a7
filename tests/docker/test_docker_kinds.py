"""Plain kinds of fault on the reference cluster in containers: seen in effect from inside, and seen to be gone.

One cluster serves them all, one kind after the other. Kinds of clocks, packets and lost data have tests of their own
(`test_docker_clock_and_packet_kinds.py`, `test_docker_disk_nemeses.py`); scripts need a load, so whole runs show them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any, cast

import pytest

from cluster.deploy.database_docker import DockerDatabase
from cluster.deploy.readiness import ready_timeout_s
from harness.env.docker.environment import DockerEnvironment
from harness.errors import DefiniteError, IndefiniteError
from harness.ops import Op
from harness.real.clock import RealClock
from nemesis.nemesis import FaultNemesis, Patience
from nemesis.registry import KINDS

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]

VOLUME_MIB = 64
WRITES = 30
LASTS_S = 1.2
WRITE_GAP_S = 0.1
PATIENCE = Patience(choose_s=20.0, observe_s=20.0, recover_s=60.0)
"""A busy machine is slow, and a replica that lost its disk takes some time to be a voter again."""

ROLLING_S = 6.0
ELSEWHERE = (
    "clock-jump",
    "clock-strobe",
    "clock-drift",
    "packets",
    "bit-flip",
    "truncate",
    "wipe",
    "master-membership",
)


class Nodes:
    """Three masters and three tablet servers with a table, on small volumes, whose clocks can be skewed."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.environment = DockerEnvironment(RealClock(), volume_mib=VOLUME_MIB)
        self.database: DockerDatabase

    async def set_up(self) -> None:
        await self.environment.prepare(try_out=True)
        clock = "clock" in self.environment.capabilities
        variables = self.environment.program_environment if clock else {}
        self.database = DockerDatabase(self.environment, 3, 3, environment=variables)
        await self.environment.setup(self.database.nodes)
        await self.database.install()
        await asyncio.gather(*(self.database.start(node.name) for node in self.database.nodes))
        await self.serves()
        await self.database.setup_workload("register", {})
        client = self.database.admin_client(20.0)
        for key in range(WRITES):
            await client.write("registers", key, 0, 0, key)

    async def load(self) -> None:
        """A few writes a second, however they end: most failpoints are passed where something is written."""
        client = self.database.admin_client(1.0)
        for value in count():
            with suppress(DefiniteError, IndefiniteError):
                await client.write("registers", value % WRITES, 0, 0, value)
            await asyncio.sleep(WRITE_GAP_S)

    async def serves(self) -> None:
        await self.database.await_ready(ready_timeout_s(len(self.database.nodes)))

    async def tear_down(self) -> None:
        try:
            await self.database.teardown()
        finally:
            await self.environment.teardown()


@pytest.fixture(scope="module")
def nodes(engine: Any, runner: asyncio.Runner) -> Iterator[Nodes]:
    nodes = Nodes(runner)
    try:
        runner.run(nodes.set_up())
        yield nodes
    finally:
        runner.run(nodes.tear_down())


async def begun_and_ended(nodes: Nodes, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the nemesis told of the preferred variant's begin and end."""
    nemesis = FaultNemesis(nodes.database, nodes.environment, PATIENCE)

    async def step(name: str) -> dict[str, Any]:
        value = {"fault": kind, "variant": next(iter(KINDS[kind].variants)), "instance": 0, "step": name, "seed": 7}
        done = await nemesis.invoke(Op("invoke", -1, name, value=value, time=0))
        return cast(dict[str, Any], done.value)

    load = asyncio.create_task(nodes.load())
    try:
        begun = await step("begin")
        await asyncio.sleep(ROLLING_S if kind == "rolling-restart" else LASTS_S)
        return begun, await step("end")
    finally:
        load.cancel()
        await nemesis.teardown()


@pytest.mark.parametrize("kind", [name for name in KINDS if name not in ELSEWHERE])
def test_each_kind_takes_effect_is_seen_and_heals(kind: str, nodes: Nodes) -> None:
    if lacking := KINDS[kind].needs - (nodes.environment.capabilities | nodes.database.capabilities):
        pytest.skip(f"no {' and no '.join(sorted(lacking))} here")
    begun, ended = nodes.runner.run(begun_and_ended(nodes, kind))
    assert begun["observed"] is True, begun["evidence"]
    assert ended["spans"], "it was seen while it lasted"
    assert ended["observed"] is True, ended["evidence"]
    nodes.runner.run(nodes.serves())

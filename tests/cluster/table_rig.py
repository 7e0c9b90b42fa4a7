"""A whole cluster in the simulator, and what tests do with it through the harness's protocols."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.layout import Layout
from cluster.failpoints import FAILPOINTS, TSERVER
from cluster.knobs import Knobs
from cluster.wire.messages import WIRE_VERSION
from harness.cell_address import CellAddress
from harness.env.sim import SimEnvironment
from harness.ports.sim.world import World

KNOBS = Knobs(snapshot_entries=10, retained_entries=0, log_segment_bytes=2_000)


class TableRig:
    """A whole cluster with a table of one tablet, and what tests do with it."""

    def __init__(self, world: World, knobs: Knobs = KNOBS, masters: int = 3, flaws: Sequence[str] = ()) -> None:
        self.world, self.environment = world, SimEnvironment(world)
        self.database = SimDatabase(world, Layout(masters, 4), flaws, knobs)

    async def begin(self, table: bool = True) -> None:
        await self.environment.setup(self.database.nodes)
        await self.database.install()
        for node in self.database.nodes:
            await self.database.start(node.name)
        await self.database.await_ready(30)
        if table:
            await self.database.setup_workload("register", {"buckets": 1})

    def nodes(self, role: str) -> list[str]:
        return [node.name for node in self.database.nodes if role in ("", node.role)]

    async def leader(self, role: str = TSERVER) -> tuple[str, str]:
        """(Node, group) of a leader with a lease."""
        while True:
            for name in self.nodes(role):
                status = await self.database.status(name)
                for group in () if status is None else status.groups:
                    if group.role == "leader" and group.lease_valid:
                        return name, group.group
            await asyncio.sleep(0.05)

    async def write(self, count: int, seconds: float = 5.0) -> None:
        client = self.database.admin_client(seconds)
        for key in range(count):
            await client.write("registers", CellAddress(key), key)

    async def change(self, role: str, change: str, server: str) -> None:
        name, group = await self.leader(role)
        status = await self.database.status(name)
        assert status is not None
        mine = next(each for each in status.groups if each.group == group)
        refused = await self.database.change_replicas(
            name, group, change, server, (mine.config_term, mine.config_index), 5.0
        )
        assert refused is None, refused

    async def until(self, done: Callable[[], bool], what: str) -> None:
        for _ in range(600):
            if done():
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"not seen: {what}")

    def acted(self, name: str) -> int:
        role = FAILPOINTS[name].role
        return sum(self.world.node(node).body.acted.get(name, 0) for node in self.nodes(role))


def play(
    scenario: Callable[[TableRig], object],
    seed: int = 1,
    knobs: Knobs = KNOBS,
    masters: int = 3,
    flaws: Sequence[str] = (),
) -> None:
    with World(seed, version=WIRE_VERSION) as world:
        world.run(scenario(TableRig(world, knobs, masters, flaws)))  # type: ignore[arg-type]

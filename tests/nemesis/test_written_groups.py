"""Scripts that need clients' writes aim where clients write, and what they write themselves no client sees."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest
from fake_cluster import FakeDatabase, FakeEnvironment

from cluster.deploy.catalog_ops import COLUMNS, REPLICATION_FACTOR
from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.layout import Layout
from cluster.knobs import Knobs
from cluster.wire.messages import CATALOG_GROUP, WIRE_VERSION
from harness.env.sim import SimEnvironment
from harness.ports.sim.world import World
from nemesis.observe import DatabaseObserver
from nemesis.scripts.scene import Scene, Stage


@pytest.mark.parametrize(
    ("written", "role", "found"),
    [
        (None, None, {"tablet"}),
        ({"tablet"}, None, {"tablet"}),
        ({"another"}, None, set()),
        ({"tablet", "catalog"}, None, {"tablet", "catalog"}),
        ({"tablet", "catalog"}, "tserver", {"tablet"}),
        ({"tablet", "catalog"}, "master", {"catalog"}),
    ],
)
async def test_a_group_to_write_to_is_one_that_clients_write_to(
    written: set[str] | None, role: str | None, found: set[str]
) -> None:

    database = FakeDatabase(written=None if written is None else frozenset(written))
    scene = Scene(DatabaseObserver(database, FakeEnvironment()), Random(1), Stage(), patience_s=1.0)
    leaders = [await scene.group(writable=True, role=role) for _ in range(20)]
    assert {each.group for each in leaders if each is not None} == found


@pytest.mark.parametrize("idle", [False, True])
async def test_a_group_is_one_that_stays(idle: bool) -> None:
    """Seed 8 of `catalog`: `idle-bridge` waited for followers of tablets that were dropped as it cut them off; seeds 13
    and 49 of a swarm: `membership` and `rotate-majority` waited for leaders of such tablets."""
    database, environment = FakeDatabase(), FakeEnvironment()
    scene = Scene(DatabaseObserver(database, environment), Random(1), Stage(), patience_s=1.0)
    for written, found in ((None, {"tablet", "catalog"}), ({"another"}, {"catalog"})):
        database.written = None if written is None else frozenset(written)
        seen = {each.group for _ in range(40) if (each := await scene.group(idle)) is not None}
        assert seen == found


def play(workload: str, scenario: Callable[[SimDatabase], Awaitable[None]]) -> None:
    with World(4, version=WIRE_VERSION) as world:
        environment, database = SimEnvironment(world), SimDatabase(world, Layout(3, 3), knobs=Knobs())
        database.workload = workload

        async def main() -> None:
            await environment.setup(database.nodes)
            await database.install()
            for node in database.nodes:
                await database.start(node.name)
            await database.await_ready(30)
            await database.setup_workload(workload, {"buckets": 1})
            await asyncio.wait_for(scenario(database), 60)

        world.run(main())
        assert world.errors == []


async def led(database: SimDatabase, group: str) -> tuple[str, int]:
    """(Leader, length of its log)."""
    statuses = (await database.statuses()).items()
    found = [(name, each) for name, status in statuses if status for each in status.groups if each.group == group]
    ((name, status),) = [(name, each) for name, each in found if each.role == "leader"]
    return name, status.last_index


def test_tables_that_come_and_go_are_none_that_scripts_write_to() -> None:
    """Seed 27 of a swarm of `catalog`: `lost-answer` waited for commits of tablets that were dropped meanwhile."""

    async def scenario(database: SimDatabase) -> None:
        client = database.admin_client(5.0)
        (tablet,) = (await client.table_locations("registers")).tablets
        await client.create_table("c0", COLUMNS, 2, REPLICATION_FACTOR)
        await database.await_ready(10)
        assert await database.written_groups() == {tablet.tablet_id, CATALOG_GROUP}

    async def all_alike(database: SimDatabase) -> None:
        assert await database.written_groups() is None

    play("catalog", scenario)
    play("register", all_alike)


@pytest.mark.parametrize("workload", ["register", "catalog"])
def test_a_flood_makes_a_log_longer_and_is_seen_by_nobody(workload: str) -> None:
    async def scenario(database: SimDatabase) -> None:
        client = database.admin_client(5.0)
        (tablet,) = (await client.table_locations("registers")).tablets
        leader, before = await led(database, tablet.tablet_id)
        assert await database.flood(leader, tablet.tablet_id, 60)
        assert (await led(database, tablet.tablet_id))[1] >= before + 60
        assert not await database.flood(leader, "another", 1)
        if workload == "catalog":
            table = await client.open_table("registers")
            assert (await table.scan()).value == []

    play(workload, scenario)

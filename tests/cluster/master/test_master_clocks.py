"""A master's clock is judged like any other: what it shows others never runs away with its wall clock (G3)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from cluster.wire.messages import Column
from tests.cluster.table_rig import KNOBS, TableRig, play

SECOND = 1_000_000_000


async def create_a_table_soon(rig: TableRig) -> None:
    """Masters and tablet servers understand each other."""
    client = rig.database.admin_client(5.0)
    await client.create_table("more", (Column(0, "value", "int64"),), 1, 3)
    began_ns = rig.database.admin_clock().monotonic_ns()
    while not await client.is_create_done("more"):
        assert rig.database.admin_clock().monotonic_ns() < began_ns + 5 * SECOND
        await asyncio.sleep(0.05)


async def run_ahead_and_back(rig: TableRig, names: Sequence[str]) -> None:
    """Their wall clocks run half as fast again for a while, and are set right."""
    clocks = [rig.world.node(name).clock for name in names]
    for clock in clocks:
        clock.set_drift(0.5)
    await asyncio.sleep(40.0)
    assert all(clock.offset_ns() > 15 * SECOND for clock in clocks)
    for clock in clocks:
        clock.set_drift(0.0)
        clock.set_offset(0)


@pytest.mark.parametrize("drifting", [1, 2])
def test_masters_whose_clocks_ran_ahead_are_heard_at_once_when_they_are_set_right(drifting: int) -> None:
    """Others refused a master for as long as its wall clock had been ahead: 27 s in swarm seed 989."""

    async def scenario(rig: TableRig) -> None:
        await rig.begin()
        masters = rig.nodes("master")
        leader, _ = await rig.leader("master")
        ahead = [leader, *(name for name in masters if name != leader)][:drifting]
        await run_ahead_and_back(rig, ahead)
        await rig.database.kill(next(name for name in masters if name not in ahead))
        await create_a_table_soon(rig)

    play(scenario, knobs=replace(KNOBS, clock_probe_ms=200))


def test_a_sole_master_is_measured_against_the_tablet_servers() -> None:
    async def scenario(rig: TableRig) -> None:
        await rig.begin()
        await run_ahead_and_back(rig, ["m1"])
        await create_a_table_soon(rig)

    play(scenario, masters=1)

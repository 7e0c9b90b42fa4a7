"""Replicas that are replaced and deleted in a whole cluster (M9, M11), step by step."""

from __future__ import annotations

import asyncio

from whole_cluster import Play, play

from cluster.tserver.metadata import TABLETS_DIRECTORY
from harness.protocols import GroupStatus


async def replicas(stage: Play, group: str) -> dict[str, GroupStatus]:
    """Every answering replica of the group, by node."""
    found = {}
    for name, status in (await stage.database.statuses()).items():
        for each in () if status is None else status.groups:
            if each.group == group:
                found[name] = each
    return found


async def holders(stage: Play, group: str, expected: set[str], seconds: float = 20.0) -> None:
    """Wait until just these nodes hold a replica."""
    for _ in range(int(10 * seconds)):
        if set(await replicas(stage, group)) == expected:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{sorted(await replicas(stage, group))}, not {sorted(expected)}")


async def whole(stage: Play) -> None:
    assert (await stage.database.invariants()).breaches == ()


def test_replicas_that_a_configuration_drops_are_deleted_at_once_or_when_they_return() -> None:
    """Case 4 for one that is there, case 3 for one that comes back late; both may be added again."""

    async def scenario(stage: Play) -> None:
        await stage.begin()
        await stage.write(5)
        leader, group = await stage.leader()
        first, second = [name for name in await replicas(stage, group) if name != leader]
        await stage.change("tserver", "remove", first)
        await holders(stage, group, {leader, second})
        assert f"{TABLETS_DIRECTORY}/{group}.meta" in stage.world.node(first).disk.paths(), "a tombstone is left"
        await stage.change("tserver", "add-learner", first)
        await stage.change("tserver", "promote", first)
        await holders(stage, group, {leader, first, second})
        await stage.database.kill(second)
        await stage.change("tserver", "remove", second)
        await asyncio.sleep(2.0)
        await stage.database.start(second)
        await holders(stage, group, {leader, first})
        await stage.write(5)
        await whole(stage)

    play(scenario, seed=11)

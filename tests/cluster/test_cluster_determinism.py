"""Same seed, same run of the whole cluster, byte for byte, with a kill and a partition in it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cluster.cluster_rig import ClusterRig, play_cluster
from tests.support.few_seeds import ranges_of
from tests.support.replay import diverging_seeds


async def troubled(rig: ClusterRig) -> None:
    await rig.start(buckets=2)

    async def faults() -> None:
        await rig.clock.sleep(0.3)
        found = await rig.leaders()
        await rig.database.kill(found["catalog"])
        rig.isolate(next(node for group, node in found.items() if group != "catalog"))
        await rig.clock.sleep(1)
        rig.world.network.heal()
        await rig.database.start(found["catalog"])

    await asyncio.gather(rig.load(clients=4, seconds=3, pause_s=0.05), faults())


def run_seed(seed: int) -> str:
    return play_cluster(troubled, seed)


@pytest.mark.parametrize("seeds", ranges_of(4, 40))
def test_same_seed_same_trace_of_the_whole_cluster(seeds: range) -> None:
    assert diverging_seeds(f"{Path(__file__)}:run_seed", seeds) == []


def test_other_seeds_are_other_runs() -> None:
    assert len({run_seed(seed) for seed in range(3)}) == 3

"""Faults of disks, in effect as the nodes themselves say, and gone again; what was damaged or lost is replaced."""

from __future__ import annotations

import asyncio

import pytest

from cluster.deploy.database import choose_damage
from harness.errors import HarnessError
from harness.ports.machines import ProcessState
from harness.protocols import DamageKind, DiskState
from tests.cluster.table_rig import TableRig, play
from tests.support.few_seeds import few_of

SYNC = "disk.before_sync"


async def disk(cluster: TableRig, node: str) -> DiskState:
    state = await cluster.database.probe_disk(node)
    assert state is not None
    return state


def test_a_full_disk_is_seen_from_inside_until_it_has_room_again() -> None:
    async def scenario(cluster: TableRig) -> None:
        await cluster.begin()
        leader, _ = await cluster.leader()
        assert not (await disk(cluster, leader)).full
        await cluster.database.fill_disk(leader)
        assert (await disk(cluster, leader)).full
        await cluster.write(5, seconds=20)
        assert (await cluster.leader())[0] != leader
        await cluster.database.free_disk(leader)
        assert not (await disk(cluster, leader)).full
        await cluster.database.await_ready(30)

    play(scenario)


def test_a_slow_and_a_hung_disk_are_seen_from_inside_until_they_are_disarmed() -> None:
    async def scenario(cluster: TableRig) -> None:
        await cluster.begin()
        assert (await disk(cluster, "t1")).sync_ms < 50
        assert await cluster.database.arm("t1", SYNC, "delay", times=0, seconds=0.2)
        slow = await disk(cluster, "t1")
        assert slow.ended and slow.sync_ms >= 200
        assert await cluster.database.arm("t1", SYNC, "hang", times=0)
        assert not (await disk(cluster, "t1")).ended
        later = await disk(cluster, "t1")
        assert not later.ended and later.sync_ms >= 900, "it says for how long it has waited"
        await cluster.database.disarm("t1", SYNC)
        await asyncio.sleep(0.1)
        assert (await disk(cluster, "t1")).sync_ms < 50

    play(scenario)


def test_a_probe_that_is_lost_on_its_way_is_sent_again() -> None:
    """Two probes of a hung disk were lost where links lose 3 %: it was never in effect (register, seed 115)."""

    async def scenario(cluster: TableRig) -> None:
        await cluster.begin()
        network = cluster.world.network
        asking = asyncio.create_task(cluster.database.probe_disk("t1"))
        network.cut("admin", "t1")
        await asyncio.sleep(0.9)
        network.heal()
        assert await asking is not None

    play(scenario)


@pytest.mark.parametrize("kind", ["bit-flip", "truncate"])
@pytest.mark.parametrize("seed", few_of(3, 12))
def test_damage_of_one_node_loses_nothing_and_can_be_repaired(kind: DamageKind, seed: int) -> None:
    async def scenario(cluster: TableRig) -> None:
        await cluster.begin()
        for _ in range(5):
            await cluster.write(20)
        await cluster.database.kill("t1")
        done = await cluster.database.damage("t1", kind, seed)
        assert done is not None
        damage, read_back = done
        assert damage.kind == kind
        before, after = read_back.split(" became ")
        assert before != after
        await cluster.database.start("t1")
        await cluster.database.await_ready(30)
        await cluster.write(20)
        assert await cluster.database.process_state("t1") is ProcessState.RUNNING
        assert (await cluster.database.invariants()).broken == {}

    play(scenario, seed)


def test_the_end_of_a_log_is_never_cut_off_for_it_might_not_have_been() -> None:
    last, closed = "log/segment-0000000000000002-00000000", "log/segment-0000000000000001-00000000"
    from random import Random

    assert choose_damage("truncate", {last: 100}, Random(1)) is None
    for seed in range(20):
        cut = choose_damage("truncate", {last: 100, "identity": 40, "tablets/a.meta": 40}, Random(seed))
        assert cut is not None and cut.path != last and cut.at >= 20, "the first copy stays whole"
    assert {choose_damage("truncate", {last: 100, closed: 9}, Random(seed)).path for seed in range(20)} == {closed}  # type: ignore[union-attr]
    assert choose_damage("bit-flip", {"aside/x": 7, "probe": 7}, Random(1)) is None, "nobody reads these"


def test_files_of_a_running_node_are_not_touched() -> None:
    async def scenario(cluster: TableRig) -> None:
        await cluster.begin()
        for touch in (cluster.database.wipe("t1"), cluster.database.damage("t1", "bit-flip", 1)):
            with pytest.raises(HarnessError, match="t1 runs"):
                await touch

    play(scenario)


@pytest.mark.parametrize("node", ["t1", "m1"])
def test_a_wiped_node_is_another_server(node: str) -> None:
    async def scenario(cluster: TableRig) -> None:
        await cluster.begin()
        assert await cluster.database.server_id(node) == node
        await cluster.database.kill(node)
        await cluster.database.wipe(node)
        await cluster.database.start(node)
        await cluster.until(lambda: cluster.world.node(node).state is ProcessState.RUNNING, "it runs")
        await asyncio.sleep(1)
        server = await cluster.database.server_id(node)
        assert server is not None and server.startswith(f"{node}.")

    play(scenario)

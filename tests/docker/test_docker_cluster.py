"""The reference cluster in containers: it serves, survives, and its nodes' disks and failpoints do as they are told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harness.errors import DefiniteError, HarnessError
from harness.history.ops import cas, read, write
from harness.ports.machines import ProcessState
from tests.docker.shared_cluster import WRITES, Cluster

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]

SYNC = "disk.before_sync"


def test_clients_are_served_reads_writes_and_compare_and_sets(cluster: Cluster) -> None:
    assert cluster.do(read(WRITES)).mops[0].value is None
    assert cluster.do(write(1, 7)).type == "ok"
    assert cluster.do(cas(1, 7, 8)).type == "ok"
    with pytest.raises(DefiniteError) as refused:
        cluster.do(cas(1, 7, 9))
    assert refused.value.kind == "cas-mismatch"
    assert cluster.do(read(1)).mops[0].value == 8


def test_acknowledged_writes_outlive_the_leaders_that_are_killed(cluster: Cluster) -> None:
    cluster.do_until_known(write(2, 20))
    killed = cluster.leader_of_a("tserver"), cluster.leader_of_a("master")
    before = {}
    for node in killed:
        alive = cluster.run(cluster.database.status(node))
        assert alive is not None
        before[node] = alive.incarnation
        cluster.run(cluster.database.kill(node))
        assert cluster.run(cluster.database.process_state(node)) is ProcessState.DEAD
        assert cluster.run(cluster.database.status(node)) is None
    assert cluster.do_until_known(read(2)).mops[0].value == 20
    assert cluster.do_until_known(write(2, 21)).type == "ok"
    for node in killed:
        cluster.run(cluster.database.start(node))
    cluster.run(cluster.serves())
    for node in killed:
        status = cluster.run(cluster.database.status(node))
        assert status is not None
        assert status.incarnation == before[node] + 1
    assert cluster.do_until_known(read(2)).mops[0].value == 21


def test_a_paused_node_is_silent_until_it_is_resumed(cluster: Cluster) -> None:
    cluster.run(cluster.database.pause("t1"))
    assert cluster.run(cluster.database.process_state("t1")) is ProcessState.PAUSED
    assert cluster.run(cluster.database.status("t1")) is None
    cluster.run(cluster.database.resume("t1"))
    assert cluster.run(cluster.database.process_state("t1")) is ProcessState.RUNNING
    cluster.run(cluster.serves())


def test_every_node_leaves_a_log(cluster: Cluster) -> None:
    logs = cluster.run(cluster.database.collect_logs())
    assert set(logs) == {f"{node.name}/node.log" for node in cluster.database.nodes}
    assert all(b"listening at" in log for log in logs.values())


async def test_a_full_volume_is_seen_from_inside_until_it_has_room_again(cluster: Cluster) -> None:
    assert not (await cluster.disk("t1")).full
    await cluster.database.fill_disk("t1")
    assert (await cluster.disk("t1")).full
    assert not (await cluster.disk("t2")).full
    await cluster.write()
    await cluster.database.free_disk("t1")
    assert not (await cluster.disk("t1")).full
    await cluster.serves()


async def test_slow_and_hung_disks_are_seen_from_inside_until_they_are_disarmed(cluster: Cluster) -> None:
    assert await cluster.database.arm("t1", SYNC, "delay", times=0, seconds=0.2)
    assert (await cluster.disk("t1")).sync_ms >= 200  # behind the log's own writes it may not have ended yet
    assert await cluster.database.arm("t1", SYNC, "hang", times=0)
    assert not (await cluster.disk("t1")).ended
    await cluster.write()
    await cluster.database.disarm("t1", SYNC)
    for _ in range(20):
        if (await cluster.disk("t1")).ended:
            break
        await asyncio.sleep(0.1)
    assert (await cluster.disk("t1")).ended
    assert (await cluster.database.acted("t1"))[SYNC] >= 2
    await cluster.serves()


@pytest.mark.parametrize(("point", "action"), [("before_fsync", "crash"), ("before_apply", "fail"), (SYNC, "fail")])
async def test_an_armed_node_ends_there_and_the_node_itself_says_so(cluster: Cluster, point: str, action: Any) -> None:
    before = sum((await cluster.database.acted("t2")).values())
    await cluster.database.arm("t2", point, action)  # it may end before it has answered
    await cluster.write()
    for _ in range(50):
        if await cluster.database.process_state("t2") is ProcessState.DEAD:
            break
        await asyncio.sleep(0.1)
    assert await cluster.database.process_state("t2") is ProcessState.DEAD
    assert sum((await cluster.database.acted("t2")).values()) == before + 1
    await cluster.back("t2")


async def test_a_held_node_stops_and_goes_on(cluster: Cluster) -> None:
    await cluster.database.arm("t3", "before_append", "stop")  # it may stop before it has answered
    await cluster.write()
    assert await cluster.database.process_state("t3") is ProcessState.PAUSED
    await cluster.database.disarm("t3")
    assert await cluster.database.process_state("t3") is ProcessState.RUNNING
    await cluster.serves()


async def test_flipped_bits_are_read_back_and_lose_nothing(cluster: Cluster) -> None:
    with pytest.raises(HarnessError, match="t1 runs"):
        await cluster.database.damage("t1", "bit-flip", 0)
    await cluster.database.kill("t1")
    for seed in range(3):
        done = await cluster.database.damage("t1", "bit-flip", seed)
        assert done is not None
        before, after = done[1].split(" became ")
        assert (int(before, 16) ^ int(after, 16)).bit_count() == 1
    await cluster.back("t1")
    await cluster.whole()

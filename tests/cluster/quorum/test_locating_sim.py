"""Silence: coordinators whose masters don't answer go by what they know, and lost questions are asked again."""

from __future__ import annotations

import asyncio

from cluster.quorum.messages import PageRead, Written
from cluster.wire.messages import ErrorReply
from harness.ports.machines import Impairment
from tests.cluster.quorum.quorum_rig import SimQuorumRig, everything, play_quorum, rows_of, wrote
from tests.support.played import played


@played(play_quorum)
async def test_where_partitions_live_is_not_forgotten_because_masters_do_not_answer(rig: SimQuorumRig, /) -> None:
    coordinator, away = rig.others[0], rig.replicas[0]
    assert isinstance(await rig.write(coordinator, wrote(5, "old", 1), "ALL"), Written)
    await asyncio.sleep(6)
    rig.cut(coordinator, away, "m1", "m2", "m3")
    for timestamp in (6, 7, 8):
        assert isinstance(await rig.write(coordinator, wrote(timestamp, "new", 1), "QUORUM"), Written)
        await asyncio.sleep(2)
    read = await rig.read(coordinator, everything(), ())
    assert isinstance(read, PageRead) and rows_of(read.page) == {1: "new"}
    assert away not in read.replicas


@played(play_quorum)
async def test_coordinators_far_from_the_masters_learn_where_partitions_live(rig: SimQuorumRig, /) -> None:
    coordinator = rig.others[0]
    masters = ("m1", "m2", "m3")
    slow = Impairment(delay_s=0.2)
    links = [link for master in masters for link in ((coordinator, master), (master, coordinator))]
    rig.world.network.impair(dict.fromkeys(links, slow))
    assert isinstance(await rig.write(coordinator, wrote(5, "far", 1), "QUORUM", 4.0), Written)


@played(play_quorum, replication=6, data_centres=2, tservers=6)
async def test_a_local_level_counts_no_data_centre_short_of_replicas_that_new_masters_have_not_heard_of(
    rig: SimQuorumRig, /
) -> None:
    """Masters that start while servers are down know where none of these stand; two copies here may be one of three."""
    zones = {node.name: node.zone[:3] for node in rig.database.nodes}
    far = [name for name in rig.replicas if zones[name] == "dc2"]
    coordinator = far[0]
    for name in (*far[1:], "m1", "m2", "m3", coordinator):
        await rig.database.kill(name)
    for name in ("m1", "m2", "m3", coordinator):
        await rig.database.start(name)

    async def located() -> bool:
        return isinstance(await rig.read(coordinator, everything(), (), "QUORUM"), PageRead)

    await rig.until(located, "the coordinator goes by what the masters say")
    refused = await rig.write(coordinator, wrote(5, "here", 1), "LOCAL_QUORUM")
    assert isinstance(refused, ErrorReply) and (refused.kind, refused.definite) == ("NOT_LOCATED", True), refused
    assert isinstance(await rig.write(coordinator, wrote(6, "one", 1), "LOCAL_ONE"), Written)
    await rig.database.start(far[1])
    await rig.until(lambda: _written(rig, coordinator, "LOCAL_QUORUM"), "two of three are here")
    assert await rig.held(far[1]) == await rig.held(coordinator)


async def _written(rig: SimQuorumRig, coordinator: str, level: str) -> bool:
    return isinstance(await rig.write(coordinator, wrote(7, "both", 1), level), Written)


@played(play_quorum)
async def test_a_lost_question_to_one_replica_is_asked_again(rig: SimQuorumRig, /) -> None:
    assert isinstance(await rig.write(rig.others[0], wrote(5, "new", 1), "ALL"), Written)
    name = rig.replicas[0]
    rig.cut("tester", name)
    reading = asyncio.create_task(rig.client(4.0).read_at(rig.database.address(name), everything()))
    await asyncio.sleep(0.5)
    rig.heal()
    assert rows_of((await reading).page) == {1: "new"}

"""Silence: coordinators whose masters don't answer go by what they know, and lost questions are asked again."""

from __future__ import annotations

import asyncio

from quorum_play import QuorumPlay, everything, play_quorum, rows_of, wrote

from cluster.quorum.messages import PageRead, Written
from cluster.wire.messages import ErrorReply
from harness.protocols import Impairment


def test_where_partitions_live_is_not_forgotten_because_masters_do_not_answer() -> None:
    async def scenario(play: QuorumPlay) -> None:
        coordinator, away = play.others[0], play.replicas[0]
        assert isinstance(await play.write(coordinator, wrote(5, "old", 1), "ALL"), Written)
        await asyncio.sleep(6)
        play.cut(coordinator, away, "m1", "m2", "m3")
        for timestamp in (6, 7, 8):
            assert isinstance(await play.write(coordinator, wrote(timestamp, "new", 1), "QUORUM"), Written)
            await asyncio.sleep(2)
        read = await play.read(coordinator, everything(), ())
        assert isinstance(read, PageRead) and rows_of(read.page) == {1: "new"}
        assert away not in read.replicas

    play_quorum(scenario)


def test_coordinators_far_from_the_masters_learn_where_partitions_live() -> None:
    async def scenario(play: QuorumPlay) -> None:
        coordinator = play.others[0]
        masters = ("m1", "m2", "m3")
        slow = Impairment(delay_s=0.2)
        links = [link for master in masters for link in ((coordinator, master), (master, coordinator))]
        play.world.network.impair(dict.fromkeys(links, slow))
        assert isinstance(await play.write(coordinator, wrote(5, "far", 1), "QUORUM", 4.0), Written)

    play_quorum(scenario)


def test_a_local_level_counts_no_data_centre_short_of_replicas_that_new_masters_have_not_heard_of() -> None:
    """Masters that start while servers are down know where none of these stand; two copies here may be one of three."""

    async def scenario(play: QuorumPlay) -> None:
        zones = {node.name: node.zone[:3] for node in play.database.nodes}
        far = [name for name in play.replicas if zones[name] == "dc2"]
        coordinator = far[0]
        for name in (*far[1:], "m1", "m2", "m3", coordinator):
            await play.database.kill(name)
        for name in ("m1", "m2", "m3", coordinator):
            await play.database.start(name)

        async def located() -> bool:
            return isinstance(await play.read(coordinator, everything(), (), "QUORUM"), PageRead)

        await play.until(located, "the coordinator goes by what the masters say")
        refused = await play.write(coordinator, wrote(5, "here", 1), "LOCAL_QUORUM")
        assert isinstance(refused, ErrorReply) and (refused.kind, refused.definite) == ("NOT_LOCATED", True), refused
        assert isinstance(await play.write(coordinator, wrote(6, "one", 1), "LOCAL_ONE"), Written)
        await play.database.start(far[1])
        await play.until(lambda: _written(play, coordinator, "LOCAL_QUORUM"), "two of three are here")
        assert await play.held(far[1]) == await play.held(coordinator)

    play_quorum(scenario, replication=6, data_centres=2, tservers=6)


async def _written(play: QuorumPlay, coordinator: str, level: str) -> bool:
    return isinstance(await play.write(coordinator, wrote(7, "both", 1), level), Written)


def test_a_lost_question_to_one_replica_is_asked_again() -> None:
    async def scenario(play: QuorumPlay) -> None:
        assert isinstance(await play.write(play.others[0], wrote(5, "new", 1), "ALL"), Written)
        name = play.replicas[0]
        play.cut("tester", name)
        reading = asyncio.create_task(play.client(4.0).read_at(play.database.address(name), everything()))
        await asyncio.sleep(0.5)
        play.heal()
        assert rows_of((await reading).page) == {1: "new"}

    play_quorum(scenario)

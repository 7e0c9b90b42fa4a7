"""Silence: coordinators whose masters don't answer go by what they know, and lost questions are asked again."""

from __future__ import annotations

import asyncio

from quorum_play import QuorumPlay, everything, play_quorum, rows_of, wrote

from cluster.quorum.messages import PageRead, Written
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

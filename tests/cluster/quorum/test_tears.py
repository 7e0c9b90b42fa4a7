"""The two tears of legacy replication step by step, replica by replica: by read repair, by short-read protection (Q2).

Both are as CEP-45 describes them, with three replicas A, B, C and QUORUM.
"""

from __future__ import annotations

import asyncio

from quorum_play import QuorumPlay, deleted, everything, part, play_quorum, rows_of, wrote

from cluster.quorum.messages import PageRead, QuorumReply, Written
from harness.failpoints import Arming
from harness.ports import CallLost

OLD = {1: "old", 2: "old", 3: "old", 4: "old"}


def seen(reply: QuorumReply) -> dict[int, str]:
    assert isinstance(reply, PageRead), reply
    return rows_of(reply.page)


async def write_to_one(play: QuorumPlay, coordinator: str, target: str, timestamp: int, value: str) -> None:
    """A write of r1 to r4 reaches one replica; its coordinator, which holds none, dies before it leaves a hint."""
    a_others = [name for name in play.replicas if name != target]
    play.cut(coordinator, *a_others)
    writing = asyncio.create_task(play.write(coordinator, wrote(timestamp, value, 1, 2, 3, 4), "QUORUM"))

    async def arrived() -> bool:
        return (await play.held(target)).get(1) == value

    await play.until(arrived, "the write at one replica")
    await play.database.kill(coordinator)
    play.heal()
    try:
        await writing
        raise AssertionError("a dead coordinator answered")
    except CallLost:
        pass  # its client doesn't know


def test_read_repair_tears_a_write_that_reached_one_replica() -> None:
    async def scenario(play: QuorumPlay) -> None:
        a, b, c = play.replicas
        d, e = play.others
        assert isinstance(await play.write(e, wrote(10, "old", 1, 2, 3, 4), "ALL"), Written)
        await write_to_one(play, d, a, 20, "new")
        assert await play.held(a) == dict.fromkeys(OLD, "new")
        assert await play.held(b) == await play.held(c) == OLD

        reply = await play.read(e, part(1, 2), (a, b))
        assert isinstance(reply, PageRead) and reply.replicas == (a, b)
        assert rows_of(reply.page) == {1: "new", 2: "new"}
        assert await play.held(b) == {1: "new", 2: "new", 3: "old", 4: "old"}, "just what was read is repaired"
        assert await play.held(c) == OLD

        torn = await play.read(e, everything(), (b, c))
        assert seen(torn) == {1: "new", 2: "new", 3: "old", 4: "old"}, "half a write"
        assert await play.held(c) == {1: "new", 2: "new", 3: "old", 4: "old"}

    play_quorum(scenario)


def test_without_read_repair_the_same_write_flaps_and_is_seen_whole_or_not_at_all() -> None:
    async def scenario(play: QuorumPlay) -> None:
        a, b, c = play.replicas
        d, e = play.others
        await play.write(e, wrote(10, "old", 1, 2, 3, 4), "ALL")
        await write_to_one(play, d, a, 20, "new")
        assert seen(await play.read(e, part(1, 2), (a, b), repair="none")) == {1: "new", 2: "new"}
        assert await play.held(b) == OLD, "nothing is repaired"
        assert seen(await play.read(e, everything(), (b, c), repair="none")) == OLD, "seen, and unseen again"
        assert seen(await play.read(e, everything(), (a, c), repair="none")) == dict.fromkeys(OLD, "new")

    play_quorum(scenario)


def test_reads_as_wide_as_the_write_repair_all_of_it() -> None:
    async def scenario(play: QuorumPlay) -> None:
        a, b, c = play.replicas
        d, e = play.others
        await play.write(e, wrote(10, "old", 1, 2, 3, 4), "ALL")
        await write_to_one(play, d, a, 20, "new")
        assert seen(await play.read(e, everything(), (a, b))) == dict.fromkeys(OLD, "new")
        assert await play.held(b) == dict.fromkeys(OLD, "new")
        assert seen(await play.read(e, everything(), (b, c))) == dict.fromkeys(OLD, "new")

    play_quorum(scenario)


def test_short_read_protection_tears_a_write_that_arrives_between_two_answers() -> None:
    async def scenario(play: QuorumPlay) -> None:
        a, b, c = play.replicas
        d, e = play.others
        await play.write(e, wrote(10, "old", 1, 2, 3, 4), "ALL")
        # r2 is deleted on B and C, missed by A; the coordinator dies with the hint that A would get.
        play.cut(d, a)
        assert isinstance(await play.write(d, deleted(15, 2), "QUORUM"), Written)
        await play.database.kill(d)
        play.heal()
        assert await play.held(a) == OLD
        assert await play.held(b) == await play.held(c) == {1: "old", 3: "old", 4: "old"}

        # LIMIT 3 from A and B: A sends r1, r2, r3, B sends r1, r3, r4; of these r1 and r3 are left, one too few.
        held = asyncio.Event()
        reached = asyncio.Event()

        async def hold() -> None:
            reached.set()
            await held.wait()

        coordinator = play.world.node(e).failpoints
        coordinator.arm(Arming("quorum.before_follow_up", lambda point: hold()))
        reading = asyncio.create_task(play.read(e, everything(limit=3), (a, b)))
        await reached.wait()
        assert await play.held(a) == OLD

        # Between A's two answers W of r1 to r4 is acknowledged by A and C.
        play.cut(c, b)
        assert isinstance(await play.write(c, wrote(20, "new", 1, 2, 3, 4), "QUORUM"), Written)
        assert await play.held(a) == await play.held(c) == dict.fromkeys(OLD, "new")
        assert await play.held(b) == {1: "old", 3: "old", 4: "old"}
        coordinator.disarm("quorum.before_follow_up")
        held.set()

        reply = await reading
        assert isinstance(reply, PageRead) and reply.replicas == (a, b)
        assert rows_of(reply.page) == {1: "old", 3: "old", 4: "new"}, "r4 of the write, r1 and r3 of before"
        assert await play.held(b) == {1: "old", 3: "old", 4: "new"}, "and read repair has spread it"

    play_quorum(scenario)

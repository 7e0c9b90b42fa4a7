"""The two tears of legacy replication step by step, replica by replica: by read repair, by short-read protection (Q2).

Both are as CEP-45 describes them, with three replicas A, B, C and QUORUM, and are played in the simulator and in
containers alike.
"""

from __future__ import annotations

import asyncio

from cluster.quorum.messages import PageRead, QuorumReply, Written
from harness.ports import CallLost, Unreachable
from tests.cluster.quorum.quorum_play import Stage, deleted, everything, part, rows_of, wrote

OLD = {1: "old", 2: "old", 3: "old", 4: "old"}
NEW = dict.fromkeys(OLD, "new")
PATIENCE_S = 30.0
BEFORE_HINT, BEFORE_FOLLOW_UP = "quorum.before_hint", "quorum.before_follow_up"


def seen(reply: QuorumReply) -> dict[int, str]:
    assert isinstance(reply, PageRead), reply
    return rows_of(reply.page)


async def kill_before_it_leaves_a_hint(stage: Stage, node: str) -> None:
    await stage.stopped(node, BEFORE_HINT)
    await stage.database.kill(node)
    await stage.mend()


async def write_to_one(stage: Stage, coordinator: str, target: str, timestamp: int, value: str) -> None:
    """A write of r1 to r4 reaches one replica; its coordinator, which holds none, dies before it leaves a hint."""
    await stage.sever(coordinator, *(name for name in stage.replicas if name != target))
    assert await stage.database.arm(coordinator, BEFORE_HINT, "stop")
    writing = asyncio.create_task(stage.write(coordinator, wrote(timestamp, value, 1, 2, 3, 4), "QUORUM"))
    await kill_before_it_leaves_a_hint(stage, coordinator)
    try:
        reply = await writing
        assert not isinstance(reply, Written), "one of three replicas is no quorum"
    except (CallLost, Unreachable):
        pass  # its client doesn't know
    assert (await stage.held(target))[1] == value


async def torn_by_read_repair(stage: Stage) -> None:
    a, b, c = stage.replicas
    d, e = stage.others
    assert isinstance(await stage.write(e, wrote(10, "old", 1, 2, 3, 4), "ALL", PATIENCE_S), Written)
    await write_to_one(stage, d, a, 20, "new")
    assert await stage.held(a) == NEW
    assert await stage.held(b) == await stage.held(c) == OLD

    reply = await stage.read(e, part(1, 2), (a, b), timeout_s=PATIENCE_S)
    assert isinstance(reply, PageRead) and reply.replicas == (a, b)
    assert rows_of(reply.page) == {1: "new", 2: "new"}
    assert await stage.held(b) == {1: "new", 2: "new", 3: "old", 4: "old"}, "just what was read is repaired"
    assert await stage.held(c) == OLD

    torn = await stage.read(e, everything(), (b, c), timeout_s=PATIENCE_S)
    assert seen(torn) == {1: "new", 2: "new", 3: "old", 4: "old"}, "half a write"
    assert await stage.held(c) == {1: "new", 2: "new", 3: "old", 4: "old"}


async def torn_by_short_read_protection(stage: Stage) -> None:
    a, b, c = stage.replicas
    d, e = stage.others
    assert isinstance(await stage.write(e, wrote(10, "old", 1, 2, 3, 4), "ALL", PATIENCE_S), Written)
    # r2 is deleted on B and C, missed by A; the coordinator dies with the hint that A would get.
    await stage.sever(d, a)
    assert await stage.database.arm(d, BEFORE_HINT, "stop")
    assert isinstance(await stage.write(d, deleted(15, 2), "QUORUM"), Written)
    await kill_before_it_leaves_a_hint(stage, d)
    assert await stage.held(a) == OLD
    assert await stage.held(b) == await stage.held(c) == {1: "old", 3: "old", 4: "old"}

    # LIMIT 3 from A and B: A sends r1, r2, r3, B sends r1, r3, r4; of these r1 and r3 are left, one too few.
    assert await stage.database.arm(e, BEFORE_FOLLOW_UP, "stop")
    reading = asyncio.create_task(stage.read(e, everything(limit=3), (a, b), timeout_s=PATIENCE_S))
    await stage.stopped(e, BEFORE_FOLLOW_UP)
    assert await stage.held(a) == OLD

    # Between A's two answers W of r1 to r4 is acknowledged by A and C; C keeps its hint for B, which it can't reach.
    await stage.sever(c, b)
    assert isinstance(await stage.write(c, wrote(20, "new", 1, 2, 3, 4), "QUORUM"), Written)
    assert await stage.held(a) == await stage.held(c) == NEW
    assert await stage.held(b) == {1: "old", 3: "old", 4: "old"}
    await stage.database.disarm(e, BEFORE_FOLLOW_UP)

    reply = await reading
    assert isinstance(reply, PageRead) and reply.replicas == (a, b)
    assert rows_of(reply.page) == {1: "old", 3: "old", 4: "new"}, (
        f"{rows_of(reply.page)}: r4 of the write, r1 and r3 of before"
    )
    assert await stage.held(b) == {1: "old", 3: "old", 4: "new"}, "and read repair has spread it"
    await stage.mend()

"""The two tears of legacy replication step by step, replica by replica: by read repair, by short-read protection (Q2).

Both are as CEP-45 describes them, with three replicas A, B, C and QUORUM, and are played in the simulator and in
containers alike.
"""

from __future__ import annotations

import asyncio

from cluster.quorum.messages import PageRead, QuorumReply, Written
from harness.ports.api import CallLost, Unreachable
from tests.cluster.quorum.quorum_rig import QuorumRig, deleted, everything, part, rows_of, wrote

OLD = {1: "old", 2: "old", 3: "old", 4: "old"}
NEW = dict.fromkeys(OLD, "new")
PATIENCE_S = 30.0
BEFORE_HINT, BEFORE_FOLLOW_UP = "quorum.before_hint", "quorum.before_follow_up"


def seen(reply: QuorumReply) -> dict[int, str]:
    assert isinstance(reply, PageRead), reply
    return rows_of(reply.page)


async def sever_anew(rig: QuorumRig, node: str, *others: str) -> None:
    """Cut a node off, which starts again with no connection to them: what a process left in one, its kernel would
    deliver after the cut, though the process is killed by then."""
    await rig.sever(node, *others)
    await rig.database.kill(node)
    await rig.database.start(node)


async def kill_before_it_leaves_a_hint(rig: QuorumRig, node: str) -> None:
    await rig.stopped(node, BEFORE_HINT)
    await rig.database.kill(node)
    await rig.mend()


async def write_to_one(rig: QuorumRig, coordinator: str, target: str, timestamp: int, value: str) -> None:
    """A write of r1 to r4 reaches one replica; its coordinator, which holds none, dies before it leaves a hint."""
    await sever_anew(rig, coordinator, *(name for name in rig.replicas if name != target))
    await rig.until(lambda: rig.database.arm(coordinator, BEFORE_HINT, "stop"), "the coordinator is up again")
    writing = asyncio.create_task(rig.write(coordinator, wrote(timestamp, value, 1, 2, 3, 4), "QUORUM"))
    await kill_before_it_leaves_a_hint(rig, coordinator)
    try:
        reply = await writing
        assert not isinstance(reply, Written), "one of three replicas is no quorum"
    except (CallLost, Unreachable):
        pass  # its client doesn't know
    assert (await rig.held(target))[1] == value


async def torn_by_read_repair(rig: QuorumRig) -> None:
    a, b, c = rig.replicas
    d, e = rig.others
    assert isinstance(await rig.write(e, wrote(10, "old", 1, 2, 3, 4), "ALL", PATIENCE_S), Written)
    await write_to_one(rig, d, a, 20, "new")
    assert await rig.held(a) == NEW
    assert await rig.held(b) == await rig.held(c) == OLD

    reply = await rig.read(e, part(1, 2), (a, b), timeout_s=PATIENCE_S)
    assert isinstance(reply, PageRead) and reply.replicas == (a, b)
    assert rows_of(reply.page) == {1: "new", 2: "new"}
    assert await rig.held(b) == {1: "new", 2: "new", 3: "old", 4: "old"}, "just what was read is repaired"
    assert await rig.held(c) == OLD

    torn = await rig.read(e, everything(), (b, c), timeout_s=PATIENCE_S)
    assert seen(torn) == {1: "new", 2: "new", 3: "old", 4: "old"}, "half a write"
    assert await rig.held(c) == {1: "new", 2: "new", 3: "old", 4: "old"}


async def torn_by_short_read_protection(rig: QuorumRig) -> None:
    a, b, c = rig.replicas
    d, e = rig.others
    assert isinstance(await rig.write(e, wrote(10, "old", 1, 2, 3, 4), "ALL", PATIENCE_S), Written)
    # r2 is deleted on B and C, missed by A; the coordinator dies with the hint that A would get.
    await sever_anew(rig, d, a)
    await rig.until(lambda: rig.database.arm(d, BEFORE_HINT, "stop"), "the coordinator is up again")
    assert isinstance(await rig.write(d, deleted(15, 2), "QUORUM"), Written)
    await kill_before_it_leaves_a_hint(rig, d)
    assert await rig.held(a) == OLD
    assert await rig.held(b) == await rig.held(c) == {1: "old", 3: "old", 4: "old"}

    # LIMIT 3 from A and B: A sends r1, r2, r3, B sends r1, r3, r4; of these r1 and r3 are left, one too few.
    assert await rig.database.arm(e, BEFORE_FOLLOW_UP, "stop")
    reading = asyncio.create_task(rig.read(e, everything(limit=3), (a, b), timeout_s=PATIENCE_S))
    await rig.stopped(e, BEFORE_FOLLOW_UP)
    assert await rig.held(a) == OLD

    # Between A's two answers W of r1 to r4 is acknowledged by A and C; C keeps its hint for B, which it can't reach.
    await rig.sever(c, b)
    assert isinstance(await rig.write(c, wrote(20, "new", 1, 2, 3, 4), "QUORUM"), Written)
    assert await rig.held(a) == await rig.held(c) == NEW
    assert await rig.held(b) == {1: "old", 3: "old", 4: "old"}
    await rig.database.disarm(e, BEFORE_FOLLOW_UP)

    reply = await reading
    assert isinstance(reply, PageRead) and reply.replicas == (a, b)
    assert rows_of(reply.page) == {1: "old", 3: "old", 4: "new"}, (
        f"{rows_of(reply.page)}: r4 of the write, r1 and r3 of before"
    )
    assert await rig.held(b) == {1: "old", 3: "old", 4: "new"}, "and read repair has spread it"
    await rig.mend()

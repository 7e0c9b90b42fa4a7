"""Scripts about the change from one leader to the next: what the old one may still say, what the new one knows yet."""

from __future__ import annotations

from collections.abc import Sequence

from harness.protocols import Tuning
from nemesis.faults import NO_CUT, Hold, Kill, NetworkPartition, PointDelay, Restart
from nemesis.grudges import Grudge, grudge, isolate, shuffle, split
from nemesis.observe import MASTER, TSERVER, Leader, View
from nemesis.scripts.scene import Scene

CLIENTS_PATIENCE_S = 1.1
"""After this long without an answer clients have asked again."""

FIRST_ENTRIES = 2
"""What a leader commits by itself: its term's first entry, and the record of its lease."""

BEFORE_FSYNC = {TSERVER: "tablet.before_fsync", MASTER: "catalog.before_fsync"}


def outlived_leader(tuning: Tuning) -> bool:
    """Whether a leader without a quorum stays one until well after another may serve in its place."""
    return tuning.outlives_s > 0


async def deposed_leader(scene: Scene) -> None:
    """Cut a leader off until its successor commits what clients write, and longer; clients stay with both.

    It is cut off from every node, so that no message moves its clock. Where leaders look for their quorum as often as
    followers stand, or leases are long, it has given up by itself by then: it has heard of nothing all the same.
    """
    while (old := await scene.group(writable=True)) is not None:
        await scene.act(NetworkPartition(isolate(scene.nodes, [old.node])))
        born = await scene.new_leader(old.group, old.term, old.others)
        if born is not None and await commits_for_clients(scene, old, born):
            leads = await believes(scene, old)
            if leads or await unaware(scene, old):
                found = {"group": old.group, "term": born.term, "believes": leads}
                await scene.reached(leader=born.node, deposed=old.node, **found)
        await scene.hold(0.3, 1.2)
        await scene.act(NO_CUT)
        await scene.hold(0.3, 1.5)


async def commits_for_clients(scene: Scene, old: Leader, born: Leader) -> bool:
    """Wait until a leader's successor has committed something beyond its own first entries."""

    def served(view: View) -> bool | None:
        now = view.leader(old.group)
        return True if now is not None and now.commit_index > born.last_index + FIRST_ENTRIES else None

    return bool(await scene.until(served, old.others))


async def believes(scene: Scene, old: Leader) -> bool:
    """Whether a leader that was cut off still takes itself for one."""
    still = (await scene.view((old.node,))).leader(old.group)
    return still is not None and still.term == old.term


async def unaware(scene: Scene, old: Leader) -> bool:
    """Whether it has not heard of a later term: it may have given up its leadership for want of a quorum."""
    own = (await scene.view((old.node,))).replicas(old.group).get(old.node)
    return own is not None and own.term == old.term


async def unheard_commit(scene: Scene) -> None:
    """Kill a leader that has answered clients before the followers that made it possible hear that it has.

    The others, which were cut off meanwhile, lack those entries: they must not be elected. Whoever is elected does not
    know yet that they are committed: followers are held as they take its first entries in, and clients read from it.
    The dead leader stays cut off until it is started: a connection goes on sending what a dead process gave it.
    """
    while (old := await scene.group(writable=True)) is not None:
        peers = shuffle(old.others, scene.entropy)
        heirs, late = peers[: len(old.voters) // 2], peers[len(old.voters) // 2 :]
        cut = split([old.node, *heirs], late)
        await scene.act(NetworkPartition(cut))
        await scene.hold(0.1, 0.3)
        told = await answered_unheard(scene, old, heirs, cut)
        await scene.act(Kill((old.node,)))
        await scene.act(Hold(old.others, "before_accept", old.group))
        await scene.act(NetworkPartition(split([old.node], old.others)))
        born = await scene.new_leader(old.group, old.term, old.others)
        if born is not None and told is not None and born.commit_index < told:
            known = {"committed": told, "known": born.commit_index}
            await scene.reached(leader=born.node, deposed=old.node, group=old.group, term=born.term, **known)
            await scene.hold(0.2, 0.6)
        await scene.act(Restart(old.others))
        await scene.hold(0.2, 0.6)
        await scene.act(Restart((old.node,)))
        await scene.act(NO_CUT)
        await scene.hold(0.5, 1.5)


async def answered_unheard(scene: Scene, old: Leader, heirs: Sequence[str], cut: Grudge) -> int | None:
    """Let these followers acknowledge entries, and nothing that the leader says afterwards arrive.

    What it has committed then, which none of them knows; None if it came to nothing.
    """
    await scene.act(Hold(tuple(heirs), "before_accept", old.group))
    held = await scene.stopped(heirs, len(heirs), patience_s=2.0)
    await scene.act(NetworkPartition(grudge([*cut, *((old.node, name) for name in heirs)])))
    await scene.act(Restart(tuple(heirs)))

    def unheard(view: View) -> int | None:
        replicas = view.replicas(old.group)
        if any(name not in replicas for name in (old.node, *heirs)):
            return None
        ahead, known = replicas[old.node], max(replicas[name].commit_index for name in heirs)
        return ahead.commit_index if ahead.term == old.term and ahead.commit_index > known else None

    return await scene.until(unheard, (old.node, *heirs), patience_s=1.0) if held else None


async def late_acks(scene: Scene) -> None:
    """Keep followers' acknowledgements from a leader until clients have asked again, then let them through.

    It is the followers' disks that are slow: they hear the leader and echo its heartbeats all the time, so that it
    stays, and the second attempt meets the first one in flight. A cut from them to it would be one both ways before
    long, since a connection whose bytes nobody confirms sends nothing new.
    """
    while (old := await scene.group(writable=True)) is not None:
        late_s, point = scene.entropy.uniform(1.2, 2.0) * CLIENTS_PATIENCE_S, BEFORE_FSYNC[scene.role(old.node)]
        for name in old.others:
            await scene.act(PointDelay(name, point, late_s))
        before = await stuck(scene, old)
        await scene.hold(CLIENTS_PATIENCE_S, CLIENTS_PATIENCE_S)
        waits = before is not None and committed(await scene.view((old.node,)), old, before) is False
        for name in old.others:
            await scene.act(PointDelay(name, point, 0.0))
        if waits and before is not None and await commits_at_last(scene, old, before, late_s):
            await scene.reached(leader=old.node, group=old.group, term=old.term, committed=before)
        await scene.hold(0.5, 1.5)


async def stuck(scene: Scene, old: Leader) -> int | None:
    """Wait until the leader's log holds what it has not committed: up to where."""

    def more(view: View) -> int | None:
        own = view.replicas(old.group).get(old.node)
        return own.last_index if own is not None and own.last_index > own.commit_index else None

    return await scene.until(more, (old.node,), patience_s=1.0)


def committed(view: View, old: Leader, index: int) -> bool | None:
    """Whether the same leader, in the same term, has committed up to `index`; None if it leads no more."""
    now = view.leader(old.group)
    return None if now is None or now.term != old.term else now.commit_index >= index


async def commits_at_last(scene: Scene, old: Leader, index: int, patience_s: float) -> bool:
    """Wait until the same leader, in the same term, has committed up to `index`."""
    found = await scene.until(lambda view: committed(view, old, index) or None, (old.node,), patience_s)
    return bool(found)

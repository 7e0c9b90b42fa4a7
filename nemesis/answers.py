"""Scripts about what is told and not believed: answers that clients never get, echoes that a leader never hears."""

from __future__ import annotations

from harness.ports.machines import CLIENTS
from nemesis.elections import level
from nemesis.faults import NO_CUT, Bounce, Hold, Kill, NetworkPartition, Restart
from nemesis.grudges import Grudge, between, grudge, isolate, one_way, shuffle, split
from nemesis.scene import Scene
from nemesis.successors import commits_for_clients
from nemesis.view import Leader, View

WHOLE_GROUP_SHARE = 0.4
"""How often a lost answer is followed by the death of the whole group, so that its memory is what its disks hold."""


async def lost_answer(scene: Scene) -> None:
    """Drop a leader's answers to clients until it has committed something, then kill it: clients try again elsewhere.

    What they repeat took effect already, and must not a second time. Sometimes the followers are killed with it.
    """
    while (leader := await scene.group(writable=True)) is not None:
        await scene.act(NetworkPartition(((leader.node, CLIENTS),)))
        committed = await commit_unheard(scene, leader)
        await scene.hold(0.02, 0.3)
        victims = leader.voters if scene.entropy.random() < WHOLE_GROUP_SHARE else (leader.node,)
        seen = None if committed is None else {"commit_index": [leader.commit_index, committed]}
        await scene.act(Kill(victims), seen)
        await scene.act(NO_CUT)
        await scene.act(Restart(tuple(name for name in victims if name != leader.node)))
        await scene.new_leader(leader.group, leader.term, leader.others)
        await scene.hold(0.3, 1.5)
        await scene.act(Restart((leader.node,)))
        await scene.hold(0.5, 1.5)


async def commit_unheard(scene: Scene, leader: Leader) -> int | None:
    """Wait until followers know of something more that is committed: its index."""

    def moved(view: View) -> int | None:
        replicas = view.replicas(leader.group)
        known = [replicas[name].commit_index for name in leader.others if name in replicas]
        return max(known) if known and max(known) > leader.commit_index + 1 else None

    return await scene.until(moved, leader.others, patience_s=2.0)


async def stale_lease(scene: Scene) -> None:
    """Keep a leader believing in its lease while another is elected: what followers answer is lost, not what it says.

    One follower hears nothing of it and stands; no echo reaches the leader from now on. The voters, which still hear it
    or are restarted now, must not elect another before its lease is over; clients read from both. Until then clients
    are kept away, for with what they write the follower's log would be too old to win.
    """
    while (old := await scene.group()) is not None:
        rival, *others = shuffle(old.others, scene.entropy)
        quiet = ((CLIENTS, old.node),)
        await scene.act(NetworkPartition(quiet))
        await level(scene, old)
        apart = grudge([*quiet, *between([old.node], [rival])])
        restart = scene.entropy.random() < 0.5
        await (_voters_restarted if restart else _echoes_lost)(scene, old, rival, tuple(others), apart)
        born = await scene.new_leader(old.group, old.term, old.others)
        if born is not None:
            await scene.reached(leader=born.node, deposed=old.node, group=old.group, term=born.term)
            await commits_for_clients(scene, old, born)
            await scene.hold(0.1, 0.8)
        await scene.act(Restart(tuple(others)))
        await scene.act(NO_CUT)
        await scene.hold(0.3, 1.5)


async def _echoes_lost(scene: Scene, old: Leader, rival: str, others: tuple[str, ...], apart: Grudge) -> None:
    """Voters that grant their vote are held, so that the leader hears nothing of it, whenever that is.

    From then on it hears no node at all, so that no message moves its clock either.
    """
    votes, deaf = len(old.voters) // 2, one_way(scene.nodes, old.node, outbound=False)
    await scene.act(Hold(others, "before_vote", old.group))
    await scene.act(NetworkPartition(apart))
    waited_s = await stands(scene, old, rival)
    early = waited_s is not None and await scene.stopped(others, votes, patience_s=waited_s)
    await scene.act(NetworkPartition(grudge([*between([old.node], [rival]), *deaf])))
    if not early:
        await scene.stopped(others, votes)
    await scene.act(Restart(others))


async def _voters_restarted(scene: Scene, old: Leader, rival: str, others: tuple[str, ...], apart: Grudge) -> None:
    """They are restarted shortly before the rival stands again, which is about as long as it took it to stand."""
    await scene.act(NetworkPartition(apart))
    waited_s = await stands(scene, old, rival) or 0.0
    await scene.hold(0.4 * waited_s, 0.9 * waited_s)
    await scene.act(NetworkPartition(isolate(scene.nodes, [old.node])))
    await scene.act(Bounce(others))


async def idle_bridge(scene: Scene) -> None:
    """Let two halves of a quiet group see each other only through one follower, then take the bridge away.

    The far half hears nothing of the leader and stands again and again, in vain: the bridge hears the leader.
    """
    while (old := await scene.group(idle=True)) is not None:
        bridge, *others = shuffle(old.others, scene.entropy)
        near = [old.node, *others[: len(others) // 2]]
        far = others[len(others) // 2 :]
        halves = split(near, far)
        await scene.act(NetworkPartition(halves))
        if await stands(scene, old, far[0]) is not None:
            await scene.hold(0.5, 3.0)
            still = (await scene.view((old.node,))).leader(old.group)
            if still is not None and still.lease_valid and still.term == old.term:
                await scene.reached(bridge=bridge, leader=old.node, group=old.group, term=old.term)
            if scene.entropy.random() < 0.5:
                await scene.act(NetworkPartition(grudge([*halves, *between(near, [bridge])])))
                await scene.new_leader(old.group, old.term, (bridge, *far))
                await scene.hold(0.1, 0.5)
        await scene.act(NO_CUT)
        await scene.hold(0.3, 1.5)


async def stands(scene: Scene, old: Leader, name: str) -> float | None:
    """Wait until this voter would be elected, for it has not heard of a leader for long: how many seconds, or None."""
    clock = scene.observer.environment.clock
    begun_ns = clock.monotonic_ns()

    def restless(view: View) -> bool | None:
        replica = view.replicas(old.group).get(name)
        return True if replica is not None and replica.role not in ("follower", "leader") else None

    found = await scene.until(restless, (name,))
    return (clock.monotonic_ns() - begun_ns) / 1e9 if found else None

"""Scripts about leases, and what is told and not believed: who thinks that a lease is over, who that it still holds."""

from __future__ import annotations

from harness.ports.api import node_of
from harness.ports.machines import CLIENTS, Skew
from nemesis.faults import (
    NO_CUT,
    WITHIN,
    Bounce,
    Hold,
    Kill,
    Move,
    MoveLeaders,
    NetworkPartition,
    PointDelay,
    PointHang,
    Restart,
    SetClocks,
)
from nemesis.grudges import Grudge, between, grudge, isolate, one_way, shuffle, split
from nemesis.observe import TSERVER, Leader, View
from nemesis.scripts.elections import level
from nemesis.scripts.scene import Scene
from nemesis.scripts.successors import commits_for_clients
from nemesis.targets import describe

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
        cut = grudge([*quiet, *between([old.node], [rival])])
        restart = scene.entropy.random() < 0.5
        await (_voters_restarted if restart else _echoes_lost)(scene, old, rival, tuple(others), cut)
        born = await scene.new_leader(old.group, old.term, old.others)
        if born is not None:
            await scene.reached(leader=born.node, deposed=old.node, group=old.group, term=born.term)
            await commits_for_clients(scene, old, born)
            await scene.hold(0.1, 0.8)
        await scene.act(Restart(tuple(others)))
        await scene.act(NO_CUT)
        await scene.hold(0.3, 1.5)


async def _echoes_lost(scene: Scene, old: Leader, rival: str, others: tuple[str, ...], cut: Grudge) -> None:
    """Voters that grant their vote are held, so that the leader hears nothing of it, whenever that is.

    From then on it hears no node at all, so that no message moves its clock either.
    """
    votes, deaf = len(old.voters) // 2, one_way(scene.nodes, old.node, outbound=False)
    await scene.act(Hold(others, "before_vote", old.group))
    await scene.act(NetworkPartition(cut))
    waited_s = await stands(scene, old, rival)
    early = waited_s is not None and await scene.stopped(others, votes, patience_s=waited_s)
    await scene.act(NetworkPartition(grudge([*between([old.node], [rival]), *deaf])))
    if not early:
        await scene.stopped(others, votes)
    await scene.act(Restart(others))


async def _voters_restarted(scene: Scene, old: Leader, rival: str, others: tuple[str, ...], cut: Grudge) -> None:
    """They are restarted shortly before the rival stands again, which is about as long as it took it to stand."""
    await scene.act(NetworkPartition(cut))
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


BEFORE_PROPOSE = "tablet.before_propose"

CAUGHT_S = 2.0
"""How long a client may take to write to a group."""


async def skewed_lease(scene: Scene) -> None:
    """Cut a leaseholder off whose clock goes back, from followers whose clocks are ahead, all within the bound.

    By their clocks its lease is over before it is by its own. It is cut off from every node, for a message from one
    that still hears the others would move its clock. Clients still find it, and its successor.
    """
    while (old := await scene.group(writable=True)) is not None:
        most_ns = int(WITHIN * (await scene.view()).max_clock_offset_ns)
        ahead = tuple((name, Skew(most_ns)) for name in old.others)
        await scene.act(SetClocks(ahead))
        await settled(scene, old)
        await scene.act(NetworkPartition(isolate(scene.nodes, [old.node])))
        await scene.act(SetClocks(((old.node, Skew(-most_ns)), *ahead)))
        born = await scene.new_leader(old.group, old.term, old.others)
        if born is not None:
            await scene.reached(deposed=describe(old), leader=born.node, term=born.term, offset_s=most_ns / 1e9)
            await commits_for_clients(scene, old, born)
            await scene.hold(0.5, 3.0)
        await scene.act(NO_CUT)
        await scene.act(SetClocks(()))
        await scene.hold(0.5, 1.5)


async def settled(scene: Scene, old: Leader) -> None:
    """Wait until every voter knows of something that was committed since: each of them has seen the others' clocks."""
    before = await scene.view(old.voters)
    since = max((each.commit_index for each in before.replicas(old.group).values()), default=0)

    def quiet(view: View) -> bool | None:
        now, replicas = view.leader(old.group), view.replicas(old.group)
        if now is None or not now.lease_valid or len(replicas) < len(old.voters):
            return None
        return True if min(each.commit_index for each in replicas.values()) > since else None

    await scene.until(quiet, old.voters)


async def late_batch(scene: Scene) -> None:
    """Hold a batch that is about to enter the log, until its leaseholder has lost the lease and acquired a later one.

    Between the two another voter, to which the leader hands over, commits what clients write: the batch was decided on
    a state that is gone, and nothing but the sequence of its lease tells so. Its client may still wait for the answer.
    """
    while (old := await scene.group(writable=True, role=TSERVER)) is not None:
        before = await scene.acted(old.node, BEFORE_PROPOSE)
        await scene.act(PointHang(old.node, BEFORE_PROPOSE, old.group))
        if await scene.acts(old.node, BEFORE_PROPOSE, before, CAUGHT_S):
            await outlived(scene, old)
        await scene.act(PointDelay(old.node, BEFORE_PROPOSE, 0.0))
        await scene.hold(0.3, 1.2)


async def outlived(scene: Scene, old: Leader) -> None:
    """Have the leader hand over, and get leadership and lease back, while what it evaluated before waits."""
    evaluated = held_lease(await scene.view((old.node,)), old)
    heir = await hand_over(scene, old, scene.entropy.choice(old.others))
    if evaluated is None or heir is None or not await commits_for_clients(scene, old, heir):
        return
    back = await hand_over(scene, heir, old.node)

    def regained(view: View) -> int | None:
        now = None if back is None else held_lease(view, back)
        return None if now is None or now[0] != evaluated[0] or now[1] < evaluated[1] + 2 else now[1]

    sequence = await scene.until(regained, (old.node,)) if back is not None else None
    if back is not None and sequence is not None:
        leases = {"evaluated": evaluated[1], "held": sequence}
        await scene.reached(leader=old.node, heir=heir.node, group=old.group, term=back.term, leases=leases)


async def hand_over(scene: Scene, leader: Leader, heir: str) -> Leader | None:
    """Have a leader let this voter lead, and wait until it does."""
    replica = (await scene.view((leader.node,))).replicas(leader.group).get(leader.node)
    server = next((each for each in replica.voters if node_of(each) == heir), None) if replica is not None else None
    if server is None:
        return None
    await scene.act(MoveLeaders((Move(leader.node, leader.group, leader.term, server),)))
    return await scene.new_leader(leader.group, leader.term, (heir,))


def held_lease(view: View, leader: Leader) -> tuple[int, int] | None:
    """The life in which the leader holds a lease in its term, and the last whose record it has applied."""
    now = view.leader(leader.group)
    if now is None or (now.node, now.term) != (leader.node, leader.term) or not now.lease_valid:
        return None
    return view.statuses[leader.node].incarnation, view.replicas(leader.group)[leader.node].lease_sequence

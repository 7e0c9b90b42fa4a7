"""Scripts about leases and clocks: who thinks that a lease is over, who that it still holds, and what outlives it."""

from __future__ import annotations

from harness.protocols import Skew, node_of
from nemesis.faults import NO_CUT, WITHIN, Move, MoveLeaders, NetworkPartition, PointDelay, PointHang, SetClocks
from nemesis.grudges import isolate
from nemesis.scene import Scene
from nemesis.successors import commits_for_clients
from nemesis.targets import describe
from nemesis.view import TSERVER, Leader, View

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

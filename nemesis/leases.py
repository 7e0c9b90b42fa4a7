"""Scripts about leases and clocks: who thinks that a lease is over, and who that it still holds."""

from __future__ import annotations

from harness.protocols import Skew
from nemesis.faults import NO_CUT, NetworkPartition, SetClocks
from nemesis.grudges import isolate
from nemesis.scene import Scene
from nemesis.successors import commits_for_clients
from nemesis.targets import describe
from nemesis.view import Leader, View

WITHIN = 0.45
"""Of the declared maximum offset: clocks wrong by as much, one each way, are still within it."""


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

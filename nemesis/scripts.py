"""Faults that wait for the state that matters: a leader just elected, a vote just asked for, a write just committed.

Scripts go on for as long as they are let; the schedule ends the episode, and what is left in effect is healed. They
cut links between the voters of one group only, so that the masters and the other groups go on.
"""

from __future__ import annotations

from dataclasses import dataclass

from nemesis.elections import leader_returns, lonely_leader, rotate_majority
from nemesis.faults import NO_CUT, Kill, Partition, Restart
from nemesis.grudges import shuffle, split
from nemesis.scene import Scene, Script
from nemesis.view import Leader, View


async def new_leader_partition(scene: Scene) -> None:
    """Cut off a group's leader, then each leader newly elected, moving the cut without a quiet moment between."""
    leader = await scene.group()
    while leader is not None:
        await scene.hold(0.0, 0.01)
        await scene.act(Partition(split([leader.node], leader.others)))
        await scene.hold(0.5, 3.0)
        if scene.entropy.random() < 0.2:
            await scene.act(NO_CUT)
        leader = await scene.new_leader(leader.group, leader.term) or await scene.leader(leader.group)


async def power_cut(scene: Scene) -> None:
    """When a write is just committed, kill all replicas of a group, or its leader and a majority with the rest cut off.

    Killed so soon, they have on disk only what they had to have there before they answered.
    """
    while (leader := await scene.group()) is not None:
        peers = shuffle(leader.others, scene.entropy)
        count = len(leader.voters) // 2 if scene.entropy.random() < 0.5 else len(peers)
        if peers[count:]:
            await scene.act(Partition(split(peers[count:], [leader.node, *peers[:count]])))
            await scene.hold(0.1, 0.5)
        await commit(scene, leader)
        await scene.act(Kill((leader.node, *peers[:count])))
        await scene.hold(0.0, 0.2)
        await scene.act(Restart(leader.voters))
        await scene.act(NO_CUT)
        await scene.new_leader(leader.group, leader.term)
        await scene.hold(0.2, 1.0)


async def commit(scene: Scene, leader: Leader) -> None:
    """Wait until the leader commits something more."""
    before = (await scene.view([leader.node])).replicas(leader.group).get(leader.node)
    index = leader.commit_index if before is None else before.commit_index

    def moved(view: View) -> bool | None:
        replica = view.replicas(leader.group).get(leader.node)
        return True if replica is not None and replica.commit_index > index else None

    await scene.until(moved, of=(leader.node,), patience_s=1.0, eyes=4)


@dataclass(frozen=True, slots=True)
class ScriptInfo:
    """A script, what it is in one line, the capabilities it needs, and the colour (CSS) it is drawn in."""

    script: Script
    description: str
    needs: frozenset[str]
    color: str


SCRIPTS: dict[str, ScriptInfo] = {
    "new-leader-partition": ScriptInfo(
        new_leader_partition,
        "waits for a leader to be elected, cuts it off at once, and moves on to the next one",
        frozenset({"partition", "status"}),
        "#7a5195",
    ),
    "lonely-leader": ScriptInfo(
        lonely_leader,
        "cuts leaders off as they are elected, before they can say a word; clients find them, and the others elect",
        frozenset({"partition", "status"}),
        "#8c6d31",
    ),
    "rotate-majority": ScriptInfo(
        rotate_majority,
        "lets one majority of a group elect a lonely leader, restarts the voter, and lets the other majority elect",
        frozenset({"partition", "kill", "pause", "status"}),
        "#2f8f7f",
    ),
    "power-cut": ScriptInfo(
        power_cut,
        "kills all replicas of a group, or its leader and a majority, just as a write is committed",
        frozenset({"partition", "kill", "status"}),
        "#b5651d",
    ),
    "leader-returns": ScriptInfo(
        leader_returns,
        "brings a leader back that was cut off with a tail of its own, around a lonely leader of a later term",
        frozenset({"partition", "status"}),
        "#4b6cb7",
    ),
}

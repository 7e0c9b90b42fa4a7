"""Faults that wait for the state that matters: a leader just elected, a vote just given, a write just acknowledged.

Scripts go on for as long as they are let; the schedule ends the episode, and what is left in effect is healed.
"""

from __future__ import annotations

from dataclasses import dataclass

from nemesis.faults import Bounce, Kill, Partition, Restart
from nemesis.grudges import isolate, shuffle
from nemesis.scene import Scene, Script

NO_CUT = Partition(())


async def new_leader_partition(scene: Scene) -> None:
    """Cut off a group's leader, then each leader newly elected, moving the cut without a quiet moment between."""
    leader = await scene.group()
    while leader is not None:
        await scene.hold(0.0, 0.01)
        await scene.act(Partition(isolate(scene.nodes, [leader.node])))
        await scene.hold(0.5, 3.0)
        if scene.entropy.random() < 0.2:
            await scene.act(NO_CUT)
        leader = await scene.new_leader(leader.group, leader.term) or await scene.leader(leader.group)


async def rotate_majority(scene: Scene) -> None:
    """Keep one voter cut off; when the others elect, restart the one that voted and swap the leader for the outcast."""
    leader = await scene.group()
    while leader is not None:
        outcast, voter = shuffle([name for name in leader.voters if name != leader.node], scene.entropy)[:2]
        await scene.act(Partition(isolate(scene.nodes, [outcast])))
        await scene.hold(0.1, 0.5)
        await scene.act(Partition(isolate(scene.nodes, [leader.node])))
        elected = await scene.new_leader(leader.group, leader.term, (outcast, voter))
        if elected is not None:
            voted = voter if elected.node == outcast else outcast
            await scene.act(Bounce((voted,)))
            await scene.act(Partition(isolate(scene.nodes, [elected.node])))
        leader = await scene.leader(leader.group)


async def power_cut(scene: Scene) -> None:
    """Kill all replicas of a group at one moment, or its leader and a majority after cutting the others off."""
    while (leader := await scene.group()) is not None:
        others = shuffle([name for name in leader.voters if name != leader.node], scene.entropy)
        count = len(leader.voters) // 2 if scene.entropy.random() < 0.5 else len(others)
        if others[count:]:
            await scene.act(Partition(isolate(scene.nodes, others[count:])))
        await scene.hold(0.2, 1.0)
        await scene.act(Kill((leader.node, *others[:count])))
        await scene.hold(0.0, 0.3)
        await scene.act(Restart(leader.voters))
        await scene.act(NO_CUT)
        await scene.leader(leader.group)
        await scene.hold(0.3, 1.0)


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
    "rotate-majority": ScriptInfo(
        rotate_majority,
        "keeps one voter of a group cut off; after an election restarts the voter and swaps the leader for the outcast",
        frozenset({"partition", "kill", "status"}),
        "#2f8f7f",
    ),
    "power-cut": ScriptInfo(
        power_cut,
        "kills all replicas of a group, or its leader and a majority, at one moment while writes are under way",
        frozenset({"partition", "kill", "status"}),
        "#b5651d",
    ),
}

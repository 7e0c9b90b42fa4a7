"""Faults that wait for the state that matters: a leader just elected, a vote just given, a write just acknowledged.

Scripts go on for as long as they are let; the schedule ends the episode, and what is left in effect is healed. They
cut links between the voters of one group only, so that the masters and the other groups go on.
"""

from __future__ import annotations

from dataclasses import dataclass

from nemesis.faults import Bounce, Kill, Partition, Restart
from nemesis.grudges import Grudge, grudge, shuffle, split
from nemesis.scene import Scene, Script
from nemesis.view import Leader, View

NO_CUT = Partition(())


async def new_leader_partition(scene: Scene) -> None:
    """Cut off a group's leader, then each leader newly elected, moving the cut without a quiet moment between."""
    leader = await scene.group()
    while leader is not None:
        await scene.hold(0.0, 0.01)
        await scene.act(Partition(split([leader.node], others(leader))))
        await scene.hold(0.5, 3.0)
        if scene.entropy.random() < 0.2:
            await scene.act(NO_CUT)
        leader = await scene.new_leader(leader.group, leader.term) or await scene.leader(leader.group)


async def power_cut(scene: Scene) -> None:
    """When the log has just grown, kill all replicas of a group, or its leader and a majority with the rest cut off."""
    while (leader := await scene.group()) is not None:
        peers = shuffle(others(leader), scene.entropy)
        count = len(leader.voters) // 2 if scene.entropy.random() < 0.5 else len(peers)
        if peers[count:]:
            await scene.act(Partition(split(peers[count:], [leader.node, *peers[:count]])))
            await scene.hold(0.1, 0.5)
        await growth(scene, leader)
        await scene.hold(0.0, 0.004)
        await scene.act(Kill((leader.node, *peers[:count])))
        await scene.hold(0.0, 0.2)
        await scene.act(Restart(leader.voters))
        await scene.act(NO_CUT)
        await scene.new_leader(leader.group, leader.term)
        await scene.hold(0.2, 1.0)


async def rotate_majority(scene: Scene) -> None:
    """Let one majority of a group elect, restart the voter before the leader replicates, and let the other one elect.

    The voter's promise of the first election (Ongaro 2014, §3.8) must hold in the second, which is for the same term.
    """
    while (old := await scene.group()) is not None:
        voter, outcast = shuffle(others(old), scene.entropy)
        await scene.act(Bounce((old.node,)))
        await scene.act(Partition(split([old.node, voter], [outcast])))
        born = await stillborn(scene, old, (old.node, voter), split([outcast], [old.node, voter]))
        if born is not None:
            await scene.act(Bounce((born.voter,)))
            await scene.act(Partition(split([born.leader], [born.voter], [outcast])))
            await scene.hold(0.3, 1.3)
            await scene.act(Partition(split([born.leader], [born.voter, outcast])))
            await scene.new_leader(old.group, born.term - 1, (born.voter, outcast))
            await scene.hold(0.2, 0.8)
        await scene.act(NO_CUT)
        await scene.hold(0.5, 1.5)


async def figure_eight(scene: Scene) -> None:
    """Walk a group through figure 8 of the Raft paper (Ongaro 2014, figure 3.7).

    A leader cut off gathers a tail; another is elected and cut off before it replicates; the first one is elected again
    and cut off as soon as a follower has the first of its old entries; then the second one overwrites them.
    """
    while (first := await scene.group()) is not None:
        await scene.act(Partition(split([first.node], others(first))))
        pair = others(first)
        second = await stillborn(scene, first, (pair[0], pair[1]), split([first.node], pair))
        if second is not None:
            alone = split([second.leader], [first.node, second.voter])
            await scene.act(Partition(alone))
            if await old_entry(scene, first, second):
                await scene.act(Partition(grudge([*alone, (first.node, second.voter)])))
                await scene.hold(0.003, 0.03)
                await scene.act(Partition(split([first.node], pair)))
                await scene.new_leader(first.group, second.term + 1, pair)
                await scene.hold(0.2, 1.0)
        await scene.act(NO_CUT)
        await scene.hold(0.5, 1.5)


@dataclass(frozen=True, slots=True)
class Stillborn:
    """A leader that was cut off from its voter before it could replicate anything."""

    leader: str
    voter: str
    term: int


async def stillborn(scene: Scene, old: Leader, pair: tuple[str, str], cut: Grudge) -> Stillborn | None:
    """Wait until one of a pair has the other's vote, and cut off what it sends at once, in addition to `cut`.

    None if nobody was elected, or the leader replicated before it was cut off.
    """

    def voted(view: View) -> tuple[str, str] | None:
        replicas = view.replicas(old.group)
        standing = [n for n in pair if n in replicas and replicas[n].role in ("candidate", "leader")]
        if len(standing) != 1 or len(replicas) != 2 or standing[0] not in pair:
            return None
        voter = pair[1] if standing[0] == pair[0] else pair[0]
        risen = replicas[voter].term == replicas[standing[0]].term > old.term
        return (standing[0], voter) if risen else None

    found = await scene.until(voted, of=pair)
    if found is None:
        return None
    leader, voter = found
    await scene.act(Partition(grudge([*cut, (leader, voter)])))
    elected = await scene.new_leader(old.group, old.term, (leader,), patience_s=0.1)
    if elected is None:
        return None
    heard = (await scene.view([voter])).replicas(old.group).get(voter)
    return Stillborn(leader, voter, elected.term) if heard is not None and heard.last_term < elected.term else None


async def old_entry(scene: Scene, first: Leader, second: Stillborn) -> bool:
    """Wait until the voter's log grew by entries of the first leader's old term only; False if newer ones came too."""
    before = (await scene.view([second.voter])).replicas(first.group).get(second.voter)
    if before is None:
        return False

    def grown(view: View) -> bool | None:
        replica = view.replicas(first.group).get(second.voter)
        if replica is None or replica.last_index <= before.last_index:
            return None
        return replica.last_term <= first.term

    return bool(await scene.until(grown, of=(second.voter,)))


async def growth(scene: Scene, leader: Leader) -> None:
    """Wait until the leader has appended something more."""

    def grown(view: View) -> bool | None:
        replica = view.replicas(leader.group).get(leader.node)
        return True if replica is not None and replica.last_index > leader.last_index else None

    await scene.until(grown, of=(leader.node,), patience_s=1.0)


def others(leader: Leader) -> list[str]:
    """The leader's peers."""
    return [name for name in leader.voters if name != leader.node]


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
        "lets one majority of a group elect, restarts the voter at once, and lets the other majority elect",
        frozenset({"partition", "kill", "status"}),
        "#2f8f7f",
    ),
    "power-cut": ScriptInfo(
        power_cut,
        "kills all replicas of a group, or its leader and a majority, just as its log has grown",
        frozenset({"partition", "kill", "status"}),
        "#b5651d",
    ),
    "figure-8": ScriptInfo(
        figure_eight,
        "walks a group through figure 8 of the Raft paper: leaders cut off with tails that were never replicated",
        frozenset({"partition", "status"}),
        "#4b6cb7",
    ),
}

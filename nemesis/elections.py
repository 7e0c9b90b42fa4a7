"""Scripts that take elections apart: leaders kept to themselves from the start, majorities that rotate, a comeback.

They are built on the lonely leader: a node that was elected and could not yet say a word to anybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nemesis.faults import NO_CUT, Bounce, Partition, Pause, Restart
from nemesis.grudges import Grudge, grudge, one_way, shuffle, split
from nemesis.scene import Scene
from nemesis.view import Leader, View

STANDING = ("candidate", "leader")
ROUNDS = 20
"""How often a pair is watched closely before it is given up."""


async def lonely_leader(scene: Scene) -> None:
    """Cut off a group's leader and make the next one lonely; clients find it, and the others elect a third."""
    while (old := await scene.group()) is not None:
        cut = split([old.node], old.others)
        await scene.act(Partition(cut))
        born = await make_lonely(scene, old, old.others, cut)
        if born is not None:
            rest = [name for name in old.voters if name != born.leader]
            await scene.hold(0.2, 0.8)
            await scene.act(Partition(split([born.leader], rest)))
            await served(scene, old.group, born.term, rest)
        await scene.act(NO_CUT)
        await scene.hold(0.3, 1.5)


async def rotate_majority(scene: Scene) -> None:
    """Let one majority of a group elect a lonely leader, restart the voter, and let the other majority elect.

    The voter's promise of the first election (Ongaro 2014, §3.8) must hold in the second, which is for the same term:
    the third node is kept from hearing of it, and stands as soon as the voter's silence after its restart is over.
    """
    while (old := await scene.group()) is not None:
        member, outcast = shuffle(old.others, scene.entropy)
        await level(scene, old)
        await scene.act(Bounce((old.node,)))
        cut = split([outcast], [old.node, member])
        await scene.act(Partition(cut))
        born = await make_lonely(scene, old, (old.node, member), cut)
        if born is not None:
            await scene.act(Pause((outcast,)))
            await scene.act(Bounce((born.voter,)))
            await restless(scene, old.group, born)
            await scene.act(Partition(split([born.leader], [born.voter, outcast])))
            await scene.act(Restart((outcast,)))
            await served(scene, old.group, born.term - 1, (born.voter, outcast))
        await scene.act(NO_CUT)
        await scene.hold(0.5, 1.5)


async def leader_returns(scene: Scene) -> None:
    """Bring back a leader that was cut off with a tail of its own, before and after a lonely leader of a later term.

    As figure 3.7 of Ongaro 2014 has it: the first leader is elected again, and can say no more as soon as a follower
    has the first entries of its tail (what the follower answers still arrives); then the lonely one is let go, and
    overwrites them.
    """
    while (first := await scene.group()) is not None:
        cut = split([first.node], first.others)
        await scene.act(Partition(cut))
        second = await make_lonely(scene, first, first.others, cut)
        if second is not None:
            alone = split([second.leader], [first.node, second.voter])
            await scene.act(Partition(alone))
            if await old_entry(scene, first, second):
                await scene.act(Partition(grudge([*alone, (first.node, second.voter)])))
                await scene.hold(0.003, 0.03)
                await scene.act(Partition(cut))
                await served(scene, first.group, second.term, first.others)
        await scene.act(NO_CUT)
        await scene.hold(0.5, 1.5)


@dataclass(frozen=True, slots=True)
class Lonely:
    """A leader that nobody has heard of, not even the voter that elected it."""

    leader: str
    voter: str
    term: int


async def make_lonely(scene: Scene, old: Leader, pair: Sequence[str], cut: Grudge) -> Lonely | None:
    """Wait until one of a pair asks the other for its vote, and let no more out of it, in addition to `cut`.

    The cut is one-way until it is elected, for the vote must come in. None if nobody was elected, or the leader could
    speak before it was cut off.
    """
    found = await vote_asked(scene, old, pair)
    if found is None:
        return None
    leader, voter = found
    others = [name for name in old.voters if name != leader]
    await scene.act(Partition(grudge([*cut, *one_way(old.voters, leader, outbound=True)])))
    elected = await scene.new_leader(old.group, old.term, (leader,), patience_s=0.1)
    if elected is None:
        return None
    await scene.act(Partition(grudge([*cut, *split([leader], others)])))
    replica = (await scene.view([voter])).replicas(old.group).get(voter)
    return Lonely(leader, voter, elected.term) if replica is not None and replica.last_term < elected.term else None


async def vote_asked(scene: Scene, old: Leader, pair: Sequence[str]) -> tuple[str, str] | None:
    """Wait until one of a pair stands and the other has heard of it: both, or None.

    From the moment that anybody is restless, it is watched closely: what matters takes a few network delays.
    """

    def restless(view: View) -> bool | None:
        replicas = view.replicas(old.group)
        return any(replicas[name].role != "follower" for name in pair if name in replicas) or None

    def asked(view: View) -> tuple[str, str] | None:
        replicas = view.replicas(old.group)
        standing = [name for name in pair if name in replicas and replicas[name].role in STANDING]
        if len(standing) != 1 or len(replicas) != 2:
            return None
        voter = pair[1] if standing[0] == pair[0] else pair[0]
        heard = replicas[voter].term == replicas[standing[0]].term > old.term
        return (standing[0], voter) if heard else None

    for _ in range(ROUNDS):
        if not await scene.until(restless, of=pair):
            return None
        if found := await scene.until(asked, of=pair, patience_s=0.05, eyes=4):
            return found
    return None


async def level(scene: Scene, leader: Leader) -> None:
    """Wait a little until all replicas of the leader's group have logs of the same length."""

    def same(view: View) -> bool | None:
        replicas = view.replicas(leader.group).values()
        equal = len(replicas) == len(leader.voters) and len({status.last_index for status in replicas}) == 1
        return True if equal else None

    await scene.until(same, of=leader.voters, patience_s=0.5)


async def restless(scene: Scene, group: str, born: Lonely) -> None:
    """Wait until the voter would stand itself: its silence after a restart is over then, so that it votes again."""

    def stands(view: View) -> bool | None:
        replica = view.replicas(group).get(born.voter)
        return True if replica is not None and replica.role != "follower" else None

    await scene.until(stands, of=(born.voter,))


async def served(scene: Scene, group: str, above: int, among: Sequence[str]) -> None:
    """Wait for a leader with a lease (among these nodes, in a term above the given one), and let clients use it."""

    def serves(view: View) -> Leader | None:
        leader = view.leader(group)
        return leader if leader is not None and leader.term > above and leader.lease_valid else None

    if await scene.until(serves, of=among):
        await scene.hold(0.1, 0.5)


async def old_entry(scene: Scene, first: Leader, second: Lonely) -> bool:
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

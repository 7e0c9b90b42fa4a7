"""Scripts that take elections apart: leaders kept to themselves from the start, majorities that rotate, a comeback.

They are built on the lonely leader: a node that was elected and could not yet say a word to anybody. Nothing here has
to be quick: voters are held at the moment that matters, and let go when the cuts around it are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.protocols import Tuning
from nemesis.faults import NO_CUT, Bounce, Flood, Hold, NetworkPartition, Pause, Restart
from nemesis.grudges import Grudge, grudge, one_way, shuffle, split
from nemesis.observe import TSERVER, Leader, View
from nemesis.scripts.scene import Scene
from nemesis.targets import describe

LONG_TAIL = 80
"""Entries that don't go in one message: more than an AppendEntries carries (`max_batch_entries`)."""

FLOODS = 4
"""How often a leader is asked for them, before the others stand for election."""

CRASHED_VOTERS_SHARE = 0.3
"""How often the voters of a rotating majority are killed while they grant their vote, not after it."""


def long_tails(tuning: Tuning) -> bool:
    """Whether a leader that can commit nothing takes in clearly more entries than one message to a follower carries."""
    return tuning.taken_in >= 2 * tuning.message


async def new_leader_partition(scene: Scene) -> None:
    """Cut off a group's leader, then each leader newly elected, moving the cut without a quiet moment between."""
    leader, seen = await scene.group(), None
    while leader is not None:
        await scene.hold(0.0, 0.01)
        await scene.act(NetworkPartition(split([leader.node], leader.others)), seen)
        await scene.hold(0.5, 3.0)
        if scene.entropy.random() < 0.2:
            await scene.act(NO_CUT)
        leader = await scene.new_leader(leader.group, leader.term) or await scene.leader(leader.group)
        seen = None if leader is None else describe(leader)


async def lonely_leader(scene: Scene) -> None:
    """Cut off a group's leader and make the next one lonely; clients find it, and the others elect a third."""
    while (old := await scene.group()) is not None:
        cut = split([old.node], old.others)
        await scene.act(NetworkPartition(cut))
        born = await make_lonely(scene, old, old.others, cut)
        if born is not None:
            rest = [name for name in old.voters if name != born.leader]
            await scene.hold(0.2, 0.8)
            await scene.act(NetworkPartition(split([born.leader], rest)))
            await served(scene, old.group, born.term, rest)
        await scene.act(NO_CUT)
        await scene.hold(0.3, 1.5)


async def rotate_majority(scene: Scene) -> None:
    """Let one majority of a group elect a lonely leader, restart its voters, and let another majority elect.

    The voters' promise of the first election (Ongaro 2014, §3.8) must hold in the second, which is for the same term:
    the outcasts are kept from hearing of it, and stand as soon as the voters' silence after their restart is over.
    Some voters are killed before their promise is durable: then nobody may have heard of it.
    """
    while (old := await scene.group()) is not None:
        peers = shuffle(old.others, scene.entropy)
        outcasts, members = peers[: len(old.voters) // 2], peers[len(old.voters) // 2 :]
        await level(scene, old)
        await scene.act(Bounce((old.node,)))
        cut = split(outcasts, [old.node, *members])
        await scene.act(NetworkPartition(cut))
        crash = scene.entropy.random() < CRASHED_VOTERS_SHARE
        born = await make_lonely(scene, old, (old.node, *members), cut, crash)
        if born is not None:
            rest = [*born.voters, *outcasts]
            await scene.act(Pause(tuple(outcasts)))
            await scene.act(Bounce(born.voters))
            await restless(scene, old.group, born)
            await scene.act(NetworkPartition(split([born.leader], rest)))
            await scene.act(Restart(tuple(outcasts)))
            await served(scene, old.group, born.term - 1, rest)
        await scene.act(NO_CUT)
        await scene.hold(0.5, 1.5)


async def leader_returns(scene: Scene) -> None:
    """Bring back a leader that was cut off with a tail of its own, before and after a lonely leader of a later term.

    As figure 3.7 of Ongaro 2014 has it: the first leader is elected again, and can say no more as soon as others have
    the first entries of its tail (what they answer still arrives); then the lonely one is let go, and overwrites them.
    It is a tablet's: masters take no writes but clients' (`harness.protocols.Flooding`), too few for a long tail.
    """
    while (first := await scene.group(writable=True, role=TSERVER)) is not None:
        cut = split([first.node], first.others)
        await scene.act(Flood(first.node, first.group, 1))
        await scene.act(NetworkPartition(split([first.node], *([name] for name in first.others))))
        await lengthen(scene, first)
        await scene.act(Hold(first.others, "before_vote", first.group))
        await scene.act(NetworkPartition(cut))
        second = await elected_alone(scene, first, first.others, cut)
        if second is not None:
            alone = split([second.leader], [first.node, *second.voters])
            if await old_entries(scene, first, second, alone):
                await scene.hold(0.003, 0.03)
                await scene.act(NetworkPartition(cut))
                await served(scene, first.group, second.term, first.others, by=second.leader)
        await scene.act(NO_CUT)
        await scene.hold(0.5, 1.5)


async def lengthen(scene: Scene, leader: Leader) -> None:
    """Send writes until the leader's log is long enough, or grows no more; what comes at once with too many others may
    be refused. It takes longer than the others' patience with their leader: they must not see each other meanwhile."""
    before = last = await last_index(scene, leader)
    for _ in range(FLOODS):
        await scene.act(Flood(leader.node, leader.group, LONG_TAIL))
        now = await last_index(scene, leader)
        if now == last or now >= before + LONG_TAIL:
            return
        last = now


async def last_index(scene: Scene, leader: Leader) -> int:
    """Of the leader's log; 0 where it does not answer."""
    return (await scene.view((leader.node,))).last_index(leader.group, leader.node) or 0


@dataclass(frozen=True, slots=True)
class Lonely:
    """A leader that nobody has heard of, not even the voters that elected it."""

    leader: str
    voters: tuple[str, ...]
    term: int


async def make_lonely(
    scene: Scene, old: Leader, among: Sequence[str], cut: Grudge, crash: bool = False
) -> Lonely | None:
    """Let one of these nodes be elected by the others, which are held as they grant their vote, and say no more."""
    await scene.act(Hold(tuple(among), "before_vote", old.group))
    return await elected_alone(scene, old, among, cut, crash)


async def elected_alone(
    scene: Scene, old: Leader, among: Sequence[str], cut: Grudge, crash: bool = False
) -> Lonely | None:
    """The one of these nodes, to be held as they grant their vote, that the others elect; it can say no word to them.

    The cut, in addition to `cut`, is one-way until it is elected, for the votes must come in. None if nobody was
    elected. With `crash` the voters are left held, so that no vote can have come in.
    """
    found = await candidate(scene, old, among)
    if found is None:
        await scene.act(Restart(tuple(among)))
        return None
    leader, term = found
    voters = tuple(name for name in among if name != leader)
    others = [name for name in old.voters if name != leader]
    await scene.act(NetworkPartition(grudge([*cut, *one_way(old.voters, leader, outbound=True)])))
    if crash:
        return Lonely(leader, voters, term)
    await scene.act(Restart(tuple(among)))
    elected = await scene.new_leader(old.group, term - 1, (leader,), patience_s=2.0)
    await scene.act(NetworkPartition(grudge([*cut, *split([leader], others)])))
    if elected is None:
        return None
    heard = (await scene.view(voters)).replicas(old.group).values()
    return Lonely(leader, voters, elected.term) if all(status.last_term < elected.term for status in heard) else None


async def candidate(scene: Scene, old: Leader, among: Sequence[str]) -> tuple[str, int] | None:
    """Wait until votes are being granted that would make one of these the leader: who it is, and of which term."""
    held = await scene.stopped(among, len(old.voters) // 2)
    if not held:
        return None

    def standing(view: View) -> tuple[str, int] | None:
        replicas = view.replicas(old.group)
        found = [(name, status.term) for name, status in replicas.items() if status.role in ("candidate", "leader")]
        return found[0] if len(found) == 1 and found[0][1] > old.term else None

    return await scene.until(standing, [name for name in among if name not in held], patience_s=0.3)


async def level(scene: Scene, leader: Leader) -> None:
    """Wait a little until all voters of the leader's group have logs of the same length."""

    def same(view: View) -> bool | None:
        replicas = view.replicas(leader.group).values()
        equal = len(replicas) == len(leader.voters) and len({status.last_index for status in replicas}) == 1
        return True if equal else None

    await scene.until(same, of=leader.voters, patience_s=0.5, poll_s=0.005)


async def restless(scene: Scene, group: str, born: Lonely) -> None:
    """Wait until a voter would stand itself: its silence after a restart is over then, so that it votes again."""

    def stands(view: View) -> bool | None:
        replicas = view.replicas(group)
        return any(replicas[name].role != "follower" for name in born.voters if name in replicas) or None

    await scene.until(stands, of=born.voters)


async def served(scene: Scene, group: str, above: int, among: Sequence[str], by: str | None = None) -> None:
    """Wait for a leader with a lease among these nodes, in a term above the given one, and let clients use it.

    That is the core of a script, if the leader is the one that was to be (`by`).
    """

    def serves(view: View) -> Leader | None:
        leader = view.leader(group)
        return leader if leader is not None and leader.term > above and leader.lease_valid else None

    leader = await scene.until(serves, of=among)
    if leader is None:
        return
    if by in (None, leader.node):
        await scene.reached(leader=leader.node, group=group, term=leader.term)
    await scene.hold(0.1, 0.5)


async def old_entries(scene: Scene, first: Leader, second: Lonely, alone: Grudge) -> bool:
    """Let the first leader return, and cut it off as soon as others hold entries of its old term, and no newer ones.

    They are held as they take them in: what they answer comes when they are let go, after the cut.
    """
    before = {
        name: status.last_index for name, status in (await scene.view(second.voters)).replicas(first.group).items()
    }
    await scene.act(Hold(second.voters, "before_accept", first.group))
    await scene.act(NetworkPartition(alone))
    held = await scene.stopped(second.voters, len(first.voters) // 2)
    await scene.act(NetworkPartition(grudge([*alone, *((first.node, name) for name in second.voters)])))
    await scene.act(Restart(second.voters))

    def grown(view: View) -> bool | None:
        replicas = view.replicas(first.group)
        if any(name not in replicas or replicas[name].last_index <= before.get(name, 0) for name in held):
            return None
        return all(replicas[name].last_term <= first.term for name in held)

    return bool(held) and bool(await scene.until(grown, of=held, patience_s=1.0))

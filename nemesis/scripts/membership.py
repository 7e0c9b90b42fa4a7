"""The membership nemesis: an operator changes who votes in a group, while it serves and while its leaders change.

Changes are compare-and-sets on the configuration that is in force, as operators' tools make them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.ports.api import node_of
from harness.protocols import Tuning
from harness.run.allowances import LONGEST, RepairProgress
from nemesis.faults import NO_CUT, Bounce, Change, Hold, NetworkPartition, Restart
from nemesis.grudges import grudge, isolate, split
from nemesis.observe import Leader, View, names
from nemesis.scripts.elections import candidate, served
from nemesis.scripts.scene import LEAST_VOTERS, Scene

QUICK = 16
"""Entries under way to one follower, which it gets in a round trip."""

PATIENT_S = 8.0
"""For a change that can be carried out; a new voter has to catch up."""
BRIEF_S = 2.0
"""For one that the end of a cut completes: masters leave a voter too many for some seconds only."""
IMPATIENT_S = 0.3
"""For a change that can't be, or must not."""

ELECTIONS = 2
"""How often a successor of the leader that is cut off is waited for."""

DIVIDED_SHARE = 0.5
"""How often two leaders are asked for a change each; else members come and go."""


@dataclass(frozen=True, slots=True)
class Members:
    """A group's configuration, committed, as its leader has it: server ids, and the position that set it."""

    leader: Leader
    voters: tuple[str, ...]
    learners: tuple[str, ...]
    position: tuple[int, int]


def voters_come(tuning: Tuning) -> bool:
    """Whether a server is to spare, and a new member gets entries clearly faster than clients write."""
    return tuning.spare_servers > 0 and tuning.under_way >= QUICK


async def membership(scene: Scene) -> None:
    """Add learners, promote them, remove voters, with leaders cut off and restarted in between."""
    while (leader := await scene.group()) is not None:
        group = leader.group
        if scene.entropy.random() < DIVIDED_SHARE:
            await divided(scene, group)
        else:
            await come_and_go(scene, group)
        await scene.act(NO_CUT)
        await restore(scene, group)
        await scene.hold(0.3, 1.0)


async def come_and_go(scene: Scene, group: str) -> None:
    """One server becomes a voter, another one ceases to be; each is disturbed, or not."""
    added = await add_voter(scene, group)
    now = await members(scene, group)
    if added is None or now is None or len(now.voters) <= LEAST_VOTERS:
        return
    leaves = now.leader.node if scene.entropy.random() < 0.3 else scene.entropy.choice(now.voters)
    server = next(each for each in now.voters if node_of(each) == node_of(leaves))
    await disturb(scene, now)
    now = await members(scene, group) or now
    # A leader that is cut off can't commit it: what it has appended is committed when the cut ends.
    await change(scene, now, "remove", server, BRIEF_S)
    await scene.act(NO_CUT)
    after = await members(scene, group)
    if after is not None and server not in after.voters:
        await scene.reached(group=group, added=added, removed=server, voters=list(after.voters))


async def divided(scene: Scene, group: str) -> None:
    """Ask a leader that is cut off for one change, and its successor for another before it has committed anything.

    Of four voters each change leaves three, and two majorities of two that have nobody in common: the successor must
    refuse (Ongaro, raft-dev, July 10th 2015). Then the first leader returns, with the change that it kept to itself.
    Nodes of other roles are kept from it: masters that hear of its removal would have its replica deleted.
    """
    now = await four_voters(scene, group)
    if now is None:
        return
    first, others = now.leader, now.leader.others
    dropped = scene.entropy.choice([each for each in now.voters if node_of(each) in others])
    strangers = other_roles(scene, first.node)
    away = split([first.node], [*others, *strangers])
    await scene.act(NetworkPartition(away))
    await change(scene, now, "remove", dropped, IMPATIENT_S)
    second = await stands(scene, first)
    if second is None:
        return
    deaf = next(name for name in others if name not in (second, node_of(dropped)))
    partner = next(name for name in others if name not in (second, deaf))
    await scene.act(NetworkPartition(grudge([*away, (second, deaf)])))
    await scene.act(Restart(others))
    elected = await scene.new_leader(group, first.term, (second,), patience_s=2.0)
    if elected is not None:
        mine = next(each for each in now.voters if node_of(each) == first.node)
        await change(scene, replace(now, leader=elected), "remove", mine, IMPATIENT_S)
        await scene.act(NetworkPartition(split([first.node, deaf], [second, partner, *strangers])))
        await served(scene, group, elected.term, (first.node, deaf))
        await scene.hold(0.3, 1.5)


async def stands(scene: Scene, first: Leader) -> str | None:
    """The follower that all the others are about to elect, held as they grant their votes; None if there is none.

    Votes may be split: two stand at once, and the only voter left is held by then. Let go it elects one of them.
    """
    for _ in range(ELECTIONS):
        await scene.act(Hold(first.others, "before_vote", first.group))
        found = await candidate(scene, first, first.others)
        if found is not None:
            return found[0]
        await scene.act(Restart(first.others))
    return None


def other_roles(scene: Scene, name: str) -> list[str]:
    """The nodes of other roles than this node's."""
    nodes = scene.observer.database.nodes
    own = next(node.role for node in nodes if node.name == name)
    return [node.name for node in nodes if node.role != own]


async def four_voters(scene: Scene, group: str) -> Members | None:
    """The configuration once it has four voters, one more than before if need be."""
    now = await members(scene, group)
    if now is not None and len(now.voters) == LEAST_VOTERS:
        await add_voter(scene, group)
        now = await members(scene, group)
    return now if now is not None and len(now.voters) == LEAST_VOTERS + 1 else None


async def add_voter(scene: Scene, group: str) -> str | None:
    """Have a server of the same role become a voter: its id; None if it did not, or there is none to spare.

    Where every node is a voter one of them leaves first and comes back; of the least that there may be none does.
    """
    now = await members(scene, group)
    if now is None:
        return None
    server = spare(scene, now)
    if server is None:
        if len(now.voters) <= LEAST_VOTERS:
            return None
        server = scene.entropy.choice([each for each in now.voters if node_of(each) != now.leader.node])
        await change(scene, now, "remove", server)
        now = await members(scene, group) or now
    await change(scene, now, "add-learner", server)
    await disturb(scene, now)
    await scene.act(NO_CUT)
    return server if await promoted(scene, await members(scene, group) or now, server) else None


async def promoted(scene: Scene, now: Members, server: str) -> bool:
    """Ask for a learner's promotion, and again once it has what its leader had then, for as long as it comes nearer.

    Over slow links, an entry at a time, that takes longer than one request lasts.
    """
    group, nearing = now.leader.group, RepairProgress(scene.observer.environment.clock, PATIENT_S)
    while True:
        await change(scene, now, "promote", server)
        after = await members(scene, group)
        if after is None or server not in after.learners:
            return after is not None and server in after.voters
        now = after
        if not await brought_up(scene, now, server, nearing):
            return False


async def brought_up(scene: Scene, now: Members, server: str, nearing: RepairProgress) -> bool:
    """Wait until a learner has what its leader's log has now; False where it is given up."""
    group, leader, node = now.leader.group, now.leader.node, node_of(server)
    goal = (await scene.view((leader,))).last_index(group, leader) or 0

    def seen(view: View) -> bool | None:
        lacked = max(0, goal - (view.last_index(group, node) or 0))
        nearing.note({server: lacked})
        return False if nearing.over() else True if lacked == 0 else None

    return bool(await scene.until(seen, (node,), LONGEST * PATIENT_S))


async def restore(scene: Scene, group: str) -> None:
    """Bring the group back to three voters and no learners, as far as that can be done."""
    for _ in range(4):
        now = await members(scene, group)
        if now is None or (len(now.voters) == LEAST_VOTERS and not now.learners):
            return
        if now.learners:
            await change(scene, now, "remove", now.learners[0])
        elif len(now.voters) > LEAST_VOTERS:
            followers = [each for each in now.voters if node_of(each) != now.leader.node]
            await change(scene, now, "remove", scene.entropy.choice(followers))
        else:
            await add_voter(scene, group)


async def disturb(scene: Scene, now: Members) -> None:
    """Restart the leader, cut it or another voter off for a while, or leave them alone."""
    way = scene.entropy.choice(("nothing", "bounce", "leader", "voter"))
    victim = now.leader.node if way != "voter" else scene.entropy.choice(now.leader.others)
    if way == "bounce":
        await scene.act(Bounce((victim,)))
    elif way != "nothing":
        await scene.act(NetworkPartition(isolate(now.leader.voters, [victim])))
        await scene.hold(0.1, 1.5)


async def change(scene: Scene, now: Members, kind: str, server: str, timeout_s: float = PATIENT_S) -> None:
    """Ask the leader for a change of this configuration; whether it was made, statuses tell."""
    leader = now.leader
    await scene.act(Change(leader.node, leader.group, kind, server, now.position, timeout_s))


async def members(scene: Scene, group: str) -> Members | None:
    """Wait for a leader with a lease whose configuration is committed."""

    def seen(view: View) -> Members | None:
        leader = view.leader(group)
        if leader is None or not leader.lease_valid:
            return None
        status = view.replicas(group)[leader.node]
        if status.config_index > status.commit_index:
            return None
        return Members(leader, status.voters, status.learners, (status.config_term, status.config_index))

    return await scene.until(seen)


def spare(scene: Scene, now: Members) -> str | None:
    """A random node of the leader's role that has no replica of the group."""
    nodes = scene.observer.database.nodes
    role = next(node.role for node in nodes if node.name == now.leader.node)
    held: Sequence[str] = [node_of(each) for each in (*now.voters, *now.learners)]
    free = [name for name in names(nodes, role) if name not in held]
    return scene.entropy.choice(free) if free else None

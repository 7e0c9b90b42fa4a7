"""Scripts about what a leader master has decided, and nobody has heard of yet: its calls, and its changes.

What it decides from is old by the time it acts. So a call must carry what it was decided on (M9), and a change must
show to nobody before it is committed (M6).
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.capabilities import Capability
from harness.ports.api import node_of
from nemesis.faults import NO_CUT, Change, Hold, Kill, NetworkPartition, PointDelay, Restart
from nemesis.grudges import grudge
from nemesis.observe import MASTER, TSERVER, Leader, View, names
from nemesis.scripts.scene import LEAST_VOTERS, Scene

TABLES_MADE = Capability.TABLES_MADE
"""The capability of a database on which the workload makes tables while it runs."""

EVICTED_S = 4.5
"""How long a dead replica is given to be evicted, before an operator removes it."""

CALLED_S = 8.0
"""How long the leader master is given to ask for another replica, and its successor to see the tablet whole again."""

CHANGE_S = 2.0
BORN_S = 4.0
DELAY_S = 1.0
"""For how long a change of the catalog waits; clients' attempts have to outlive it."""


@dataclass(frozen=True, slots=True)
class _Lack:
    """A tablet that lacks a replica: its leader, and the server on which the replica was."""

    leader: Leader
    server: str


async def late_call(scene: Scene) -> None:
    """Stop the leader master as it is about to ask for a replica; let it go on when its successor has seen to that.

    The tablet server that was lost comes back in between, so the two have reason to choose differently.
    """
    while (lack := await lacking(scene)) is not None:
        master = (await scene.view()).leaders(MASTER)
        if master:
            old = master[0]
            await scene.act(Hold((old.node,), "master.before_change", ""))
            held = await scene.stopped((old.node,), 1, CALLED_S)
            await scene.act(Restart((node_of(lack.server),)))
            if held:
                await superseded(scene, old, lack)
            await scene.act(Restart((old.node,)))
        await scene.act(Restart((node_of(lack.server),)))
        await scene.hold(1.0, 2.5)


async def lacking(scene: Scene) -> _Lack | None:
    """Kill a follower of a tablet, and wait until its group has removed it; else an operator does. None: no tablet."""
    leader = await scene.group(writable=True, role=TSERVER)
    if leader is None:
        return None
    victim = scene.entropy.choice(leader.others)
    await scene.act(Kill((victim,)))

    def removed(view: View) -> tuple[str, ...] | None:
        return None if victim in view.voters(leader.group) else view.voters(leader.group) or None

    server = await _server_of(scene, leader.group, victim)
    if await scene.until(removed, patience_s=EVICTED_S) is None:
        now = await scene.leader(leader.group)
        status = None if now is None else (await scene.view()).replicas(leader.group).get(now.node)
        if now is not None and status is not None:
            position = (status.config_term, status.config_index)
            await scene.act(Change(now.node, leader.group, "remove", server, position, CHANGE_S))
    return _Lack(leader, server)


async def _server_of(scene: Scene, group: str, node: str) -> str:
    replicas = (await scene.view()).replicas(group).values()
    known = (voter for status in replicas for voter in status.voters if node_of(voter) == node)
    return next(known, node)


async def superseded(scene: Scene, old: Leader, lack: _Lack) -> None:
    """Wait until another master leads, and the tablet has as many voters as it should, committed."""
    group = lack.leader.group
    born = await scene.new_leader(old.group, old.term, old.others)

    def whole(view: View) -> tuple[str, ...] | None:
        leader = view.leader(group)
        status = None if leader is None else view.replicas(group).get(leader.node)
        if status is None or status.config_index > status.commit_index or status.learners:
            return None
        return status.voters if len(status.voters) >= LEAST_VOTERS else None

    voters = await scene.until(whole, patience_s=CALLED_S) if born is not None else None
    if born is not None and voters is not None:
        await scene.reached(held=old.node, leader=born.node, term=born.term, group=group, voters=list(voters))


async def unheard_tablets(scene: Scene) -> None:
    """Keep from the leader master that tablets have come up; have its changes wait as it puts others in their place.

    Clients go on to ask it: nothing of a change may show before it is committed.
    """
    while (masters := await scene.until(lambda view: view.leaders(MASTER) or None)) is not None:
        leader, before = masters[0], (await scene.view()).groups(TSERVER)
        tservers = names(scene.observer.database.nodes, TSERVER)
        await scene.act(NetworkPartition(grudge((name, leader.node) for name in tservers)))

        def born(view: View, before: tuple[str, ...] = before) -> tuple[str, ...] | None:
            return tuple(group for group in view.groups(TSERVER) if group not in before) or None

        fresh = await scene.until(born, patience_s=BORN_S)
        await scene.hold(0.3, 1.0)
        await scene.act(PointDelay(leader.node, "master.before_commit", DELAY_S))
        await scene.hold(1.0, 1.5 * DELAY_S)
        if fresh is not None:
            await scene.reached(leader=leader.node, term=leader.term, tablets=list(fresh))
        await scene.hold(0.5, 1.5)
        await scene.act(PointDelay(leader.node, "master.before_commit", 0.0))
        await scene.act(NO_CUT)
        await scene.hold(0.5, 2.0)

"""Masters that lose their place: an operator replaces them (G1, G7), or another cluster's stand at their addresses.

What strangers at the addresses of our masters say must reach nobody, and harm nothing (M9, G9). They are in effect once
they answer one of their own, one of them leads them, and our masters there don't answer us. Whether our tablet servers
call there at all need not be arranged: they send heartbeats to these addresses all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from harness.capabilities import Capability
from harness.errors import HarnessError
from harness.ports.api import node_of
from harness.ports.machines import ProcessState
from harness.protocols import GroupStatus, MasterMembership, NodeStatus, Supplantable
from harness.run.allowances import RepairProgress
from nemesis.kinds.api import Claims, Family, FaultKind, FaultPlan, Moment, Variant, all_to_the_end, disks
from nemesis.kinds.damage import REPLACEABLE_MASTERS
from nemesis.kinds.roles import MASTERS
from nemesis.observe import MASTER, DatabaseObserver, Sight, View, names
from nemesis.operator import behind, spareable
from nemesis.targets import describe

LEAVING = "taken out of the masters' group"
LEAST_VOTERS = 3
"""The floor: masters are never asked to be fewer."""

CALL_S = 4.0
START_S = 20.0
"""How long a server with a new disk may take to answer, and its group to take it in: containers start slowly."""

REPAIR_S = 30.0
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class ReplaceMasters:
    """The voters of the masters' group on the nodes `remove` leave it one by one, each after a node of `add` has joined
    (None: nobody). With `lose` the nodes' processes are killed before, and come back with empty disks."""

    remove: tuple[str, ...]
    add: tuple[str | None, ...]
    lose: bool = False

    def describe(self, nodes: tuple[str, ...]) -> str:
        if self.lose:
            return f"wipe the disk of {' '.join(self.remove)} and put the new server in the lost one's place"
        steps = zip(self.remove, self.add, strict=True)
        return ", then ".join(f"remove {old}" if new is None else f"replace {old} by {new}" for old, new in steps)

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in nodes if name in self.remove)


@dataclass(frozen=True, slots=True)
class _Done:
    """What an instance did: the server ids that were to leave, and the nodes that were masters before."""

    action: ReplaceMasters
    gone: tuple[str, ...]
    masters: tuple[str, ...]


class MasterChanges:
    """See the module; the nodes that leave are claimed, so that nobody else takes another one meanwhile."""

    actions: ClassVar[tuple[type, ...]] = (ReplaceMasters,)

    def __init__(self, observer: DatabaseObserver, claims: Claims) -> None:
        self._observer, self._database, self._claims = observer, observer.database, claims
        self._done: dict[int, _Done] = {}
        self._healed: dict[int, _Done] = {}

    def instances(self) -> frozenset[int]:
        return frozenset(self._done)

    async def carry_out(self, instance: int, action: ReplaceMasters) -> None:
        taken = self._claims.take(instance, await self._observer.living(action.remove), LEAVING)
        if taken != action.remove:
            for name in taken:
                self._claims.release(name)
            return
        view = await self._observer.view()
        servers = {name: _server_id(view, name) for name in action.remove}
        done = _Done(action, tuple(servers.values()), view.voters(_group(view)))
        self._done[instance] = done
        for old, new in zip(action.remove, action.add, strict=True):
            if action.lose:
                await self._lose(old)
            await self._insist(new, servers[old])

    async def look(self, instance: int) -> Sight:
        done = self._done[instance]
        voters = _voters(await self._observer.view())
        met = bool(voters) and not any(server in voters for server in done.gone)
        return Sight(met and len(voters) >= LEAST_VOTERS, {"voters": list(voters), "removed": list(done.gone)})

    async def undo(self, instance: int) -> None:
        """Ask until the group is whole again, or it comes no nearer to that."""
        done, clock = self._done[instance], self._observer.environment.clock
        for name in done.action.remove if done.action.lose else ():
            await self._database.start(name)
        nearing = RepairProgress(clock, REPAIR_S)
        while not nearing.over():
            view = await self._observer.view()
            step = next_step(view, done.masters)
            if step is None:
                break
            nearing.note({(group, f"{step}"): behind(view, group) for group in view.groups(MASTER)})
            await self._ask(*step)
            await clock.sleep(POLL_S)
        for name in done.action.remove:
            self._claims.release(name)
        self._healed[instance] = self._done.pop(instance)

    async def look_gone(self, instance: int) -> Sight:
        done = self._healed.get(instance)
        if done is None:
            return Sight(True)
        view = await self._observer.view()
        step = next_step(view, done.masters)
        lacking: dict[str, Any] = {} if step is None else {"lacking": list(step)}
        return Sight(step is None, {"voters": list(_voters(view)), **lacking}, "database")

    def forget(self, instance: int) -> None:
        self._healed.pop(instance, None)

    async def _lose(self, name: str) -> None:
        """Its disk goes, and it comes back as another server."""
        able = disks(self._database)
        await self._database.kill(name)
        await able.wipe(name)
        await self._database.start(name)
        await self._observer.until(lambda: self._answers(name), START_S)

    async def _answers(self, name: str) -> Sight:
        return Sight(await self._database.status(name) is not None)

    async def _insist(self, add: str | None, remove: str | None) -> None:
        """Ask until it is done, or time is over."""
        clock = self._observer.environment.clock
        deadline_ns = clock.monotonic_ns() + int(START_S * 1e9)
        while await self._ask(add, remove) is not None and clock.monotonic_ns() < deadline_ns:
            await clock.sleep(POLL_S)

    async def _ask(self, add: str | None, remove: str | None) -> str | None:
        """None once it is done, else why it was not."""
        if not isinstance(self._database, MasterMembership):
            raise HarnessError(f"the masters of {self._database.name} can't be changed")
        return await self._database.change_masters(add, remove, CALL_S)


def next_step(view: View, masters: tuple[str, ...]) -> tuple[str | None, str | None] | None:
    """(The node to add, the server id to remove) that comes next, so that these nodes are the voters; None: nothing.

    Where nothing can be told, or asked, it is to ask nobody for nothing, which changes nothing.
    """
    status = _leader_status(view)
    if status is None or status.config_index > status.commit_index:
        return None, None
    for name in masters:
        if name not in view.statuses:
            return None, None
        server = _server_id(view, name)
        if server not in status.voters:
            lost = next((each for each in status.voters if node_of(each) == name), None)
            return name, lost
    present = [_server_id(view, name) for name in masters]
    extra = next((each for each in (*status.voters, *status.learners) if each not in present), None)
    return None if extra is None else (None, extra)


def _leader_status(view: View) -> GroupStatus | None:
    leader = next(iter(view.leaders(MASTER)), None)
    return None if leader is None else view.replicas(leader.group)[leader.node]


def _voters(view: View) -> tuple[str, ...]:
    """Of the committed configuration, as the leader has it; none where that isn't known."""
    status = _leader_status(view)
    return () if status is None or status.config_index > status.commit_index else status.voters


def _group(view: View) -> str:
    return next(iter(view.leaders(MASTER))).group


def _server_id(view: View, name: str) -> str:
    status = view.statuses.get(name)
    return name if status is None else str(status.details.get("server_id", name))


def _whole(moment: Moment) -> bool:
    """Whether nothing else goes on, and all masters work: then one can be spared."""
    masters = names(moment.view.nodes, MASTER)
    voters = tuple(map(node_of, _voters(moment.view)))
    return not moment.busy and sorted(voters) == sorted(masters) and all(spareable(moment.view, m) for m in masters)


def _plan(whom: str, action: ReplaceMasters) -> Variant:
    """`action` with the chosen masters in it: each to be removed, and, of two, the first added before the second."""
    count = len(action.remove)

    def plan(moment: Moment) -> FaultPlan:
        if not _whole(moment):
            return FaultPlan(None, {"reason": "not every master can be spared"})
        choice = MASTERS[whom](moment, ())
        first = choice.targets[:1]
        others = [name for name in names(moment.view.nodes, MASTER) if name not in first]
        chosen = (*first, *moment.entropy.sample(others, count - 1)) if first else ()
        if len(chosen) < count:
            return FaultPlan(None, {"reason": "nobody leads the masters"})
        add = (chosen[0] if action.lose else None, *chosen[: count - 1])
        leader = next(iter(moment.view.leaders(MASTER)))
        change = replace(action, remove=chosen, add=add)
        return FaultPlan(change, {"leader": describe(leader)}, choice.roles, ends_roles=True)

    return Variant(plan, SPARE if not action.lose else frozenset(), least_nodes=3)


SPARE = frozenset({Capability.SPARE_MASTER})
_LOST = ReplaceMasters(("",), (None,), lose=True)
_REMOVED = ReplaceMasters(("",), (None,))
_REPLACED = ReplaceMasters(("", ""), (None, None))

MASTER_MEMBERSHIP = FaultKind(
    "master-membership",
    "masters join and leave their group: one whose disk is gone is replaced; of four and more, others too",
    "#8c7b1f",
    frozenset({"master-membership", REPLACEABLE_MASTERS, "disk", "kill", "status"}),
    {
        "follower-lost": _plan("follower", _LOST),
        "leader-lost": _plan("leader", _LOST),
        "leader-removed": _plan("leader", _REMOVED),
        "follower-removed": _plan("follower", _REMOVED),
        "leader-replaced": _plan("leader", _REPLACED),
        "follower-replaced": _plan("follower", _REPLACED),
    },
    alone=True,
)

FAMILY = Family(MasterChanges, (MASTER_MEMBERSHIP,))


SUPPLANTED = "its place taken by another cluster"


@dataclass(frozen=True, slots=True)
class Supplant:
    """The masters' processes on these nodes are killed, and masters of one other cluster take their places."""

    targets: tuple[str, ...]

    def describe(self, nodes: tuple[str, ...]) -> str:
        return f"put masters of another cluster in the place of {' '.join(self.targets)}"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return self.targets


class Strangers:
    """The nodes whose places each instance has given away."""

    actions: ClassVar[tuple[type, ...]] = (Supplant,)

    def __init__(self, observer: DatabaseObserver, claims: Claims) -> None:
        self._observer, self._database, self._claims = observer, observer.database, claims
        self._taken: dict[int, dict[str, int]] = {}
        self._given_back: dict[int, dict[str, int]] = {}

    def instances(self) -> frozenset[int]:
        return frozenset(self._taken)

    async def carry_out(self, instance: int, action: Supplant) -> None:
        taken = self._claims.take(instance, await self._observer.living(action.targets), SUPPLANTED)
        known = self._observer.incarnations
        if taken:
            self._taken[instance] = {name: known.get(name, -1) for name in taken}
            await all_to_the_end([self._database.kill(name) for name in taken])
            await self._places.supplant(taken)

    async def look(self, instance: int) -> Sight:
        taken = tuple(self._taken[instance])
        strangers, ours = await self._strangers(taken), await self._ours(taken)
        told = {name: "silent" if each is None else _role(each) for name, each in strangers.items()}
        led = any("leader" in each for each in told.values())
        met = led and "silent" not in told.values() and not any(ours.values())
        return Sight(met, {"strangers": told})

    async def undo(self, instance: int) -> None:
        await all_to_the_end([self._give_back(instance, name) for name in tuple(self._taken[instance])])
        del self._taken[instance]

    async def look_gone(self, instance: int) -> Sight:
        """No stranger answers, and our masters do, in a new life."""
        before = self._given_back.get(instance, {})
        if not before:
            return Sight(True)
        free = tuple(name for name in before if name not in self._claims.down())
        strangers, ours = await self._strangers(free), await self._ours(free)
        left = sorted(name for name, each in strangers.items() if each is not None)
        if left:
            return Sight(False, {"strangers": left})
        after = {name: -1 if each is None else each.incarnation for name, each in ours.items()}
        met = all(after[name] > before[name] for name in free)
        return Sight(met, {"incarnations": {name: [before[name], after[name]] for name in free}}, "database")

    def forget(self, instance: int) -> None:
        self._given_back.pop(instance, None)

    async def _give_back(self, instance: int, name: str) -> None:
        await self._places.restore_place(name)
        await self._database.start(name)
        self._claims.release(name)
        self._given_back.setdefault(instance, {})[name] = self._taken[instance].pop(name)

    async def _strangers(self, names: Sequence[str]) -> dict[str, NodeStatus | None]:
        """What strangers say of themselves in these places."""
        found = await asyncio.gather(*(self._places.stranger_status(name) for name in names))
        return dict(zip(names, found, strict=True))

    async def _ours(self, names: Sequence[str]) -> dict[str, NodeStatus | None]:
        """What our own nodes do."""
        return dict(zip(names, await asyncio.gather(*(self._own(name) for name in names)), strict=True))

    async def _own(self, name: str) -> NodeStatus | None:
        dead = await self._database.process_state(name) is ProcessState.DEAD
        return None if dead else await self._database.status(name)

    @property
    def _places(self) -> Supplantable:
        if not isinstance(self._database, Supplantable):
            raise HarnessError(f"the places of {self._database.name}'s nodes can't be taken")
        return self._database


def _role(status: NodeStatus) -> str:
    return ", ".join(f"{group.role} of term {group.term}" for group in status.groups)


def _taken(whom: str) -> Variant:
    def plan(moment: Moment) -> FaultPlan:
        choice = MASTERS[whom](moment, moment.busy)
        return FaultPlan(Supplant(choice.targets) if choice.targets else None, choice.evidence, choice.roles)

    return Variant(plan)


FOREIGN_CLUSTER = FaultKind(
    "foreign-cluster",
    "masters of another cluster answer at the addresses of ours: the leader's, a follower's, a majority's, all",
    "#6f4e9c",
    frozenset({"foreign-cluster", "kill", "status"}),
    {whom: _taken(whom) for whom in ("leader", "follower", "majority", "all")},
    alone=True,  # strangers that are cut off from each other lead nobody
)

STRANGERS = Family(Strangers, (FOREIGN_CLUSTER,))

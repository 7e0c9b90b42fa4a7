"""Disks that lose what was synced: a flipped bit, a file cut short, or everything; an operator replaces what is lost.

One node at a time is hit, while everybody else in its groups works: a minority of voters, which redundancy repairs.
Its process is killed first, and started again at the end of the fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from harness.capabilities import Capability
from harness.ports.machines import ProcessState
from harness.protocols import Damage as Place
from harness.protocols import DamageKind
from nemesis.kinds.api import Claims, Family, FaultKind, FaultPlan, Moment, Variant, disks
from nemesis.observe import DatabaseObserver, Sight, names
from nemesis.operator import Duty, duty_of, ends, lacking, replace_lost, spareable
from nemesis.targets import find_leader

DAMAGED = "disk damaged"
START_S = 5.0
"""How long a node that was started may take to answer, or to find that it can't run."""

REPAIR_S = 30.0

REPLACEABLE_VOTERS = Capability.REPLACEABLE_VOTERS
"""A tablet's replica that lost everything catches up with its group while clients write."""

REPLACEABLE_MASTERS = Capability.REPLACEABLE_MASTERS
"""Without one of the masters the others are still a quorum, which takes another one in."""


@dataclass(frozen=True, slots=True)
class DamageDisk:
    """The node's process is killed, and what its disk had synced is damaged at a random place."""

    node: str
    kind: DamageKind
    duty: Duty
    seed: int

    def describe(self, nodes: tuple[str, ...]) -> str:
        how = "flip a bit" if self.kind == "bit-flip" else "cut a file short"
        return f"kill -9 {self.node} and {how} on its disk"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return (self.node,)


@dataclass(frozen=True, slots=True)
class WipeDisk:
    """The node's process is killed, and everything on its disk is lost."""

    node: str
    duty: Duty

    def describe(self, nodes: tuple[str, ...]) -> str:
        return f"kill -9 {self.node} and wipe its disk"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return (self.node,)


@dataclass(slots=True)
class _Hit:
    """What was done to a node; `place` and `shows` (what is read there) of damage, neither of a disk that is empty."""

    node: str
    duty: Duty
    incarnation: int
    place: Place | None = None
    shows: str = ""
    evidence: dict[str, Any] | None = None


class DamagedDisks:
    """In effect: the process is dead, and its files read as they were left. Gone: the node is the voter it was."""

    actions: ClassVar[tuple[type, ...]] = (DamageDisk, WipeDisk)

    def __init__(self, observer: DatabaseObserver, claims: Claims) -> None:
        self._observer, self._database, self._claims = observer, observer.database, claims
        self._hits: dict[int, _Hit] = {}
        self._healed: dict[int, _Hit] = {}

    def instances(self) -> frozenset[int]:
        return frozenset(self._hits)

    async def carry_out(self, instance: int, action: DamageDisk | WipeDisk) -> None:
        if not self._claims.take(instance, await self._observer.living((action.node,)), DAMAGED):
            return
        known = self._observer.incarnations.get(action.node, -1)
        hit = self._hits[instance] = _Hit(action.node, action.duty, known)
        await self._database.kill(action.node)
        if isinstance(action, WipeDisk):
            await disks(self._database).wipe(action.node)
            hit.evidence = {"wiped": action.node}
        else:
            done = await disks(self._database).damage(action.node, action.kind, action.seed)
            if done is not None:
                hit.place, hit.shows = done[0], done[1].partition(" became ")[2]
                hit.evidence = {"file": hit.place.path, "at": hit.place.at, "read": done[1]}

    async def look(self, instance: int) -> Sight:
        hit = self._hits[instance]
        if await self._database.process_state(hit.node) is not ProcessState.DEAD:
            return Sight(False, {"reason": f"{hit.node} runs"})
        if hit.evidence is None:
            return Sight(False, {"reason": "nothing there could be damaged so"})
        shows = await disks(self._database).read_back(hit.node, hit.place)
        return Sight(shows == hit.shows, {**hit.evidence, "shows": shows})

    async def undo(self, instance: int) -> None:
        """Start the node; with an empty disk where it can't run on what it has; and replace what it lost."""
        hit = self._hits[instance]
        await self._database.start(hit.node)
        if await ends(self._observer, hit.node, START_S):
            await disks(self._database).wipe(hit.node)
            await self._database.start(hit.node)
        await replace_lost(self._observer, hit.duty, REPAIR_S)
        self._claims.release(hit.node)
        self._healed[instance] = self._hits.pop(instance)

    async def look_gone(self, instance: int) -> Sight:
        hit = self._healed.get(instance)
        if hit is None:
            return Sight(True)
        view = await self._observer.view()
        status = view.statuses.get(hit.node)
        newer = status is not None and status.incarnation > hit.incarnation
        left = lacking(view, hit.duty)
        server = None if status is None else status.details.get("server_id")
        return Sight(newer and not left, {"server": server, **({"lacking": left} if left else {})}, "database")

    def forget(self, instance: int) -> None:
        self._healed.pop(instance, None)


def _node(moment: Moment, whom: str) -> str | None:
    """A node whose loss can be repaired while nobody else is down."""
    roles = {"master": "master", "tserver": "tserver", "leaseholder": "tserver"}
    free = [] if moment.busy else list(names(moment.view.nodes, roles[whom]))
    able = [name for name in free if spareable(moment.view, name)]
    if whom != "leaseholder":
        return moment.entropy.choice(able) if able else None
    leader = find_leader(whom, moment.view, able, moment.entropy)
    return None if leader is None else leader.node


def _variant(whom: str, act: Callable[[str, Duty, Random], DamageDisk | WipeDisk]) -> Variant:
    def plan(moment: Moment) -> FaultPlan:
        node = _node(moment, whom)
        if node is None:
            return FaultPlan(None, {"reason": "no node can be spared"})
        return FaultPlan(act(node, duty_of(moment.view, node), moment.entropy))

    needs = REPLACEABLE_MASTERS if whom == "master" else REPLACEABLE_VOTERS
    return Variant(plan, frozenset({needs}), least_nodes=3)


def _damage(whom: str, kind: DamageKind) -> Variant:
    return _variant(whom, lambda node, duty, entropy: DamageDisk(node, kind, duty, entropy.getrandbits(53)))


def _wipe(whom: str) -> Variant:
    return _variant(whom, lambda node, duty, entropy: WipeDisk(node, duty))


_NEEDS = frozenset({"disk", "kill", "membership", "status"})

BIT_FLIP = FaultKind(
    "bit-flip",
    "kills a node and flips one bit of what its disk had synced; what it quarantines is replaced",
    "#7a1f5c",
    _NEEDS,
    {whom: _damage(whom, "bit-flip") for whom in ("leaseholder", "tserver", "master")},
    alone=True,
)

TRUNCATE = FaultKind(
    "truncate",
    "kills a node and cuts off a part of what its disk had synced; what it quarantines is replaced",
    "#94497a",
    _NEEDS,
    {whom: _damage(whom, "truncate") for whom in ("leaseholder", "tserver", "master")},
    alone=True,
)

WIPE = FaultKind(
    "wipe",
    "kills a node and wipes its disk; it comes back as another server, which takes the lost one's place",
    "#b3739c",
    _NEEDS,
    {whom: _wipe(whom) for whom in ("leaseholder", "master", "tserver")},
    alone=True,
)

FAMILY = Family(DamagedDisks, (BIT_FLIP, TRUNCATE, WIPE))

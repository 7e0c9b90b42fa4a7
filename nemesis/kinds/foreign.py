"""Another cluster's masters at the addresses of ours: what they say must reach nobody, and harm nothing (M9, G9).

In effect: the strangers answer one of their own, one of them leads them, and our masters there don't answer us. Whether
our tablet servers call there at all need not be arranged: they send heartbeats to these addresses all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from harness.errors import HarnessError
from harness.powers import Supplantable
from harness.protocols import NodeStatus, ProcessState
from nemesis.concurrently import all_to_the_end
from nemesis.kinds.api import Claims, Family, FaultKind, FaultPlan, Moment, Variant
from nemesis.kinds.roles import MASTERS
from nemesis.observe import DatabaseObserver, Sight

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

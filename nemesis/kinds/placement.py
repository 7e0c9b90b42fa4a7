"""Tables whose replicas are told to stand elsewhere, and then where they stood: they move one at a time meanwhile (R6).

In effect once masters have taken the wish up; gone when the first wish is taken up again and all replicas stand so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final

from harness.capabilities import Capability
from harness.errors import HarnessError
from harness.protocols import Relocatable
from nemesis.kinds.api import Claims, Family, FaultKind, FaultPlan, Moment, Variant
from nemesis.observe import DatabaseObserver, Sight


@dataclass(frozen=True, slots=True)
class Relocate:
    """The voters of the workload's table are to stand `turn` zones further on than at first."""

    turn: int

    def describe(self, nodes: tuple[str, ...]) -> str:
        return f"have voters stand {self.turn} zone{'s' if self.turn > 1 else ''} further on"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return nodes


class LastWishes(ABC):
    """Instances that each wish a table to be otherwise, by a number above 0. The last wish is the one that holds; what
    there was at first, 0, is wished again when the last instance ends. Where nobody can be asked then, as when masters
    are cut off, it is wished again with each look."""

    def __init__(self) -> None:
        self._wished: dict[int, int] = {}
        self._undone: set[int] = set()
        self._owed = False
        """The last wish has come to nobody yet."""

    @abstractmethod
    async def wish(self, number: int) -> None:
        """Tell the database."""

    @abstractmethod
    async def taken_up(self, number: int) -> Sight:
        """Whether the database has taken a wish up."""

    async def settled(self) -> Sight:
        """Whether all is as it was at first."""
        return await self.taken_up(0)

    def instances(self) -> frozenset[int]:
        return frozenset(self._wished)

    async def begin(self, instance: int, number: int) -> None:
        self._wished[instance] = number
        await self.wish(number)

    async def look(self, instance: int) -> Sight:
        return await self.taken_up(list(self._wished.values())[-1])

    async def undo(self, instance: int) -> None:
        del self._wished[instance]
        self._undone.add(instance)
        await self._wish_again()

    async def look_gone(self, instance: int) -> Sight:
        if instance not in self._undone:
            return Sight(True)
        if self._owed:
            await self._wish_again()
        if self._owed:
            return Sight(False, {"reason": "nobody takes the wish"}, "database")
        return Sight(None) if self._wished else await self.settled()

    async def _wish_again(self) -> None:
        try:
            await self.wish(list(self._wished.values())[-1] if self._wished else 0)
        except HarnessError:
            self._owed = True
        else:
            self._owed = False

    def forget(self, instance: int) -> None:
        self._undone.discard(instance)


class Relocations(LastWishes):
    """In effect once masters want it so, whether replicas have moved yet or not."""

    actions: ClassVar[tuple[type, ...]] = (Relocate,)

    def __init__(self, observer: DatabaseObserver, claims: Claims) -> None:
        super().__init__()
        self._database = observer.database

    async def carry_out(self, instance: int, action: Relocate) -> None:
        await self.begin(instance, action.turn)

    async def wish(self, number: int) -> None:
        await self._able.relocate(number)

    async def taken_up(self, number: int) -> Sight:
        return Sight(await self._able.wants_turn() == number)

    async def settled(self) -> Sight:
        wanted, astray = await self._able.wants_turn(), await self._able.astray()
        return Sight(wanted == 0 and not astray, {"astray": list(astray)} if astray else {}, "database")

    @property
    def _able(self) -> Relocatable:
        if not isinstance(self._database, Relocatable):
            raise HarnessError(f"nobody says where replicas of {self._database.name} stand")
        return self._database


def _further(moment: Moment) -> FaultPlan:
    zones = len({node.zone for node in moment.view.nodes})
    return FaultPlan(Relocate(1 + moment.entropy.randrange(zones - 1))) if zones > 1 else FaultPlan(None, {"zones": 1})


PLACEMENT_CHANGE: Final = FaultKind(
    "placement-change",
    "the voters of the table are told to stand in other zones, and later where they stood; replicas move meanwhile",
    "#7f9a5a",
    frozenset({Capability.READS_ANYWHERE, Capability.ZONES, Capability.STATUS, Capability.TERMS}),
    {"further-on": Variant(_further, least_nodes=2)},
)

FAMILY = Family(Relocations, (PLACEMENT_CHANGE,))

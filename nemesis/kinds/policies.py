"""Tables whose ranges are told to be closed otherwise, and then as they were: under load, while answers wait (R6).

In effect once the nodes that lead tablets say so; gone when they say what they said at first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from harness.capabilities import Capability
from harness.errors import HarnessError
from harness.protocols import Alterable
from nemesis.kinds.api import Claims, Family, FaultKind, FaultPlan, Moment, Variant
from nemesis.observe import DatabaseObserver, Sight


@dataclass(frozen=True, slots=True)
class ChangePolicy:
    """The workload's table is to be closed by the policy of this number, of those that the database has."""

    number: int

    def describe(self, nodes: tuple[str, ...]) -> str:
        return f"have the table closed by its policy number {self.number}"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return nodes


class Policies:
    """The last wish is the one that holds; the first policy is taken up again when the last instance ends."""

    actions: ClassVar[tuple[type, ...]] = (ChangePolicy,)

    def __init__(self, observer: DatabaseObserver, claims: Claims) -> None:
        self._database = observer.database
        self._wished: dict[int, int] = {}
        self._undone: set[int] = set()

    def instances(self) -> frozenset[int]:
        return frozenset(self._wished)

    async def carry_out(self, instance: int, action: ChangePolicy) -> None:
        self._wished[instance] = action.number
        await self._alter(action.number)

    async def look(self, instance: int) -> Sight:
        """All nodes that answer and lead close so."""
        return await self._close_by(list(self._wished.values())[-1])

    async def undo(self, instance: int) -> None:
        left = [number for each, number in self._wished.items() if each != instance]
        await self._alter(left[-1] if left else 0)
        del self._wished[instance]
        self._undone.add(instance)

    async def look_gone(self, instance: int) -> Sight:
        if instance not in self._undone:
            return Sight(True)
        return Sight(None) if self._wished else await self._close_by(0)

    def forget(self, instance: int) -> None:
        self._undone.discard(instance)

    async def _alter(self, number: int) -> None:
        await self._able.alter_policy(self._able.policies[number % len(self._able.policies)])

    async def _close_by(self, number: int) -> Sight:
        """One that can't be kept for now is closed otherwise, and says so."""
        wanted, told = self._able.policies[number % len(self._able.policies)], await self._able.policies_in_force()
        found = [each for policies in told.values() for each in policies]
        met = bool(found) and all(each.split(":", 1)[0] == wanted or each == wanted for each in found)
        return Sight(met, {"told": {name: list(policies) for name, policies in told.items()}}, "database")

    @property
    def _able(self) -> Alterable:
        if not isinstance(self._database, Alterable):
            raise HarnessError(f"nobody says how ranges of {self._database.name} are closed")
        return self._database


def _otherwise(moment: Moment) -> FaultPlan:
    return FaultPlan(ChangePolicy(1 + moment.entropy.randrange(2)))


POLICY_CHANGE: Final = FaultKind(
    "policy-change",
    "the table is closed behind the clock for a while, and ahead of it again; answers wait meanwhile for their time",
    "#9a7f5a",
    frozenset({Capability.POLICIES, Capability.STATUS}),
    {"behind": Variant(_otherwise)},
)

FAMILY = Family(Policies, (POLICY_CHANGE,))

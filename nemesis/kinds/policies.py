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
from nemesis.kinds.placement import LastWishes
from nemesis.observe import DatabaseObserver, Sight


@dataclass(frozen=True, slots=True)
class ChangePolicy:
    """The workload's table is to be closed by the policy of this number, of those that the database has."""

    number: int

    def describe(self, nodes: tuple[str, ...]) -> str:
        return f"have the table closed by its policy number {self.number}"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return nodes


class Policies(LastWishes):
    """In effect once all nodes that answer and lead close so."""

    actions: ClassVar[tuple[type, ...]] = (ChangePolicy,)

    def __init__(self, observer: DatabaseObserver, claims: Claims) -> None:
        super().__init__()
        self._database = observer.database

    async def carry_out(self, instance: int, action: ChangePolicy) -> None:
        await self.begin(instance, action.number)

    async def wish(self, number: int) -> None:
        await self._able.alter_policy(self._policy(number))

    async def taken_up(self, number: int) -> Sight:
        """One that can't be kept for now is closed otherwise, and says so."""
        wanted, told = self._policy(number), await self._able.policies_in_force()
        found = [each for policies in told.values() for each in policies]
        met = bool(found) and all(each.split(":", 1)[0] == wanted or each == wanted for each in found)
        return Sight(met, {"told": {name: list(policies) for name, policies in told.items()}}, "database")

    def _policy(self, number: int) -> str:
        return self._able.policies[number % len(self._able.policies)]

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

"""Wall clocks of clients' machines that are wrong within the declared bound: who asks chooses no time that misleads.

Clients ask for times of their writes, and for reads as of a time that they have heard of; nodes have the last word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from harness.capabilities import Capability
from harness.errors import HarnessError
from harness.ports.machines import CLIENTS, Skew
from harness.protocols import ClientClocks
from nemesis.kinds.api import Claims, Family, FaultKind, FaultPlan, Moment, Variant
from nemesis.kinds.clocks import offset_ns
from nemesis.observe import DatabaseObserver, Sight

MOST_MACHINES: Final = 5
SLACK_NS: Final = 1_000_000
"""What a clock may gain or lose while it is wrong."""


@dataclass(frozen=True, slots=True)
class SetClientClocks:
    """Clients' machines, in their order, have clocks that are so far off (ns); 0: as they go by themselves."""

    offsets: tuple[int, ...]

    def describe(self, nodes: tuple[str, ...]) -> str:
        return f"set clients' clocks wrong by {', '.join(f'{each / 1e9:+.3f} s' for each in self.offsets)}"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return (CLIENTS,)


class ClientClockFaults:
    """The clocks of clients' machines; those of the last instance hold, and all go right when it ends."""

    actions: ClassVar[tuple[type, ...]] = (SetClientClocks,)

    def __init__(self, observer: DatabaseObserver, claims: Claims) -> None:
        self._environment = observer.environment
        self._wrong: dict[int, dict[str, int]] = {}
        self._undone: set[int] = set()

    def instances(self) -> frozenset[int]:
        return frozenset(self._wrong)

    async def carry_out(self, instance: int, action: SetClientClocks) -> None:
        machines = self._able.client_machines
        self._wrong[instance] = {name: action.offsets[at % len(action.offsets)] for at, name in enumerate(machines)}
        await self._set(self._wrong[instance])

    async def look(self, instance: int) -> Sight:
        """Each machine's own clock shows that it is wrong by what was asked."""
        asked = {name: offset for name, offset in self._wrong[instance].items() if offset}
        shown = {name: await self._able.client_offset_ns(name) for name in asked}
        return Sight(all(abs(shown[name] - asked[name]) < SLACK_NS for name in asked), _told(shown))

    async def undo(self, instance: int) -> None:
        left = [wrong for each, wrong in self._wrong.items() if each != instance]
        await self._set(left[-1] if left else dict.fromkeys(self._able.client_machines, 0))
        del self._wrong[instance]
        self._undone.add(instance)

    async def look_gone(self, instance: int) -> Sight:
        if instance not in self._undone:
            return Sight(True)
        if self._wrong:
            return Sight(None)
        shown = {name: await self._able.client_offset_ns(name) for name in self._able.client_machines}
        return Sight(not any(shown.values()), _told(shown))

    def forget(self, instance: int) -> None:
        self._undone.discard(instance)

    async def _set(self, offsets: dict[str, int]) -> None:
        for name, offset in offsets.items():
            await self._able.skew_client_clock(name, Skew(offset) if offset else None)

    @property
    def _able(self) -> ClientClocks:
        if not isinstance(self._environment, ClientClocks):
            raise HarnessError(f"clocks of clients can't be set on {self._environment.name}")
        return self._environment


def _told(shown: dict[str, int]) -> dict[str, Any]:
    return {"ahead_s": {name: offset / 1e9 for name, offset in shown.items()}}


def _variant(every: bool) -> Variant:
    def plan(moment: Moment) -> FaultPlan:
        wrong = range(MOST_MACHINES) if every else (moment.entropy.randrange(MOST_MACHINES),)
        offsets = tuple(offset_ns(moment, beyond=False) if at in wrong else 0 for at in range(MOST_MACHINES))
        return FaultPlan(SetClientClocks(offsets), {"bound_s": moment.view.max_clock_offset_ns / 1e9})

    return Variant(plan)


CLIENT_CLOCK: Final = FaultKind(
    "client-clock",
    "wall clocks of clients' machines jump within the bound: of all of them, each by its own, or of one",
    "#b58fbf",
    frozenset({Capability.CLIENT_CLOCKS, Capability.READS_ANYWHERE, Capability.STATUS}),
    {"all-within": _variant(every=True), "one-within": _variant(every=False)},
)

FAMILY = Family(ClientClockFaults, (CLIENT_CLOCK,))

"""Disks that are slow, hang or are full, in effect when the node's own program finds them so."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from harness.ports.failpoints import SYNC
from harness.protocols import DiskState
from nemesis.kinds.api import (
    Claims,
    Family,
    FaultKind,
    FaultPlan,
    Moment,
    Setting,
    Variant,
    all_to_the_end,
    armable,
    disks,
)
from nemesis.observe import DatabaseObserver, Sight
from nemesis.targets import STATUS_SELECTORS, select

Trouble: TypeAlias = Literal["slow", "hung", "full"]

HUNG_MS = 400.0
"""Something that has taken so long, and has not ended, hangs."""

SLOW_SHARE = 0.85
"""Of what each durable write is to take longer, which the node shows by a clock of its own that may run slow."""


@dataclass(frozen=True, slots=True)
class TroubleDisks:
    """The disks of these nodes are slow (whatever becomes durable takes `seconds` longer), hang, or are full."""

    targets: tuple[str, ...]
    trouble: Trouble
    seconds: float = 0.0

    def describe(self, nodes: tuple[str, ...]) -> str:
        how = f"slow by {self.seconds:g} s" if self.trouble == "slow" else self.trouble
        return f"make the disks of {' '.join(self.targets)} {how}"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return self.targets


class DiskTroubles:
    """What is wrong with the disks of nodes, which are claimed: a restart would end what is armed in a process."""

    actions: ClassVar[tuple[type, ...]] = (TroubleDisks,)

    def __init__(self, observer: DatabaseObserver, claims: Claims) -> None:
        self._database, self._claims = observer.database, claims
        self._done: dict[int, tuple[TroubleDisks, tuple[str, ...]]] = {}
        self._left: dict[int, dict[str, None]] = {}

    def instances(self) -> frozenset[int]:
        return frozenset(instance for instance, left in self._left.items() if left)

    async def carry_out(self, instance: int, action: TroubleDisks) -> None:
        taken = self._claims.take(instance, action.targets, f"{action.trouble} disk")
        self._done[instance], self._left[instance] = (action, taken), dict.fromkeys(taken)
        await all_to_the_end([self._trouble(action, name) for name in taken])

    async def look(self, instance: int) -> Sight:
        """What a node says that answers; one that does not tells nothing of its disk."""
        action, taken = self._done[instance]
        found = await self._probe(taken)
        shown = all(_shows(action, state) for state in found.values() if state is not None)
        return Sight(None if shown and None in found.values() else shown, _words(found))

    async def undo(self, instance: int) -> None:
        action, left = self._done[instance][0], self._left[instance]
        await all_to_the_end([self._end(action, name, left) for name in tuple(left)])

    async def look_gone(self, instance: int) -> Sight:
        """The disk takes what is written, and no longer than the fault had made it; of a node that another fault holds
        by now nothing is known."""
        if instance not in self._done:
            return Sight(True)
        action, taken = self._done[instance]
        found = await self._probe(tuple(name for name in taken if name not in self._claims.down()))
        limit_ms = slow_ms(action.seconds) if action.trouble == "slow" else HUNG_MS
        met = all(s is not None and s.ended and not s.full and s.sync_ms < limit_ms for s in found.values())
        known = met if len(found) == len(taken) or not met else None
        return Sight(known, _words(found), "database" if None in found.values() else "harness")

    def forget(self, instance: int) -> None:
        self._done.pop(instance, None)
        self._left.pop(instance, None)

    async def _trouble(self, action: TroubleDisks, name: str) -> None:
        if action.trouble == "full":
            await disks(self._database).fill_disk(name)
        elif action.trouble == "hung":
            await armable(self._database).arm(name, SYNC, "hang", times=0)
        else:
            await armable(self._database).arm(name, SYNC, "delay", times=0, seconds=action.seconds)

    async def _end(self, action: TroubleDisks, name: str, left: dict[str, None]) -> None:
        database = self._database
        await (disks(database).free_disk(name) if action.trouble == "full" else armable(database).disarm(name, SYNC))
        self._claims.release(name)
        del left[name]

    async def _probe(self, names: tuple[str, ...]) -> dict[str, DiskState | None]:
        states = await asyncio.gather(*(disks(self._database).probe_disk(name) for name in names))
        return dict(zip(names, states, strict=True))


def _shows(action: TroubleDisks, state: DiskState) -> bool:
    if action.trouble == "slow":
        return state.sync_ms >= slow_ms(action.seconds) or not state.ended
    return state.full if action.trouble == "full" else not state.ended and state.sync_ms >= HUNG_MS


def slow_ms(seconds: float) -> float:
    """What a write takes at least that is slow by so much."""
    return 1e3 * seconds * SLOW_SHARE


def _words(found: dict[str, DiskState | None]) -> dict[str, Any]:
    return {"disks": {name: None if state is None else _told(state) for name, state in found.items()}}


def _told(state: DiskState) -> str:
    if state.full:
        return "full"
    return f"{state.sync_ms:.0f} ms" if state.ended else f"{state.sync_ms:.0f} ms, not ended"


def _variant(trouble: Trouble, selector: str) -> Variant:
    def plan(moment: Moment) -> FaultPlan:
        choice = select(selector, moment.view, moment.busy, moment.entropy)
        action = TroubleDisks(choice.targets, trouble, moment.settings.get("seconds", 0.0))
        return FaultPlan(action if choice.targets else None, choice.evidence, choice.roles)

    return Variant(plan, frozenset({"status"}) if selector in STATUS_SELECTORS else frozenset())


_WHOM = ("leaseholder", "leader-master", "one", "quorum-safe")
_ARMED = frozenset({"disk", "failpoint"})

SLOW_DISK = FaultKind(
    "slow-disk",
    "whatever a node makes durable takes longer: leaders, one, as many as every group can spare",
    "#8a6d3b",
    _ARMED,
    {whom: _variant("slow", whom) for whom in _WHOM},
    {"seconds": Setting(0.2, 0.05, 10.0, "seconds by which each durable write takes longer")},
)

HUNG_DISK = FaultKind(
    "hung-disk",
    "nothing that a node makes durable ends: leaders, one, as many as every group can spare",
    "#6d4c2f",
    _ARMED,
    {whom: _variant("hung", whom) for whom in _WHOM},
)

FULL_DISK = FaultKind(
    "full-disk",
    "no room on the data volume: leaders, one, as many as every group can spare",
    "#b08d57",
    frozenset({"disk", "full-disk"}),
    {whom: _variant("full", whom) for whom in _WHOM},
)

FAMILY = Family(DiskTroubles, (SLOW_DISK, HUNG_DISK, FULL_DISK))

"""Protocols of several steps, broken off at one party between two of them while the others go on.

Killing who carries a protocol out tells little: nothing goes on then. Here one party is drawn, and of each protocol one
step, of those that it is seen to come to if the protocol is under way. Who comes to one first is killed, stopped or
made to wait right there, and stays so while the fault lasts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar

from harness.errors import HarnessError
from harness.ports.failpoints import Action
from harness.ports.machines import ProcessState
from harness.protocols import Armable, Database, Tuning
from nemesis.kinds.api import Claims, Family, FaultKind, FaultPlan, Moment, Names, Variant, armable
from nemesis.kinds.failpoint import ARMED, LOOK_S, PAUSE_S, disarmed
from nemesis.observe import DatabaseObserver, Sight

TURN_S = 1.0
"""For how long a party is waited for before another one has its turn."""

COUNTED_S = 0.25
"""For how long it counts the steps that it comes to: of a protocol that is under way one of these is drawn."""


@dataclass(frozen=True, slots=True)
class BreakOff:
    """The first party that comes to a drawn step of one of these protocols (of all, if none is named) does `action`
    there."""

    protocols: tuple[str, ...]
    action: Action
    seed: int

    def describe(self, nodes: tuple[str, ...]) -> str:
        return f"{self.action} one party between two steps of {' or '.join(self.protocols) or 'a protocol'}"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return nodes


@dataclass(slots=True)
class _Break:
    """Where an instance is: the step that was come to, and by whom, once one was."""

    task: asyncio.Task[None]
    reached: dict[str, str] = field(default_factory=dict)


class Breaks:
    """In effect from when a party has come to its step, as that has noted; gone when all nodes run."""

    actions: ClassVar[tuple[type, ...]] = (BreakOff,)

    def __init__(self, observer: DatabaseObserver, claims: Claims) -> None:
        self._observer, self._database, self._claims = observer, observer.database, claims
        self._clock = observer.environment.clock
        self._breaks: dict[int, _Break] = {}
        self._ended: dict[int, _Break] = {}

    def instances(self) -> frozenset[int]:
        return frozenset(self._breaks)

    async def carry_out(self, instance: int, action: BreakOff) -> None:
        work = self._go(instance, armable(self._database), action, Random(action.seed))
        self._breaks[instance] = _Break(asyncio.create_task(work, name=f"steps.{instance}"))

    async def look(self, instance: int) -> Sight:
        found = self._breaks[instance]
        if found.task.done() and (error := found.task.exception()) is not None:
            raise HarnessError(f"the steps could not be watched: {error}") from error
        return Sight(bool(found.reached), dict(found.reached))

    async def undo(self, instance: int) -> None:
        found = self._breaks[instance]
        found.task.cancel()
        await asyncio.gather(found.task, return_exceptions=True)
        for name in self._claims.of(instance):
            await self._put_back(name)
        self._ended[instance] = self._breaks.pop(instance)

    async def look_gone(self, instance: int) -> Sight:
        if instance not in self._ended:
            return Sight(True)
        free = [node.name for node in self._database.nodes if node.name not in self._claims.down()]
        states = await asyncio.gather(*(self._database.process_state(name) for name in free))
        down = {name: str(state) for name, state in zip(free, states, strict=True) if state is not ProcessState.RUNNING}
        return Sight(not down, {"states": down} if down else {}, "database")

    def forget(self, instance: int) -> None:
        self._ended.pop(instance, None)

    async def _go(self, instance: int, database: Armable, action: BreakOff, entropy: Random) -> None:
        """Turn by turn another party, until one comes to its step; that one stays as it is then."""
        await asyncio.sleep(0)  # the instance is noted first
        found, roles = self._breaks[instance], {point.name: point.role for point in database.failpoints}
        steps = [database.protocols[name] for name in action.protocols or database.protocols]
        while not found.reached:
            node = entropy.choice(self._database.nodes)
            own = [[point for point in each if roles[point] in ("", node.role)] for each in steps]
            if not any(own) or not self._claims.take(instance, await self._observer.living((node.name,)), ARMED):
                await self._clock.sleep(LOOK_S)
                continue
            passed = await database.passed(node.name, COUNTED_S)
            likely = [[point for point in each if point in passed] or each for each in own if each]
            hand = tuple(dict.fromkeys(map(entropy.choice, likely)))
            found.reached = await self._turn(database, node.name, hand, action.action)
            if not found.reached:
                await self._put_back(node.name)

    async def _turn(self, database: Armable, name: str, hand: Sequence[str], action: Action) -> dict[str, str]:
        """Arm the points, and wait for the first to act: its name and the node's."""
        before = await database.acted(name)
        for point in hand:
            await database.arm(name, point, action, seconds=PAUSE_S)
        until_ns = self._clock.monotonic_ns() + int(TURN_S * 1e9)
        while self._clock.monotonic_ns() < until_ns:
            acted = await database.acted(name)
            for point in hand:
                if acted.get(point, 0) > before.get(point, 0):
                    return {"node": name, "step": point}
            await self._clock.sleep(LOOK_S)
        return {}

    async def _put_back(self, name: str) -> None:
        """Nothing is armed on the node any more, and its process runs."""
        await disarmed(armable(self._database), name, self._clock)
        await self._database.start(name)
        self._claims.release(name)


def _protocols(database: Database) -> Mapping[str, Sequence[str]]:
    return database.protocols if isinstance(database, Armable) else {}


def _stepping(tuning: Tuning) -> bool:
    return tuning.stepping


def _variant(action: Action) -> Variant:
    def plan(moment: Moment) -> FaultPlan:
        named = tuple(moment.names.get("protocols", ()))
        return FaultPlan(BreakOff(named, action, moment.entropy.getrandbits(53)))

    return Variant(plan)


PROTOCOL_STEP = FaultKind(
    "protocol-step",
    "one party of a protocol is killed, stopped or made to wait between two of its steps; the others go on",
    "#8b5b6a",
    frozenset({"failpoint", "kill"}),
    {action: _variant(action) for action in ("crash", "stop", "hang")},
    names={"protocols": Names("the protocols to break off; without, all", lambda database: list(_protocols(database)))},
    suits=_stepping,
)

FAMILY = Family(Breaks, (PROTOCOL_STEP,))

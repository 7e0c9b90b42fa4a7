"""Failpoints: a few points of a node's code at a time are armed, and waited for; then others, on another node.

Some of them are points that the node is just seen to pass, the others such as it was not, and that may come up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar

from harness.errors import HarnessError
from harness.ports.api import Clock
from harness.ports.failpoints import Action, Failpoint
from harness.ports.machines import ProcessState
from harness.protocols import Armable, Database, Node
from nemesis.kinds.api import Claims, Family, FaultKind, FaultPlan, Moment, Names, Setting, Variant, armable
from nemesis.observe import DatabaseObserver, Sight

ARMED = "a failpoint is armed"
FRESH_NS = 5_000_000_000
"""A walk is going on if a point has acted within this time."""

HAND = 5
"""How many points are armed at a time of those that the node passes, and of the others; the first one passed acts."""

LOOK_S = 0.05
PAUSE_S = 0.3
"""For how long at most a node that ended stays down, and one that acted is left alone."""

COUNTED_S = 0.25
"""For how long a node counts which points it passes."""

UP_S = 10.0
"""How long a walk waits for a node that is up again before it goes on."""

ATTEMPTS = 10
"""How often a node is told to forget its points, each time so long after the last."""


@dataclass(frozen=True, slots=True)
class WalkFailpoints:
    """Points (all, if none are named) are armed with `action`, one after the other, for `patience_s` each; nodes that
    end are started."""

    action: Action
    patience_s: float
    seed: int
    points: tuple[str, ...] = ()

    def describe(self, nodes: tuple[str, ...]) -> str:
        return f"{self.action} at {' or '.join(self.points) or 'one failpoint after the other'}"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return nodes


@dataclass(slots=True)
class _Walk:
    """Where a walk has been: points by how often they were armed and how often they acted, as the nodes said."""

    task: asyncio.Task[None]
    seen_ns: int | None = None
    armed: dict[str, int] = field(default_factory=dict)
    reached: dict[str, int] = field(default_factory=dict)


class FailpointWalks:
    """A walk is in effect while points keep acting, as the nodes themselves note, and no longer than until one was last
    seen to have, or a node in which one had was last seen dead, stopped, or not up again; it is gone when all nodes
    run.

    Later walks go on where earlier ones ended, so that in a long run every point has its turn.
    """

    actions: ClassVar[tuple[type, ...]] = (WalkFailpoints,)

    def __init__(self, observer: DatabaseObserver, claims: Claims) -> None:
        self._observer, self._database, self._claims = observer, observer.database, claims
        self._clock = observer.environment.clock
        self._walks: dict[int, _Walk] = {}
        self._ended: dict[int, _Walk] = {}
        self._points: deque[Failpoint] = deque()
        self._passed: dict[str, frozenset[str]] = {}
        self._vain = False

    def instances(self) -> frozenset[int]:
        return frozenset(self._walks)

    async def carry_out(self, instance: int, action: WalkFailpoints) -> None:
        database = armable(self._database)
        entropy = Random(action.seed)
        if not self._points:
            chosen = [point for point in database.failpoints if not action.points or point.name in action.points]
            self._points.extend(entropy.sample(chosen, len(chosen)))
        work = self._go(instance, database, action, entropy)
        self._walks[instance] = _Walk(asyncio.create_task(work, name=f"failpoints.{instance}"))

    async def look(self, instance: int) -> Sight:
        walk = self._walks[instance]
        if walk.task.done() and (error := walk.task.exception()) is not None:
            raise HarnessError(f"the walk ended: {error}") from error
        armed = [name for name, how in self._claims.of(instance).items() if how == ARMED]
        held = [name for name in armed if await self._held(walk, name)]  # who arms a point there may wait for an answer
        fresh = walk.seen_ns is not None and self._clock.monotonic_ns() - walk.seen_ns < FRESH_NS
        return Sight(fresh, {**_told(walk), **({"held": held} if held else {})}, at_ns=walk.seen_ns)

    async def undo(self, instance: int) -> None:
        walk = self._walks[instance]
        walk.task.cancel()
        await asyncio.gather(walk.task, return_exceptions=True)
        for name in [name for name, how in self._claims.of(instance).items() if how == ARMED]:
            await self._put_back(name)
        self._ended[instance] = self._walks.pop(instance)

    async def look_gone(self, instance: int) -> Sight:
        walk = self._ended.get(instance)
        if walk is None:
            return Sight(True)
        free = [node.name for node in self._database.nodes if node.name not in self._claims.down()]
        states = await asyncio.gather(*(self._database.process_state(name) for name in free))
        met = all(state is ProcessState.RUNNING for state in states)
        down = {name: str(state) for name, state in zip(free, states, strict=True) if state is not ProcessState.RUNNING}
        return Sight(met, {**_told(walk), **({"states": down} if down else {})}, "database")

    def forget(self, instance: int) -> None:
        self._ended.pop(instance, None)

    async def _go(self, instance: int, database: Armable, action: WalkFailpoints, entropy: Random) -> None:
        await asyncio.sleep(0)  # the walk is noted first
        walk = self._walks[instance]
        while True:
            node = entropy.choice(self._to_visit())
            if not self._claims.take(instance, await self._observer.living((node.name,)), ARMED):
                await self._clock.sleep(LOOK_S)
                continue
            reached = await self._turn(walk, database, node, action)
            walk.reached.update((point, walk.reached.get(point, 0) + 1) for point in reached)
            self._vain = not reached
            held = False
            if reached:
                walk.seen_ns = self._clock.monotonic_ns()
                await self._clock.sleep(entropy.uniform(0.0, PAUSE_S))
                held = await self._held(walk, node.name)
            with suppress(HarnessError):  # it stays claimed, and `undo` puts it back
                await self._put_back(node.name)
            if held:
                await self._observer.until(lambda name=node.name: self._up(walk, name), UP_S)  # type: ignore[misc]

    def _to_visit(self) -> list[Node]:
        """Nodes that have points; where the last one had none that it passed, only those of a role that passed some."""
        nodes = [node for node in self._database.nodes if self._points_of(node.role)]
        busy = [node for node in nodes if self._passed.get(node.role)]
        return busy if self._vain and busy else nodes

    async def _held(self, walk: _Walk, name: str) -> bool:
        """Whether what a point did holds the node still: its process is dead, or stopped."""
        asked_ns = self._clock.monotonic_ns()
        if await self._database.process_state(name) is ProcessState.RUNNING:
            return False
        walk.seen_ns = asked_ns
        return True

    async def _up(self, walk: _Walk, name: str) -> Sight:
        asked_ns = self._clock.monotonic_ns()
        if await self._database.status(name) is not None:
            return Sight(True)
        walk.seen_ns = asked_ns
        return Sight(False)

    def _next_points(self, role: str, passed: frozenset[str], among: bool) -> list[str]:
        """Points of a node of this role, among what was passed lately or not, that were armed the longest time ago."""
        hand = [point for point in self._points_of(role) if (point.name in passed) is among][:HAND]
        for point in hand:
            self._points.remove(point)
        self._points.extend(hand)
        return [point.name for point in hand]

    def _points_of(self, role: str) -> list[Failpoint]:
        return [point for point in self._points if point.role in ("", role)]

    async def _turn(self, walk: _Walk, database: Armable, node: Node, action: WalkFailpoints) -> list[str]:
        """Arm points that may come up, and those that the node turns out to pass meanwhile; wait until it notes that
        one acted, or patience ends: those that have."""
        before = await database.acted(node.name)
        hand = self._next_points(node.role, self._passed.get(node.role, frozenset()), among=False)
        until_ns = self._clock.monotonic_ns() + int(action.patience_s * 1e9)
        if not await self._arm(walk, database, node.name, hand, action):
            return _newly(await database.acted(node.name), before, hand)
        passed = frozenset(await database.passed(node.name, min(COUNTED_S, action.patience_s)))
        reached = _newly(await database.acted(node.name), before, hand)
        if passed or not reached:
            self._passed[node.role] = passed
        if not reached:
            busy = self._next_points(node.role, passed, among=True)
            await self._arm(walk, database, node.name, busy, action)
            hand = [*hand, *busy]
            until_ns = max(until_ns, self._clock.monotonic_ns() + int(COUNTED_S * 1e9) if busy else 0)
        while not reached and self._clock.monotonic_ns() < until_ns:
            await self._clock.sleep(LOOK_S)
            reached = _newly(await database.acted(node.name), before, hand)
        return reached

    async def _arm(self, walk: _Walk, database: Armable, name: str, hand: list[str], action: WalkFailpoints) -> bool:
        """Whether the node took them all; one that does not answer may be where an earlier one has acted."""
        for point in hand:
            walk.armed[point] = walk.armed.get(point, 0) + 1
            if not await database.arm(name, point, action.action, seconds=PAUSE_S):
                return False
        return True

    async def _put_back(self, name: str) -> None:
        """Nothing is armed on the node any more, and its process runs; one that is just coming up can't be told yet."""
        database = self._database
        if isinstance(database, Armable):
            await disarmed(database, name, self._clock)
        await database.start(name)
        self._claims.release(name)


async def disarmed(database: Armable, name: str, clock: Clock) -> None:
    """Have a node forget its points, and insist; raises HarnessError."""
    for _ in range(ATTEMPTS - 1):
        try:
            await database.disarm(name)
            return
        except HarnessError:
            await clock.sleep(PAUSE_S)
    await database.disarm(name)


def _newly(acted: Mapping[str, int], before: Mapping[str, int], hand: list[str]) -> list[str]:
    return [point for point in hand if acted.get(point, 0) > before.get(point, 0)]


def _known(database: Database) -> list[str]:
    return [point.name for point in database.failpoints] if isinstance(database, Armable) else []


def _told(walk: _Walk) -> dict[str, Any]:
    missed = sorted(name for name in walk.armed if name not in walk.reached)
    return {"reached": dict(sorted(walk.reached.items())), "armed_in_vain": missed}


def _variant(action: Action) -> Variant:
    def plan(moment: Moment) -> FaultPlan:
        points = tuple(moment.names.get("points", ()))
        return FaultPlan(WalkFailpoints(action, moment.settings["patience"], moment.entropy.getrandbits(53), points))

    return Variant(plan)


FAILPOINT = FaultKind(
    "failpoint",
    "walks the failpoints: a node crashes, waits, hangs, fails or stops there, a few points after the other",
    "#5b4b8a",
    frozenset({"failpoint", "kill"}),
    {action: _variant(action) for action in ("crash", "delay", "hang", "fail", "stop")},
    {"patience": Setting(0.4, 0.05, 60.0, "seconds for which a point that nobody passes stays armed")},
    names={"points": Names("the failpoints to arm, as `assay list failpoints` has them; without, all", _known)},
)

FAMILY = Family(FailpointWalks, (FAILPOINT,))

"""Processes that end and start again and again: crash loops, and rolling restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, ClassVar

from harness.errors import HarnessError
from harness.protocols import ProcessState
from nemesis.concurrently import all_to_the_end, to_the_end
from nemesis.kinds.api import Claims, Family, FaultKind, FaultPlan, Moment, Setting, Variant
from nemesis.observe import DatabaseObserver, Sight
from nemesis.targets import STATUS_SELECTORS, select
from nemesis.view import names

LOOPING = "restarted again and again"
FRESH_NS = 5_000_000_000
"""It is going on if a process was seen dead, or not up again, within this time."""

UP_S = 10.0
"""How long a rolling restart waits for a node before it goes on with the next."""


@dataclass(frozen=True, slots=True)
class CrashLoop:
    """SIGKILL to these nodes' processes, and a start, over and over; each lives for up to `alive_s`."""

    targets: tuple[str, ...]
    alive_s: float
    seed: int

    def describe(self, nodes: tuple[str, ...]) -> str:
        return f"kill -9 and start {' '.join(self.targets)} again and again"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return self.targets


@dataclass(frozen=True, slots=True)
class RollingRestart:
    """Each of these nodes in turn is stopped gracefully and started; the next one when it is up again."""

    targets: tuple[str, ...]

    def describe(self, nodes: tuple[str, ...]) -> str:
        return f"stop and start {' '.join(self.targets)} one after the other"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return self.targets


@dataclass(slots=True)
class _Going:
    """What goes on for one instance; `seen_ns` is when a process was last seen dead, or not up again, `deaths` how
    often each was dead."""

    task: asyncio.Task[None]
    seen_ns: int = 0
    deaths: dict[str, int] = field(default_factory=dict)
    touched: dict[str, int | None] = field(default_factory=dict)


class Restarts:
    """An instance is in effect while processes keep being seen dead or not up again, until one last was; it is gone
    when all are up in a new life."""

    actions: ClassVar[tuple[type, ...]] = (CrashLoop, RollingRestart)

    def __init__(self, observer: DatabaseObserver, claims: Claims) -> None:
        self._observer, self._database, self._claims = observer, observer.database, claims
        self._clock = observer.environment.clock
        self._going: dict[int, _Going] = {}
        self._ended: dict[int, _Going] = {}

    def instances(self) -> frozenset[int]:
        return frozenset(self._going)

    async def carry_out(self, instance: int, action: CrashLoop | RollingRestart) -> None:
        if isinstance(action, CrashLoop):
            taken = self._claims.take(instance, await self._observer.living(action.targets), LOOPING)
            if taken:
                self._begin(instance, self._crash(instance, taken, action.alive_s, Random(action.seed)))
        else:
            self._begin(instance, self._roll(instance, action.targets))

    async def look(self, instance: int) -> Sight:
        going = self._going[instance]
        if going.task.done() and (error := going.task.exception()) is not None:
            raise HarnessError(f"the restarts ended: {error}") from error
        fresh = bool(going.deaths) and self._clock.monotonic_ns() - going.seen_ns < FRESH_NS
        return Sight(fresh, {"seen_dead": dict(going.deaths)}, at_ns=going.seen_ns)

    async def undo(self, instance: int) -> None:
        going = self._going[instance]
        going.task.cancel()
        await asyncio.gather(going.task, return_exceptions=True)
        mine = [name for name, how in self._claims.of(instance).items() if how == LOOPING]
        await all_to_the_end([self._start(name) for name in mine])
        self._ended[instance] = self._going.pop(instance)

    async def look_gone(self, instance: int) -> Sight:
        going = self._ended.get(instance)
        touched = {} if going is None else going.touched
        free = [name for name in touched if name not in self._claims.down()]
        answers = await asyncio.gather(*(self._database.status(name) for name in free))
        lives = {name: status.incarnation if status else None for name, status in zip(free, answers, strict=True)}
        met = all(life is not None and life > (touched[name] or -1) for name, life in lives.items())
        evidence: dict[str, Any] = {"incarnations": {name: [touched[name], life] for name, life in lives.items()}}
        return Sight(met, evidence if touched else {}, "database")

    def forget(self, instance: int) -> None:
        self._ended.pop(instance, None)

    def _begin(self, instance: int, work: Any) -> None:
        self._going[instance] = _Going(asyncio.create_task(work, name=f"restarts.{instance}"))

    async def _crash(self, instance: int, targets: tuple[str, ...], alive_s: float, entropy: Random) -> None:
        await asyncio.sleep(0)  # the instance is noted first
        while True:
            for name in targets:
                self._note(instance, name)
                await to_the_end(self._database.kill(name))
                await self._see_dead(instance, name)
            await self._clock.sleep(entropy.uniform(0.0, 0.3))
            await to_the_end(all_to_the_end([self._database.start(name) for name in targets]))
            until_ns = self._clock.monotonic_ns() + int(entropy.uniform(0.0, alive_s) * 1e9)
            await self._observer.until(partial(self._up, instance, dict.fromkeys(targets, -1)), self._left_s(until_ns))
            await self._clock.sleep(self._left_s(until_ns))

    async def _roll(self, instance: int, targets: tuple[str, ...]) -> None:
        await asyncio.sleep(0)
        while True:
            for name in targets:
                if self._claims.take(instance, await self._observer.living((name,)), LOOPING):
                    self._note(instance, name)
                    before = self._observer.incarnations.get(name, -1)
                    await to_the_end(self._database.stop(name))
                    await self._see_dead(instance, name)
                    await self._start(name)
                    await self._observer.until(partial(self._up, instance, {name: before}), UP_S)
            await self._clock.sleep(self._observer.poll_s)

    def _note(self, instance: int, name: str) -> None:
        self._going[instance].touched.setdefault(name, self._observer.incarnations.get(name))

    async def _see_dead(self, instance: int, name: str) -> None:
        if await self._database.process_state(name) is ProcessState.DEAD:
            going = self._going[instance]
            going.seen_ns = self._clock.monotonic_ns()
            going.deaths[name] = going.deaths.get(name, 0) + 1

    def _left_s(self, until_ns: int) -> float:
        return max(until_ns - self._clock.monotonic_ns(), 0) / 1e9

    async def _up(self, instance: int, before: Mapping[str, int]) -> Sight:
        """Whether all of these answer, in a later life than before; while one does not, it is seen to be going on."""
        asked_ns = self._clock.monotonic_ns()
        answers = await asyncio.gather(*(self._database.status(name) for name in before))
        lives = {name: status.incarnation for name, status in zip(before, answers, strict=True) if status is not None}
        self._observer.incarnations.update(lives)
        up = all(lives.get(name, -1) > life for name, life in before.items())
        if not up:
            self._going[instance].seen_ns = asked_ns
        return Sight(up)

    async def _start(self, name: str) -> None:
        await to_the_end(self._database.start(name))
        self._claims.release(name)


def _crash_loop(selector: str) -> Variant:
    def plan(moment: Moment) -> FaultPlan:
        choice = select(selector, moment.view, moment.busy, moment.entropy)
        action = CrashLoop(choice.targets, moment.settings["alive"], moment.entropy.getrandbits(53))
        return FaultPlan(action if choice.targets else None, choice.evidence, choice.roles)

    return Variant(plan, frozenset({"status"}) if selector in STATUS_SELECTORS else frozenset())


def _rolling(role: str | None) -> Variant:
    def plan(moment: Moment) -> FaultPlan:
        targets = names(moment.view.nodes, role)
        return FaultPlan(RollingRestart(targets) if targets else None)

    return Variant(plan)


CRASH_LOOP = FaultKind(
    "crash-loop",
    "kill -9 and start, over and over: leaders, one node, as many as every group can spare",
    "#a83232",
    frozenset({"kill", "status"}),
    {selector: _crash_loop(selector) for selector in ("leaseholder", "leader-master", "one", "quorum-safe")},
    {"alive": Setting(1.5, 0.0, 60.0, "seconds for which a process lives at most")},
)

ROLLING_RESTART = FaultKind(
    "rolling-restart",
    "stops each node gracefully and starts it, the next one when it is up again",
    "#d98c4a",
    frozenset({"stop", "status"}),
    {"all": _rolling(None), "masters": _rolling("master"), "tservers": _rolling("tserver")},
)

RESTARTS = Family(Restarts, (CRASH_LOOP, ROLLING_RESTART))

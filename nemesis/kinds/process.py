"""Faults of processes: SIGKILL or SIGTERM and a start, also in loops, SIGSTOP and SIGCONT, holds at a named point."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, ClassVar

from harness.capabilities import Capability
from harness.errors import HarnessError
from harness.ports.machines import ProcessState
from harness.protocols import Armable
from nemesis.faults import Bounce, Hold, Kill, Pause, Restart, Stop
from nemesis.kinds.api import (
    NAMED,
    PAUSED,
    Claims,
    Family,
    FaultKind,
    FaultPlan,
    Moment,
    Setting,
    Variant,
    all_to_the_end,
    to_the_end,
)
from nemesis.observe import DatabaseObserver, Sight, names
from nemesis.targets import needs_of, select, unless_of

KILLED = "killed"
STOPPED = "stopped"
HELD = "held"
WAYS = frozenset({KILLED, STOPPED, PAUSED, HELD})

MADE = {KILLED: ProcessState.DEAD, STOPPED: ProcessState.DEAD, PAUSED: ProcessState.PAUSED}
"""What a process is to a probe once it was killed or paused; one that is to be held may not have stopped yet."""


class Processes:
    """The processes that each instance killed, paused or (is to have) held.

    An instance is gone when the processes it touched run again; those that it killed have to say so in a new life.
    """

    actions: ClassVar[tuple[type, ...]] = (Kill, Stop, Pause, Restart, Bounce, Hold)

    def __init__(self, observer: DatabaseObserver, claims: Claims) -> None:
        self._observer = observer
        self._database = observer.database
        self._claims = claims
        self._touched: dict[int, dict[str, None]] = {}
        self._before: dict[int, dict[str, int]] = {}
        self._ended: dict[int, set[str]] = {}
        self._held: dict[str, str] = {}

    def instances(self) -> frozenset[int]:
        return frozenset(instance for instance in self._touched if self._down(instance))

    async def carry_out(self, instance: int, action: Kill | Stop | Pause | Restart | Bounce | Hold) -> None:
        self._touched.setdefault(instance, {}).update(dict.fromkeys(action.targets))
        match action:
            case Kill(targets):
                await self._end(instance, targets, KILLED)
            case Stop(targets):
                await self._end(instance, targets, STOPPED)
            case Pause(targets):
                taken = self._claims.take(instance, targets, PAUSED)
                await all_to_the_end([self._database.pause(name) for name in taken])
            case Restart(targets):
                await self._bring_up(instance, targets)
            case Bounce(targets):
                await self._end(instance, targets, KILLED)
                await self._bring_up(instance, targets)
            case Hold(targets, point, group):
                await self._hold(instance, targets, point, group)

    async def look(self, instance: int) -> Sight:
        """The processes that are killed or paused are so."""
        return await self._states({name: MADE[how] for name, how in self._down(instance).items() if how in MADE})

    async def undo(self, instance: int) -> None:
        await self._bring_up(instance, tuple(self._down(instance)))

    async def look_gone(self, instance: int) -> Sight:
        """Processes run, those killed in a new incarnation; nodes that another instance holds down are left out.

        One that answers in the life that was ended is not told truly by who says how it is: that is no database's
        failure.
        """
        free = sorted(name for name in self._touched.get(instance, ()) if name not in self._claims.down())
        running = await self._states(dict.fromkeys(free, ProcessState.RUNNING))
        if not running.met:
            paused = str(ProcessState.PAUSED) in running.evidence["states"].values()
            return Sight(False, running.evidence, "harness" if paused else "database")
        before = {name: self._before.get(instance, {})[name] for name in free if name in self._before.get(instance, {})}
        answers = await asyncio.gather(*(self._database.status(name) for name in before))
        after = {name: status.incarnation for name, status in zip(before, answers, strict=True) if status is not None}
        met = all(after.get(name, -1) > before[name] for name in before)
        evidence = {"incarnations": {name: [before[name], after.get(name)] for name in before}} if before else {}
        ended = [name for name in before if name in self._ended.get(instance, ())]
        standing = any(after.get(name, before[name] + 1) <= before[name] for name in ended)
        return Sight(met, {**running.evidence, **evidence}, "harness" if standing else "database")

    def forget(self, instance: int) -> None:
        self._touched.pop(instance, None)
        self._before.pop(instance, None)
        self._ended.pop(instance, None)

    def _down(self, instance: int) -> dict[str, str]:
        return {name: how for name, how in self._claims.of(instance).items() if how in WAYS}

    async def _states(self, wanted: Mapping[str, ProcessState]) -> Sight:
        if not wanted:
            return Sight(True)
        states = await asyncio.gather(*(self._database.process_state(name) for name in wanted))
        met = list(states) == list(wanted.values())
        return Sight(met, {"states": {name: str(state) for name, state in zip(wanted, states, strict=True)}})

    async def _end(self, instance: int, targets: Iterable[str], how: str) -> None:
        taken = self._claims.take(instance, await self._observer.living(targets), how, over=(HELD,))
        known = self._observer.incarnations
        self._before.setdefault(instance, {}).update((name, known[name]) for name in taken if name in known)
        act = self._database.kill if how == KILLED else self._database.stop
        await all_to_the_end([act(name) for name in taken])
        self._ended.setdefault(instance, set()).update(taken)

    async def _hold(self, instance: int, targets: Iterable[str], point: str, group: str) -> None:
        database = self._database
        if not isinstance(database, Armable):
            raise HarnessError(f"{database.name} can't be told where to stop")
        taken = self._claims.take(instance, targets, HELD)
        self._held.update(dict.fromkeys(taken, point))
        await all_to_the_end([database.arm(name, point, "stop", group) for name in taken])

    async def _bring_up(self, instance: int, targets: Iterable[str]) -> None:
        down = self._down(instance)
        await all_to_the_end([self._bring_one_up(down[name], name) for name in targets if name in down])

    async def _bring_one_up(self, how: str, name: str) -> None:
        database = self._database
        if how == HELD and isinstance(database, Armable):
            await database.disarm(name, self._held[name])
        else:
            await (database.resume(name) if how in (PAUSED, HELD) else database.start(name))
        self._claims.release(name)


MORE_TARGETS = (
    "follower",
    "follower-master",
    "quorum-safe-with-leader",
    "quorum-safe-without-leader",
    "majority",
    "learner",
    "one-too-many",
)


def _variants(fault: type[Kill | Stop | Pause], *selectors: str) -> dict[str, Variant]:
    return {selector: _variant(fault, selector) for selector in selectors}


def _variant(fault: type[Kill | Stop | Pause], selector: str) -> Variant:
    def plan(moment: Moment) -> FaultPlan:
        choice = select(selector, moment.view, moment.busy, moment.entropy)
        return FaultPlan(fault(choice.targets) if choice.targets else None, choice.evidence, choice.roles)

    unavailable = NAMED.get(selector, False)
    return Variant(plan, needs_of(selector), 1, selector in NAMED, unavailable, unless_of(selector))


KILL = FaultKind(
    "kill",
    "kill -9 and restart: leader master, leaseholder, one, several or all nodes, a zone",
    "#c8375b",
    frozenset({"kill"}),
    _variants(
        *(Kill, "leader", "leader-master", "leaseholder", "one", "random", "group-majority", "quorum-safe", "all"),
        *(*MORE_TARGETS, "zone"),
    ),
)

STOP = FaultKind(
    "stop",
    "stops processes gracefully and starts them: leader master, leaseholder, one, several or all nodes",
    "#d4708a",
    frozenset({"stop"}),
    _variants(Stop, "leader", "leaseholder", "leader-master", "one", "random", "quorum-safe", "all", *MORE_TARGETS),
)

PAUSE = FaultKind(
    "pause",
    "stops processes and lets them go on: leaders, one, a minority, a majority of a group",
    "#3a7ca5",
    frozenset({"pause"}),
    _variants(
        Pause,
        "leader",
        "leaseholder",
        "leader-master",
        "one",
        "minority",
        "group-majority",
        "quorum-safe",
        *MORE_TARGETS,
    ),
)

FAMILY = Family(Processes, (KILL, STOP, PAUSE))


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

    return Variant(plan, needs_of(selector), unless=unless_of(selector))


REFERENCE = frozenset({Capability.MASTERS})


def _rolling(role: str | None, needs: frozenset[str] = frozenset()) -> Variant:
    def plan(moment: Moment) -> FaultPlan:
        targets = names(moment.view.nodes, role)
        return FaultPlan(RollingRestart(targets) if targets else None)

    return Variant(plan, needs)


CRASH_LOOP = FaultKind(
    "crash-loop",
    "kill -9 and start, over and over: leaders, one node, as many as every group can spare",
    "#a83232",
    frozenset({"kill", "status"}),
    {selector: _crash_loop(selector) for selector in ("leader", "leaseholder", "leader-master", "one", "quorum-safe")},
    {"alive": Setting(1.5, 0.0, 60.0, "seconds for which a process lives at most")},
)

ROLLING_RESTART = FaultKind(
    "rolling-restart",
    "stops each node gracefully and starts it, the next one when it is up again",
    "#d98c4a",
    frozenset({"stop", "status"}),
    {
        "all": _rolling(None),
        "masters": _rolling("master", REFERENCE),
        "tservers": _rolling("tserver", REFERENCE),
    },
)

RESTARTS = Family(Restarts, (CRASH_LOOP, ROLLING_RESTART))

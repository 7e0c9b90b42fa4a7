"""Faults of processes: SIGKILL or SIGTERM and a start, SIGSTOP and SIGCONT, holds at a named point."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import ClassVar

from harness.errors import HarnessError
from harness.ports.machines import ProcessState
from harness.protocols import Armable
from nemesis.concurrently import all_to_the_end
from nemesis.faults import Bounce, Hold, Kill, Pause, Restart, Stop
from nemesis.kinds.api import NAMED, PAUSED, Claims, Family, FaultKind, FaultPlan, Moment, Variant
from nemesis.observe import DatabaseObserver, Sight
from nemesis.targets import STATUS_SELECTORS, select

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
        """Processes run, those killed in a new incarnation; nodes that another instance holds down are left out."""
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
        return Sight(met, {**running.evidence, **evidence}, "database")

    def forget(self, instance: int) -> None:
        self._touched.pop(instance, None)
        self._before.pop(instance, None)

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

    needs = {"status"} if selector in STATUS_SELECTORS else {"zones"} if selector == "zone" else set[str]()
    return Variant(plan, frozenset(needs), named=selector in NAMED, unavailable=NAMED.get(selector, False))


KILL = FaultKind(
    "kill",
    "kill -9 and restart: leader master, leaseholder, one, several or all nodes, a zone",
    "#c8375b",
    frozenset({"kill"}),
    _variants(
        *(Kill, "leader-master", "leaseholder", "one", "random", "group-majority", "quorum-safe", "all"),
        *(*MORE_TARGETS, "zone"),
    ),
)

STOP = FaultKind(
    "stop",
    "stops processes gracefully and starts them: leader master, leaseholder, one, several or all nodes",
    "#d4708a",
    frozenset({"stop"}),
    _variants(Stop, "leaseholder", "leader-master", "one", "random", "quorum-safe", "all", *MORE_TARGETS),
)

PAUSE = FaultKind(
    "pause",
    "stops processes and lets them go on: leaders, one, a minority, a majority of a group",
    "#3a7ca5",
    frozenset({"pause"}),
    _variants(Pause, "leaseholder", "leader-master", "one", "minority", "group-majority", "quorum-safe", *MORE_TARGETS),
)

FAMILY = Family(Processes, (KILL, STOP, PAUSE))

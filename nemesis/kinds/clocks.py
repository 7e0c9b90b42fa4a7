"""Clock faults: wall clocks of single nodes that jump, go back and forth, or run at a wrong rate.

What is in effect is what the node's own program says: its status tells its wall clock, and the round trip of the
question how precisely that is known. Offsets are drawn in shares of the maximum that the database declares.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, NamedTuple

from harness.errors import HarnessError
from harness.protocols import ClockControl, Skew
from nemesis.concurrently import all_to_the_end
from nemesis.kinds.api import Claims, Family, FaultKind, Moment, Plan, Setting, Variant
from nemesis.observe import Observer, Sight
from nemesis.targets import select
from nemesis.view import View

SECOND_NS = 1_000_000_000
SLACK_NS = 5_000_000
"""How exactly a clock can be set: an agent's command takes its time."""

DEFAULT_BOUND_NS = SECOND_NS // 2
"""Where no node tells how far clocks may be apart."""

WITHIN = 0.45
"""Of the declared maximum: two clocks that are wrong by as much, one each way, are still within it."""

WITHIN_PER_S = 0.08
"""Of the maximum, that a drifting clock gains in a second: some five seconds are within the bound."""

STROBES = 6
"""In so many periods a look sees a clock that goes back and forth both ways."""

ATTEMPTS = 3
"""How often a node is asked in one look: the network may lose a question."""


@dataclass(frozen=True, slots=True)
class SetClocks:
    """These nodes' wall clocks are set wrong, each by its own, and go on from there, perhaps at a wrong rate."""

    skews: tuple[tuple[str, Skew], ...]

    def describe(self, nodes: tuple[str, ...]) -> str:
        return "set the clock of " + ", ".join(f"{name} {_words(skew)}" for name, skew in self.skews)

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name, _ in self.skews)


@dataclass(frozen=True, slots=True)
class Strobe:
    """These nodes' wall clocks are wrong and right in turn, each by its own, for `period_s` each."""

    skews: tuple[tuple[str, Skew], ...]
    period_s: float

    def describe(self, nodes: tuple[str, ...]) -> str:
        who = ", ".join(f"{name} {_words(skew)}" for name, skew in self.skews)
        return f"set the clock of {who}, and right again, every {self.period_s:.2f} s"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name, _ in self.skews)


def _words(skew: Skew) -> str:
    told = f"{skew.offset_ns / 1e9:+.3f} s" if skew.offset_ns or not skew.rate else ""
    rate = f"{skew.rate:+.1%} of the time that passes" if skew.rate else ""
    return " and ".join(filter(None, (told, rate)))


class Reading(NamedTuple):
    """How far ahead a node's own wall clock was, plus or minus an error, and how far it should have been, ns."""

    at_ns: int
    offset_ns: int
    error_ns: int
    due_ns: int

    @property
    def as_due(self) -> bool:
        return abs(self.offset_ns - self.due_ns) <= self.error_ns

    @property
    def wrong(self) -> bool:
        """Certainly not right."""
        return abs(self.offset_ns) > self.error_ns


@dataclass(slots=True)
class _Instance:
    """What one instance does: the skew of each node, how and whether they are strobed, and what was read of them.

    `wrong` says which way a strobe's clocks are set; None while they are being set.
    """

    skews: dict[str, Skew]
    period_s: float | None = None
    strobing: asyncio.Task[None] | None = None
    wrong: bool | None = True
    readings: dict[str, list[Reading]] = field(default_factory=dict)


class Clocks:
    """The clocks that each instance set wrong; a clock belongs to one instance at a time."""

    actions: ClassVar[tuple[type, ...]] = (SetClocks, Strobe)

    def __init__(self, observer: Observer, claims: Claims) -> None:
        self._observer = observer
        self._claims = claims
        self._instances: dict[int, _Instance] = {}
        self._gone: dict[int, _Instance] = {}

    @property
    def _control(self) -> ClockControl:
        environment = self._observer.environment
        if not isinstance(environment, ClockControl):
            raise HarnessError(f"clocks can't be set on {environment.name}")
        return environment

    def instances(self) -> frozenset[int]:
        return frozenset(self._instances)

    async def carry_out(self, instance: int, action: SetClocks | Strobe) -> None:
        taken = {name for each in self._instances.values() for name in each.skews}
        skews = {name: skew for name, skew in action.skews if name not in taken}
        if not skews:
            return
        begun = self._instances[instance] = _Instance(skews)
        await self._set(begun, wrong=True)
        if isinstance(action, Strobe):
            begun.period_s = action.period_s
            begun.strobing = asyncio.create_task(self._strobe(begun, action.period_s))

    async def _set(self, instance: _Instance, wrong: bool) -> None:
        instance.wrong = None
        await all_to_the_end(
            [self._control.skew_clock(name, skew if wrong else None) for name, skew in instance.skews.items()]
        )
        instance.wrong = wrong

    async def _strobe(self, instance: _Instance, period_s: float) -> None:
        while True:
            await self._observer.environment.clock.sleep(period_s)
            await self._set(instance, wrong=not instance.wrong)

    async def look(self, instance: int) -> Sight:
        """Every clock shows, in its node's own program, the wrong time that it should; of a strobe both in turn."""
        looked = self._instances.get(instance)
        if looked is None:
            return Sight(True)
        if looked.period_s is not None:
            return await self._look_at_strobe(looked, looked.period_s)
        readings = await self._read(looked)
        missing = [name for name in looked.skews if name not in readings and name not in self._claims.down()]
        met = bool(readings) and not missing and all(each.as_due and each.wrong for each in readings.values())
        return Sight(met, _evidence(readings, missing))

    async def _look_at_strobe(self, instance: _Instance, period_s: float) -> Sight:
        seen: dict[str, set[bool]] = {}
        readings: dict[str, Reading] = {}
        for _ in range(2 * STROBES):
            wrong, found = instance.wrong, await self._read(instance)
            if wrong is not None and instance.wrong is wrong:
                readings = found
                for name, each in readings.items():
                    if each.as_due and (each.wrong or not wrong):
                        seen.setdefault(name, set()).add(wrong)
            if readings and all(seen.get(name) == {True, False} for name in readings):
                return Sight(True, _evidence(readings, ()))
            await self._observer.environment.clock.sleep(period_s / 2)
        return Sight(False, _evidence(readings, [name for name in instance.skews if name not in readings]))

    async def _read(self, instance: _Instance) -> dict[str, Reading]:
        """What those of the instance's clocks show whose nodes answer; nodes that are held down by others can't."""
        asked = [name for name in instance.skews if name not in self._claims.down()]
        found = await asyncio.gather(*(self._read_patiently(name) for name in asked))
        readings = {name: reading for name, reading in zip(asked, found, strict=True) if reading is not None}
        for name, reading in readings.items():
            instance.readings.setdefault(name, []).append(reading)
        return readings

    async def _read_patiently(self, name: str) -> Reading | None:
        for _ in range(ATTEMPTS):
            reading = await self._read_one(name)
            if reading is not None:
                return reading
        return None

    async def _read_one(self, name: str) -> Reading | None:
        """The answer was given at some time within the round trip; a clock that was set meanwhile tells nothing."""
        clock, control = self._observer.environment.clock, self._control
        due_before_ns, before_ns, at_ns = control.due_offset_ns(name), clock.wall_ns(), clock.monotonic_ns()
        status = await self._observer.database.status(name)
        after_ns, due_ns = clock.wall_ns(), control.due_offset_ns(name)
        half_ns = (after_ns - before_ns) // 2
        if status is None or abs(due_ns - due_before_ns) > SLACK_NS + 2 * half_ns:
            return None
        return Reading(at_ns, status.wall_ns - before_ns - half_ns, half_ns + SLACK_NS, (due_before_ns + due_ns) // 2)

    async def undo(self, instance: int) -> None:
        undone = self._instances.get(instance)
        if undone is None:
            return
        if undone.strobing is not None:
            undone.strobing.cancel()
            await asyncio.gather(undone.strobing, return_exceptions=True)
        await self._set(undone, wrong=False)
        self._gone[instance] = self._instances.pop(instance)

    async def look_gone(self, instance: int) -> Sight:
        """Every clock shows again what it would show by itself; of its own a node can only tell when it is up."""
        gone = self._gone.get(instance)
        if gone is None:
            return Sight(True)
        others = {name for each in self._instances.values() for name in each.skews}
        readings = await self._read(gone)
        free = [name for name in gone.skews if name not in others and name not in self._claims.down()]
        silent = [name for name in free if name not in readings]
        wrong = [name for name in free if name in readings and not readings[name].as_due]
        evidence = _evidence(readings, silent) | {"readings": _curves(gone)}
        return Sight(not silent and not wrong, evidence, "harness" if wrong else "database")

    def forget(self, instance: int) -> None:
        self._gone.pop(instance, None)


def _evidence(readings: dict[str, Reading], missing: Iterable[str]) -> dict[str, Any]:
    offsets = {name: round(each.offset_ns / 1e9, 4) for name, each in readings.items()}
    due = {name: round(each.due_ns / 1e9, 4) for name, each in readings.items()}
    return {"offsets_s": offsets, "due_s": due, **({"silent": sorted(missing)} if missing else {})}


def _curves(instance: _Instance) -> dict[str, list[list[int]]]:
    """For each node the time, ns, and the offset, ns, of everything that was read."""
    return {name: [[each.at_ns, each.offset_ns] for each in read] for name, read in instance.readings.items()}


# ---- variants ----

NEEDS = frozenset({"clock", "status"})
TIMES_BEYOND = Setting(8.0, 1.1, 1e6, "how many times the declared maximum offset `beyond` goes at most")


def bound_ns(view: View) -> int:
    """How far clocks may be apart, as the nodes declare it."""
    told = [status.details.get("max_clock_offset_ns") for status in view.statuses.values()]
    return min((each for each in told if isinstance(each, int)), default=DEFAULT_BOUND_NS)


def _offset(moment: Moment, beyond: bool) -> int:
    """An offset, forwards or backwards; within the bound one that can be told from none."""
    entropy, bound = moment.entropy, bound_ns(moment.view)
    share = entropy.uniform(1.1, moment.settings["beyond"]) if beyond else entropy.uniform(0.5, 1.0) * WITHIN
    return int(entropy.choice((-1, 1)) * share * bound)


def _jump(selector: str, beyond: bool) -> Variant:
    return _variant(selector, lambda moment: Skew(_offset(moment, beyond)), SetClocks)


def _drift(selector: str, beyond: bool) -> Variant:
    def skew(moment: Moment) -> Skew:
        per_s = moment.settings["beyond"] / 8 if beyond else WITHIN_PER_S
        return Skew(0, moment.entropy.choice((-1, 1)) * per_s * bound_ns(moment.view) / SECOND_NS)

    return _variant(selector, skew, SetClocks)


def _strobe(selector: str, beyond: bool) -> Variant:
    def action(skews: tuple[tuple[str, Skew], ...], entropy: Random) -> Strobe:
        return Strobe(skews, entropy.uniform(0.1, 0.6))

    return _variant(selector, lambda moment: Skew(_offset(moment, beyond)), action)


def _variant(selector: str, skew: Callable[[Moment], Skew], action: Callable[..., SetClocks | Strobe]) -> Variant:
    """Each target has a skew of its own; busy nodes are hit as well: a clock goes wrong whatever the process does."""

    def plan(moment: Moment) -> Plan:
        choice = select(selector, moment.view, (), moment.entropy)
        if not choice.targets:
            return Plan(None, choice.evidence)
        skews = tuple((name, skew(moment)) for name in choice.targets)
        made = action(skews) if action is SetClocks else action(skews, moment.entropy)
        return Plan(made, {**choice.evidence, "bound_s": bound_ns(moment.view) / 1e9})

    return Variant(plan)


def _variants(make: Callable[[str, bool], Variant]) -> dict[str, Variant]:
    """Preferred ones first: all clocks wrong by as much as is allowed, and a leaseholder's by more."""
    return dict(_named(make))


def _named(make: Callable[[str, bool], Variant]) -> Iterator[tuple[str, Variant]]:
    for selector in ("all", "leaseholder", "minority", "leader-master", "random"):
        yield f"{selector}-within", make(selector, False)
        yield f"{selector}-beyond", make(selector, True)


JUMP = FaultKind(
    "clock-jump",
    "sets wall clocks forwards or backwards, each by its own, within the declared maximum offset or far beyond it",
    "#b08d2e",
    NEEDS,
    _variants(_jump),
    {"beyond": TIMES_BEYOND},
)

STROBE = FaultKind(
    "clock-strobe",
    "sets wall clocks wrong and right again, several times a second, within the maximum offset or beyond it",
    "#8f7a1a",
    NEEDS,
    _variants(_strobe),
    {"beyond": TIMES_BEYOND},
)

DRIFT = FaultKind(
    "clock-drift",
    "lets wall clocks run too fast or too slowly, each by its own, within the maximum offset or until far beyond it",
    "#c2a24d",
    NEEDS,
    _variants(_drift),
    {"beyond": TIMES_BEYOND},
)

FAMILY = Family(Clocks, (JUMP, STROBE, DRIFT))

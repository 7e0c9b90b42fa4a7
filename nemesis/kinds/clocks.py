"""Clock faults: wall clocks of single nodes that jump, go back and forth, or run at a wrong rate.

What is in effect is what the node's own program says: its status tells its wall clock, and the round trip of the
question how precisely that is known (Cristian, "Probabilistic clock synchronization", 1989). A clock that could as well
be as it would be without the fault tells nothing, and is asked again. Offsets are drawn in shares of the maximum that
the database declares.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, ClassVar, NamedTuple

from harness.capabilities import Capability
from harness.errors import HarnessError
from harness.ports.machines import Skew
from harness.protocols import ClockControl
from nemesis.faults import WITHIN, SetClocks
from nemesis.kinds.api import Claims, Family, FaultKind, FaultPlan, Moment, Setting, Variant, all_to_the_end
from nemesis.observe import DEFAULT_CLOCK_OFFSET_NS, LONGEST_DOUBT_NS, DatabaseObserver, Sight, View
from nemesis.targets import Choice, needs_of, select, unless_of

SECOND_NS = 1_000_000_000
SLACK_NS = 5_000_000
"""How exactly a clock can be set: an agent's command takes its time."""

LATE_S = 0.25
"""How late the steps of a drift may come on a busy machine: the clock shows what was due so long ago, or will be."""

WITHIN_PER_S = 0.08
"""Of the maximum, that a drifting clock gains in a second: some five seconds are within the bound."""

STROBES = 6
"""The periods in which a look sees a clock that goes back and forth both ways."""

RECENT_NS = LONGEST_DOUBT_NS // 2
"""A clock that tells nothing just now counts as it was so long ago: each of many nodes is slow to answer at times."""

ATTEMPTS = 3
"""How often a node is asked in one look: the network may lose a question, or take too long for an answer to tell."""


@dataclass(frozen=True, slots=True)
class Strobe:
    """These nodes' wall clocks are wrong and right in turn, each by its own, for `period_s` each."""

    skews: tuple[tuple[str, Skew], ...]
    period_s: float

    def describe(self, nodes: tuple[str, ...]) -> str:
        who = ", ".join(f"{name} {skew}" for name, skew in self.skews)
        return f"set the clock of {who}, and right again, every {self.period_s:.2f} s"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name, _ in self.skews)


class ClockReading(NamedTuple):
    """How far ahead a node's own wall clock was, plus or minus `error_ns`, and how far it was due to be, give or take
    `slack_ns`; `otherwise_ns` is what it would show had the fault not come, or not gone (None: the same). All in ns.
    """

    at_ns: int
    offset_ns: int
    error_ns: int
    due_ns: int
    slack_ns: int = 0
    otherwise_ns: int | None = None

    @property
    def as_due(self) -> bool | None:
        """Whether the clock was as it should be; None where it may as well have been as it would be otherwise."""
        if abs(self.offset_ns - self.due_ns) > self.error_ns + self.slack_ns:
            return False
        if self.otherwise_ns is not None and abs(self.offset_ns - self.otherwise_ns) <= self.error_ns:
            return None
        return True


def ways(reading: ClockReading, wrong_ns: int, right_ns: int) -> frozenset[bool]:
    """Which way a strobed clock can have been when it was read, wrong (True) or right: both where that can't be told,
    neither where it shows something else."""
    offsets = {True: wrong_ns, False: right_ns}
    return frozenset(way for way in offsets if abs(reading.offset_ns - offsets[way]) <= reading.error_ns)


UNREAD = ClockReading(0, 0, 0, 0, 0, 0)
"""The reading of a node which has not answered: it can't be told whether its clock is as due."""


def reading_of(
    shown_ns: int,
    wall_ns: tuple[int, int],
    due_ns: tuple[int, int],
    at_ns: int,
    slack_ns: int,
    otherwise_ns: int | None,
) -> ClockReading:
    """What a clock's answer says that was given at some time within a round trip; `wall_ns` and `due_ns` are the own
    clock and the offset due at its begin and end."""
    half_ns, moved_ns = (wall_ns[1] - wall_ns[0]) // 2, abs(due_ns[1] - due_ns[0])
    error_ns = half_ns + moved_ns // 2 + SLACK_NS
    return ClockReading(at_ns, shown_ns - wall_ns[0] - half_ns, error_ns, sum(due_ns) // 2, slack_ns, otherwise_ns)


@dataclass(slots=True)
class _SkewInstance:
    """What one instance does: the skew of each node, how and whether they are strobed, and what was read of them.

    `touched` are all nodes whose clock it ever set, with the offset that was due of each when it was last set right.
    `wrong` says which way the clocks are set now, None while they are being set; `turns` how often they were; `own` are
    the offsets that they have when they are set right. `told` is when each was last seen to be as it should; `right`
    are those that were seen to be right since the instance was undone.
    """

    skews: dict[str, Skew]
    touched: dict[str, int] = field(default_factory=dict)
    period_s: float | None = None
    strobing: asyncio.Task[None] | None = None
    wrong: bool | None = True
    turns: int = 0
    own: dict[str, int] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)
    readings: dict[str, list[ClockReading]] = field(default_factory=dict)
    right: set[str] = field(default_factory=set)


class ClockFaults:
    """The clocks that each instance set wrong; a clock belongs to one instance at a time.

    `worn_off_ns` as `WearsOff` (`harness.run.allowances`) says: timestamps that were given out by a clock which ran
    ahead stay ahead once it is right, and are beyond the declared bound for as long as it was further ahead.
    """

    actions: ClassVar[tuple[type, ...]] = (SetClocks, Strobe)

    def __init__(self, observer: DatabaseObserver, claims: Claims) -> None:
        self._observer = observer
        self._claims = claims
        self._instances: dict[int, _SkewInstance] = {}
        self._gone: dict[int, _SkewInstance] = {}
        self._bound_ns = DEFAULT_CLOCK_OFFSET_NS
        self.worn_off_ns = 0

    @property
    def _control(self) -> ClockControl:
        environment = self._observer.environment
        if not isinstance(environment, ClockControl):
            raise HarnessError(f"clocks can't be set on {environment.name}")
        return environment

    def instances(self) -> frozenset[int]:
        return frozenset(self._instances)

    async def carry_out(self, instance: int, action: SetClocks | Strobe) -> None:
        """Clocks of other instances are left alone."""
        taken = {name for number, each in self._instances.items() if number != instance for name in each.skews}
        skews = {name: skew for name, skew in action.skews if name not in taken}
        if not skews and instance not in self._instances:
            return
        begun = self._instances.setdefault(instance, _SkewInstance({}))
        right = [name for name in begun.skews if name not in skews]
        begun.touched |= dict.fromkeys(skews, 0)
        begun.own |= {name: self._control.due_offset_ns(name) for name in skews if name not in begun.skews}
        begun.told.clear()
        begun.skews.update(skews)
        begun.touched |= {name: self._control.due_offset_ns(name) for name in right}
        await all_to_the_end([self._control.skew_clock(name, None) for name in right])
        self._note_set_back(begun, right)
        for name in right:
            del begun.skews[name]
        await self._set(begun, wrong=True)
        if isinstance(action, Strobe):
            begun.period_s = action.period_s
            begun.strobing = asyncio.create_task(self._strobe(begun, action.period_s))

    async def _set(self, instance: _SkewInstance, wrong: bool) -> None:
        instance.wrong, instance.turns = None, instance.turns + 1
        await all_to_the_end(
            [self._control.skew_clock(name, skew if wrong else None) for name, skew in instance.skews.items()]
        )
        instance.wrong = wrong

    async def _strobe(self, instance: _SkewInstance, period_s: float) -> None:
        while True:
            await self._observer.environment.clock.sleep(period_s)
            await self._set(instance, wrong=not instance.wrong)

    async def look(self, instance: int) -> Sight:
        """Every clock shows, in its node's own program, the wrong time that it should; of a strobe both in turn.

        Clocks that can't be read precisely enough, and nodes that don't answer, tell nothing.
        """
        looked = self._instances.get(instance)
        if looked is None or not looked.skews:
            return Sight(True)
        if looked.period_s is not None:
            return await self._look_at_strobe(looked, looked.period_s)
        readings = await self._read(looked, dict.fromkeys(looked.skews, 0))
        return self._sight(looked, readings, {name: each.as_due for name, each in readings.items()})

    def _sight(
        self, instance: _SkewInstance, readings: dict[str, ClockReading], as_due: Mapping[str, bool | None]
    ) -> Sight:
        """What is known of all its clocks, by those that told something just now, and the others a moment ago: until
        then it is known of all."""
        now_ns = self._observer.environment.clock.monotonic_ns()
        instance.told.update((name, now_ns) for name, due in as_due.items() if due)
        missing = [name for name in instance.skews if name not in readings and name not in self._claims.down()]
        unsure = [*missing, *(name for name, due in as_due.items() if due is None)]
        known = all(name in instance.told and now_ns - instance.told[name] <= RECENT_NS for name in unsure)
        met = True if known and True in as_due.values() else None
        at_ns = min((instance.told[name] for name in unsure), default=None) if met else None
        return Sight(False if False in as_due.values() else met, _evidence(readings, missing), at_ns=at_ns)

    async def _look_at_strobe(self, instance: _SkewInstance, period_s: float) -> Sight:
        """Answers tell which way a clock was, also those that it was set upon on their way; of others, whether that is
        the way which it was set as well."""
        readings: dict[str, ClockReading] = {}
        seen: dict[str, set[bool]] = {}
        astray: set[str] = set()
        for _ in range(2 * STROBES):
            wrong, turns = instance.wrong, instance.turns
            if wrong is False:
                instance.own |= {name: self._control.due_offset_ns(name) for name in instance.skews}
            for name, reading in (await self._read_strobed(instance)).items():
                readings[name] = reading
                possible = ways(reading, instance.skews[name].offset_ns, instance.own[name])
                seen.setdefault(name, set()).update(possible if len(possible) == 1 else ())
                if not possible or (wrong is not None and instance.turns == turns and wrong not in possible):
                    astray.add(name)
            if readings and all(len(seen[name]) == 2 for name in readings):
                break
            await self._observer.environment.clock.sleep(period_s / 2)
        as_due = {name: True if len(both) == 2 else False if name in astray else None for name, both in seen.items()}
        return self._sight(instance, readings, as_due)

    async def _read_strobed(self, instance: _SkewInstance) -> dict[str, ClockReading]:
        """Each clock that is read, once; its error is how long the answer took, whatever was due meanwhile."""
        found = await asyncio.gather(*(self._read_one(name, 0, None, moving=False) for name in instance.skews))
        halves = zip(instance.skews, found, strict=True)
        readings = {name: each for name, each in halves if each is not None}
        for name, reading in readings.items():
            instance.readings.setdefault(name, []).append(reading)
        return readings

    async def _read(
        self, instance: _SkewInstance, otherwise_ns: Mapping[str, int | None], attempts: int = ATTEMPTS
    ) -> dict[str, ClockReading]:
        """What those of the clocks show whose nodes answer before the instance sets its clocks again; `otherwise_ns` is
        what each would show if it were not as it is due. Nodes that other faults hold may answer, if their process is
        left alone; they are asked once."""
        held = self._claims.down()
        found = await asyncio.gather(
            *(
                self._read_patiently(instance, name, other, 1 if name in held else attempts)
                for name, other in otherwise_ns.items()
            )
        )
        readings = {name: reading for name, reading in zip(otherwise_ns, found, strict=True) if reading is not None}
        for name, reading in readings.items():
            instance.readings.setdefault(name, []).append(reading)
        return readings

    async def _read_patiently(
        self, instance: _SkewInstance, name: str, otherwise_ns: int | None, attempts: int
    ) -> ClockReading | None:
        """The first reading that tells something, else the most precise one; None if there was none."""
        unsure: list[ClockReading] = []
        slack_ns, turns = _slack_ns(instance.skews.get(name)), instance.turns
        for _ in range(attempts):
            reading = await self._read_one(name, slack_ns, otherwise_ns)
            if instance.turns != turns:
                break
            if reading is not None and reading.as_due is not None:
                return reading
            unsure += [reading] if reading is not None else []
        return min(unsure, key=lambda each: each.error_ns, default=None)

    async def _read_one(
        self, name: str, slack_ns: int, otherwise_ns: int | None, moving: bool = True
    ) -> ClockReading | None:
        clock, control = self._observer.environment.clock, self._control
        due_before_ns, before_ns, at_ns = control.due_offset_ns(name), clock.wall_ns(), clock.monotonic_ns()
        status = await self._observer.database.status(name)
        due_after_ns = control.due_offset_ns(name) if moving else due_before_ns
        wall_ns, due_ns = (before_ns, clock.wall_ns()), (due_before_ns, due_after_ns)
        if status is None:
            return None
        self._bound_ns = View(self._observer.database.nodes, {name: status}).max_clock_offset_ns
        return reading_of(status.wall_ns, wall_ns, due_ns, at_ns, slack_ns, otherwise_ns)

    async def undo(self, instance: int) -> None:
        undone = self._instances.get(instance)
        if undone is None:
            return
        if undone.strobing is not None:
            undone.strobing.cancel()
            await asyncio.gather(undone.strobing, return_exceptions=True)
        if undone.wrong is not None:
            undone.touched |= {name: self._shown_wrong_ns(undone, name) for name in undone.skews}
        await self._set(undone, wrong=False)
        self._note_set_back(undone, undone.skews)
        self._gone[instance] = self._instances.pop(instance)

    def _note_set_back(self, instance: _SkewInstance, names: Iterable[str]) -> None:
        """These clocks have been set right just now, from the offset that was due of each."""
        now_ns = self._observer.environment.clock.monotonic_ns()
        for name in names:
            beyond_ns = instance.touched[name] - self._control.due_offset_ns(name) - self._bound_ns
            if beyond_ns > 0:
                self.worn_off_ns = max(self.worn_off_ns, now_ns + beyond_ns)

    async def look_gone(self, instance: int) -> Sight:
        """Every clock shows again what it would show by itself; of its own a node can only tell when it is up: of one
        that another fault holds, and that does not answer, nothing is known."""
        gone = self._gone.get(instance)
        if gone is None:
            return Sight(True)
        others = {name for each in self._instances.values() for name in each.skews}
        left = [name for name in gone.touched if name not in {*gone.right, *others}]
        readings = await self._read(gone, {name: self._left_ns(gone, name) for name in left})
        held = [name for name in self._claims.down() if name in left and readings.get(name, UNREAD).as_due is None]
        silent = [name for name in left if name not in readings and name not in held]
        wrong = [name for name in readings if not readings[name].as_due and name not in held]
        gone.right.update(name for name in readings if readings[name].as_due)
        evidence = _evidence(readings, [*silent, *held]) | {"readings": _curves(gone)}
        met = None if held and not silent and not wrong else not silent and not wrong
        return Sight(met, evidence, "harness" if wrong else "database")

    def _shown_wrong_ns(self, instance: _SkewInstance, name: str) -> int:
        """What the fault has the clock show; that of a strobe may be right just now."""
        return self._control.due_offset_ns(name) if instance.period_s is None else instance.skews[name].offset_ns

    def _left_ns(self, gone: _SkewInstance, name: str) -> int | None:
        """What the clock would show if it had not been set right; None where that can't be told from what is right."""
        left_ns = gone.touched[name]
        return left_ns if abs(left_ns - self._control.due_offset_ns(name)) > 2 * SLACK_NS else None

    def forget(self, instance: int) -> None:
        self._gone.pop(instance, None)


def _slack_ns(skew: Skew | None) -> int:
    """How far a clock that drifts may be off, since its steps come late."""
    return int(abs(skew.rate) * LATE_S * SECOND_NS) if skew is not None else 0


def _evidence(readings: dict[str, ClockReading], missing: Iterable[str]) -> dict[str, Any]:
    offsets = {name: round(each.offset_ns / 1e9, 4) for name, each in readings.items()}
    errors = {name: round(each.error_ns / 1e9, 4) for name, each in readings.items()}
    due = {name: round(each.due_ns / 1e9, 4) for name, each in readings.items()}
    return {"offsets_s": offsets, "errors_s": errors, "due_s": due, **({"silent": sorted(missing)} if missing else {})}


def _curves(instance: _SkewInstance) -> dict[str, list[list[int]]]:
    """For each node the time, ns, and the offset, ns, of everything that was read."""
    return {name: [[each.at_ns, each.offset_ns] for each in read] for name, read in instance.readings.items()}


# ---- variants ----

NEEDS = frozenset({"clock", "status", Capability.WALL_CLOCK})
TIMES_BEYOND = Setting(8.0, 1.1, 1e6, "how many times the declared maximum offset `beyond` goes at most")


def offset_ns(moment: Moment, beyond: bool) -> int:
    """An offset, forwards or backwards; within the bound one that can be told from none."""
    entropy, bound = moment.entropy, moment.view.max_clock_offset_ns
    share = entropy.uniform(1.1, moment.settings["beyond"]) if beyond else entropy.uniform(0.5, 1.0) * WITHIN
    return int(entropy.choice((-1, 1)) * share * bound)


def _jump(selector: str, beyond: bool) -> Variant:
    return _variant(selector, lambda moment: Skew(offset_ns(moment, beyond)), SetClocks)


def _drift(selector: str, beyond: bool) -> Variant:
    def skew(moment: Moment) -> Skew:
        per_s = moment.settings["beyond"] / 8 if beyond else WITHIN_PER_S
        return Skew(0, moment.entropy.choice((-1, 1)) * per_s * moment.view.max_clock_offset_ns / SECOND_NS)

    return _variant(selector, skew, SetClocks)


def _strobe(selector: str, beyond: bool) -> Variant:
    def action(skews: tuple[tuple[str, Skew], ...], entropy: Random) -> Strobe:
        return Strobe(skews, entropy.uniform(0.1, 0.6))

    return _variant(selector, lambda moment: Skew(offset_ns(moment, beyond)), action)


def _variant(selector: str, skew: Callable[[Moment], Skew], action: Callable[..., SetClocks | Strobe]) -> Variant:
    made = skewed(lambda moment: select(selector, moment.view, (), moment.entropy), skew, action)
    return replace(made, needs=needs_of(selector), unless=unless_of(selector))


def skewed(
    choose: Callable[[Moment], Choice], skew: Callable[[Moment], Skew], action: Callable[..., SetClocks | Strobe]
) -> Variant:
    """Each target has a skew of its own; busy nodes are hit as well: a clock goes wrong whatever the process does."""

    def plan(moment: Moment) -> FaultPlan:
        choice = choose(moment)
        if not choice.targets:
            return FaultPlan(None, choice.evidence, choice.roles)
        skews = tuple((name, skew(moment)) for name in choice.targets)
        made = action(skews) if action is SetClocks else action(skews, moment.entropy)
        return FaultPlan(made, {**choice.evidence, "bound_s": moment.view.max_clock_offset_ns / 1e9}, choice.roles)

    return Variant(plan)


UNSEEN_BY_CLIENTS = frozenset({Capability.READS_ANYWHERE})
"""Where histories hold the database to its clients' clocks: clocks that most nodes follow beyond the bound are right by
their own word, and no client's."""


def _variants(make: Callable[[str, bool], Variant]) -> dict[str, Variant]:
    """Preferred ones first: all clocks wrong by as much as is allowed, and a leaseholder's by more."""
    return dict(_named(make))


def _named(make: Callable[[str, bool], Variant]) -> Iterator[tuple[str, Variant]]:
    for selector in ("all", "leader", "leaseholder", "minority", "leader-master", "random"):
        yield f"{selector}-within", make(selector, False)
        beyond = make(selector, True)
        yield f"{selector}-beyond", replace(beyond, unless=beyond.unless | UNSEEN_BY_CLIENTS)


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

FAMILY = Family(ClockFaults, (JUMP, STROBE, DRIFT))

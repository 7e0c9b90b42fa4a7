"""The schedule of faults: cycle after cycle, one operation at a time (pure).

A cycle is a function of the kinds asked for, a seed and the cycle's number. It holds one fault, or two of different
kinds that overlap, and begins with quiet time in which the cluster can recover from the one before. The first cycles
take every kind once, quickly; later ones are drawn by chance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from harness.generators.core import (
    DONE,
    NEMESIS_MASK,
    PENDING,
    Chance,
    Context,
    Generator,
    Pending,
    Step,
    child,
    fill,
    invoke,
    nanos,
)
from harness.history.ops import NEMESIS_PROCESS, Op
from harness.run.extended_load import WantedFaults

STEP_NAMES = {
    "partition": ("start-partition", "stop-partition"),
    "kill": ("kill", "restart"),
    "pause": ("pause", "resume"),
    "stop": ("stop", "start"),
}
"""`f` of the begin and end steps of some kinds; others' are `start-` and `stop-` with the name."""

TURNS_AT_ONCE = 4
"""A kind that shows too little has no other kind between its turns until it had this many: one that never shows enough
would leave the others none."""

OVERLAP_SHARE = 0.35
"""Share of the later cycles in which a second kind joins in."""

EXTENSION = 4
"""By how many intervals a script's episode is extended while its core is not reached; not while other kinds wait."""

SEED_BITS = 53
"""Seeds travel as JSON numbers."""


class AskedKind(msgspec.Struct, frozen=True):
    """A kind asked for: its variants, the preferred one first (of a script: its own name only), its pace and settings.

    `every_s` is how long its cycles take, `for_s` how long an instance lasts; None: as the pace has it. While
    one that is `alone` lasts there is no other; scripts are.
    """

    name: str
    variants: tuple[str, ...]
    scripted: bool = False
    every_s: float | None = None
    for_s: float | None = None
    settings: Mapping[str, float] = {}
    alone: bool = False
    names: Mapping[str, tuple[str, ...]] = {}


class CyclePace(msgspec.Struct, frozen=True):
    """How long things last: a fault 0.4 to 1.2 intervals, a script's episode 1.5 to 3, quiet time 0.5 to 1.

    In the first round, while some kind has had no instance, cycles are short enough for it to end by `first_round_s`;
    but no fault lasts less than `least_s`, and a script may go on for `extend_s` until its core is reached. With
    `extend_s`, what has shown too little has the next cycles (`TURNS_AT_ONCE`), later and without every other one, and
    a kind with a pace of its own doesn't wait for its first turn until its cycle is over: looking at faults takes time
    that no pace tells.
    `failover_s` is how long the database may take for a fail-over, of which scripts wait for one or two.
    """

    interval_s: float = 5.0
    first_round_s: float = 15.0
    least_s: float = 0.0
    extend_s: float = 0.0
    failover_s: float = 0.0

    def extension_s(self, shared: bool) -> float:
        """By how much a script's episode is extended while its core is not reached, if it shares the round or not."""
        if shared:
            return max(self.extend_s, self.failover_s) if self.extend_s else 0.0
        return max(EXTENSION * self.interval_s, 2 * self.failover_s)


class Timed(msgspec.Struct, frozen=True):
    """One operation, `wait_s` after the one before completed; repeated until `repeat_s` passed if that is not None.

    A script that has not reached its core by then may go on for another `extend_s`.
    """

    wait_s: float
    op: Op
    repeat_s: float | None = None
    extend_s: float = 0.0


class CyclePlan(msgspec.Struct, frozen=True):
    """A cycle's operations, and how many instances of each kind there are after it."""

    items: tuple[Timed, ...]
    counts: tuple[int, ...]


def plan_cycle(
    kinds: tuple[AskedKind, ...],
    pace: CyclePace,
    seed: int,
    cycle: int,
    counts: tuple[int, ...],
    lacking: Collection[str] = (),
) -> CyclePlan:
    """The next cycle, given how many instances of each kind there were before, and the kinds that have shown too
    little."""
    chance = Chance(child(seed, cycle))
    again = [i for i, kind in enumerate(kinds) if kind.name in lacking]
    at_once = [i for i in again if counts[i] < TURNS_AT_ONCE] if pace.extend_s else []
    chosen = _choose(kinds, cycle, chance, at_once, again)
    hold_s, quiet_s = _lengths(kinds, pace, cycle, chosen, chance)
    begins, ends = [], []
    for kind in chosen:
        number = sum(counts)
        begins.append(begin_op(kinds[kind], number, counts[kind], seed))
        ends.append(end_op(kinds[kind].name, number))
        counts = tuple(count + (i == kind) for i, count in enumerate(counts))
    if kinds[chosen[0]].scripted:
        shared = cycle < len(kinds) and len(kinds) > 1
        steps = Timed(0.0, step_op(begins[0]), hold_s, pace.extension_s(shared))
        return CyclePlan((Timed(quiet_s, begins[0]), steps, Timed(0.0, ends[0])), counts)
    if len(chosen) == 1:
        return CyclePlan((Timed(quiet_s, begins[0]), Timed(hold_s, ends[0])), counts)
    if chance.uniform() < 0.5:
        ends.reverse()
    waits = (quiet_s, chance.uniform() * hold_s / 2, hold_s, chance.uniform() * hold_s / 2)
    return CyclePlan(tuple(Timed(wait, op) for wait, op in zip(waits, (*begins, *ends), strict=True)), counts)


def _choose(
    kinds: tuple[AskedKind, ...], cycle: int, chance: Chance, at_once: list[int], again: list[int]
) -> list[int]:
    """Each kind once; then those that are to have another turn at once; then any, maybe two, and in every other cycle a
    kind that is to have another turn."""
    if cycle < len(kinds):
        return [cycle]
    if at_once:
        return [at_once[cycle % len(at_once)]]
    if again and cycle % 2 == 0:
        return [again[cycle // 2 % len(again)]]
    first = chance.below(len(kinds))
    partners = [i for i, kind in enumerate(kinds) if i != first and not (kind.scripted or kind.alone)]
    if kinds[first].scripted or kinds[first].alone or not partners or chance.uniform() >= OVERLAP_SHARE:
        return [first]
    return [first, chance.choice(partners)]


def _lengths(
    kinds: tuple[AskedKind, ...], pace: CyclePace, cycle: int, chosen: list[int], chance: Chance
) -> tuple[float, float]:
    """Seconds that the fault lasts, and of quiet time before it."""
    leading, interval_s = kinds[chosen[0]], pace.interval_s
    if cycle < len(kinds):
        interval_s = min(interval_s, pace.first_round_s / len(kinds) / 2.2)
    quiet_s = interval_s * (0.5 + 0.5 * chance.uniform())
    if leading.scripted and cycle >= len(kinds):
        hold_s = interval_s * (1.5 + 1.5 * chance.uniform())
    else:
        hold_s = max(interval_s * (0.4 + 0.8 * chance.uniform()), pace.least_s)
    if leading.every_s is not None:
        hold_s = min(hold_s, leading.every_s * 0.6)
    if leading.for_s is not None:
        hold_s = leading.for_s
    if leading.every_s is not None:
        rest_s = max(leading.every_s - hold_s, 0.0)
        quiet_s = min(rest_s, quiet_s) if cycle < len(kinds) and pace.extend_s else rest_s
    return hold_s, quiet_s


def variant_of(kind: AskedKind, count: int, seed: int) -> str:
    """The variant of the kind's instance number `count`: each in turn, the preferred first, then in random rounds."""
    rounds, place = divmod(count, len(kind.variants))
    chance = Chance(child(seed, rounds))
    order = list(kind.variants if rounds else kind.variants[1:])
    for i in range(len(order) - 1, 0, -1):
        j = chance.below(i + 1)
        order[i], order[j] = order[j], order[i]
    return order[place] if rounds else (kind.variants[0], *order)[place]


def begin_op(kind: AskedKind, number: int, count: int, seed: int) -> Op:
    """The operation that begins an instance; `seed` in its value fixes every choice made when it is carried out."""
    f = STEP_NAMES[kind.name][0] if kind.name in STEP_NAMES else f"start-{kind.name}"
    value = {
        "fault": kind.name,
        "variant": variant_of(kind, count, seed),
        "instance": number,
        "step": "begin",
        "seed": child(seed, number) >> (64 - SEED_BITS),
        **({"settings": dict(kind.settings)} if kind.settings else {}),
        **({"names": {name: list(given) for name, given in kind.names.items()}} if kind.names else {}),
    }
    return invoke(f, value=value)


def step_op(begin: Op) -> Op:
    """The operation that lets a script take its next step."""
    return invoke(f"step-{begin.value['fault']}", value={**begin.value, "step": "step"})


def end_op(kind: str, number: int | None) -> Op:
    """The operation that ends an instance; of whatever instance of the kind is in effect, if the number is None."""
    f = STEP_NAMES[kind][1] if kind in STEP_NAMES else f"stop-{kind}"
    return invoke(f, value={"fault": kind, "instance": number, "step": "end"})


class Steps(msgspec.Struct, frozen=True):
    """These operations for the nemesis, each after the one before completed and its wait is over.

    `since_ns` is when the last one completed, `until_ns` when the first item stops being repeated, or (if a script has
    not reached its core by then) when its extension begins.
    """

    items: tuple[Timed, ...]
    since_ns: int = 0
    until_ns: int | None = None
    core: bool = False

    def step(self, context: Context) -> Step:
        if not self.items:
            return DONE
        item = self.items[0]
        extension_ns = 0 if self.core else nanos(item.extend_s)
        if self.until_ns is not None and context.time_ns >= self.until_ns + extension_ns:
            return replace(self, items=self.items[1:], until_ns=None, core=False).step(context)
        due_ns = self.since_ns + nanos(item.wait_s)
        if context.time_ns < due_ns:
            return Pending(due_ns), self
        op = fill(item.op, context.restrict(NEMESIS_MASK))
        if op is None:
            return PENDING, self
        if item.repeat_s is None:
            return op, replace(self, items=self.items[1:])
        return op, replace(self, until_ns=self.until_ns or context.time_ns + nanos(item.repeat_s))

    def update(self, context: Context, event: Op) -> Generator:
        return self.after(event)

    def after(self, event: Op) -> Steps:
        """The steps that have seen an event; a script that says it is finished takes no further step."""
        if event.process != NEMESIS_PROCESS or event.type == "invoke":
            return self
        told = event.value if isinstance(event.value, dict) else {}
        finished = bool(told.get("finished", False))
        until_ns = event.time if self.until_ns is not None and finished else self.until_ns
        core = self.core or finished or (told.get("core") is True and told.get("observed") is True)
        return replace(self, items=_without_hold(self.items, told), since_ns=event.time, until_ns=until_ns, core=core)


def _without_hold(items: tuple[Timed, ...], told: Mapping[str, Any]) -> tuple[Timed, ...]:
    """The steps after one that was told of: an instance that did nothing ends at once, if its end comes next."""
    if told.get("idle") is not True or not items:
        return items
    value = items[0].op.value
    ends = isinstance(value, dict) and value.get("step") == "end" and value.get("instance") == told.get("instance")
    return (replace(items[0], wait_s=0.0), *items[1:]) if ends else items


class Schedule(msgspec.Struct, frozen=True):
    """Endless cycles; `counts` are the instances of each kind so far, `steps` what is left of the present cycle.

    `wanted` is what the run's events say of the kinds so far: those that lack something have other turns."""

    kinds: tuple[AskedKind, ...]
    pace: CyclePace
    seed: int
    cycle: int = 0
    counts: tuple[int, ...] = ()
    steps: Steps = Steps(())
    wanted: WantedFaults = WantedFaults()

    def step(self, context: Context) -> Step:
        if not self.kinds:
            return DONE
        op, after = self.steps.step(context)
        if op is None:
            return self._next_cycle().step(context)
        return op, replace(self, steps=after if after is not None else replace(self.steps, items=()))

    def update(self, context: Context, event: Op) -> Generator:
        steps, wanted = self.steps.after(event), self.wanted.after(event)
        if steps is self.steps and wanted is self.wanted:
            return self
        return replace(self, steps=steps, wanted=wanted)

    def _next_cycle(self) -> Schedule:
        counts = self.counts or (0,) * len(self.kinds)
        plan = plan_cycle(self.kinds, self.pace, self.seed, self.cycle, counts, self.wanted.lacking)
        steps = Steps(plan.items, self.steps.since_ns)
        return replace(self, cycle=self.cycle + 1, counts=plan.counts, steps=steps)

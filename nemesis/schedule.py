"""The generator of nemesis operations: cycle after cycle, one step at a time (pure)."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from harness.generators.core import DONE, NEMESIS_MASK, PENDING, Context, Generator, Pending, Step, fill, nanos
from harness.history.ops import NEMESIS_PROCESS, Op
from harness.run.extended_load import WantedFaults
from nemesis.cycles import AskedKind, CyclePace, Timed, plan_cycle


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
        return replace(self, since_ns=event.time, until_ns=until_ns, core=core)


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

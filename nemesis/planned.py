"""Faults that are known beforehand: instances as data, and the generator that asks the nemesis for them.

The nemesis looks for targets as ever, so that nothing else of a run changes; what it then does is pinned
(`FaultNemesis`). A script stays whole: it is given its seed, and goes on until its end, or longer where it had reached
its core by then in the run that was recorded and has not now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from harness.errors import UserError
from harness.generators.core import NEMESIS_MASK, PENDING, Context, Generator, Pending, Step, fill
from harness.history.ops import NEMESIS_PROCESS, Op
from nemesis.kinds.api import Action
from nemesis.registry import FAMILIES, SCRIPTS
from nemesis.schedule import AskedKind, begin_op, end_op, step_op

ACTIONS: dict[str, type] = {action.__name__: action for family in FAMILIES for action in family.injector.actions}  # type: ignore[attr-defined]


class PlannedFault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One instance of a fault. Times are ns since the history began; without an end it lasts as long as the load.

    `action` is what was done, with its targets (None: they are chosen when it begins, by the variant and the seed; so
    are those of all steps of scripts), `roles` those for which they were chosen. `core`: the script reached it.
    """

    instance: int
    kind: str
    variant: str
    seed: int
    begin_ns: int
    end_ns: int | None = None
    action: dict[str, Any] | None = None
    roles: tuple[str, ...] = ()
    core: bool = False
    settings: dict[str, float] = {}
    names: dict[str, tuple[str, ...]] = {}

    @property
    def scripted(self) -> bool:
        return self.kind in SCRIPTS

    def begin(self) -> Op:
        """The operation that begins it."""
        kind = AskedKind(self.kind, (self.variant,), self.scripted, settings=self.settings, names=self.names)
        op = begin_op(kind, self.instance, 0, 0)
        return replace(op, value={**op.value, "seed": self.seed})


def as_saved(action: Action) -> dict[str, Any]:
    """An action as JSON-able data, with the name of its class as `do`."""
    return {"do": type(action).__name__, **msgspec.to_builtins(action)}


def as_action(saved: Mapping[str, Any]) -> Action:
    """The action that was saved; raises UserError for one that there is none of."""
    fields = {name: value for name, value in saved.items() if name != "do"}
    kind = ACTIONS.get(str(saved.get("do")))
    try:
        if kind is None:
            raise UserError(f"There is no action {saved.get('do')!r} that a fault could do.")
        action: Action = msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"The action {saved['do']} of a fault can't be read: {error}.") from error
    return action


class _Due(msgspec.Struct, frozen=True):
    """A step of an instance, and when it is due."""

    at_ns: int
    step: Literal["begin", "end"]
    fault: PlannedFault


class PlannedFaults(msgspec.Struct, frozen=True):
    """These steps in their order, each at its time or when the nemesis is free; between begin and end of a script,
    which is `open` then, it takes one step after another. `finished`: it has none left; `core`: it has reached it."""

    left: tuple[_Due, ...]
    open: PlannedFault | None = None
    finished: bool = False
    core: bool = False

    def step(self, context: Context) -> Step:
        due = self.left[0] if self.left else None
        if due is not None and self._is_ready(due, context.time_ns):
            return self._take(due, context)
        if self.open is None or self.finished:
            return (PENDING if due is None else Pending(due.at_ns)), self
        op = fill(step_op(self.open.begin()), context.restrict(NEMESIS_MASK))
        return (PENDING if op is None else op), self

    def _is_ready(self, due: _Due, now_ns: int) -> bool:
        """Whether it is to be done now; the end of the open script may be earlier, or later."""
        if due.step == "begin" or self.open is None or due.fault.instance != self.open.instance:
            return now_ns >= due.at_ns
        longer_ns = due.at_ns - due.fault.begin_ns if due.fault.core and not self.core else 0
        return self.finished or now_ns >= due.at_ns + longer_ns

    def _take(self, due: _Due, context: Context) -> Step:
        begins = due.step == "begin"
        op = fill(
            due.fault.begin() if begins else end_op(due.fault.kind, due.fault.instance), context.restrict(NEMESIS_MASK)
        )
        if op is None:
            return PENDING, self
        after = replace(self, left=self.left[1:])
        if due.fault.scripted:
            after = replace(after, open=due.fault if begins else None, finished=False, core=False)
        return op, after

    def update(self, context: Context, event: Op) -> Generator:
        if event.process != NEMESIS_PROCESS or event.type == "invoke" or self.open is None:
            return self
        told = event.value if isinstance(event.value, dict) else {}
        if told.get("instance") != self.open.instance:
            return self
        finished = self.finished or (told.get("step") == "step" and told.get("finished") is True)
        return replace(self, finished=finished, core=self.core or reaches_core(told))


def reaches_core(report: Mapping[str, Any]) -> bool:
    """Whether a step of a script, as its completion has it, was its core and was seen in effect, or its last."""
    return report.get("finished") is True or (report.get("core") is True and report.get("observed") is True)


def planned(faults: Sequence[PlannedFault]) -> Generator:
    """The generator of these instances."""
    begins = [_Due(fault.begin_ns, "begin", fault) for fault in faults]
    ends = [_Due(fault.end_ns, "end", fault) for fault in faults if fault.end_ns is not None]
    return PlannedFaults(tuple(sorted([*begins, *ends], key=lambda due: due.at_ns)))

"""The nemesis of a run: carries out the fault steps that the schedule asks for, and reports what was observed.

Every step's `value` is JSON-able and names `fault`, `variant`, `instance` and `step` (`begin`, `step` or `end`); the
completion adds `targets`, `action` (in words), `observed`, `observed_ns` (ns since the run's start) and `evidence`.
The steps of a script are told but not probed for (`observed` is null), except for its core: there what it has done is
looked at, and only that makes it observed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from harness.ops import Op
from harness.protocols import Database, Environment, ProcessState
from nemesis.faults import (
    Action,
    Bounce,
    Change,
    Flood,
    Hold,
    Kill,
    Look,
    Partition,
    Pause,
    Restart,
    describe,
    targets_of,
)
from nemesis.injector import KILLED, PAUSED, Injector
from nemesis.observe import Observation, Observer, both
from nemesis.scene import Scene
from nemesis.scripts import SCRIPTS
from nemesis.stage import Offer, Stage
from nemesis.variants import VARIANTS, Plan
from nemesis.view import View, names


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the nemesis looks for targets, for a fault's effect and for its end, and how often it looks.

    `script_s` and `script_poll_s` are for the states that scripts wait for.
    """

    choose_s: float = 5.0
    observe_s: float = 5.0
    recover_s: float = 15.0
    poll_s: float = 0.02
    script_s: float = 6.0
    script_poll_s: float = 0.02


@dataclass(slots=True)
class Instance:
    """One fault from its begin to its end; `before` are incarnations of killed nodes before the kill."""

    kind: str
    stage: Stage | None = None
    before: dict[str, int] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)


class FaultNemesis:
    """Implements `harness.protocols.Nemesis` for plain and scripted faults."""

    def __init__(self, database: Database, environment: Environment, patience: Patience = Patience()) -> None:
        self._database = database
        self._clock = environment.clock
        self._patience = patience
        self._injector = Injector(database, environment)
        self._effect = Observer(database, environment, patience.observe_s, patience.poll_s)
        self._recovery = replace(self._effect, timeout_s=patience.recover_s)
        self._instances: dict[int, Instance] = {}

    async def setup(self) -> None:
        """Nothing to prepare: faults act through the environment that is already set up."""

    async def invoke(self, op: Op) -> Op:
        """Carry out one step; raises HarnessError when our own tools fail (what was done is healed all the same)."""
        begun_ns = self._clock.monotonic_ns()
        report: dict[str, Any] = {**op.value, "observed": False, "observed_ns": None, "evidence": {}}
        observation = await self._dispatch(op.value, report)
        report["observed"] = observation.observed
        if observation.at_ns is not None:
            report["observed_ns"] = max(op.time, 0) + observation.at_ns - begun_ns
        report["evidence"] = {**report["evidence"], **observation.evidence}
        return op.complete("info", value=report)

    async def teardown(self) -> None:
        """Heal everything still in effect, whatever failed before; raises HarnessError if something can't be healed."""
        for instance in self._instances.values():
            await _close(instance)
        self._instances.clear()
        await self._injector.undo_all()

    async def _dispatch(self, request: dict[str, Any], report: dict[str, Any]) -> Observation:
        if request["step"] == "end":
            return await self._end(request, report)
        if request["step"] == "step":
            return await self._step(request["instance"], report)
        return await self._begin(request, report)

    async def _begin(self, request: dict[str, Any], report: dict[str, Any]) -> Observation:
        kind, number = request["fault"], request["instance"]
        entropy = Random(request["seed"])
        if kind in SCRIPTS:
            scene = self._scene(entropy)
            scene.stage.begin(SCRIPTS[kind].script(scene))
            self._instances[number] = Instance(kind, scene.stage)
            return await self._step(number, report)
        self._instances[number] = Instance(kind)
        plan = await self._plan(kind, request["variant"], entropy)
        report["evidence"] = plan.evidence
        if plan.fault is None:
            return Observation(False, None)
        return await self._carry_out(number, Offer(plan.fault), report)

    async def _step(self, number: int, report: dict[str, Any]) -> Observation:
        stage = self._instances[number].stage if number in self._instances else None
        offer = await stage.next_offer() if stage is not None else None
        if offer is None:
            report |= {"finished": True, "core": False}
            return Observation(False, None, {"reason": "the script found nothing more to do"})
        return await self._carry_out(number, offer, report)

    async def _carry_out(self, number: int, offer: Offer, report: dict[str, Any]) -> Observation:
        action = offer.action
        nodes = names(self._database.nodes)
        report["targets"] = list(targets_of(action, nodes))
        report["action"] = describe(action, nodes)
        instance = self._instances[number]
        if isinstance(action, Kill | Bounce):
            instance.before.update(
                (n, self._effect.incarnations[n]) for n in action.targets if n in self._effect.incarnations
            )
        if isinstance(action, Kill | Pause | Restart | Bounce | Hold):
            instance.touched.update(action.targets)
        if instance.stage is None:
            await self._injector.carry_out(number, action)
            return await self._observe(instance, action)
        try:
            return await self._perform(number, offer, report)
        finally:
            instance.stage.carried_out()

    async def _perform(self, number: int, offer: Offer, report: dict[str, Any]) -> Observation:
        """A script's action; at its core what is in effect is looked at before the script goes on."""
        report["core"] = offer.core is not None
        await self._injector.carry_out(number, offer.action)
        if offer.core is None:
            return Observation(None, None)
        report["evidence"] = offer.core
        made = {KILLED: ProcessState.DEAD, PAUSED: ProcessState.PAUSED}
        down = {name: made[how] for name, how in self._injector.down().items() if how in made}
        return await self._effect.in_effect(self._injector.cut_links(), down)

    async def _observe(self, instance: Instance, action: Action) -> Observation:
        match action:
            case Partition():
                return await self._network(self._effect)
            case Kill(targets):
                return await self._effect.processes(dict.fromkeys(targets, ProcessState.DEAD))
            case Pause(targets):
                return await self._effect.processes(dict.fromkeys(targets, ProcessState.PAUSED))
            case Restart(targets) | Bounce(targets):
                return await self._up_again(instance, targets)
            case Hold() | Flood() | Change() | Look():
                return Observation(None, None)

    async def _end(self, request: dict[str, Any], report: dict[str, Any]) -> Observation:
        number = self._find(request)
        if number is None:
            return Observation(True, self._clock.monotonic_ns(), {"reason": "nothing of this kind was in effect"})
        report["instance"] = number
        instance = self._instances[number]
        await _close(instance)
        await self._injector.undo(number)
        del self._instances[number]
        network = await self._network(self._recovery)
        return both(network, await self._up_again(instance, sorted(instance.touched)))

    def _find(self, request: dict[str, Any]) -> int | None:
        if request["instance"] is not None:
            return request["instance"] if request["instance"] in self._instances else None
        return next((n for n, instance in self._instances.items() if instance.kind == request["fault"]), None)

    async def _network(self, observer: Observer) -> Observation:
        return await observer.network(self._injector.cut_links())

    async def _up_again(self, instance: Instance, targets: list[str] | tuple[str, ...]) -> Observation:
        """Processes run, those killed in a new incarnation; nodes that another instance holds down are left out."""
        free = [name for name in targets if name not in self._injector.down()]
        running = await self._recovery.processes(dict.fromkeys(free, ProcessState.RUNNING))
        before = {name: instance.before[name] for name in free if name in instance.before}
        return both(running, await self._recovery.newer(before)) if before else running

    async def _plan(self, kind: str, variant: str, entropy: Random) -> Plan:
        scene = self._scene(entropy)
        choose = VARIANTS[kind][variant]

        def chosen(view: View) -> Plan | None:
            plan = choose(view, self._injector.down(), entropy)
            return plan if plan.fault is not None else None

        plan = await scene.until(chosen, patience_s=self._patience.choose_s)
        return plan or choose(await scene.view(), self._injector.down(), entropy)

    def _scene(self, entropy: Random) -> Scene:
        return Scene(self._effect, entropy, Stage(), self._patience.script_poll_s, self._patience.script_s)


async def _close(instance: Instance) -> None:
    if instance.stage is not None:
        await instance.stage.close()

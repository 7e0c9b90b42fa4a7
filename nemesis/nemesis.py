"""The nemesis of a run: carries out the fault steps that the schedule asks for, and reports what was observed.

Every step's `value` is JSON-able and names `fault`, `variant`, `instance` and `step` (`begin`, `step` or `end`); the
completion adds `targets`, `action` (in words), `observed`, `observed_ns` (ns since the run's start) and `evidence`, and
the `roles` for which nodes were hit, each with whether the node was seen to have `held` it when it was.
A fault is looked at for as long as it lasts (`nemesis/observe.py`): the completion of its end has the `spans` (ns since
the run's start) in which probes saw it, and, where it was not seen to be gone, whose failure that is (`blame`; nobody's
while other faults are in effect, which may be what is seen). The fault is looked at again when no other is in effect:
the completion of the end by which that came has what was seen `late`. Of clocks it has the `readings` of each node as
well: times (ns since the run's start) and offsets (ns).
The steps of a script are told but not probed for (`observed` is null), except for its core: there what it has done is
looked at, and only that makes it observed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

from harness.errors import HarnessError
from harness.history.ops import Op
from harness.protocols import Database, Environment
from harness.run.allowances import WearsOff, overload_of
from harness.verdict.leaderships import leaderships_of
from nemesis.kinds.api import (
    Action,
    Claims,
    FaultKind,
    FaultPlan,
    Injector,
    MakeInjector,
    Moment,
    Preparing,
    all_to_the_end,
)
from nemesis.observe import DatabaseObserver, FaultWatch, Observation, Sight, View, all_of, names
from nemesis.registry import FAMILIES, KINDS, SCRIPTS
from nemesis.scripts.scene import Offer, Scene, Stage
from nemesis.targets import HeldRole, held_when_hit


class Injectors:
    """What every family did, by instance (see `nemesis.kinds.api.Injector`); `claims` are the nodes taken by all."""

    def __init__(self, observer: DatabaseObserver, families: Iterable[MakeInjector]) -> None:
        self.claims = Claims()
        self._all: tuple[Injector, ...] = tuple(make(observer, self.claims) for make in families)
        self._of_action = {action: injector for injector in self._all for action in injector.actions}

    def instances(self) -> tuple[int, ...]:
        """Instances with something in effect, in order."""
        return tuple(sorted({instance for injector in self._all for instance in injector.instances()}))

    async def carry_out(self, instance: int, action: Action) -> None:
        """Do it; raises HarnessError when a part of it failed (what was done is remembered all the same)."""
        await self._of_action[type(action)].carry_out(instance, action)

    async def prepare(self, action: Action) -> bool:
        """What has to be known before it is done; False: nothing has, and no time has passed."""
        injector = self._of_action[type(action)]
        if not isinstance(injector, Preparing):
            return False
        await injector.prepare(action)
        return True

    async def look(self, instance: int) -> Sight:
        """One look at all that the instance did: whether everything of it is in effect now."""
        return all_of([await injector.look(instance) for injector in self._all if instance in injector.instances()])

    async def undo(self, instance: int) -> None:
        """Undo all that is left of an instance; raises HarnessError at the end when a part of it failed."""
        await all_to_the_end([each.undo(instance) for each in self._all if instance in each.instances()])

    async def undo_all(self) -> None:
        """Undo everything still in effect, each instance whatever failed before; raises HarnessError at the end."""
        problems = []
        for instance in self.instances():
            try:
                await self.undo(instance)
            except HarnessError as error:
                problems.append(str(error))
        if problems:
            raise HarnessError("; ".join(problems))

    async def look_gone(self, instance: int) -> Sight:
        """One look at whether nothing is left in effect of what the instance did."""
        return all_of([await injector.look_gone(instance) for injector in self._all])

    @property
    def worn_off_ns(self) -> int:
        """When what faults left behind has worn off (see `harness.run.allowances.WearsOff`)."""
        return max((each.worn_off_ns for each in self._all if isinstance(each, WearsOff)), default=0)

    def forget(self, instance: int) -> None:
        """Nothing more will be asked of the instance."""
        for injector in self._all:
            injector.forget(instance)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the nemesis looks for targets, for a fault's effect and for its end, and how often it looks.

    `probe_s` is how far apart the looks at a fault are while it lasts; `script_s` and `script_poll_s` are for the
    states that scripts wait for; a step of a script that has nothing to do for `step_s` ends, and is asked for again.
    """

    choose_s: float = 5.0
    observe_s: float = 5.0
    recover_s: float = 15.0
    poll_s: float = 0.02
    probe_s: float = 0.5
    script_s: float = 6.0
    script_poll_s: float = 0.02
    step_s: float = 6.0


@dataclass(slots=True)
class Instance:
    """One fault from its begin to its end; `acted`: something that it did was seen to be there to undo."""

    kind: str
    stage: Stage | None = None
    acted: bool = False


class FaultNemesis:
    """Implements `harness.protocols.Nemesis` for plain and scripted faults.

    `pinned` has by instance what is to be done whatever is chosen then; `chosen` what was done.
    """

    def __init__(
        self,
        database: Database,
        environment: Environment,
        patience: Patience = Patience(),
        pinned: Mapping[int, Action] | None = None,
    ) -> None:
        self.pinned = pinned or {}
        self.chosen: dict[int, Action] = {}
        self._database = database
        self._clock = environment.clock
        self._patience = patience
        self._observer = DatabaseObserver(database, environment, patience.poll_s)
        self._injectors = Injectors(self._observer, (family.injector for family in FAMILIES))
        self._watch = FaultWatch(environment.clock, patience.probe_s, self._injectors.look)
        self._instances: dict[int, Instance] = {}
        self._unseen: dict[int, str] = {}

    async def setup(self) -> None:
        """Nothing to prepare: faults act through the environment that is already set up."""

    async def invoke(self, op: Op) -> Op:
        """Carry out one step; raises HarnessError when our own tools fail (what was done is healed all the same)."""
        start_ns = self._clock.monotonic_ns() - max(op.time, 0)
        report: dict[str, Any] = {**op.value, "observed": False, "observed_ns": None, "evidence": {}}
        observation = await self._dispatch(op.value, report)
        report["observed"] = observation.observed
        if observation.at_ns is not None:
            report["observed_ns"] = observation.at_ns - start_ns
        if op.value["step"] == "end":
            self._blame(report, observation)
            if late := await self._look_again(start_ns):
                report["late"] = late
        if "spans" in report:
            report["spans"] = [[first - start_ns, last - start_ns] for first, last in report["spans"]]
        report["evidence"] = {**report["evidence"], **observation.evidence}
        if "readings" in report["evidence"]:
            report["readings"] = _since(report["evidence"].pop("readings"), start_ns)
        return op.complete("info", value=report)

    async def teardown(self) -> None:
        """Heal everything still in effect, whatever failed before; raises HarnessError if something can't be healed, or
        is still there by our fault."""
        await self._watch.close()
        for instance in self._instances.values():
            await _close(instance)
        self._unseen |= {number: instance.kind for number, instance in self._instances.items()}
        self._instances.clear()
        await self._injectors.undo_all()
        left = [each for each in await self._look_again(0) if each.get("blame") == "harness"]
        if left:
            names = ", ".join(f"{each['fault']} {each['instance']}" for each in left)
            raise HarnessError(f"healed and not seen to be gone: {names}")

    @property
    def worn_off_ns(self) -> int:
        """When what faults left behind has worn off (see `harness.run.allowances.WearsOff`)."""
        return self._injectors.worn_off_ns

    def _blame(self, report: dict[str, Any], gone: Observation) -> None:
        """Whose failure it is that the end of a fault was not seen, if it was not."""
        if gone.observed is not False:
            return
        others, overload = self._injectors.instances(), overload_of(self._observer.environment)
        if others:
            report |= {"blame": None, "others": list(others)}
        elif overload is not None and gone.blame == "database":
            report |= {"blame": "harness", "evidence": {**report["evidence"], "strain": overload}}
        else:
            report["blame"] = gone.blame

    async def _look_again(self, start_ns: int) -> list[dict[str, Any]]:
        """What becomes of those that were not seen to be gone while others were in effect, once none is."""
        if not self._unseen or self._injectors.instances():
            return []
        unseen, self._unseen = self._unseen, {}
        found = await asyncio.gather(*(self._seen_gone(number) for number in unseen))
        late: list[dict[str, Any]] = []
        for (number, kind), gone in zip(unseen.items(), found, strict=True):
            self._injectors.forget(number)
            at_ns = None if gone.at_ns is None else gone.at_ns - start_ns
            evidence = {name: each for name, each in gone.evidence.items() if name != "readings"}
            late.append({"fault": kind, "instance": number, "observed": gone.observed, "observed_ns": at_ns})
            late[-1]["evidence"] = evidence
            self._blame(late[-1], gone)
        return late

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
        plan = await self._prepared(KINDS[kind], request, entropy)
        report["evidence"] = plan.evidence
        if plan.action is None:
            report["idle"] = True
            return Observation(False)
        self.chosen[number] = plan.action
        self._describe(plan.action, report)
        early, late = (plan.roles, ()) if plan.ends_roles else ((), plan.roles)
        held = await self._roles(early, self._clock.monotonic_ns())
        await self._injectors.carry_out(number, plan.action)
        if number not in self._injectors.instances():
            report["idle"] = True
            return Observation(False, evidence={"reason": "nothing was done: others hold the nodes"})
        report["idle"] = False
        asking = asyncio.create_task(self._roles(late, self._clock.monotonic_ns()))
        try:
            seen = await self._observer.until(lambda: self._injectors.look(number), self._patience.observe_s)
            self._watch.begin(number, seen.at_ns)
        finally:  # a node that was hit may not answer: nobody waits for it to look at the fault
            report |= {"roles": roles} if (roles := [*held, *await asking]) else {}
        return seen

    async def _prepared(self, kind: FaultKind, request: dict[str, Any], entropy: Random) -> FaultPlan:
        """A plan whose targets have the roles for which they are chosen also after what has to precede the fault."""
        deadline_ns = self._clock.monotonic_ns() + int(self._patience.choose_s * 1e9)
        while True:
            plan = await self._plan(kind, request, entropy)
            if plan.action is None or not await self._injectors.prepare(plan.action) or not plan.roles:
                return plan
            held = await self._roles(plan.roles, self._clock.monotonic_ns())
            if all(each["held"] for each in held) or self._clock.monotonic_ns() >= deadline_ns:
                return plan

    async def _roles(self, roles: tuple[HeldRole, ...], hit_ns: int) -> list[dict[str, Any]]:
        """The roles for which nodes were hit just now, and whether they had them then."""
        if not roles:
            return []
        after = await self._observer.view(skip=self._injectors.claims.mute())
        leaderships = leaderships_of(self._database)
        known = () if leaderships is None else leaderships.all()
        return [{**asdict(held), "held": held_when_hit(held, after, known, hit_ns)} for held in roles]

    async def _step(self, number: int, report: dict[str, Any]) -> Observation:
        stage = self._instances[number].stage if number in self._instances else None
        try:
            async with asyncio.timeout(self._patience.step_s):
                offer = await stage.next_offer() if stage is not None else None
        except TimeoutError:
            report["core"] = False
            return Observation(None, evidence={"reason": "the script waits"})
        if stage is None or offer is None:
            report |= {"finished": True, "core": False}
            return Observation(False, evidence={"reason": "the script found nothing more to do"})
        self._describe(offer.action, report)
        try:
            return await self._perform(number, offer, report)
        finally:
            stage.carried_out()

    async def _perform(self, number: int, offer: Offer, report: dict[str, Any]) -> Observation:
        """A script's action; at its core what is in effect is looked at, until that can be told, before the script goes
        on. What a script waits for may happen by itself: it counts only once something that it did was in effect."""
        report["core"] = offer.core is not None
        await self._injectors.carry_out(number, offer.action)
        instance = self._instances[number]
        instance.acted |= number in self._injectors.instances()
        if offer.core is None:
            return Observation(None)
        report["evidence"] = offer.core
        if not instance.acted:
            return Observation(False, evidence={"reason": "the script came to this without anything that it did"})
        sight = await self._observer.conclusive(lambda: self._injectors.look(number), self._patience.observe_s)
        return Observation(bool(sight.met), self._clock.monotonic_ns() if sight.met else None, sight.evidence)

    def _describe(self, action: Action, report: dict[str, Any]) -> None:
        nodes = names(self._database.nodes)
        report["targets"] = list(action.hits(nodes))
        report["action"] = action.describe(nodes)

    async def _end(self, request: dict[str, Any], report: dict[str, Any]) -> Observation:
        number = self._find(request)
        if number is None:
            return Observation(True, self._clock.monotonic_ns(), {"reason": "nothing of this kind was in effect"})
        report["instance"] = number
        await _close(self._instances[number])
        spans = await self._watch.end(number)
        if spans is not None:
            report["spans"] = spans.closed()
        await self._injectors.undo(number)
        kind = self._instances.pop(number).kind
        gone = await self._seen_gone(number)
        if gone.observed or not self._injectors.instances():
            self._injectors.forget(number)
        else:
            self._unseen[number] = kind
        return gone

    async def _seen_gone(self, number: int) -> Observation:
        """Looks until nothing is left of an instance; once where other faults keep that from being seen."""

        async def look() -> Sight:
            return await self._injectors.look_gone(number)

        def hidden(sight: Sight) -> bool:
            return sight.met is None and bool(self._injectors.instances())

        return await self._observer.until(look, self._patience.recover_s, hidden)

    def _find(self, request: dict[str, Any]) -> int | None:
        if request["instance"] is not None:
            return request["instance"] if request["instance"] in self._instances else None
        return next((n for n, instance in self._instances.items() if instance.kind == request["fault"]), None)

    async def _plan(self, kind: FaultKind, request: dict[str, Any], entropy: Random) -> FaultPlan:
        scene = self._scene(entropy)
        choose = kind.variants[request["variant"]].choose
        settings, names = kind.settings_with(request.get("settings") or {}), request.get("names") or {}

        def plan(view: View) -> FaultPlan:
            return choose(Moment(view, self._injectors.claims.down(), entropy, settings, names))

        def found(view: View) -> FaultPlan | None:
            made = plan(view)
            return made if made.action is not None else None

        awake = set(scene.nodes) - set(self._injectors.claims.mute())
        chosen = await scene.until(found, awake, self._patience.choose_s) or plan(await scene.view(awake))
        pinned = self.pinned.get(request["instance"], chosen.action)
        return chosen if pinned == chosen.action else replace(chosen, action=pinned, roles=())

    def _scene(self, entropy: Random) -> Scene:
        return Scene(self._observer, entropy, Stage(), self._patience.script_poll_s, self._patience.script_s)


def _since(readings: dict[str, list[list[int]]], start_ns: int) -> dict[str, list[list[int]]]:
    """What was read of each node, with times since the run's start."""
    return {name: [[at_ns - start_ns, read] for at_ns, read in found] for name, found in readings.items()}


async def _close(instance: Instance) -> None:
    if instance.stage is not None:
        await instance.stage.close()

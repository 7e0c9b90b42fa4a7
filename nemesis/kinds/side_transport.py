"""The side transport alone: what nodes tell each other beside their logs of what is closed is lost or comes late.

Streams have epochs and sequences: who missed something asks for everything, and what is of a life that is over by then
is dropped. Such a message is held back where it arrives, while its sender is killed and started.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias

from harness.capabilities import Capability
from harness.errors import HarnessError
from harness.ports.machines import ProcessState
from harness.protocols import Armable, HoldsMessages, TellsAside
from nemesis.kinds.api import Claims, Family, FaultKind, FaultPlan, Moment, Setting, Variant, all_to_the_end, armable
from nemesis.kinds.failpoint import FRESH_NS
from nemesis.observe import TSERVER, DatabaseObserver, Sight, names
from nemesis.targets import select

AT_POINT: Final = "its side transport is armed"
LATE: Final = Setting(0.6, 0.05, 10.0, "seconds by which messages of the side transport are late")
PATIENCE_S: Final = 2.0
"""For so long a message is waited for that is to be held."""

How: TypeAlias = Literal["lost", "late", "old"]


@dataclass(frozen=True, slots=True)
class TroubleAside:
    """What these nodes send by the side transport is lost, or comes `seconds` late; or one message that the only one of
    them sends to the node `to` is held back, and the sender killed and started meanwhile."""

    targets: tuple[str, ...]
    how: How
    seconds: float = 0.0
    to: str = ""

    def describe(self, nodes: tuple[str, ...]) -> str:
        whose = f"the side transport of {' '.join(self.targets)}"
        if self.how == "old":
            return f"hold a message of {whose} to {self.to} back until its sender has another life"
        return f"have {whose} {'lost' if self.how == 'lost' else f'{self.seconds:g} s late'}"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return self.targets


class SideTroubles:
    """In effect once nodes have noted that such messages are lost or late, or one is held whose sender has begun anew;
    gone when their processes run, with nothing armed or held.

    The nodes are claimed: a restart by another fault would end what is armed.
    """

    actions: ClassVar[tuple[type, ...]] = (TroubleAside,)

    def __init__(self, observer: DatabaseObserver, claims: Claims) -> None:
        self._observer, self._database, self._claims = observer, observer.database, claims
        self._clock = observer.environment.clock
        self._done: dict[int, TroubleAside] = {}
        self._left: dict[int, dict[str, int]] = {}
        self._seen_ns: dict[int, dict[str, int]] = {}
        """By node that had acted once more at a look when the last such look was."""
        self._holds: dict[int, int] = {}

    def instances(self) -> frozenset[int]:
        return frozenset(instance for instance, left in self._left.items() if left)

    async def carry_out(self, instance: int, action: TroubleAside) -> None:
        taken = self._claims.take(instance, action.targets, AT_POINT)
        self._done[instance] = action
        self._left[instance] = {name: await self._acted(name) for name in taken}
        self._seen_ns[instance] = {}
        if action.how == "old" and taken:
            await self._outlive(instance, action)
        else:
            await all_to_the_end([self._trouble(action, name) for name in taken])

    async def look(self, instance: int) -> Sight:
        """Nodes go on to note such messages, all that lead something among them, for others may have nothing to tell;
        or one is held."""
        if (hold := self._holds.get(instance)) is not None:
            held = await self._holding.held_bytes(hold)
            return Sight(held > 0, {"bytes": held})
        left, seen, now_ns = self._left[instance], self._seen_ns[instance], self._clock.monotonic_ns()
        for name, count in [(name, await self._acted(name)) for name in left]:
            if count > left[name]:
                left[name], seen[name] = count, now_ns
        fresh = [name for name, at_ns in seen.items() if now_ns - at_ns < FRESH_NS]
        view = await self._observer.view(self._claims.mute())
        leading = sorted({leader.node for leader in view.leaders(TSERVER)} & left.keys())
        last_ns = min((seen[name] for name in leading or fresh if name in seen), default=None)
        evidence = {"acted": {name: name in fresh for name in left}, "leading": leading}
        return Sight(bool(fresh) and set(leading) <= set(fresh), evidence, at_ns=last_ns)

    async def undo(self, instance: int) -> None:
        if (hold := self._holds.pop(instance, None)) is not None:
            await self._holding.release_message(hold)
        left = self._left[instance]
        await all_to_the_end([self._end(instance, name) for name in tuple(left)])

    async def look_gone(self, instance: int) -> Sight:
        if instance not in self._done:
            return Sight(True)
        targets = [name for name in self._done[instance].targets if name not in self._claims.down()]
        states = {name: await self._database.process_state(name) for name in targets}
        met = all(state is ProcessState.RUNNING for state in states.values())
        return Sight(met, {"states": {name: str(state) for name, state in states.items()}}, "database")

    def forget(self, instance: int) -> None:
        self._done.pop(instance, None)
        self._left.pop(instance, None)
        self._seen_ns.pop(instance, None)

    async def _trouble(self, action: TroubleAside, name: str) -> None:
        if action.how == "lost":
            await self._able.arm(name, self._point, "fail", times=0)
            return
        await self._able.arm(name, self._point, "delay", times=0, seconds=action.seconds)

    async def _outlive(self, instance: int, action: TroubleAside) -> None:
        (source,) = action.targets
        hold = self._holds[instance] = await self._holding.hold_message(source, action.to, self._aside.side_kind)

        async def held() -> Sight:
            return Sight(await self._holding.held_bytes(hold) > 0)

        await self._observer.until(held, PATIENCE_S)
        await self._database.kill(source)
        await self._database.start(source)

    async def _end(self, instance: int, name: str) -> None:
        if self._done[instance].how == "old":
            await self._database.start(name)
        else:
            await self._able.disarm(name, self._point)
        self._claims.release(name)
        del self._left[instance][name]

    async def _acted(self, name: str) -> int:
        return (await self._able.acted(name)).get(self._point, 0)

    @property
    def _able(self) -> Armable:
        return armable(self._database)

    @property
    def _holding(self) -> HoldsMessages:
        if not isinstance(self._database, HoldsMessages):
            raise HarnessError(f"no message between nodes of {self._database.name} can be held back")
        return self._database

    @property
    def _aside(self) -> TellsAside:
        if not isinstance(self._database, TellsAside):
            raise HarnessError(f"nodes of {self._database.name} tell each other nothing beside their logs")
        return self._database

    @property
    def _point(self) -> str:
        return self._aside.side_point


def _outlived(moment: Moment) -> FaultPlan:
    choice = select("leaseholder", moment.view, moment.busy, moment.entropy)
    others = [name for name in names(moment.view.nodes, TSERVER) if name not in choice.targets]
    if not choice.targets or not others:
        return FaultPlan(None, {"reason": "no leaseholder is free", **choice.evidence})
    action = TroubleAside(choice.targets, "old", 0.0, moment.entropy.choice(others))
    return FaultPlan(action, choice.evidence, choice.roles, ends_roles=True)


def _of(how: How, whom: str) -> Variant:
    def plan(moment: Moment) -> FaultPlan:
        seconds = moment.settings["late"] if how == "late" else 0.0
        if whom == "all":
            free = tuple(name for name in names(moment.view.nodes, TSERVER) if name not in moment.busy)
            return FaultPlan(TroubleAside(free, how, seconds) if free else None, {"reason": "no node is free"})
        choice = select(whom, moment.view, moment.busy, moment.entropy)
        action = TroubleAside(choice.targets, how, seconds) if choice.targets else None
        return FaultPlan(action, choice.evidence, choice.roles)

    return Variant(plan)


SIDE_TRANSPORT = FaultKind(
    "side-transport",
    "what nodes tell each other beside their logs of what is closed is lost, late, or of a life that is over",
    "#6f8fae",
    frozenset({Capability.READS_ANYWHERE, Capability.FAILPOINT, Capability.KILL, Capability.STATUS, Capability.TERMS}),
    {
        "lost": _of("lost", "leaseholder"),
        "late": _of("late", "leaseholder"),
        "old-epoch": Variant(_outlived, frozenset({Capability.HELD_MESSAGE}), least_nodes=2),
        "all-lost": _of("lost", "all"),
        "all-late": _of("late", "all"),
    },
    {"late": LATE},
)

FAMILY = Family(SideTroubles, (SIDE_TRANSPORT,))

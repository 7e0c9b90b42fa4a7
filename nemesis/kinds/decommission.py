"""Tablet servers that are to be emptied, as an operator asks before he takes a machine away, and stay after all (M11).

Their replicas move to others one change of a configuration after the other, and where the wish is taken back in the
midst of it members too many are removed again. In effect once masters say that the server is to leave; gone once they
say that it stays, and no tablet has more members than any had before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from harness.capabilities import Capability
from harness.errors import HarnessError
from harness.ports.api import node_of
from harness.protocols import Emptiable
from nemesis.kinds.api import Claims, Family, FaultKind, FaultPlan, Moment, Variant
from nemesis.observe import TSERVER, DatabaseObserver, Leader, Sight, View
from nemesis.targets import describe

CALL_S = 3.0
INSIST_S = 8.0
"""How long masters may take to note what is to be."""

POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Decommission:
    """The tablet server of this id is to be emptied; `wavers_s` seconds later it is told to stay, and at once to be
    emptied again (0: it is not)."""

    server: str
    wavers_s: float = 0.0

    def describe(self, nodes: tuple[str, ...]) -> str:
        again = f", think better of it after {self.wavers_s:.1f} s, and again" if self.wavers_s else ""
        return f"have {self.server} emptied{again}"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in nodes if name == node_of(self.server))


@dataclass(frozen=True, slots=True)
class _Departure:
    """The server of an instance, and how many members a tablet had at most when it began."""

    server: str
    most: int


class Decommissions:
    """See the module; a server stays once no instance wants it emptied."""

    actions: ClassVar[tuple[type, ...]] = (Decommission,)

    def __init__(self, observer: DatabaseObserver, claims: Claims) -> None:
        self._observer, self._database = observer, observer.database
        self._emptied: dict[int, _Departure] = {}
        self._ended: dict[int, _Departure] = {}

    def instances(self) -> frozenset[int]:
        return frozenset(self._emptied)

    async def carry_out(self, instance: int, action: Decommission) -> None:
        """Where masters can't be asked now it is not in effect, as looks will tell."""
        view = await self._observer.view()
        most = max((_members(view, leader) for leader in view.leaders(TSERVER)), default=0)
        self._emptied[instance] = _Departure(action.server, most)
        await self._insist(action.server, leaving=True)
        if action.wavers_s:
            await self._observer.environment.clock.sleep(action.wavers_s)
            await self._insist(action.server, leaving=False)
            await self._insist(action.server, leaving=True)

    async def look(self, instance: int) -> Sight:
        """What masters say, with how many replicas there are left."""
        server = self._emptied[instance].server
        told = await self._able.left_on(server)
        if told is None:
            return Sight(None)
        return Sight(told.leaving, {"server": server, "replicas": told.replicas})

    async def undo(self, instance: int) -> None:
        """Where masters can't be asked now they are asked with each look."""
        ended = self._ended[instance] = self._emptied.pop(instance)
        if not self._wanted(ended.server):
            await self._insist(ended.server, leaving=False)

    async def look_gone(self, instance: int) -> Sight:
        ended = self._ended.get(instance)
        if ended is None:
            return Sight(True)
        told, view = await self._able.left_on(ended.server), await self._observer.view()
        if told is None or self._wanted(ended.server):
            return Sight(None)
        if told.leaving:
            await self._able.decommission(ended.server, False, CALL_S)
        large = [leader.group for leader in view.leaders(TSERVER) if _members(view, leader) > ended.most]
        said = {"leaving": told.leaving, "replicas": told.replicas, **({"too many members": large} if large else {})}
        return Sight(not told.leaving and not large, said, "database")

    def forget(self, instance: int) -> None:
        self._ended.pop(instance, None)

    def _wanted(self, server: str) -> bool:
        return any(each.server == server for each in self._emptied.values())

    async def _insist(self, server: str, leaving: bool) -> str | None:
        """Ask until it is noted, or time is over: then why it was not."""
        clock = self._observer.environment.clock
        deadline_ns = clock.monotonic_ns() + int(INSIST_S * 1e9)
        while (said := await self._able.decommission(server, leaving, CALL_S)) is not None:
            if clock.monotonic_ns() >= deadline_ns:
                break
            await clock.sleep(POLL_S)
        return said

    @property
    def _able(self) -> Emptiable:
        if not isinstance(self._database, Emptiable):
            raise HarnessError(f"no server of {self._database.name} can be emptied")
        return self._database


def _members(view: View, leader: Leader) -> int:
    status = view.replicas(leader.group)[leader.node]
    return len(status.voters) + len(status.learners)


LONGEST_S = 1.5
"""By then a server with few replicas is mostly empty."""


def _emptying(leads: bool, wavers: bool = False) -> Variant:
    """A server that leads a tablet, or any that has a voter, alive or not."""

    def choose(moment: Moment) -> FaultPlan:
        leaders = moment.view.leaders(TSERVER)
        if not leaders:
            return FaultPlan(None, {"reason": "no tablet has a leader"})
        leader = moment.entropy.choice(leaders)
        voters = moment.view.replicas(leader.group)[leader.node].voters
        among = [each for each in voters if not leads or node_of(each) == leader.node]
        if not among:
            return FaultPlan(None, {"reason": "the leader is no voter"})
        chosen, wavers_s = moment.entropy.choice(among), moment.entropy.uniform(0.1, LONGEST_S) if wavers else 0.0
        return FaultPlan(Decommission(chosen, wavers_s), {"leader": describe(leader)})

    return Variant(choose)


DECOMMISSION: Final = FaultKind(
    "decommission",
    "a tablet server is to be emptied, and stays after all; its replicas move to others meanwhile",
    "#6f8f5a",
    frozenset({Capability.DECOMMISSION, Capability.STATUS, Capability.TERMS}),
    {
        "leaseholder": _emptying(leads=True),
        "any": _emptying(leads=False),
        "wavering": _emptying(leads=False, wavers=True),
    },
)

FAMILY = Family(Decommissions, (DECOMMISSION,))

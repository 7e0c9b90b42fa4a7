"""Messages held back: one of a kind over one link, delivered when the fault ends, behind all that came after it.

Links keep their order, and what they reorder is late by some milliseconds. A connection that breaks while its last
bytes wait at the receiver, beside a new one, has a message arrive seconds late: the heartbeat of a server that has
another life by now, a vote for a term that is over, an answer that a later one contradicts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.capabilities import Capability
from harness.errors import HarnessError
from harness.protocols import HoldsMessages
from nemesis.kinds.api import Claims, Family, FaultKind, FaultPlan, Moment, Variant
from nemesis.observe import MASTER, TSERVER, DatabaseObserver, Leader, Sight, names


@dataclass(frozen=True, slots=True)
class HoldMessage:
    """The next message of a kind that `source` sends to `target` is held back until the fault ends."""

    source: str
    target: str
    kind: str

    def describe(self, nodes: tuple[str, ...]) -> str:
        return f"hold the next {self.kind} from {self.source} to {self.target}"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return (self.target,)


class HeldMessages:
    """In effect once a message of the kind has come and is held; gone when nothing is held any more."""

    actions: ClassVar[tuple[type, ...]] = (HoldMessage,)

    def __init__(self, observer: DatabaseObserver, claims: Claims) -> None:
        self._database = observer.database
        self._holds: dict[int, int] = {}
        self._ended: dict[int, int] = {}

    def instances(self) -> frozenset[int]:
        return frozenset(self._holds)

    async def carry_out(self, instance: int, action: HoldMessage) -> None:
        self._holds[instance] = await self._able.hold_message(action.source, action.target, action.kind)

    async def look(self, instance: int) -> Sight:
        held = await self._able.held_bytes(self._holds[instance])
        return Sight(held > 0, {"bytes": held})

    async def undo(self, instance: int) -> None:
        await self._able.release_message(self._holds[instance])
        self._ended[instance] = self._holds.pop(instance)

    async def look_gone(self, instance: int) -> Sight:
        hold = self._ended.get(instance)
        return Sight(hold is None or not await self._able.held_bytes(hold))

    def forget(self, instance: int) -> None:
        self._ended.pop(instance, None)

    @property
    def _able(self) -> HoldsMessages:
        if not isinstance(self._database, HoldsMessages):
            raise HarnessError(f"no message between nodes of {self._database.name} can be held back")
        return self._database


WRITTEN = frozenset({Capability.MEMBERSHIP})
"""The capability of a database whose tables have leaders: without, hardly an entry is sent."""


def _of_servers(kind: str, named: bool = False) -> Variant:
    """From a tablet server to the leader master, or to any master."""

    def choose(moment: Moment) -> FaultPlan:
        masters = [leader.node for leader in moment.view.leaders(MASTER)] or list(names(moment.view.nodes, MASTER))
        source = moment.entropy.choice(names(moment.view.nodes, TSERVER))
        return FaultPlan(HoldMessage(source, moment.entropy.choice(masters), kind))

    return Variant(choose, named=named)


def _of_groups(kind: str, to_leader: bool | None) -> Variant:
    """Between the leader of some tablet and one of its voters (None: between any two of them, and seldom)."""

    def choose(moment: Moment) -> FaultPlan:
        leaders = [each for each in moment.view.leaders(TSERVER) if each.others]
        if not leaders:
            return FaultPlan(None, {"reason": "no group has a leader and another voter"})
        leader: Leader = moment.entropy.choice(leaders)
        pair = [leader.node, moment.entropy.choice(leader.others)]
        if to_leader is None:
            pair = moment.entropy.sample(leader.voters, 2)
        source, target = reversed(pair) if to_leader else pair
        return FaultPlan(HoldMessage(source, target, kind), {"group": leader.group, "term": leader.term})

    return Variant(choose, WRITTEN, least_nodes=2, named=to_leader is None)


HELD_MESSAGE = FaultKind(
    "held-message",
    "holds one message back, of a kind and over a link, and delivers it seconds later over another connection",
    "#7a6f9b",
    frozenset({Capability.HELD_MESSAGE, Capability.STATUS}),
    {
        "heartbeat": _of_servers("heartbeat"),
        "entries": _of_groups("entries", to_leader=False),
        "answer": _of_groups("answer", to_leader=True),
        "report": _of_servers("report", named=True),
        "vote": _of_groups("vote", to_leader=None),
        "vote-request": _of_groups("vote-request", to_leader=None),
        "pre-vote": _of_groups("pre-vote", to_leader=None),
    },
)

FAMILY = Family(HeldMessages, (HELD_MESSAGE,))

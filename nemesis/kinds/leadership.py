"""Leaders that hand over to a voter of their group because an operator asks them to, and give their leases up with it.

In effect: each leader that was asked says that the voter has taken over, and another node than it was seen leading the
group in a later term. That stays so if a still later election, maybe by another fault, brings it back: the term is
over, and the lease given up. Gone: each of these groups has a leader that serves; who leads where is
nobody's to undo.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from harness.capabilities import Capability
from harness.errors import HarnessError
from harness.ports.api import node_of
from harness.protocols import Database, Transferable
from nemesis.faults import Move, MoveLeaders
from nemesis.kinds.api import Claims, Family, FaultKind, FaultPlan, Moment, Names, Variant, all_to_the_end
from nemesis.observe import MASTER, TSERVER, DatabaseObserver, Leader, Sight, View, names
from nemesis.targets import describe

CALL_S = 2.0
"""How long a leader may take to hand over: an election, and a round trip to the voter before it."""

INSIST_S = 4.0
POLL_S = 0.1


@dataclass(slots=True)
class _Asked:
    """What an instance asked for; by group why it did not come to that, and the first term in which another led."""

    moves: tuple[Move, ...]
    refused: dict[str, str]
    seen: dict[str, int]


class LeaderMoves:
    """Each leader is asked once, and again only while it says no and still leads in the same term."""

    actions: ClassVar[tuple[type, ...]] = (MoveLeaders,)

    def __init__(self, observer: DatabaseObserver, claims: Claims) -> None:
        self._observer, self._database = observer, observer.database
        self._asked: dict[int, _Asked] = {}
        self._ended: dict[int, _Asked] = {}

    def instances(self) -> frozenset[int]:
        return frozenset(self._asked)

    async def carry_out(self, instance: int, action: MoveLeaders) -> None:
        asked = self._asked[instance] = _Asked(action.moves, {}, {})
        await all_to_the_end([self._ask(asked, move) for move in action.moves])

    async def look(self, instance: int) -> Sight:
        """A move that was refused is told, and not claimed; of a group that nobody has any more nothing can be told."""
        asked, view = self._asked[instance], await self._observer.view()
        done = [move for move in asked.moves if move.group not in asked.refused]
        there = [move for move in done if view.replicas(move.group)]
        found = {move.group: view.leader(move.group) for move in there}
        for move in there:
            if (term := heir_term(move, found[move.group])) is not None:
                asked.seen.setdefault(move.group, term)
        met: bool | None = bool(done) and all(_stands(asked, move, found[move.group]) for move in there)
        if done and (not there or None in found.values()):
            met = None
        return Sight(met, {"asked": [_told(move, found.get(move.group), asked.refused) for move in asked.moves]})

    async def undo(self, instance: int) -> None:
        self._ended[instance] = self._asked.pop(instance)

    async def look_gone(self, instance: int) -> Sight:
        """Every group of which a leader was asked has one that serves; unless it was deleted meanwhile."""
        asked = self._ended.get(instance)
        if asked is None:
            return Sight(True)
        view = await self._observer.view()
        leaders = {move.group: view.leader(move.group) for move in asked.moves if view.replicas(move.group)}
        led = {group: None if leader is None else leader.node for group, leader in leaders.items()}
        idle = [group for group, leader in leaders.items() if leader is None or not leader.lease_valid]
        return Sight(not idle, {"leaders": led, **({"idle": idle} if idle else {})}, "database")

    def forget(self, instance: int) -> None:
        self._ended.pop(instance, None)

    async def _ask(self, asked: _Asked, move: Move) -> None:
        if not isinstance(self._database, Transferable):
            raise HarnessError(f"the leaders of {self._database.name} can't be asked to hand over")
        clock = self._observer.environment.clock
        deadline_ns = clock.monotonic_ns() + int(INSIST_S * 1e9)
        while True:
            said = await self._database.transfer_leadership(move.node, move.group, move.server, CALL_S)
            if said is None:
                asked.refused.pop(move.group, None)
                return
            asked.refused[move.group] = said
            leader = (await self._observer.view()).leader(move.group)
            same = leader is not None and (leader.node, leader.term) == (move.node, move.term)
            if not same or clock.monotonic_ns() >= deadline_ns:
                return
            await clock.sleep(POLL_S)


def heir_term(move: Move, leader: Leader | None) -> int | None:
    """The term in which another node leads after the one that was asked, if it is so."""
    if leader is None or leader.node == move.node or leader.term <= move.term:
        return None
    return leader.term


def _stands(asked: _Asked, move: Move, leader: Leader | None) -> bool:
    """Whether another node was seen leading after the one that was asked, and this is that one or a later one."""
    return leader is not None and move.group in asked.seen and leader.term >= asked.seen[move.group]


def _told(move: Move, leader: Leader | None, refused: dict[str, str]) -> dict[str, Any]:
    told: dict[str, Any] = {"node": move.node, "group": move.group, "term": move.term, "to": node_of(move.server)}
    if move.group in refused:
        return {**told, "refused": refused[move.group]}
    return told if leader is None else {**told, "leads": {"node": leader.node, "term": leader.term}}


# ---- who is asked ----

TO = "to"


def _heirs(moment: Moment, leader: Leader) -> tuple[str, ...]:
    """Servers that may lead in its place: voters that answer, and among those that the user named."""
    status = moment.view.replicas(leader.group)[leader.node]
    named: Sequence[str] = moment.names.get(TO, ())
    return tuple(
        server
        for server in status.voters
        if (name := node_of(server)) != leader.node
        and leader.group in _groups(moment.view, name)
        and name not in moment.busy
        and (not named or name in named)
    )


def _groups(view: View, name: str) -> tuple[str, ...]:
    status = view.statuses.get(name)
    return () if status is None else tuple(each.group for each in status.groups)


LASTING: Final = frozenset({Capability.LASTING_TABLETS})
"""A tablet that is deleted a moment later shows nothing of its leader."""


def _moving(role: str | None, every: bool, needs: frozenset[str] = frozenset()) -> Variant:
    """One leader among nodes of a role, or every one of them."""

    def choose(moment: Moment) -> FaultPlan:
        able = [each for each in moment.view.leaders(role) if each.node not in moment.busy and each.lease_valid]
        heirs = {each.group: _heirs(moment, each) for each in able}
        able = [each for each in able if heirs[each.group]]
        if not able:
            return FaultPlan(None, {"reason": "no leader has a voter to hand over to"})
        chosen = able if every else [moment.entropy.choice(able)]
        moves = tuple(
            Move(each.node, each.group, each.term, moment.entropy.choice(heirs[each.group])) for each in chosen
        )
        return FaultPlan(MoveLeaders(moves), {"leaders": [describe(each) for each in chosen]})

    return Variant(choose, needs)


def _node_names(database: Database) -> tuple[str, ...]:
    return names(database.nodes)


LEADERSHIP = FaultKind(
    "leadership",
    "leaders are asked to hand over to another voter, and give their leases up: one's, a master's, all at once",
    "#5f8f6b",
    frozenset({"leadership", "status"}),
    {
        "leaseholder": _moving(TSERVER, every=False, needs=LASTING),
        "leader-master": _moving(MASTER, every=False),
        "leaseholders": _moving(TSERVER, every=True, needs=LASTING),
        "all": _moving(None, every=True),
    },
    names={TO: Names("nodes that are to lead, where they vote", _node_names)},
)

FAMILY = Family(LeaderMoves, (LEADERSHIP,))

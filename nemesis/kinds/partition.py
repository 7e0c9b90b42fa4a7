"""Partitions: one-way links that are cut, in variants that choose which."""

from __future__ import annotations

from typing import Any, ClassVar

from harness.capabilities import Capability
from harness.ports.machines import CLIENTS
from nemesis.faults import NetworkPartition
from nemesis.grudges import Grudge, Link, between, bridge, grudge, halves, isolate, majorities_ring, one_way, split
from nemesis.kinds.api import NAMED, Claims, Family, FaultKind, FaultPlan, Moment, Variant
from nemesis.observe import DatabaseObserver, Sight, names
from nemesis.targets import Choice, needs_of, select, unless_of


class Cuts:
    """The links that each instance wants cut; what is cut is all of them together."""

    actions: ClassVar[tuple[type, ...]] = (NetworkPartition,)

    def __init__(self, observer: DatabaseObserver, claims: Claims) -> None:
        self._environment, self._claims = observer.environment, claims
        self._wanted: dict[int, frozenset[Link]] = {}
        self._applied: frozenset[Link] = frozenset()
        self._heard: dict[int, set[Link]] = {}

    def instances(self) -> frozenset[int]:
        return frozenset(self._wanted)

    async def carry_out(self, instance: int, action: NetworkPartition) -> None:
        self._wanted[instance] = frozenset(action.links)
        await self._apply()

    async def look(self, instance: int) -> Sight:
        """Nothing gets through the links that are cut, while the probe does arrive elsewhere: else it tells nothing."""
        cut = self._wanted.get(instance, frozenset())
        if not cut:
            return Sight(True)
        matrix = await self._environment.reachability()
        leaking = sorted(pair for pair in matrix if pair in cut and matrix[pair])
        others = [heard for pair, heard in matrix.items() if pair not in self._all()]
        deaf = bool(others) and not any(others)
        evidence: dict[str, Any] = {"probed": len(matrix), "cut": sum(1 for pair in matrix if pair in cut)}
        evidence |= {"leaking": _words(leaking)} if leaking else {}
        evidence |= {"silent": "no probe arrives anywhere"} if deaf else {}
        return Sight(not leaking and not deaf, evidence)

    async def undo(self, instance: int) -> None:
        if instance in self._wanted:
            self._wanted[instance] = frozenset()
            self._heard[instance] = set()
            await self._apply()
            del self._wanted[instance]

    async def look_gone(self, instance: int) -> Sight:
        """Every link works that no other instance wants cut: once a probe got through, for a network may lose some."""
        matrix = await self._environment.reachability()
        heard = self._heard.setdefault(instance, set())
        heard.update(pair for pair in matrix if matrix[pair])
        silent = sorted(pair for pair in matrix if pair not in self._all() and pair not in heard)
        return Sight(not silent, {"probed": len(matrix), **({"silent": _words(silent)} if silent else {})})

    def forget(self, instance: int) -> None:
        self._heard.pop(instance, None)

    def _all(self) -> frozenset[Link]:
        return frozenset[Link]().union(*self._wanted.values())

    async def _apply(self) -> None:
        """From one set of cuts to the next at once: a link that stays cut is never open in between."""
        wanted, applied = self._all(), self._applied
        if wanted == applied:
            return
        self._applied = self._claims.cut = applied | wanted
        await (self._environment.cut(wanted) if wanted else self._environment.heal_network())
        self._applied = self._claims.cut = wanted


def _words(pairs: list[Link]) -> list[str]:
    return [f"{source}->{target}" for source, target in pairs]


# ---- variants ----

CLIENT_CUT = frozenset({"client-cut"})
ZONES = frozenset({"zones"})
REFERENCE = frozenset({Capability.MASTERS})


def _cut_off(selector: str) -> Variant:
    def plan(moment: Moment) -> FaultPlan:
        choice = select(selector, moment.view, (), moment.entropy)
        return _partition(choice, isolate(names(moment.view.nodes), choice.targets))

    unavailable = NAMED.get(selector, False)
    return Variant(plan, needs_of(selector), 2, selector in NAMED, unavailable, unless_of(selector))


def _one_way(selector: str, outbound: bool) -> Variant:
    def plan(moment: Moment) -> FaultPlan:
        choice = select(selector, moment.view, (), moment.entropy)
        links = one_way(names(moment.view.nodes), choice.targets[0], outbound) if choice.targets else ()
        return _partition(choice, links)

    return Variant(plan, needs_of(selector), least_nodes=2, unless=unless_of(selector))


def _clients(selector: str, isolated: bool, unless: frozenset[str] = frozenset()) -> Variant:
    def plan(moment: Moment) -> FaultPlan:
        choice = select(selector, moment.view, (), moment.entropy)
        apart = isolate(names(moment.view.nodes), choice.targets) if isolated else ()
        both_ways = isolated or moment.entropy.random() < 0.5
        links = between(choice.targets, [CLIENTS]) if both_ways else _mute(choice)
        return _partition(choice, grudge([*apart, *links]))

    return Variant(plan, CLIENT_CUT | needs_of(selector), least_nodes=2 if isolated else 1, unless=unless)


def _mute(choice: Choice) -> Grudge:
    """Requests of clients arrive, and no answer comes back."""
    return grudge((name, CLIENTS) for name in choice.targets)


def _roles(moment: Moment) -> FaultPlan:
    """Nodes of different roles lose sight of each other; now and then what the one side says still arrives."""
    masters, *others = (names(moment.view.nodes, role) for role in dict.fromkeys(n.role for n in moment.view.nodes))
    rest = [name for role in others for name in role]
    if not rest:
        return FaultPlan(None, {"reason": "all nodes have the same role"})
    links = between(masters, rest)
    if moment.entropy.random() < 0.5:
        return FaultPlan(NetworkPartition(links))
    deaf = set(moment.entropy.choice((masters, tuple(rest))))
    return FaultPlan(NetworkPartition(grudge(link for link in links if link[1] in deaf)))


def _zone(moment: Moment) -> FaultPlan:
    """One zone loses sight of the others."""
    zones = sorted({node.zone for node in moment.view.nodes})
    lost = moment.entropy.choice(zones)
    inside = [node.name for node in moment.view.nodes if node.zone == lost]
    return _partition(Choice(tuple(inside), {"zone": lost}), isolate(names(moment.view.nodes), inside))


def _zones(moment: Moment) -> FaultPlan:
    """Every zone for itself."""
    zones: dict[str, list[str]] = {}
    for node in moment.view.nodes:
        zones.setdefault(node.zone, []).append(node.name)
    return FaultPlan(NetworkPartition(split(*zones.values())))


def _bridge(moment: Moment) -> FaultPlan:
    return FaultPlan(NetworkPartition(bridge(names(moment.view.nodes), moment.entropy)))


def _halves(moment: Moment) -> FaultPlan:
    return FaultPlan(NetworkPartition(halves(names(moment.view.nodes), moment.entropy)))


def _ring(moment: Moment) -> FaultPlan:
    return FaultPlan(NetworkPartition(majorities_ring(names(moment.view.nodes), moment.entropy)))


def _partition(choice: Choice, links: Grudge) -> FaultPlan:
    return FaultPlan(NetworkPartition(links) if links else None, choice.evidence, choice.roles)


PARTITION = FaultKind(
    "partition",
    "cuts the network: one node, halves, ring, bridge, leaders or their clients cut off, roles, zones, one-way",
    "#e07b39",
    frozenset({"partition"}),
    {
        "leader": _cut_off("leader"),
        "leaseholder": _cut_off("leaseholder"),
        "leader-master": _cut_off("leader-master"),
        "one": _cut_off("one"),
        "halves": Variant(_halves, least_nodes=2),
        "majorities-ring": Variant(_ring, least_nodes=4),
        "clients": _clients("leaseholder", isolated=False),
        "leaseholder-and-clients": _clients("leaseholder", isolated=True),
        "leader-master-and-clients": _clients("leader-master", isolated=True),
        "leader-and-clients": _clients("leader", isolated=True, unless=REFERENCE),
        "one-and-clients": _clients("one", isolated=True, unless=REFERENCE),
        "clients-of-one": _clients("one", isolated=False, unless=REFERENCE),
        "masters-from-tservers": Variant(_roles, REFERENCE, least_nodes=2),
        "zone": Variant(_zone, ZONES, least_nodes=2),
        "zones": Variant(_zones, ZONES, least_nodes=2),
        "bridge": Variant(_bridge, least_nodes=3),
        "one-way-out": _one_way("leaseholder", outbound=True),
        "one-way-in": _one_way("one", outbound=False),
        "leader-one-way-out": _one_way("leader", outbound=True),
        "follower": _cut_off("follower"),
        "follower-master": _cut_off("follower-master"),
        "learner": _cut_off("learner"),
        "one-too-many": _cut_off("one-too-many"),
    },
)

FAMILY = Family(Cuts, (PARTITION,))

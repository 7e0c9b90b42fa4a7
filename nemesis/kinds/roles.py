"""Kinds that aim at one role: masters or tablet servers killed, paused, cut off or with wrong clocks.

They do what the plain kinds do, with the same injectors; `all` leaves them out. Masters follow each other (M2, M10),
and heartbeats go from each tablet server to each master (M3): which of these links are cut decides who knows what.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from typing import Final

from harness.capabilities import Capability
from harness.ports.machines import CLIENTS, Skew
from nemesis.faults import Kill, NetworkPartition, Pause, SetClocks
from nemesis.grudges import Grudge, between, grudge, isolate, shuffle
from nemesis.kinds.api import FaultKind, FaultPlan, Moment, Variant
from nemesis.kinds.clocks import TIMES_BEYOND, offset_ns, skewed
from nemesis.observe import MASTER, TSERVER, View, names
from nemesis.targets import Choice, select

STATUS: Final = frozenset({"status"})

Among = Callable[[View, Sequence[str], Random], Sequence[str]]
"""Chooses among the free nodes of a role."""


def _one(view: View, free: Sequence[str], entropy: Random) -> Sequence[str]:
    return [entropy.choice(list(free))] if free else []


def _minority(view: View, free: Sequence[str], entropy: Random) -> Sequence[str]:
    return shuffle(free, entropy)[: max(1, (len(free) - 1) // 2)]


def _majority(view: View, free: Sequence[str], entropy: Random) -> Sequence[str]:
    return shuffle(free, entropy)[: len(free) // 2 + 1]


def _every(view: View, free: Sequence[str], entropy: Random) -> Sequence[str]:
    return list(free)


def _select_role(role: str, among: Among, moment: Moment, busy: Collection[str]) -> Choice:
    free = [name for name in names(moment.view.nodes, role) if name not in busy]
    chosen = set(among(moment.view, free, moment.entropy))
    return Choice(tuple(name for name in free if name in chosen))


def _of_leader(role: str, moment: Moment, busy: Collection[str]) -> Choice:
    return select("leader-master" if role == MASTER else "leaseholder", moment.view, busy, moment.entropy)


def _following(moment: Moment, busy: Collection[str]) -> Choice:
    return select("follower-master", moment.view, busy, moment.entropy)


Select = Callable[[Moment, Collection[str]], Choice]
"""Targets at a moment; those that are busy are left alone."""


def _leading(role: str) -> Select:
    return lambda moment, busy: _of_leader(role, moment, busy)


def _chosen(role: str, among: Among) -> Select:
    return lambda moment, busy: _select_role(role, among, moment, busy)


MASTERS: Final[Mapping[str, Select]] = {
    "leader": _leading(MASTER),
    "one": _chosen(MASTER, _one),
    "follower": _following,
    "majority": _chosen(MASTER, _majority),
    "all": _chosen(MASTER, _every),
}
"""Which masters are hit."""

TSERVERS: Final[Mapping[str, Select]] = {
    "one": _chosen(TSERVER, _one),
    "leaseholder": _leading(TSERVER),
    "minority": _chosen(TSERVER, _minority),
    "majority": _chosen(TSERVER, _majority),
    "all": _chosen(TSERVER, _every),
}
"""Which tablet servers."""


def _ended(fault: type[Kill | Pause], targets: Select) -> Variant:
    def plan(moment: Moment) -> FaultPlan:
        choice = targets(moment, moment.busy)
        return FaultPlan(fault(choice.targets) if choice.targets else None, choice.evidence, choice.roles)

    return Variant(plan, STATUS)


def _cut(links: Callable[[Moment, tuple[str, ...]], Grudge], targets: Select, needs: frozenset[str]) -> Variant:
    def plan(moment: Moment) -> FaultPlan:
        choice = targets(moment, ())
        found = links(moment, choice.targets) if choice.targets else ()
        return FaultPlan(NetworkPartition(found) if found else None, choice.evidence, choice.roles)

    return Variant(plan, STATUS | needs, least_nodes=2)


# ---- what is cut ----


def _from_masters(moment: Moment, hit: tuple[str, ...]) -> Grudge:
    """From the other masters only: tablet servers and clients reach both sides."""
    return isolate(names(moment.view.nodes, MASTER), hit)


def _from_all(moment: Moment, hit: tuple[str, ...]) -> Grudge:
    """From every other node; clients go on to ask."""
    return isolate(names(moment.view.nodes), hit)


def _from_all_and_clients(moment: Moment, hit: tuple[str, ...]) -> Grudge:
    return grudge([*_from_all(moment, hit), *between(hit, [CLIENTS])])


def _unheard(moment: Moment, hit: tuple[str, ...]) -> Grudge:
    """What they say reaches no other master, and what others say still arrives."""
    others = [name for name in names(moment.view.nodes, MASTER) if name not in hit]
    return grudge((source, target) for source in hit for target in others)


def _of_tservers(moment: Moment, hit: tuple[str, ...]) -> Grudge:
    """Every tablet server from these masters."""
    return between(hit, names(moment.view.nodes, TSERVER))


def _of_some_tservers(moment: Moment, hit: tuple[str, ...]) -> Grudge:
    """A majority of the tablet servers from these masters."""
    tservers = names(moment.view.nodes, TSERVER)
    return between(hit, shuffle(tservers, moment.entropy)[: len(tservers) // 2 + 1])


def _any_of_tservers(moment: Moment, hit: tuple[str, ...]) -> Grudge:
    """Of all links between masters and tablet servers, each direction by itself, about half."""
    links = between(names(moment.view.nodes, MASTER), names(moment.view.nodes, TSERVER))
    return grudge(link for link in links if moment.entropy.random() < 0.5)


def _unanswered(moment: Moment, hit: tuple[str, ...]) -> Grudge:
    """Heartbeats arrive at these masters, and neither answers nor calls come back."""
    tservers = names(moment.view.nodes, TSERVER)
    return grudge((master, tserver) for master in hit for tserver in tservers)


CLIENT_CUT: Final = frozenset({"client-cut"})
NONE: Final = frozenset[str]()


def _wrong(targets: Select, beyond: bool) -> Variant:
    return skewed(lambda moment: targets(moment, ()), lambda moment: Skew(offset_ns(moment, beyond)), SetClocks)


KINDS: Final = (
    FaultKind(
        "master-kill",
        "kill -9 and restart of masters: the leader, a follower, one, a majority, all",
        "#c8375b",
        frozenset({"kill", Capability.MASTERS}),
        {name: _ended(Kill, select_) for name, select_ in MASTERS.items()},
    ),
    FaultKind(
        "master-pause",
        "masters stop and go on: the leader, a follower, one, a majority",
        "#3a7ca5",
        frozenset({"pause", Capability.MASTERS}),
        {name: _ended(Pause, MASTERS[name]) for name in ("leader", "one", "follower", "majority")},
    ),
    FaultKind(
        "master-partition",
        "cuts masters off: from each other, from all nodes, from clients too, one-way",
        "#e07b39",
        frozenset({"partition", Capability.MASTERS}),
        {
            "leader-from-masters": _cut(_from_masters, MASTERS["leader"], NONE),
            "leader": _cut(_from_all, MASTERS["leader"], NONE),
            "leader-and-clients": _cut(_from_all_and_clients, MASTERS["leader"], CLIENT_CUT),
            "leader-unheard": _cut(_unheard, MASTERS["leader"], NONE),
            "follower": _cut(_from_all, MASTERS["follower"], NONE),
            "each-alone": _cut(lambda moment, hit: _apart(hit), MASTERS["all"], NONE),
        },
    ),
    FaultKind(
        "master-clock",
        "sets masters' wall clocks wrong, within the declared maximum offset or far beyond it",
        "#b08d2e",
        frozenset({"clock", "status", Capability.MASTERS}),
        {
            f"{name}-{'beyond' if beyond else 'within'}": _wrong(MASTERS[name], beyond)
            for name in ("leader", "all", "one")
            for beyond in (False, True)
        },
        {"beyond": TIMES_BEYOND},
        alone=True,  # of its clock only a node that runs can tell
    ),
    FaultKind(
        "tserver-kill",
        "kill -9 and restart of tablet servers: one, a leaseholder, a minority, a majority, all",
        "#a8475b",
        frozenset({"kill", Capability.MASTERS}),
        {name: _ended(Kill, select_) for name, select_ in TSERVERS.items()},
    ),
    FaultKind(
        "heartbeat-loss",
        "cuts links between masters and tablet servers, in any combination, each direction by itself",
        "#d09b59",
        frozenset({"partition", Capability.MASTERS}),
        {
            "leader": _cut(_of_tservers, MASTERS["leader"], NONE),
            "some-from-leader": _cut(_of_some_tservers, MASTERS["leader"], NONE),
            "followers": _cut(_of_tservers, MASTERS["follower"], NONE),
            "any": _cut(_any_of_tservers, MASTERS["all"], NONE),
            "unanswered": _cut(_unanswered, MASTERS["leader"], NONE),
            "all": _cut(_of_tservers, MASTERS["all"], NONE),
        },
    ),
)


def _apart(nodes: Sequence[str]) -> Grudge:
    """Each of them alone among its kind."""
    return grudge((source, target) for source in nodes for target in nodes if source != target)

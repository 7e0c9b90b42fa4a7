"""Regions that are lost or cut off, and replicas that hear late: what reads from any replica are there for.

Region by region they do what the plain kinds do, with the same injectors, to all nodes of a zone. Clients stay and
reach whoever lives, so that what is served is by what replicas know.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from harness.capabilities import Capability
from nemesis.faults import Kill, NetworkPartition
from nemesis.grudges import Grudge, grudge, isolate, shuffle, split
from nemesis.kinds.api import FaultKind, FaultPlan, Moment, Variant
from nemesis.observe import MASTER, TSERVER, View, names
from nemesis.targets import quorum_safe, select

ANYWHERE: Final = frozenset({Capability.READS_ANYWHERE, Capability.STATUS, Capability.TERMS})
ZONES: Final = frozenset({Capability.ZONES})


def _regions(view: View) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in view.nodes:
        found.setdefault(node.zone, []).append(node.name)
    return found


def _spared(moment: Moment) -> list[tuple[str, list[str]]]:
    """The regions that every group can do without, none of whose nodes another fault holds."""
    free = [name for name in names(moment.view.nodes) if name not in moment.busy]
    return [
        (zone, inside)
        for zone, inside in _regions(moment.view).items()
        if set(inside) <= set(quorum_safe(moment.view, free, moment.entropy, inside))
    ]


def _lost(moment: Moment) -> FaultPlan:
    regions = _spared(moment)
    if not regions:
        return FaultPlan(None, {"reason": "no region can be spared by every group"})
    zone, inside = moment.entropy.choice(regions)
    return FaultPlan(Kill(tuple(inside)), {"region": zone})


def _cut_off(moment: Moment) -> FaultPlan:
    """The nodes of one region see each other, and nobody else does."""
    regions = _regions(moment.view)
    zone = moment.entropy.choice(sorted(regions))
    return FaultPlan(NetworkPartition(isolate(names(moment.view.nodes), regions[zone])), {"region": zone})


def _each_alone(moment: Moment) -> FaultPlan:
    return FaultPlan(NetworkPartition(split(*_regions(moment.view).values())))


def _replica(selector: str) -> Variant:
    """One replica of a tablet, which does not lead it, sees no other node."""

    def plan(moment: Moment) -> FaultPlan:
        choice = select(selector, moment.view, names(moment.view.nodes, MASTER), moment.entropy)
        links = isolate(names(moment.view.nodes), choice.targets)
        return FaultPlan(NetworkPartition(links) if choice.targets else None, choice.evidence, choice.roles)

    return Variant(plan, least_nodes=2)


# ---- learners ----


def _deaf(view: View, learner: str) -> Grudge:
    """From the leaders of the tablets that this node learns: it hears of nothing, and is heard."""
    return grudge((leader, learner) for leader, taught in _lessons(view) if taught == learner)


def _lessons(view: View) -> Iterator[tuple[str, str]]:
    """(Who leads a tablet, who is a learner of it.)"""
    for leader in view.leaders(TSERVER):
        for name, replica in view.replicas(leader.group).items():
            if replica.role == "learner" and name != leader.node:
                yield leader.node, name


def _lagging(every: bool) -> Variant:
    def plan(moment: Moment) -> FaultPlan:
        learners = sorted({taught for _, taught in _lessons(moment.view)})
        if not learners:
            return FaultPlan(None, {"reason": "no tablet has a learner"})
        chosen = learners if every else shuffle(learners, moment.entropy)[:1]
        links = [link for learner in chosen for link in _deaf(moment.view, learner)]
        return FaultPlan(NetworkPartition(grudge(links)), {"learners": chosen})

    return Variant(plan, least_nodes=2)


KINDS: Final = (
    FaultKind(
        "region-loss",
        "kill -9 of all nodes of a region that every group can spare, and their restart",
        "#a8324a",
        ANYWHERE | ZONES | {Capability.KILL},
        {"region": Variant(_lost)},
    ),
    FaultKind(
        "region-partition",
        "cuts off the nodes of a region, of each from the others, or a single replica; clients reach all of them",
        "#c9683f",
        ANYWHERE | {Capability.PARTITION},
        {
            "region": Variant(_cut_off, ZONES, least_nodes=2),
            "regions": Variant(_each_alone, ZONES, least_nodes=2),
            "replica": _replica("follower"),
        },
    ),
    FaultKind(
        "learner-lag",
        "learners hear nothing of the leaders of their tablets: one, or all of them",
        "#8a7d3f",
        ANYWHERE | {Capability.PARTITION},
        {"one": _lagging(every=False), "all": _lagging(every=True)},
        suits=lambda tuning: tuning.learners > 0,
    ),
)

"""The variants of each plain fault: from a view of the cluster to the fault and the evidence for its targets (pure).

Process faults keep off nodes that another one holds (`busy`); a partition fights with nothing on a node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

from harness.protocols import CLIENTS
from nemesis.faults import Fault, Kill, Partition, Pause
from nemesis.grudges import Grudge, between, bridge, grudge, halves, isolate, majorities_ring, one_way
from nemesis.targets import STATUS_SELECTORS, Choice, select
from nemesis.view import View, names


@dataclass(frozen=True, slots=True)
class Plan:
    """A fault to inject (None: its targets could not be found) and what the statuses said of them."""

    fault: Fault | None
    evidence: dict[str, Any] = field(default_factory=dict)


Variant: TypeAlias = Callable[[View, Collection[str], Random], Plan]


def _cut_off(selector: str) -> Variant:
    def plan(view: View, busy: Collection[str], entropy: Random) -> Plan:
        choice = select(selector, view, (), entropy)
        return _partition(choice, isolate(names(view.nodes), choice.targets))

    return plan


def _one_way(selector: str, outbound: bool) -> Variant:
    def plan(view: View, busy: Collection[str], entropy: Random) -> Plan:
        choice = select(selector, view, (), entropy)
        links = one_way(names(view.nodes), choice.targets[0], outbound) if choice.targets else ()
        return _partition(choice, links)

    return plan


def _clients(selector: str, isolated: bool) -> Variant:
    def plan(view: View, busy: Collection[str], entropy: Random) -> Plan:
        choice = select(selector, view, (), entropy)
        apart = isolate(names(view.nodes), choice.targets) if isolated else ()
        links = between(choice.targets, [CLIENTS]) if isolated or entropy.random() < 0.5 else _mute(choice)
        return _partition(choice, grudge([*apart, *links]))

    return plan


def _mute(choice: Choice) -> Grudge:
    """Requests of clients arrive, and no answer comes back."""
    return grudge((name, CLIENTS) for name in choice.targets)


def _bridge(view: View, busy: Collection[str], entropy: Random) -> Plan:
    nodes = names(view.nodes)
    if len(nodes) < 3:
        return Plan(None, {"reason": "a bridge needs at least 3 nodes"})
    return Plan(Partition(bridge(nodes, entropy)))


def _halves(view: View, busy: Collection[str], entropy: Random) -> Plan:
    return Plan(Partition(halves(names(view.nodes), entropy)))


def _ring(view: View, busy: Collection[str], entropy: Random) -> Plan:
    nodes = names(view.nodes)
    if len(nodes) < 4:
        return Plan(None, {"reason": "a majorities ring needs at least 4 nodes"})
    return Plan(Partition(majorities_ring(nodes, entropy)))


def _partition(choice: Choice, links: Grudge) -> Plan:
    return Plan(Partition(links) if links else None, choice.evidence)


def _process(fault: type[Kill] | type[Pause], selector: str) -> Variant:
    def plan(view: View, busy: Collection[str], entropy: Random) -> Plan:
        choice = select(selector, view, busy, entropy)
        return Plan(fault(choice.targets) if choice.targets else None, choice.evidence)

    return plan


def _processes(fault: type[Kill] | type[Pause], *selectors: str) -> dict[str, Variant]:
    return {selector: _process(fault, selector) for selector in selectors}


VARIANTS: Mapping[str, Mapping[str, Variant]] = {
    "partition": {
        "leaseholder": _cut_off("leaseholder"),
        "leader-master": _cut_off("leader-master"),
        "one": _cut_off("one"),
        "halves": _halves,
        "majorities-ring": _ring,
        "clients": _clients("leaseholder", isolated=False),
        "leaseholder-and-clients": _clients("leaseholder", isolated=True),
        "bridge": _bridge,
        "one-way-out": _one_way("leaseholder", outbound=True),
        "one-way-in": _one_way("one", outbound=False),
    },
    "kill": _processes(Kill, "leader-master", "leaseholder", "one", "random", "group-majority", "quorum-safe", "all"),
    "pause": _processes(Pause, "leaseholder", "leader-master", "one", "minority", "group-majority", "quorum-safe"),
}
"""Variants of each fault kind by name. The first ones hit leaders: the first cycles of a run take those first."""


CLIENT_VARIANTS = frozenset({"clients", "leaseholder-and-clients"})
"""Variants of a partition that cut links between clients and nodes."""


def needs(kind: str, variant: str) -> frozenset[str]:
    """The capabilities a variant needs beside those of its kind: `status`, if what nodes say chooses its targets."""
    found = set()
    if variant in STATUS_SELECTORS or (kind, variant) == ("partition", "one-way-out") or variant in CLIENT_VARIANTS:
        found.add("status")
    if variant in CLIENT_VARIANTS:
        found.add("client-cut")
    return frozenset(found)

"""Whom a process fault hits: pure functions from nodes, busy nodes and statuses to names (`nemeses.md`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from nemesis.grudges import shuffle
from nemesis.view import Leader, View, names


@dataclass(frozen=True, slots=True)
class Choice:
    """The nodes chosen, and what the statuses said that made them the right ones; no targets: nobody qualified."""

    targets: tuple[str, ...]
    evidence: dict[str, Any] = field(default_factory=dict)


SELECTORS: tuple[str, ...] = (
    "one",
    "random",
    "minority",
    "majority",
    "all",
    "leader-master",
    "leaseholder",
    "group-majority",
    "quorum-safe",
)
"""`group-majority` is the leader of one group and as many of its voters as make a majority."""

STATUS_SELECTORS = frozenset({"leader-master", "leaseholder", "group-majority", "quorum-safe"})
"""Selectors that can't choose before the nodes have said who leads what."""


def select(selector: str, view: View, busy: Collection[str], entropy: Random) -> Choice:
    """Choose targets among the nodes that are not busy with another fault."""
    free = [name for name in names(view.nodes) if name not in busy]
    if selector in STATUS_SELECTORS:
        return _by_status(selector, view, free, entropy)
    return Choice(_sorted_as(free, _by_count(selector, view, free, entropy)))


def _by_count(selector: str, view: View, free: Sequence[str], entropy: Random) -> list[str]:
    if not free:
        return []
    if selector == "all":
        return list(free)
    if selector == "random":
        return shuffle(free, entropy)[: entropy.randint(1, len(free))]
    if selector == "one":
        return [entropy.choice(list(free))]
    chosen = []
    for role in dict.fromkeys(node.role for node in view.nodes):
        members = names(view.nodes, role)
        size = (len(members) - 1) // 2 if selector == "minority" else len(members) // 2 + 1
        chosen += shuffle([name for name in members if name in free], entropy)[:size]
    return chosen


def _by_status(selector: str, view: View, free: Sequence[str], entropy: Random) -> Choice:
    if selector == "quorum-safe":
        targets = quorum_safe(view, free, entropy)
        return Choice(targets, {"groups": {group: list(view.voters(group)) for group in view.groups()}})
    leader = find_leader(selector, view, free, entropy)
    if leader is None:
        return Choice((), {"reason": f"no free node led as {selector} asks"})
    if selector != "group-majority":
        return Choice((leader.node,), {"leader": describe(leader)})
    peers = shuffle([name for name in leader.voters if name != leader.node and name in free], entropy)
    return Choice((leader.node, *peers[: len(leader.voters) // 2]), {"leader": describe(leader)})


def find_leader(selector: str, view: View, free: Collection[str], entropy: Random) -> Leader | None:
    """A free leader: of the masters' group, of a tserver's (with a lease, for `leaseholder`), or of any."""
    role = {"leader-master": "master", "leaseholder": "tserver"}.get(selector)
    leaders = [leader for leader in view.leaders(role) if leader.node in free]
    if selector == "leaseholder":
        leaders = [leader for leader in leaders if leader.lease_valid]
    return entropy.choice(leaders) if leaders else None


def quorum_safe(view: View, free: Sequence[str], entropy: Random) -> tuple[str, ...]:
    """As many random nodes as can go while every group keeps a majority of its voters."""
    spare = {group: (len(view.voters(group)) - 1) // 2 for group in view.groups()}
    member = {group: set(view.voters(group)) for group in spare}
    for group in spare:
        spare[group] -= sum(1 for name in member[group] if name not in free or name not in view.statuses)
    chosen = []
    for name in shuffle(free, entropy):
        if name in view.statuses and all(spare[g] > 0 for g in spare if name in member[g]):
            chosen.append(name)
            spare.update({g: spare[g] - 1 for g in spare if name in member[g]})
    return _sorted_as(free, chosen)


def describe(leader: Leader) -> dict[str, Any]:
    """The leader's own words as evidence, JSON-able."""
    return {
        "node": leader.node,
        "group": leader.group,
        "term": leader.term,
        "lease_valid": leader.lease_valid,
        "commit_index": leader.commit_index,
    }


def _sorted_as(order: Sequence[str], chosen: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in order if name in chosen)

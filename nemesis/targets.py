"""Whom a process fault hits: pure functions from nodes, busy nodes and statuses to names (`nemeses.md`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from harness.capabilities import Capability
from harness.verdict.leaderships import Leadership
from nemesis.grudges import shuffle
from nemesis.observe import Leader, View, names


@dataclass(frozen=True, slots=True)
class HeldRole:
    """A role for which a node is hit: `leader`, `leaseholder`, `follower` or `learner` of a group, in a term."""

    node: str
    role: str
    group: str
    term: int


@dataclass(frozen=True, slots=True)
class Choice:
    """The nodes chosen, and what the statuses said that made them the right ones; no targets: nobody qualified.

    `roles` are those for which they were chosen.
    """

    targets: tuple[str, ...]
    evidence: dict[str, Any] = field(default_factory=dict)
    roles: tuple[HeldRole, ...] = ()


SELECTORS: tuple[str, ...] = (
    "one",
    "random",
    "minority",
    "majority",
    "all",
    "zone",
    "leader-master",
    "leaseholder",
    "follower-master",
    "learner",
    "group-majority",
    "quorum-safe",
    "quorum-safe-with-leader",
    "quorum-safe-without-leader",
    "one-too-many",
    "leader",
    "follower",
)
"""`group-majority` is the leader of one group and as many of its voters as make a majority; `one-too-many` are as many
as every group can spare, and one more of some group; `quorum-safe-with-leader` has the leader of some group in it, the
one `-without-leader` no leader of any."""

STATUS_SELECTORS = frozenset(SELECTORS[6:])
"""Selectors that can't choose before the nodes have said who leads what."""

OF_THE_REFERENCE = frozenset({"leader-master", "leaseholder", "follower-master", "learner"})
"""Selectors that speak of the reference cluster's roles."""

OF_ANY = frozenset({"leader", "follower"})
"""Targets of other databases in their place: of any group."""


def needs_of(selector: str) -> frozenset[str]:
    """The capabilities without which a selector finds nobody."""
    if selector == "zone":
        return frozenset({Capability.ZONES})
    if selector not in STATUS_SELECTORS:
        return frozenset()
    roles = {Capability.MASTERS} if selector in OF_THE_REFERENCE else set[Capability]()
    return frozenset({Capability.STATUS, Capability.TERMS, *roles})


def unless_of(selector: str) -> frozenset[str]:
    """The capabilities with which there are better selectors (`nemesis.kinds.api.Variant`)."""
    return frozenset({Capability.MASTERS}) if selector in OF_ANY else frozenset()


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
    if selector == "zone":
        lost = entropy.choice(sorted({node.zone for node in view.nodes}))
        return [node.name for node in view.nodes if node.zone == lost and node.name in free]
    chosen = []
    for role in dict.fromkeys(node.role for node in view.nodes):
        members = names(view.nodes, role)
        size = (len(members) - 1) // 2 if selector == "minority" else len(members) // 2 + 1
        chosen += shuffle([name for name in members if name in free], entropy)[:size]
    return chosen


def _by_status(selector: str, view: View, free: Sequence[str], entropy: Random) -> Choice:
    if selector.startswith("quorum-safe"):
        return _quorum_safe(selector, view, free, entropy)
    if selector == "one-too-many":
        return _one_too_many(view, free, entropy)
    if selector in ("follower", "follower-master", "learner"):
        return _one_in_role(selector, view, free, entropy)
    leader = find_leader(selector, view, free, entropy)
    if leader is None:
        return Choice((), {"reason": f"no free node led as {selector} asks"})
    held = (HeldRole(leader.node, "leaseholder" if selector == "leaseholder" else "leader", leader.group, leader.term),)
    if selector != "group-majority":
        return Choice((leader.node,), {"leader": describe(leader)}, held)
    peers = shuffle([name for name in leader.voters if name != leader.node and name in free], entropy)
    return Choice((leader.node, *peers[: len(leader.voters) // 2]), {"leader": describe(leader)}, held)


def _quorum_safe(selector: str, view: View, free: Sequence[str], entropy: Random) -> Choice:
    leaders = {leader.node: leader for leader in view.leaders()}
    if selector == "quorum-safe-without-leader":
        targets, held = quorum_safe(view, [name for name in free if name not in leaders], entropy), []
    elif selector == "quorum-safe-with-leader":
        led = shuffle([name for name in free if name in leaders], entropy)[:1]
        targets, held = quorum_safe(view, free, entropy, led), [leaders[name] for name in led]
        targets = targets if set(led) & set(targets) else ()
    else:
        targets, held = quorum_safe(view, free, entropy), []
    if not targets:
        return Choice((), {"reason": f"no node can be spared as {selector} asks"})
    roles = tuple(HeldRole(leader.node, "leader", leader.group, leader.term) for leader in held)
    return Choice(targets, {"groups": _voters(view)}, roles)


def _one_too_many(view: View, free: Sequence[str], entropy: Random) -> Choice:
    """What every group can spare, and voters of one group until its majority is gone."""
    safe = quorum_safe(view, free, entropy)
    for group in shuffle(view.groups(), entropy):
        voters = view.voters(group)
        alive = [name for name in voters if name in free and name not in safe]
        lacking = len(voters) // 2 + 1 - sum(name in safe or name not in free for name in voters)
        if 0 < lacking <= len(alive):
            more = shuffle(alive, entropy)[:lacking]
            return Choice(_sorted_as(free, [*safe, *more]), {"groups": _voters(view), "unavailable": group})
    return Choice((), {"reason": "no group has a majority to lose"})


def _one_in_role(selector: str, view: View, free: Sequence[str], entropy: Random) -> Choice:
    role = "learner" if selector == "learner" else "follower"
    among = view.groups("master" if selector == "follower-master" else None)
    found = [
        HeldRole(name, role, group, status.term)
        for group in among
        for name, status in view.replicas(group).items()
        if name in free and status.role == role
    ]
    if not found:
        return Choice((), {"reason": f"no free node was a {role} as {selector} asks"})
    held = entropy.choice(found)
    return Choice((held.node,), {"role": {"node": held.node, "is": role, "group": held.group}}, (held,))


def _voters(view: View) -> dict[str, list[str]]:
    return {group: list(view.voters(group)) for group in view.groups()}


def held_when_hit(held: HeldRole, after: View, known: Iterable[Leadership], hit_ns: int) -> bool:
    """Whether a node had its role when it was hit: by its own word right after that, if it can still say anything, and
    because nobody is known to have led the group in a later term by then."""
    leads = held.role in ("leader", "leaseholder")
    if leads and any(each.group == held.group and each.term > held.term and each.since_ns < hit_ns for each in known):
        return False
    own = after.replicas(held.group).get(held.node)
    if own is None:
        return True
    return own.role == "leader" and own.term == held.term if leads else own.role in (held.role, "candidate")


def find_leader(selector: str, view: View, free: Collection[str], entropy: Random) -> Leader | None:
    """A free leader: of the masters' group, of a tserver's (with a lease, for `leaseholder`), or of any, as where nodes
    have no such roles."""
    role = {"leader-master": "master", "leaseholder": "tserver"}.get(selector)
    role = role if any(node.role == role for node in view.nodes) else None
    leaders = [leader for leader in view.leaders(role) if leader.node in free]
    if selector == "leaseholder":
        leaders = [leader for leader in leaders if leader.lease_valid]
    return entropy.choice(leaders) if leaders else None


def quorum_safe(view: View, free: Sequence[str], entropy: Random, first: Sequence[str] = ()) -> tuple[str, ...]:
    """As many random nodes, some before others, as can go while every group keeps a majority of its voters."""
    spare = {group: (len(view.voters(group)) - 1) // 2 for group in view.groups()}
    member = {group: set(view.voters(group)) for group in spare}
    for group in spare:
        spare[group] -= sum(1 for name in member[group] if name not in free or name not in view.statuses)
    chosen = []
    for name in (*first, *(each for each in shuffle(free, entropy) if each not in first)):
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

"""Faults and the steps of scripted ones, as data; the injector carries them out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from harness.protocols import CLIENTS
from nemesis.grudges import Grudge, Link


@dataclass(frozen=True, slots=True)
class Partition:
    """These one-way links are cut; replaces what the same instance had cut before."""

    links: Grudge


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL to the database's process on these nodes, all at once."""

    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """SIGSTOP to the database's process on these nodes, all at once."""

    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Restart:
    """Start again those of these nodes that the same instance killed, and continue those it paused or held."""

    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bounce:
    """SIGKILL and at once a start."""

    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hold:
    """These nodes stop themselves when they next pass this point for the group (see `harness.protocols.Armable`)."""

    targets: tuple[str, ...]
    point: str
    group: str


@dataclass(frozen=True, slots=True)
class Flood:
    """So many writes are sent to the group's replica on this node, to keys that no workload reads."""

    node: str
    group: str
    writes: int


@dataclass(frozen=True, slots=True)
class Change:
    """A group's leader on this node is asked to change its configuration (see `harness.protocols.Reconfigurable`)."""

    node: str
    group: str
    change: str
    server: str
    expected: tuple[int, int]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Look:
    """Nothing is done; what is in effect is looked at."""


Fault: TypeAlias = Partition | Kill | Pause

Action: TypeAlias = Fault | Restart | Bounce | Hold | Flood | Change | Look

NO_CUT = Partition(())
LOOK = Look()

FEW_LINKS = 6
"""Up to so many links are named one by one."""


def targets_of(action: Action, nodes: tuple[str, ...]) -> tuple[str, ...]:
    """The nodes an action is about: for a partition those that lose a link to a majority of the others."""
    if isinstance(action, Look | Flood | Change):
        return ()
    if not isinstance(action, Partition):
        return action.targets
    lost = {name: {b if a == name else a for a, b in action.links if name in (a, b)} for name in nodes}
    most = max((len(peers) for peers in lost.values()), default=0)
    return tuple(name for name in nodes if most and len(lost[name]) == most)


def describe(action: Action, nodes: tuple[str, ...]) -> str:
    """The action in a few words for people."""
    match action:
        case Partition(links):
            return describe_links(links, (*nodes, CLIENTS) if any(CLIENTS in link for link in links) else nodes)
        case Kill(targets):
            return f"kill -9 {' '.join(targets)}"
        case Pause(targets):
            return f"pause {' '.join(targets)}"
        case Restart(targets):
            return f"restart {' '.join(targets)}"
        case Bounce(targets):
            return f"kill -9 and restart {' '.join(targets)}"
        case Hold(targets, point, group):
            return f"hold {' '.join(targets)} at {point} of {group}"
        case Flood(node, group, writes):
            return f"send {writes} writes to {group} on {node}"
        case Change(node, group, change, server):
            return f"ask {node} to {change} {server} in {group}"
        case Look():
            return "look at what is in effect"


def describe_links(links: Grudge, nodes: tuple[str, ...]) -> str:
    """`m1 | m2 m3` for sides that can't see each other, `m1 -/-> m2 m3` for one-way cuts; of many links how many.

    Nodes that lose no link are not named.
    """
    if not links:
        return "no cut"
    involved = tuple(name for name in nodes if any(name in link for link in links))
    sides = _sides(frozenset(links), involved)
    if sides is not None:
        return " | ".join(" ".join(side) for side in sides)
    sources = sorted({source for source, _ in links}, key=nodes.index)
    targets = sorted({target for _, target in links}, key=nodes.index)
    if len(links) == len(sources) * len(targets):
        return f"{' '.join(sources)} -/-> {' '.join(targets)}"
    if len(links) <= FEW_LINKS:
        lost = {source: [name for name in nodes if (source, name) in links] for source in sources}
        return ", ".join(f"{source} -/-> {' '.join(names)}" for source, names in lost.items())
    return f"{len(links)} of {len(nodes) * (len(nodes) - 1)} one-way links cut"


def _sides(links: frozenset[Link], nodes: tuple[str, ...]) -> list[list[str]] | None:
    """The groups of nodes that see each other, if the cuts are exactly those between groups."""
    sides: list[list[str]] = []
    for name in nodes:
        home = next((side for side in sides if (side[0], name) not in links and (name, side[0]) not in links), None)
        if home is None:
            sides.append([name])
        else:
            home.append(name)
    side_of = {name: i for i, side in enumerate(sides) for name in side}
    exact = {(a, b) for a in nodes for b in nodes if side_of[a] != side_of[b]}
    return sorted(sides, key=len) if exact == links else None

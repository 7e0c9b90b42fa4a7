"""Actions as data: the faults of processes and links, and the steps that scripts take; injectors carry them out."""

from __future__ import annotations

from dataclasses import dataclass

from harness.ports.api import node_of
from harness.ports.machines import CLIENTS, Skew
from nemesis.grudges import Grudge, Link


@dataclass(frozen=True, slots=True)
class NetworkPartition:
    """These one-way links are cut; replaces what the same instance had cut before."""

    links: Grudge

    def describe(self, nodes: tuple[str, ...]) -> str:
        with_clients = any(CLIENTS in link for link in self.links)
        return describe_links(self.links, (*nodes, CLIENTS) if with_clients else nodes)

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """The nodes that lose a link to a majority of the others."""
        lost = {name: {b if a == name else a for a, b in self.links if name in (a, b)} for name in nodes}
        most = max((len(peers) for peers in lost.values()), default=0)
        return tuple(name for name in nodes if most and len(lost[name]) == most)


@dataclass(frozen=True, slots=True)
class SetClocks:
    """These nodes' wall clocks are wrong from now on, each by its own; the instance's other clocks are right again."""

    skews: tuple[tuple[str, Skew], ...]

    def describe(self, nodes: tuple[str, ...]) -> str:
        if not self.skews:
            return "set all clocks right"
        return "set the clock of " + ", ".join(f"{name} {skew}" for name, skew in self.skews)

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name, _ in self.skews)


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL to the database's process on these nodes, all at once."""

    targets: tuple[str, ...]

    def describe(self, nodes: tuple[str, ...]) -> str:
        return f"kill -9 {' '.join(self.targets)}"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return self.targets


@dataclass(frozen=True, slots=True)
class Stop:
    """SIGTERM to the database's process on these nodes, all at once, and a wait until they have ended."""

    targets: tuple[str, ...]

    def describe(self, nodes: tuple[str, ...]) -> str:
        return f"stop {' '.join(self.targets)}"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return self.targets


@dataclass(frozen=True, slots=True)
class Pause:
    """SIGSTOP to the database's process on these nodes, all at once."""

    targets: tuple[str, ...]

    def describe(self, nodes: tuple[str, ...]) -> str:
        return f"pause {' '.join(self.targets)}"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return self.targets


@dataclass(frozen=True, slots=True)
class Restart:
    """Start again those of these nodes that the same instance killed, and continue those it paused or held."""

    targets: tuple[str, ...]

    def describe(self, nodes: tuple[str, ...]) -> str:
        return f"restart {' '.join(self.targets)}"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return self.targets


@dataclass(frozen=True, slots=True)
class Bounce:
    """SIGKILL and at once a start."""

    targets: tuple[str, ...]

    def describe(self, nodes: tuple[str, ...]) -> str:
        return f"kill -9 and restart {' '.join(self.targets)}"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return self.targets


@dataclass(frozen=True, slots=True)
class Hold:
    """These nodes stop themselves when they next pass this point for the group (see `harness.protocols.Armable`)."""

    targets: tuple[str, ...]
    point: str
    group: str

    def describe(self, nodes: tuple[str, ...]) -> str:
        return f"hold {' '.join(self.targets)} at {self.point} of {self.group}"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return self.targets


@dataclass(frozen=True, slots=True)
class PointDelay:
    """Whatever passes this point on the node waits so long, and everything else there goes on; 0: no more, and what
    hangs there goes on (`PointHang`)."""

    node: str
    point: str
    seconds: float

    def describe(self, nodes: tuple[str, ...]) -> str:
        return f"delay what passes {self.point} on {self.node} by {self.seconds:g} s"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return (self.node,)


@dataclass(frozen=True, slots=True)
class PointHang:
    """What passes this point for the group on the node next waits until that is ended, and all else goes on."""

    node: str
    point: str
    group: str

    def describe(self, nodes: tuple[str, ...]) -> str:
        return f"hang what passes {self.point} of {self.group} on {self.node} next"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return (self.node,)


@dataclass(frozen=True, slots=True)
class Flood:
    """A number of writes is sent to the group's replica on this node, to keys that no workload reads."""

    node: str
    group: str
    writes: int

    def describe(self, nodes: tuple[str, ...]) -> str:
        return f"send {self.writes} writes to {self.group} on {self.node}"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Change:
    """A group's leader on this node is asked to change its configuration (see `harness.protocols.Reconfigurable`)."""

    node: str
    group: str
    change: str
    server: str
    expected: tuple[int, int]
    timeout_s: float

    def describe(self, nodes: tuple[str, ...]) -> str:
        return f"ask {self.node} to {self.change} {self.server} in {self.group}"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Move:
    """The leader of a group in a term, and the server that is to lead in its place."""

    node: str
    group: str
    term: int
    server: str


@dataclass(frozen=True, slots=True)
class MoveLeaders:
    """These leaders are asked to hand over, all at once."""

    moves: tuple[Move, ...]

    def describe(self, nodes: tuple[str, ...]) -> str:
        told = [f"{move.node} to let {node_of(move.server)} lead {move.group}" for move in self.moves]
        return "ask " + ", ".join(told)

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in nodes if any(move.node == name for move in self.moves))


@dataclass(frozen=True, slots=True)
class Look:
    """Nothing is done; what is in effect is looked at."""

    def describe(self, nodes: tuple[str, ...]) -> str:
        return "look at what is in effect"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return ()


WITHIN = 0.45
"""Of the declared maximum offset: clocks wrong by as much, one each way, are still within it."""

NO_CUT = NetworkPartition(())
LOOK = Look()

FEW_LINKS = 6
"""How many links are named one by one at most."""


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

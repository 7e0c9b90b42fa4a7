"""What the nodes said of themselves at one moment, and the questions target selection asks of it (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.ports.api import node_of
from harness.protocols import GroupStatus, Node, NodeStatus

MASTER, TSERVER = "master", "tserver"

DEFAULT_CLOCK_OFFSET_NS = 500_000_000
"""Where no node tells how far clocks may be apart."""


@dataclass(frozen=True, slots=True)
class Leader:
    """A replica that calls itself leader of a group; `lease_valid` says whether it may serve reads."""

    node: str
    group: str
    term: int
    lease_valid: bool
    commit_index: int
    last_index: int
    voters: tuple[str, ...]

    @property
    def others(self) -> tuple[str, ...]:
        """Its peers."""
        return tuple(name for name in self.voters if name != self.node)


@dataclass(frozen=True, slots=True)
class View:
    """The nodes in the database's order and the statuses of those that answered."""

    nodes: tuple[Node, ...]
    statuses: Mapping[str, NodeStatus]

    @property
    def max_clock_offset_ns(self) -> int:
        """How far any two wall clocks may be apart, as the nodes declare it."""
        told = [status.details.get("max_clock_offset_ns") for status in self.statuses.values()]
        return min((each for each in told if isinstance(each, int)), default=DEFAULT_CLOCK_OFFSET_NS)

    def replicas(self, group: str) -> dict[str, GroupStatus]:
        """Every answering replica's own view of the group, by node name."""
        found = {}
        for node in self.nodes:
            for status in self.statuses[node.name].groups if node.name in self.statuses else ():
                if status.group == group:
                    found[node.name] = status
        return found

    def last_index(self, group: str, node: str) -> int | None:
        """Of the log of the node's replica; None where there is none, or it does not answer."""
        replica = self.replicas(group).get(node)
        return None if replica is None else replica.last_index

    def groups(self, role: str | None = None) -> tuple[str, ...]:
        """Ids of the groups that nodes of this role (or any) hold replicas of, sorted."""
        held = {
            status.group
            for node in self.nodes
            if role in (None, node.role) and node.name in self.statuses
            for status in self.statuses[node.name].groups
        }
        return tuple(sorted(held))

    def dropped(self, group: str) -> bool:
        """Whether there is no such group any more: every node answers, and none holds a replica of it.

        Workloads drop tables. That a group was lost that should be there shows when the whole is examined.
        """
        return all(node.name in self.statuses for node in self.nodes) and not self.replicas(group)

    def voters(self, group: str) -> tuple[str, ...]:
        """The group's voters as its most advanced replica (by term, then commit index) names them."""
        replicas = self.replicas(group)
        if not replicas:
            return ()
        newest = max(replicas.values(), key=lambda status: (status.term, status.commit_index))
        return tuple(map(node_of, newest.voters))

    def term(self, group: str) -> int:
        """The highest term any answering replica is in; 0 if none answers."""
        return max((status.term for status in self.replicas(group).values()), default=0)

    def leaders(self, role: str | None = None, group: str | None = None) -> tuple[Leader, ...]:
        """The leader of the highest term of each group (deposed ones that don't know it yet are left out)."""
        groups = (group,) if group is not None else self.groups(role)
        return tuple(leader for name in groups if (leader := self.leader(name)) is not None)

    def leader(self, group: str) -> Leader | None:
        """The group's leader of the highest term among those that call themselves so."""
        claims = [(s.term, name, s) for name, s in self.replicas(group).items() if s.role == "leader"]
        if not claims:
            return None
        term, name, status = max(claims, key=lambda claim: claim[:2])
        voters = tuple(map(node_of, status.voters))
        return Leader(name, group, term, status.lease_valid, status.commit_index, status.last_index, voters)


def names(nodes: Iterable[Node], role: str | None = None) -> tuple[str, ...]:
    """Names of the nodes of a role (or of all), in order."""
    return tuple(node.name for node in nodes if role in (None, node.role))

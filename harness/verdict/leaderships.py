"""Who led which group, and when: told by nodes as they begin to lead, and by every status that is asked for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from harness.capabilities import Capability
from harness.ports.api import node_of
from harness.protocols import Database, NodeStatus


class Leadership(msgspec.Struct, frozen=True):
    """`leaders.json` is a list of these, in the order of `since_ns`: a node that led a group in a term.

    It was first known to lead at `since_ns` and last at `seen_ns`, since the history's start. What came between it and
    the next leadership of the group nobody saw. `members` are the nodes that it said have replicas of the group.
    """

    group: str
    term: int
    node: str
    since_ns: int
    seen_ns: int
    members: tuple[str, ...] = ()


class Leaderships:
    """Collects leaderships; times are of one monotonic clock."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, str], Leadership] = {}

    def leads(self, group: str, term: int, node: str, at_ns: int, members: Collection[str] = ()) -> None:
        """The node leads the group in this term just now, and has these nodes in it."""
        known = self._known.get((group, term, node))
        since_ns, before = (at_ns, ()) if known is None else (known.since_ns, known.members)
        together = tuple(sorted({*before, *members}))
        self._known[group, term, node] = Leadership(group, term, node, since_ns, at_ns, together)

    def take(self, status: NodeStatus, at_ns: int) -> None:
        """What a status says of the groups that its node leads."""
        for group in status.groups:
            if group.role == "leader":
                members = tuple(map(node_of, (*group.voters, *group.learners)))
                self.leads(group.group, group.term, status.node, at_ns, members)

    def all(self) -> tuple[Leadership, ...]:
        """All so far, in the order in which they began."""
        return tuple(sorted(self._known.values(), key=lambda each: (each.since_ns, each.group, each.term)))


@runtime_checkable
class Led(Protocol):
    """The power of a database with the capability `leaderships`: it knows who led its groups."""

    @property
    def leaderships(self) -> Leaderships:
        """All from its start to now, on the environment's monotonic clock."""


def leaderships_of(database: Database) -> Leaderships | None:
    """What a database noted of who led its groups; None where it has no such power."""
    able = Capability.LEADERSHIPS in database.capabilities
    return database.leaderships if able and isinstance(database, Led) else None


def since(leaderships: Sequence[Leadership], start_ns: int) -> tuple[Leadership, ...]:
    """With times since this moment; what another of the group had followed before it is left out."""
    at_start = {each.group: each for each in leaderships if each.since_ns <= start_ns}
    return tuple(
        msgspec.structs.replace(
            each, since_ns=max(0, each.since_ns - start_ns), seen_ns=max(0, each.seen_ns - start_ns)
        )
        for each in leaderships
        if each.since_ns > start_ns or at_start[each.group] is each
    )

"""How long a repair is waited for: as long as it comes nearer to its end, with a bound."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from harness.ports.api import Clock, node_of
from harness.protocols import GroupStatus, NodeStatus

LONGEST = 4
"""A repair that comes nearer is waited for as many times as long as one that does not."""


@dataclass(slots=True)
class Nearing:
    """Whether a repair still comes nearer to its end: a replica takes as long as its log is long and its links slow.

    It is given up when for `patience_s` nothing was wrong that was not wrong before and nothing that is was nearer to
    its end than ever, and in any case after LONGEST times that.
    """

    clock: Clock
    patience_s: float
    _nearest: dict[Hashable, int] = field(default_factory=dict)
    _began_ns: int = field(init=False)
    _came_ns: int = field(init=False)

    def __post_init__(self) -> None:
        self._began_ns = self._came_ns = self.clock.monotonic_ns()

    def note(self, wrong: Mapping[Hashable, int]) -> None:
        """What a look found wrong, each with how many entries its replicas lack."""
        for what, lacked in wrong.items():
            if lacked < self._nearest.get(what, lacked + 1):
                self._nearest[what] = lacked
                self._came_ns = self.clock.monotonic_ns()

    def over(self) -> bool:
        """Whether it is given up."""
        now_ns, patience_ns = self.clock.monotonic_ns(), int(self.patience_s * 1e9)
        return now_ns - self._came_ns >= patience_ns or now_ns - self._began_ns >= LONGEST * patience_ns


def entries_lacked(leader: GroupStatus, servers: tuple[str, ...], replicas: Mapping[str, GroupStatus]) -> int:
    """How many entries of the leader's log these servers lack, all together; `replicas` are by node."""
    held = [replicas.get(node_of(server)) for server in servers]
    return sum(max(0, leader.last_index - (0 if each is None else each.last_index)) for each in held)


def lacked_by_all(statuses: Mapping[str, NodeStatus | None]) -> int:
    """How many entries replicas lack of what their groups' leaders have, all together; statuses are by node.

    Where nobody leads it is not known who lacks what, so all of them count as lacking everything.
    """
    held: dict[str, dict[str, GroupStatus]] = {}
    for node, status in statuses.items():
        for group in () if status is None else status.groups:
            held.setdefault(group.group, {})[node] = group
    lacked = 0
    for replicas in held.values():
        leading = [replica for replica in replicas.values() if replica.role == "leader"]
        if leading:
            leader = max(leading, key=lambda replica: replica.term)
            lacked += entries_lacked(leader, (*leader.voters, *leader.learners), replicas)
        else:
            lacked += len(replicas) * max(replica.last_index for replica in replicas.values())
    return lacked

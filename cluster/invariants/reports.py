"""Invariants over what nodes say of themselves, where nobody sees their steps: in containers (G10).

What a replica says of a term or of an index is true for ever, so reports need not be of one moment to be compared.
Nothing damages a container's disk, so no replica has a reason to fail there.
"""

from __future__ import annotations

from cluster.invariants.elections import ONE_LEADER, First
from cluster.invariants.findings import BreachLog, Scope
from cluster.invariants.states import States
from cluster.invariants.watch import NO_PANIC
from harness.invariants import InvariantsRecord
from harness.protocols import NodeStatus

STOPPED = ("failed", "quarantined")
"""Roles of replicas that take part in nothing."""


class Reports:
    """Fed with every status that is asked for."""

    def __init__(self) -> None:
        self._findings = BreachLog(lambda: (0, 0))
        self._lives: dict[tuple[str, int], int] = {}
        self._leaders: First[tuple[str, int], int] = First()
        self._states: dict[str, States] = {}

    def take(self, status: NodeStatus) -> None:
        """One leader in a term, equal states at equal applied index, and no replica that has failed."""
        life = self._life(status.node, status.incarnation)
        for group in status.groups:
            scope = Scope(self._findings, group.group)
            self._findings.checked[NO_PANIC] += 1
            if group.role in STOPPED:
                scope.tell(NO_PANIC, f"a replica is {group.role}", life)
            if group.role == "leader":
                self._findings.checked[ONE_LEADER] += 1
                first = self._leaders.of((group.group, group.term), life)
                if first != life:
                    scope.tell(ONE_LEADER, f"two replicas lead in term {group.term}", first, life)
            if group.digest:
                self._states.setdefault(group.group, States(scope)).applied(life, group.applied_index, group.digest)

    def record(self) -> InvariantsRecord:
        """What was compared and found so far."""
        return self._findings.record()

    def _life(self, node: str, incarnation: int) -> int:
        life = self._lives.get((node, incarnation))
        if life is None:
            life = self._lives[node, incarnation] = self._findings.lives.begin(node, incarnation)
        return life

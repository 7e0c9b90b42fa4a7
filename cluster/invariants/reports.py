"""Invariants over what nodes say of themselves, where nobody sees their steps: in containers (G10).

What a replica says of a term or of an index is true for ever, so reports need not be of one moment to be compared.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.invariants.elections import ONE_LEADER, First
from cluster.invariants.findings import BreachLog, Scope
from cluster.invariants.states import States
from cluster.invariants.watch import NO_PANIC
from harness.protocols import InvariantsRecord, NodeStatus


class Reports:
    """Fed with every status that is asked for.

    `damaged` says of a node whether anything on its disk was ever damaged by others than itself.
    """

    def __init__(self, damaged: Callable[[str], bool] = lambda node: False) -> None:
        self._damaged = damaged
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
            if group.role == "failed":
                scope.tell(NO_PANIC, "a replica has failed", life)
            elif group.role == "quarantined" and not self._damaged(status.node):
                scope.tell(NO_PANIC, "a replica is quarantined on a disk that nothing has damaged", life)
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

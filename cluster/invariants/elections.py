"""Elections of one group: one vote a term and server, one leader a term, and every leader has what was committed."""

from __future__ import annotations

from typing import Generic, TypeVar

from cluster.groups.observer import RaftView
from cluster.invariants.findings import Scope
from cluster.invariants.log import LogInvariants, fact_of
from cluster.raft.types import NodeId

ONE_VOTE = "one-vote-per-term"
ONE_LEADER = "one-leader-per-term"
LEADER_COMPLETENESS = "leader-completeness"

KEPT = 4096

K = TypeVar("K")
V = TypeVar("V")


class First(Generic[K, V]):
    """The first value of each key; the oldest keys are forgotten beyond `KEPT`."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[K, V] = {}

    def of(self, key: K, value: V) -> V:
        """The value that stands for a key from now on: this one, unless another came first."""
        first = self._values.setdefault(key, value)
        if len(self._values) > KEPT:
            del self._values[next(iter(self._values))]
        return first

    def get(self, key: K) -> V | None:
        """The value that stands for a key, if it is known."""
        return self._values.get(key)


class Elections:
    """Fed with votes as they leave their voters, and with replicas that begin to lead."""

    def __init__(self, scope: Scope, log: LogInvariants) -> None:
        self._scope, self._log = scope, log
        self._checked = scope.checked
        self._votes: First[tuple[NodeId, int], tuple[NodeId, int]] = First()
        self._leaders: First[int, int] = First()

    def voted(self, life: int, server: NodeId, term: int, candidate: NodeId) -> None:
        """A server votes for one candidate in a term, also across its restarts (§3.4, §3.8)."""
        self._checked[ONE_VOTE] += 1
        first, first_life = self._votes.of((server, term), (candidate, life))
        if first != candidate:
            message = f"{server} voted for {first} and for {candidate} in term {term}"
            self._scope.tell(ONE_VOTE, message, first_life, life)

    def became_leader(self, life: int, raft: RaftView) -> None:
        """One life leads in a term (election safety), with every entry that was committed in an earlier one (§3.6)."""
        self._checked[ONE_LEADER] += 1
        first = self._leaders.of(raft.term, life)
        if first != life:
            self._scope.tell(ONE_LEADER, f"two replicas lead in term {raft.term}", first, life)
        self._checked[LEADER_COMPLETENESS] += 1
        index, fact = self._log.committed_before(raft.term)
        if raft.last_index < index:
            message = f"the leader of term {raft.term} lacks the committed entry {index}: its log ends at"
            self._scope.tell(LEADER_COMPLETENESS, f"{message} {raft.last_index}", life)
        elif fact and index >= raft.first_index and fact_of(raft.entries(index, index)[0]) != fact:
            message = f"the leader of term {raft.term} has another entry at {index} than was committed"
            self._scope.tell(LEADER_COMPLETENESS, message, life)

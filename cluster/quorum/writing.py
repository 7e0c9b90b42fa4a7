"""What a coordinator knows of one write: who has acknowledged it, what became of it, and whom to leave a hint (Q1, Q2).

Pure: fed with what came of each replica, asked for the outcome. A write has failed for certain only if it was sent to
nobody or refused by everybody; otherwise what is not acknowledged in time is unknown.
"""

from __future__ import annotations

from enum import Enum

from cluster.quorum.replica_sets import ReplicaSet
from harness.levels import Demand


class Delivery(Enum):
    """What came of sending a mutation to one replica."""

    DURABLE = "durable"
    """It is in the replica's log, and synced."""
    REFUSED = "refused"
    """The replica said that it did not take it."""
    UNSENT = "unsent"
    """There was no way there."""
    LOST = "lost"
    """No answer in time: it may have taken it."""


class WriteOutcome(Enum):
    """What the client is told."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    UNKNOWN = "unknown"


class WriteState:
    """One write under way to all replicas of a partition."""

    def __init__(self, replicas: ReplicaSet, wanted: Demand) -> None:
        self._replicas, self._wanted = replicas, wanted
        self._fates: dict[str, Delivery] = {}

    def told(self, node_id: str, fate: Delivery) -> None:
        """What came of one replica; the first word of each counts."""
        self._fates.setdefault(node_id, fate)

    @property
    def acknowledged_by(self) -> tuple[str, ...]:
        """The replicas on which it is durable, in the order of their answers."""
        return tuple(node_id for node_id, fate in self._fates.items() if fate is Delivery.DURABLE)

    @property
    def complete(self) -> bool:
        """Whether every replica has been told of."""
        return len(self._fates) == len(self._replicas.endpoints)

    @property
    def outcome(self) -> WriteOutcome | None:
        """What is known to have become of it; None while more answers may still decide."""
        if self._wanted.met_by(self._replicas.data_centres(self.acknowledged_by)):
            return WriteOutcome.ACKNOWLEDGED
        if not self.complete:
            return None
        return WriteOutcome.UNKNOWN if self._may_be_somewhere else WriteOutcome.FAILED

    @property
    def _may_be_somewhere(self) -> bool:
        return any(fate in (Delivery.DURABLE, Delivery.LOST) for fate in self._fates.values())

    def missed(self) -> tuple[str, ...]:
        """Once complete: the replicas that may lack it; none where it failed, for then it must stay without effect."""
        if self.outcome is WriteOutcome.FAILED:
            return ()
        at = [endpoint.node_id for endpoint in self._replicas.endpoints]
        return tuple(node_id for node_id in at if self._fates.get(node_id) is not Delivery.DURABLE)

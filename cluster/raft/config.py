"""What one Raft node is configured with."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.raft.types import NodeId

MILLISECOND_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Timings are ns of the node's own monotonic clock; the same timings are assumed on every voter.

    `lease_ns` 0 means `election_timeout_ns`, `check_quorum_ns` 0 means four election timeouts. `max_clock_drift` is
    how far any voter's monotonic clock may run from real time (0.01: between 0.99 and 1.01 times as fast).
    `max_inflight` is per follower, the batch limits per AppendEntries; `retained_entries` stay in the log behind a
    snapshot, for followers that lag a little. A learner that can't catch up in `catch_up_rounds` is not promoted
    (§4.2.1). A group at rest for `quiesce_after_ns` falls silent, 0: never. Raises ValueError where the lease rules
    could not hold.
    """

    node_id: NodeId
    election_timeout_ns: int = 600 * MILLISECOND_NS
    heartbeat_ns: int = 100 * MILLISECOND_NS
    lease_ns: int = 0
    check_quorum_ns: int = 0
    max_clock_drift: float = 0.01
    max_batch_entries: int = 64
    max_batch_bytes: int = 1 << 20
    max_inflight: int = 32
    retained_entries: int = 256
    catch_up_rounds: int = 10
    quiesce_after_ns: int = 0
    flaws: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not 0 <= self.max_clock_drift < 1:
            raise ValueError(f"max_clock_drift must be in [0, 1), not {self.max_clock_drift}")
        if not 0 <= self.lease_ns <= self.election_timeout_ns:
            raise ValueError("lease_ns must be at most election_timeout_ns, or a voter could campaign within a lease")
        if not 0 < self.heartbeat_ns < (self.lease_ns or self.election_timeout_ns):
            raise ValueError("heartbeat_ns must be below lease_ns, or the lease could not be kept")
        sizes = (self.max_batch_entries, self.max_batch_bytes, self.max_inflight, self.catch_up_rounds)
        if min(sizes) < 1 or self.retained_entries < 0:
            raise ValueError("sizes and catch_up_rounds must be at least 1, retained_entries at least 0")

    @property
    def voter_lease_ns(self) -> int:
        """How long a voter refuses other candidates after contact with a leader, by the voter's clock (§4.2.3)."""
        return self.lease_ns or self.election_timeout_ns

    @property
    def leader_lease_ns(self) -> int:
        """How long a leader may serve after the send time of an acknowledged round, by the leader's clock (§6.4.1).

        The leader's clock may be the slowest allowed and a voter's the fastest: the ratio of the two shortens it.
        """
        return int(self.voter_lease_ns * (1 - self.max_clock_drift) / (1 + self.max_clock_drift))

    @property
    def leader_check_quorum_ns(self) -> int:
        """How long a leader stays one without an answer from a quorum (§6.2)."""
        return self.check_quorum_ns or 4 * self.election_timeout_ns

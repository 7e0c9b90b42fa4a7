"""The timing and the sizes of a cluster's nodes."""

from __future__ import annotations

import math
from functools import cache
from typing import Annotated, TypeAlias

import msgspec
import msgspec.inspect

FromZero: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
FromOne: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class Knobs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Timing and sizes; every node of a cluster gets the same ones. Durations are of the monotonic clock.

    `lease_ms` (0: as long as `election_timeout_ms`) is Raft's lease; `tablet_lease_ms` (0: as long as
    `election_timeout_ms`) the length of the lease record's HLC interval, which a successor waits out after a loss.
    `snapshot_entries` is the number of applied entries between two snapshots of a group, `retained_entries` those kept
    behind one for followers that lag. `max_inflight` bounds the AppendEntries on their way to one follower.
    Snapshots travel in chunks of `snapshot_chunk_bytes`, of which `snapshot_window_chunks` may be unacknowledged. A
    learner is promoted if it catches up in `catch_up_rounds`.
    `max_clock_offset_ms` bounds how far any two nodes' wall clocks may lie apart; it must exceed half the longest round
    trip, or no clock could be proven within it. Every `clock_probe_ms` nodes measure that. A client session ends after
    `session_silence_ms` without a change, or as the least recently used beyond `max_sessions` of a group; it keeps at
    most `session_answers` answers (G8). A segment of the node's log is closed above `log_segment_bytes`; a log that was
    idle for `log_idle_ms` proves its last frame durable by another one. A leader whose disk has not answered for
    `disk_stall_ms` gives its lease up; `max_queued_proposals` commands wait for a group's log, more are refused (G7).
    Heartbeats to one node are gathered for `heartbeat_gather_ms`. A group that was at rest for `quiesce_after_ms`
    falls silent, 0: never; what its members' nodes promise lets its lease last for `support_ms` (0: as long as
    `election_timeout_ms`), at most as long as a record. Snapshots are written and sent below `bulk_bytes_per_s` each;
    at most `bulk_queue_bytes` of their chunks wait, none longer than `bulk_patience_ms` (G6). A node takes
    `max_requests` requests of clients at a time (G7). Replicas of quorum tables keep deletions for
    `deletion_grace_ms`, within which repair has to bring them everywhere (Q2): every `repair_period_ms`, 0: never,
    replicas of legacy tables are compared by trees of 2 ** `repair_tree_depth` hashes. A read of a logged table whose
    replicas differ asks for sketches of `summary_cells` cells first, 0: for all ids (Q4). Replicas of logged tables
    exchange what they miss every `poll_period_ms`, and every `reconcile_period_ms` they raise their low bound to what
    is `write_timeout_ms` and `reconcile_margin_ms` old (Q6); 0: never. A store of quorum rows writes what
    `memtable_bytes` of the log hold to a file. Closed timestamps lie `closed_lag_ms` behind the leaseholder's clock.
    A replica that its leader has not heard of for `replica_dead_ms` is evicted and replaced by another (M11). A
    tablet that no leader was reported for within `tablet_creation_ms` is replaced by one with other replicas (M8).
    """

    election_timeout_ms: FromOne = 600
    raft_heartbeat_ms: FromOne = 100
    lease_ms: FromZero = 0
    max_clock_drift: Annotated[float, msgspec.Meta(ge=0.0, le=0.99)] = 0.01
    check_quorum_ms: FromZero = 0
    max_batch_entries: FromOne = 64
    max_batch_bytes: FromOne = 1 << 20
    max_inflight: FromOne = 32
    retained_entries: FromZero = 256
    snapshot_entries: FromOne = 2_000
    snapshot_chunk_bytes: FromOne = 1 << 18
    snapshot_window_chunks: FromOne = 4
    catch_up_rounds: FromOne = 10
    log_segment_bytes: FromOne = 4 << 20
    log_idle_ms: FromOne = 1_000
    disk_retry_ms: FromOne = 200
    disk_stall_ms: FromOne = 1_000
    max_queued_proposals: FromOne = 4_096
    tserver_heartbeat_ms: FromOne = 500
    master_call_timeout_ms: FromOne = 1_000
    request_timeout_ms: FromOne = 5_000
    tablet_lease_ms: FromZero = 0
    max_clock_offset_ms: FromOne = 500
    clock_probe_ms: FromOne = 1_000
    version_retention_ms: FromZero = 60_000
    closed_lag_ms: FromZero = 3_000
    session_silence_ms: FromOne = 60_000
    max_sessions: FromOne = 10_000
    session_answers: FromOne = 1_000
    heartbeat_gather_ms: FromZero = 10
    quiesce_after_ms: FromZero = 1_000
    support_ms: FromZero = 0
    bulk_bytes_per_s: FromOne = 16 << 20
    bulk_queue_bytes: FromOne = 8 << 20
    bulk_patience_ms: FromOne = 2_000
    max_requests: FromOne = 10_000
    deletion_grace_ms: FromZero = 864_000_000
    summary_cells: FromZero = 32
    repair_period_ms: FromZero = 0
    repair_tree_depth: Annotated[int, msgspec.Meta(ge=0, le=20)] = 10
    poll_period_ms: FromZero = 500
    reconcile_period_ms: FromZero = 5_000
    write_timeout_ms: FromZero = 2_000
    reconcile_margin_ms: FromZero = 1_000
    memtable_bytes: FromOne = 4 << 20
    replica_dead_ms: FromOne = 60_000
    tablet_creation_ms: FromOne = 15_000

    def __post_init__(self) -> None:
        """Raises ValueError for a value out of its bounds, and where Raft's lease rules could not hold."""
        for name, (low, high) in knob_bounds().items():
            if not low <= (value := getattr(self, name)) <= high:
                raise ValueError(f"{name} is {value}; it has to lie between {low:.12g} and {high:.12g}")
        if self.raft_heartbeat_ms >= (self.lease_ms or self.election_timeout_ms):
            raise ValueError("raft_heartbeat_ms must be below the lease (or election timeout)")
        if self.heartbeat_gather_ms >= self.raft_heartbeat_ms:
            raise ValueError("heartbeat_gather_ms must be below raft_heartbeat_ms")
        if self.lease_ms > self.election_timeout_ms:
            raise ValueError("lease_ms must be at most election_timeout_ms")
        if self.replica_dead_ms <= self.election_timeout_ms:
            raise ValueError("replica_dead_ms must be above election_timeout_ms: a shorter silence is no death")

    @property
    def lease_record_ns(self) -> int:
        """The length of the lease record's interval.

        A voter elects nobody within `election_timeout_ms` of the holder's contact: by then a record of that length is
        over where clocks are in step. A longer one would add waiting, a shorter one renewals.
        """
        return (self.tablet_lease_ms or self.election_timeout_ms) * 1_000_000

    @property
    def support_ns(self) -> int:
        """How far a promise reaches beyond the reading that asked for it (G3).

        Raft's lease is no longer than an election timeout, so nothing is served beyond that by a promise; and a
        successor, whom nobody elects any sooner, finds such a one over where clocks are in step. It reaches no further
        than a record: before members change a renewal has to say what was promised.
        """
        return min((self.support_ms or self.election_timeout_ms) * 1_000_000, self.lease_record_ns)


@cache
def knob_bounds() -> dict[str, tuple[float, float]]:
    """The lowest and highest value of each knob by itself: infinite where only others, or nothing, bound it."""
    found: dict[str, tuple[float, float]] = {}
    for field in msgspec.structs.fields(Knobs):
        kind = msgspec.inspect.type_info(field.type)
        assert isinstance(kind, msgspec.inspect.IntType | msgspec.inspect.FloatType) and kind.ge is not None
        found[field.name] = (kind.ge, math.inf if kind.le is None else kind.le)
    return found

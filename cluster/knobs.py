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
    """Timing and sizes; every node of a cluster gets the same ones. Durations are of the monotonic clock."""

    # ---- Raft ----
    # A voter hears no leader for one to two of these before it stands for election.
    election_timeout_ms: FromOne = 600
    # Below the lease, which each heartbeat renews.
    raft_heartbeat_ms: FromOne = 100
    # Raft's lease; at most the election timeout, which 0 stands for.
    lease_ms: FromZero = 0
    # How far any monotonic clock may run from real time: at 0.01 between 0.99 and 1.01 times as fast.
    max_clock_drift: Annotated[float, msgspec.Meta(ge=0.0, le=0.99)] = 0.01
    # A leader steps down after so long without an answer from a quorum; 0: four election timeouts.
    check_quorum_ms: FromZero = 0
    # The most that one AppendEntries carries, and how many of them may be on their way to one follower.
    max_batch_entries: FromOne = 64
    max_batch_bytes: FromOne = 1 << 20
    max_inflight: FromOne = 32
    # Entries that stay in the log behind a snapshot, for followers that lag.
    retained_entries: FromZero = 256
    # Applied entries between two snapshots of a group.
    snapshot_entries: FromOne = 2_000
    # Snapshots travel in such chunks, of which a window may be unacknowledged.
    snapshot_chunk_bytes: FromOne = 1 << 18
    snapshot_window_chunks: FromOne = 4
    # A learner is promoted if it catches up in this number of rounds (G1).
    catch_up_rounds: FromOne = 10

    # ---- the node's log and disk ----
    # A segment is closed above this size.
    log_segment_bytes: FromOne = 4 << 20
    # A log that was idle for so long proves its last frame durable by another one.
    log_idle_ms: FromOne = 1_000
    # How long a node waits before it tries a full disk again.
    disk_retry_ms: FromOne = 200
    # A leader whose disk has not answered for so long gives its lease up (G7).
    disk_stall_ms: FromOne = 1_000
    # The most commands that wait for a group's log; more are refused (G7).
    max_queued_proposals: FromOne = 4_096

    # ---- calls ----
    tserver_heartbeat_ms: FromOne = 500
    # How long a master waits for the answer of a tablet server.
    master_call_timeout_ms: FromOne = 1_000
    # How long a leaseholder works on a request of a client.
    request_timeout_ms: FromOne = 5_000

    # ---- leases, clocks and versions of ranges ----
    # The length of the lease record's HLC interval, which a successor waits out after a loss; 0: an election timeout.
    tablet_lease_ms: FromZero = 0
    # How far any two nodes' wall clocks may lie apart. Invariant: above half the longest round trip, or no clock could
    # be proven within it.
    max_clock_offset_ms: FromOne = 500
    # How often nodes measure that.
    clock_probe_ms: FromOne = 1_000
    # How far back reads may ask: older versions are collected, but for the newest of each cell.
    version_retention_ms: FromZero = 60_000
    # Closed timestamps lie so far behind the leaseholder's clock (R6).
    closed_lag_ms: FromZero = 3_000
    # So often ranges that nothing is written to are closed, and other nodes told; 0: never (R4).
    side_transport_ms: FromZero = 200
    # A read that meets what a transaction holds waits so long before it pushes that, and as long again; 0: not at all.
    push_after_ms: FromZero = 100
    # What a transaction has held for so long ends when somebody meets it (R9).
    hold_ms: FromOne = 10_000
    # Whether writes in flight are tracked by an exact heap (1) or by two buckets (R5).
    exact_tracker: Annotated[int, msgspec.Meta(ge=0, le=1)] = 0
    # How many spans a lease remembers that were read; what it forgets pushes writes higher (R3).
    read_spans: FromOne = 10_000

    # ---- client sessions (G8) ----
    # A session ends after this time without a change, or as the least recently used above this number in a group.
    session_silence_ms: FromOne = 60_000
    max_sessions: FromOne = 10_000
    # The most answers that a session keeps.
    session_answers: FromOne = 1_000

    # ---- streams between nodes, and silence (G6) ----
    # Heartbeats to one node are gathered for so long. Invariant: below `raft_heartbeat_ms`.
    heartbeat_gather_ms: FromZero = 10
    # A group that was at rest for so long falls silent; 0: never.
    quiesce_after_ms: FromZero = 1_000
    # What the nodes of a silent group's members promise lets its lease last so much longer; 0: an election timeout. At
    # most as long as a record.
    support_ms: FromZero = 0
    # Snapshots are written and sent below this rate each; a bounded queue of their chunks waits, none for longer.
    bulk_bytes_per_s: FromOne = 16 << 20
    bulk_queue_bytes: FromOne = 8 << 20
    bulk_patience_ms: FromOne = 2_000
    # The most requests of clients that a node takes at a time (G7).
    max_requests: FromOne = 10_000

    # ---- quorum tables ----
    # Replicas keep deletions for so long, within which repair has to bring them everywhere (Q2).
    deletion_grace_ms: FromZero = 864_000_000
    # A read of a logged table whose replicas differ asks first for sketches of as many cells; 0: for all ids (Q4).
    summary_cells: FromZero = 32
    # So often replicas of legacy tables are compared, 0: never, by trees of 2 ** `repair_tree_depth` hashes.
    repair_period_ms: FromZero = 0
    repair_tree_depth: Annotated[int, msgspec.Meta(ge=0, le=20)] = 10
    # Replicas of logged tables exchange what they miss every `poll_period_ms`, and every `reconcile_period_ms` they
    # raise their low bound to what is `write_timeout_ms` and `reconcile_margin_ms` old (Q6); periods of 0: never.
    poll_period_ms: FromZero = 500
    reconcile_period_ms: FromZero = 5_000
    write_timeout_ms: FromZero = 2_000
    reconcile_margin_ms: FromZero = 1_000
    # A store of quorum rows writes a file for each such stretch of the log, in blocks of so many bytes.
    memtable_bytes: FromOne = 4 << 20
    block_bytes: FromOne = 16 << 10
    # The most ids of one answer, mutations of one delivery, and bytes of mutations or partitions sent in one message.
    listed_ids: FromOne = 4_096
    sent_mutations: FromOne = 512
    sent_bytes: FromOne = 1 << 20

    # ---- tablets ----
    # A replica that its leader has not heard of for so long is evicted and replaced by another (M11). Invariant: above
    # the election timeout.
    replica_dead_ms: FromOne = 60_000
    # A tablet that no leader was reported for within this time is replaced by one with other replicas (M8).
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
        successor, whom nobody elects any sooner, finds one of that length over where clocks are in step. It reaches no
        further than a record: before members change a renewal has to say what was promised.
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

"""What one node of the reference cluster is started with: `NodeConfig`, read from a JSON file, and its `Knobs`."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from cluster.flaws import FLAWS
from cluster.store.clock_guard import ClockLimits
from cluster.store.sessions import SessionLimits
from cluster.wire.messages import Replica
from harness.errors import UserError

NodeRole: TypeAlias = Literal["master", "tserver"]


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
    Heartbeats to one node are gathered for `heartbeat_gather_ms`. A group that was at rest for `quiesce_after_ms` falls
    silent, 0: never. Snapshots are written and sent below `bulk_bytes_per_s` each; at most `bulk_queue_bytes` of their
    chunks wait, none longer than `bulk_patience_ms` (G6). A node takes `max_requests` requests of clients at a time
    (G7). Replicas of quorum tables keep deletions for `deletion_grace_ms`, within which repair has to bring them
    everywhere (Q2): every `repair_period_ms`, 0: never, replicas of legacy tables are compared by trees of
    2 ** `repair_tree_depth` hashes. A read of a logged table whose replicas differ asks for sketches of
    `summary_cells` cells first, 0: for all ids (Q4). Replicas of logged tables exchange what they miss every
    `poll_period_ms`, and every `reconcile_period_ms` they raise their low bound to what is `write_timeout_ms` and
    `reconcile_margin_ms` old (Q6); 0: never. A store of quorum rows writes what `memtable_bytes` of the log hold to a
    file. Closed timestamps lie `closed_lag_ms` behind the leaseholder's clock. A replica that its leader has not heard
    of for `replica_dead_ms` is evicted and replaced by another (M11). A tablet that no leader was reported for within
    `tablet_creation_ms` is replaced by one with other replicas (M8).
    """

    election_timeout_ms: int = 600
    raft_heartbeat_ms: int = 100
    lease_ms: int = 0
    max_clock_drift: float = 0.01
    check_quorum_ms: int = 0
    max_batch_entries: int = 64
    max_batch_bytes: int = 1 << 20
    max_inflight: int = 32
    retained_entries: int = 256
    snapshot_entries: int = 2_000
    snapshot_chunk_bytes: int = 1 << 18
    snapshot_window_chunks: int = 4
    catch_up_rounds: int = 10
    log_segment_bytes: int = 4 << 20
    log_idle_ms: int = 1_000
    disk_retry_ms: int = 200
    disk_stall_ms: int = 1_000
    max_queued_proposals: int = 4_096
    tserver_heartbeat_ms: int = 500
    master_call_timeout_ms: int = 1_000
    request_timeout_ms: int = 5_000
    tablet_lease_ms: int = 0
    max_clock_offset_ms: int = 500
    clock_probe_ms: int = 1_000
    version_retention_ms: int = 60_000
    closed_lag_ms: int = 3_000
    session_silence_ms: int = 60_000
    max_sessions: int = 10_000
    session_answers: int = 1_000
    heartbeat_gather_ms: int = 10
    quiesce_after_ms: int = 1_000
    bulk_bytes_per_s: int = 16 << 20
    bulk_queue_bytes: int = 8 << 20
    bulk_patience_ms: int = 2_000
    max_requests: int = 10_000
    deletion_grace_ms: int = 864_000_000
    summary_cells: int = 32
    repair_period_ms: int = 0
    repair_tree_depth: int = 10
    poll_period_ms: int = 500
    reconcile_period_ms: int = 5_000
    write_timeout_ms: int = 2_000
    reconcile_margin_ms: int = 1_000
    memtable_bytes: int = 4 << 20
    replica_dead_ms: int = 60_000
    tablet_creation_ms: int = 15_000

    def __post_init__(self) -> None:
        """Raises ValueError where Raft's lease rules could not hold or a size makes no progress."""
        if not 0 < self.raft_heartbeat_ms < (self.lease_ms or self.election_timeout_ms):
            raise ValueError("raft_heartbeat_ms must be above 0 and below the lease (or election timeout)")
        if not 0 <= self.heartbeat_gather_ms < self.raft_heartbeat_ms:
            raise ValueError("heartbeat_gather_ms must be below raft_heartbeat_ms")
        if not 0 <= self.lease_ms <= self.election_timeout_ms or not 0 <= self.max_clock_drift < 1:
            raise ValueError("lease_ms must be at most election_timeout_ms, and max_clock_drift in [0, 1)")
        if self.replica_dead_ms <= self.election_timeout_ms:
            raise ValueError("replica_dead_ms must be above election_timeout_ms: a shorter silence is no death")
        sizes = (self.max_batch_entries, self.max_batch_bytes, self.max_inflight, self.snapshot_entries)
        log = (self.log_segment_bytes, self.log_idle_ms, self.disk_stall_ms, self.max_queued_proposals)
        streams = (self.snapshot_chunk_bytes, self.snapshot_window_chunks, self.catch_up_rounds)
        times = (self.disk_retry_ms, self.tserver_heartbeat_ms, self.master_call_timeout_ms, self.request_timeout_ms)
        clocks = (self.clock_probe_ms, self.max_clock_offset_ms, self.tablet_creation_ms)
        sessions = (self.session_silence_ms, self.max_sessions, self.session_answers, self.max_requests)
        bulk = (self.bulk_bytes_per_s, self.bulk_queue_bytes, self.bulk_patience_ms, self.memtable_bytes)
        from_zero = (self.quiesce_after_ms, self.retained_entries, self.check_quorum_ms, self.version_retention_ms)
        quorum = (self.repair_period_ms, self.repair_tree_depth, self.summary_cells)
        reconciling = (self.poll_period_ms, self.reconcile_period_ms, self.write_timeout_ms, self.reconcile_margin_ms)
        above_zero = (*sizes, *log, *streams, *bulk, *times, *clocks, *sessions)
        if self.repair_tree_depth > 20:
            raise ValueError("repair_tree_depth must be at most 20")
        if self.tablet_lease_ms < 0 or min(above_zero) < 1 or min(*from_zero, *quorum, *reconciling) < 0:
            raise ValueError("sizes, intervals and timeouts must be above 0")

    @property
    def session_limits(self) -> SessionLimits:
        """What ends client sessions, as the commands that register them carry it."""
        return SessionLimits(self.session_silence_ms * 1_000_000, self.max_sessions, self.session_answers)

    @property
    def clock_limits(self) -> ClockLimits:
        """What is declared of the nodes' clocks."""
        return ClockLimits(self.max_clock_offset_ms * 1_000_000, self.max_clock_drift)

    @property
    def lease_record_ns(self) -> int:
        """The length of the lease record's interval.

        A voter elects nobody within `election_timeout_ms` of the holder's contact: by then a record of that length is
        over where clocks are in step. A longer one would add waiting, a shorter one renewals.
        """
        return (self.tablet_lease_ms or self.election_timeout_ms) * 1_000_000


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One node: who it is, where it listens, who the masters are, and the flaws it is started with.

    `listen` is what it binds, `advertise` (default: `listen`) the address that others are told. `data_dir`, `torture`
    and `seed` matter to the real entry only: in the simulator the ports come from the world.
    """

    node_id: str
    role: NodeRole
    listen: str
    masters: tuple[Replica, ...]
    cluster_id: str = "sim"
    zone: str = "z1"
    advertise: str = ""
    data_dir: str = ""
    torture: bool = False
    seed: int = 0
    flaws: tuple[str, ...] = ()
    knobs: Knobs = Knobs()

    @property
    def address(self) -> str:
        """Where other nodes and clients reach this one."""
        return self.advertise or self.listen


def load_config(text: bytes) -> NodeConfig:
    """A checked configuration from JSON; raises UserError with one sentence when it is not one."""
    try:
        config = msgspec.json.decode(text, type=NodeConfig)
    except msgspec.MsgspecError as error:
        raise UserError(f"The node configuration is not valid: {error}.") from error
    for flaw in config.flaws:
        if flaw not in FLAWS:
            raise UserError(f"The node configuration names the unknown flaw {flaw!r}.")
    return config


def dump_config(config: NodeConfig) -> bytes:
    """The JSON that `load_config` reads back."""
    return msgspec.json.encode(config)

"""One Raft node's state, and what a step has collected for its Ready.

`election`, `leader`, `follower`, `reads`, `transfer` and `membership` are plain functions over it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from cluster.raft.log import Configurations, Log
from cluster.raft.progress import NEVER_NS, Progress
from cluster.raft.types import (
    AppendReply,
    ChangeResult,
    Configuration,
    Entry,
    Liveness,
    Message,
    NodeId,
    PersistentState,
    Quiescence,
    ReadReady,
    Role,
    SendSnapshot,
    SnapshotMeta,
    SoftState,
)

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


if TYPE_CHECKING:
    from cluster.raft.quiescence import Quiet


class Rare(msgspec.Struct):
    """What few steps ask of the driver."""

    install: SnapshotMeta | None = None
    changes: list[ChangeResult] = []
    configuration: Configuration | None = None
    send_snapshots: list[SendSnapshot] = []
    reads: list[ReadReady] = []
    failed_reads: list[int] = []
    quiescence: Quiescence | None = None


class Outbox(msgspec.Struct):
    """What one step asks of the driver; `unsaved_from` is the lowest index appended in it (0: none).

    What few steps ask for is apart, so that the others find out at one look that there is none of it.
    """

    sends: list[Message] = []
    after_persist: list[Message] = []
    hard_changed: bool = False
    unsaved_from: int = 0
    proposed: tuple[tuple[int, int], ...] | None = None
    rare: Rare | None = None

    @property
    def rarely(self) -> Rare:
        """To ask for what few steps ask for."""
        if self.rare is None:
            self.rare = Rare()
        return self.rare


@dataclass(slots=True)
class CatchUp:
    """A learner that is to be promoted once it has caught up (§4.2.1): the round under way replicates up to `goal`."""

    context: int
    server_id: NodeId
    round: int
    goal: int
    began_ns: int


class State:
    """Everything a Raft node knows. Times are ns of its own monotonic clock."""

    __slots__ = (
        "applied_index",
        "asked_in_term",
        "asked_in_vain",
        "bound_until",
        "catch_up",
        "commit_index",
        "config",
        "configurations",
        "confirmed_round",
        "contact_ns",
        "durable_index",
        "elected_ns",
        "election_deadline_ns",
        "election_timeout_ns",
        "entropy",
        "extended_until",
        "granted_until",
        "handing_over",
        "hard_sequence",
        "heartbeat_due_ns",
        "heirs_tried",
        "late_ack",
        "leader",
        "leader_entry_index",
        "leader_lease_ns",
        "lease_given_up",
        "liveness",
        "log",
        "node_id",
        "out",
        "parked_reads",
        "peers",
        "pending_writes",
        "persisted_sequence",
        "progress",
        "quiet",
        "quorum",
        "quorum_acked_ns",
        "read_round",
        "rest_mark",
        "rest_since_ns",
        "restarted",
        "role",
        "round_reads",
        "sequence",
        "snapshot",
        "soft_state",
        "sole_voter",
        "term",
        "transfer_deadline_ns",
        "transfer_target",
        "vote",
        "voter_progress",
        "voters",
        "votes",
        "votes_itself",
    )

    def __init__(
        self,
        config: RaftConfig,
        stored: PersistentState,
        now_ns: int,
        entropy: random.Random,
        restarted: bool,
    ) -> None:
        self.config = config
        self.leader_lease_ns = config.leader_lease_ns
        self.entropy = entropy
        self.node_id: NodeId = config.node_id
        self.out = Outbox()

        self.term = stored.hard_state.term
        self.vote = stored.hard_state.vote
        self.role = Role.FOLLOWER
        self.leader: NodeId | None = None
        self.votes: dict[NodeId, bool] = {}
        self.asked_in_vain = 0
        self.soft_state = SoftState(self.role, self.term, None)

        self.snapshot = stored.snapshot
        self.log = recovered_log(stored.snapshot, stored.entries)
        self.applied_index = self.log.offset
        self.commit_index = max(self.log.offset, min(stored.hard_state.commit, self.log.last_index))

        self.configurations = recovered_configurations(stored.snapshot, self.log)
        self.voters: tuple[NodeId, ...] = ()
        self.peers: tuple[NodeId, ...] = ()
        self.quorum = 1
        self.votes_itself = False
        self.sole_voter = False

        self.sequence = 0
        self.persisted_sequence = 0
        self.hard_sequence = 0
        self.durable_index = self.log.last_index
        self.pending_writes: deque[tuple[int, int]] = deque()
        self.late_ack: AppendReply | None = None

        # A restarted voter can't know whose lease it had acknowledged: it behaves as if it had just heard a leader.
        silent = restarted and "no-restart-silence" not in config.flaws
        self.contact_ns = now_ns if silent else NEVER_NS
        self.election_timeout_ns = 0
        self.election_deadline_ns = 0
        rearm_election(self, now_ns)

        self.liveness: Liveness | None = None
        self.quiet: Quiet | None = None
        self.asked_in_term = 0
        self.rest_mark = (0, 0, 0)
        self.rest_since_ns = NEVER_NS

        self.promise_nothing(restarted)
        self.begin_leading_nothing()
        adopt(self)

    def promise_nothing(self, restarted: bool) -> None:
        """Ends of leases (G3): what this replica had promised when its silences ended, what its members have promised
        to it as a leader, and what those who elect it say (None: one of them can't tell)."""
        self.restarted = restarted
        self.bound_until = 0
        self.extended_until = 0
        self.granted_until: int | None = 0

    def begin_leading_nothing(self) -> None:
        """What only a leader knows."""
        self.progress: dict[NodeId, Progress] = {}
        self.voter_progress: list[Progress] = []
        self.heartbeat_due_ns = 0
        self.elected_ns = NEVER_NS
        self.quorum_acked_ns = NEVER_NS
        self.leader_entry_index = 0
        self.lease_given_up = False
        self.read_round = 0
        self.confirmed_round = 0
        self.parked_reads: list[int] = []
        self.round_reads: deque[tuple[int, int, int]] = deque()
        self.transfer_target: NodeId | None = None
        self.transfer_deadline_ns = 0
        self.handing_over = False
        self.heirs_tried: list[NodeId] = []
        self.catch_up: CatchUp | None = None


def recovered_log(snapshot: SnapshotMeta | None, entries: Sequence[Entry]) -> Log:
    """The log after a restart: what storage holds above its snapshot."""
    if snapshot is None:
        return Log(0, 0, entries)
    return Log(snapshot.index, snapshot.term, [entry for entry in entries if entry.index > snapshot.index])


def recovered_configurations(snapshot: SnapshotMeta | None, log: Log) -> Configurations:
    """The configurations after a restart: the snapshot's, and those of the log above it."""
    configurations = Configurations(Configuration() if snapshot is None else snapshot.configuration)
    configurations.append(log.between(log.offset + 1, log.last_index))
    return configurations


def adopt(state: State) -> None:
    """Act on the configuration in force, which has just changed (§4.1: at once, whether it is committed or not)."""
    configuration = state.configurations.in_force
    state.out.rarely.configuration = configuration
    state.voters = configuration.voter_ids
    state.peers = tuple(each.server_id for each in configuration.members if each.server_id != state.node_id)
    state.quorum = len(state.voters) // 2 + 1
    state.votes_itself = state.node_id in state.voters
    state.sole_voter = state.voters == (state.node_id,)
    if state.role is Role.LEADER:
        follow_members(state)


def follow_members(state: State) -> None:
    """The leader keeps track of every other member, voters and learners, and counts the voters among them.

    The lease is proven anew by the voters now in force. Why that is enough: another leader needs a majority of its own
    configuration in an election that starts within this lease. It holds this leader's latest configuration or the one
    before, for with any older one its log lacks what a majority has committed; both differ by one voter at most, so
    that every majority of either has a voter in common with the voters that proved this lease, who refuses (§4.2.3).
    A proof by an earlier configuration's voters would not do after a second change. Whoever became a voter since it
    acknowledged counts: what binds it is that it heard the leader, not what it took itself for.
    """
    known = state.progress
    state.progress = {peer: known.get(peer) or Progress(state.log.last_index + 1) for peer in state.peers}
    state.voter_progress = [progress for peer, progress in state.progress.items() if peer in state.voters]
    acked = [progress.acked_ns for progress in state.voter_progress]
    state.quorum_acked_ns = quorum_value(state, max(state.elected_ns, *acked, NEVER_NS), acked)


def rearm_election(state: State, now_ns: int) -> None:
    """Start the election timer with a fresh random timeout of one to two election timeouts (§3.4)."""
    base = state.config.election_timeout_ns
    state.election_timeout_ns = base + int(state.entropy.random() * base)
    state.election_deadline_ns = now_ns + state.election_timeout_ns


def set_term(state: State, term: int) -> None:
    """Enter a later term, in which this node has voted for nobody (figure 3.1)."""
    state.term = term
    state.vote = None
    state.out.hard_changed = True


def hard_state_is_durable(state: State) -> bool:
    """Whether term and vote as of now survive a crash."""
    return not state.out.hard_changed and state.hard_sequence <= state.persisted_sequence


def send_answer(state: State, message: Message) -> None:
    """Send an answer that states this node's term or vote: not before they are durable (§3.8)."""
    if hard_state_is_durable(state):
        state.out.sends.append(message)
    else:
        state.out.after_persist.append(message)


def append_entries_to_log(state: State, entries: Sequence[Entry]) -> None:
    """Append entries that follow the last one, to be persisted by this step."""
    first = entries[0].index
    state.log.append(entries)
    if state.configurations.append(entries):
        adopt(state)
    if state.out.unsaved_from == 0 or first < state.out.unsaved_from:
        state.out.unsaved_from = first


def forget_durable_above(state: State, index: int) -> None:
    """Stop counting entries above `index` as durable: they leave the log or are replaced."""
    state.durable_index = min(state.durable_index, index)
    state.pending_writes = deque((sequence, min(last, index)) for sequence, last in state.pending_writes)


def quorum_value(state: State, own: int, others: list[int]) -> int:
    """The highest value that a majority of the voters have reached: `others` are theirs, `own` counts if it votes.

    A leader that has removed itself manages a group that it doesn't count in (§4.2.2).
    """
    if state.votes_itself:
        others.append(own)
    others.sort(reverse=True)
    return others[state.quorum - 1]

"""One Raft node's state, and what a step has collected for its Ready.

`election`, `leader`, `follower`, `reads`, `transfer` and `membership` are plain functions over it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
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

    Raises ValueError where the lease rules could not hold.
    """

    node_id: NodeId
    # Voters hear no leader for one to two of these before they stand (§3.4).
    election_timeout_ns: int = 600 * MILLISECOND_NS
    # Invariant: below the lease, or it could not be kept.
    heartbeat_ns: int = 100 * MILLISECOND_NS
    # 0: an election timeout. Invariant: not above it, or a voter could stand within a lease.
    lease_ns: int = 0
    # After so long without an answer from a quorum a leader steps down; 0: four election timeouts.
    check_quorum_ns: int = 0
    # How far any voter's clock may run from real time: at 0.01 between 0.99 and 1.01 times as fast.
    max_clock_drift: float = 0.01
    # Limits of one AppendEntries; at least one entry travels, however large it is.
    max_batch_entries: int = 64
    max_batch_bytes: int = 1 << 20
    # AppendEntries on their way to one follower (§10.2.1).
    max_inflight: int = 32
    # Entries that stay in the log behind a snapshot, for followers that lag a little.
    retained_entries: int = 256
    # A learner that can't catch up in this number of rounds is not promoted (§4.2.1).
    catch_up_rounds: int = 10
    # A group at rest for so long falls silent; 0: never.
    quiesce_after_ns: int = 0
    # Names of `cluster.flaws`.
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
    """What few steps ask of the driver; each field is the one of `Ready`, as it gathers."""

    install: SnapshotMeta | None = None
    changes: list[ChangeResult] = []
    configuration: Configuration | None = None
    send_snapshots: list[SendSnapshot] = []
    reads: list[ReadReady] = []
    failed_reads: list[int] = []
    quiescence: Quiescence | None = None


class Outbox(msgspec.Struct):
    """What one step asks of the driver."""

    # May leave at once.
    sends: list[Message] = []
    # May leave once everything before them, this step's persist included, is durable.
    after_persist: list[Message] = []
    # Whether term or vote are others than were persisted last.
    hard_changed: bool = False
    # The lowest index appended in this step, 0 for none: from there on the log is to be persisted.
    unsaved_from: int = 0
    # See `Ready.proposed`.
    proposed: tuple[tuple[int, int], ...] | None = None
    # Stands aside, so that most steps find out at one look that there is none of it.
    rare: Rare | None = None

    @property
    def rarely(self) -> Rare:
        """To ask for what few steps ask for."""
        if self.rare is None:
            self.rare = Rare()
        return self.rare


@dataclass(slots=True)
class CatchUp:
    """A learner that is to be promoted once it has caught up (§4.2.1)."""

    # Of the `ChangeMembership` that asked for it.
    context: int
    server_id: NodeId
    # The round under way, from 1 to `catch_up_rounds`.
    round: int
    # The round ends when the learner holds the log up to here: its last index when the round began.
    goal: int
    began_ns: int


@dataclass(slots=True, eq=False)
class State:
    """Everything a Raft node knows, made of what is stored. Times are ns of its own monotonic clock.

    Invariant: log.offset <= applied_index <= commit_index <= log.last_index, and durable_index <= log.last_index.
    """

    config: RaftConfig
    stored: InitVar[PersistentState]
    now_ns: InitVar[int]
    entropy: random.Random
    # Whether an earlier life of this node may have voted and made promises.
    restarted: bool
    node_id: NodeId = field(init=False)
    # What the step under way asks for.
    out: Outbox = field(default_factory=Outbox)

    # ---- who leads (figure 3.1) ----
    # The latest term seen. Never falls.
    term: int = field(init=False)
    # Whom this node voted for in `term`. Once given, it stays for the term.
    vote: NodeId | None = field(init=False)
    role: Role = Role.FOLLOWER
    # Who leads `term`, once it was heard of; a leader names itself.
    leader: NodeId | None = None
    # Who is for this candidate, or would be (pre-vote); empty in other roles.
    votes: dict[NodeId, bool] = field(default_factory=dict)
    # In how many eighths of an election timeout a candidate that nobody answers asks again: 1, doubled up to 8.
    asked_in_vain: int = 0
    # What the driver was last told.
    soft_state: SoftState = field(init=False)
    # The last contact with a leader: until a lease later this voter elects nobody else (§4.2.3).
    contact_ns: int = NEVER_NS
    # The random timeout drawn last, one to two election timeouts (§3.4), and when it is over.
    election_timeout_ns: int = 0
    election_deadline_ns: int = 0

    # ---- the log ----
    # The latest snapshot; the log begins at or below its index.
    snapshot: SnapshotMeta | None = field(init=False)
    log: Log = field(init=False)
    # Handed to the state machine up to here; only the flaw `apply-uncommitted` brings it above the commit index.
    applied_index: int = field(init=False)
    # Known to be committed up to here. Never falls.
    commit_index: int = field(init=False)
    # Persists are numbered from 1: the last that was asked for, that is durable, and that holds a hard state.
    sequence: int = 0
    persisted_sequence: int = 0
    hard_sequence: int = 0
    # The log as it is now is durable up to here: what a truncation takes away counts no more.
    durable_index: int = field(init=False)
    # (sequence, last index) of persists under way that hold entries or a snapshot; sequences rise.
    pending_writes: deque[tuple[int, int]] = field(default_factory=deque)
    # What a follower will acknowledge once all of it is durable.
    late_ack: AppendReply | None = None

    # ---- the configuration in force, and what follows from it (`adopt`) ----
    configurations: Configurations = field(init=False)
    voters: tuple[NodeId, ...] = ()
    # Every other member, voter or learner.
    peers: tuple[NodeId, ...] = ()
    # How many voters are a majority.
    quorum: int = 1
    # Whether this node is a voter, and whether the only one.
    votes_itself: bool = False
    sole_voter: bool = False

    # ---- silence (`quiescence`) ----
    # What heartbeats between nodes tell; None: this group never falls silent.
    liveness: Liveness | None = None
    # The silence that this replica has asked for, or agreed to; None while it speaks.
    quiet: Quiet | None = None
    # The term in which this leader has asked for silence, 0 for none: followers may be bound by it still.
    asked_in_term: int = 0
    # (term, last index, read round) when a heartbeat was last due, and since when they are the same at rest.
    rest_mark: tuple[int, int, int] = (0, 0, 0)
    rest_since_ns: int = NEVER_NS
    # Ends of leases, as data timestamps (G3), 0 for none: what this replica had promised when its silences ended; what
    # its members have promised to it as a leader; what those who elect it say (None: one of them can't tell).
    bound_until: int = 0
    # What this replica had promised, and was promised as a leader, when it was elected last.
    elected_until: int = 0
    extended_until: int = 0
    granted_until: int | None = 0

    # ---- what only a leader knows ----
    # Of every other member; empty unless this node leads. Those of voters stand again in `voter_progress`.
    progress: dict[NodeId, Progress] = field(default_factory=dict)
    voter_progress: list[Progress] = field(default_factory=list)
    heartbeat_due_ns: int = 0
    # Echoes of what was sent before are not counted.
    elected_ns: int = NEVER_NS
    # When the newest message was sent that a quorum of voters has answered in this term.
    quorum_acked_ns: int = NEVER_NS
    # So long after that no other leader can have been elected (§6.4.1).
    leader_lease_ns: int = field(init=False)
    # The empty entry that began this term: before it is committed, it is not known what is (§6.4).
    leader_entry_index: int = 0
    # TimeoutNow has left: no lease is held in this term any more.
    lease_given_up: bool = False
    # Rounds of heartbeats that confirm leadership for reads (§6.4): the last begun, the last that a quorum answered.
    # Invariant: confirmed_round <= read_round.
    read_round: int = 0
    confirmed_round: int = 0
    # Contexts of reads that wait until this leader knows what is committed, or a transfer is over.
    parked_reads: list[int] = field(default_factory=list)
    # (round, context, read index) of reads that wait for a round; rounds rise.
    round_reads: deque[tuple[int, int, int]] = field(default_factory=deque)
    # To whom leadership is being transferred (§3.10), and when that is given up.
    transfer_target: NodeId | None = None
    transfer_deadline_ns: int = 0
    # Whether the driver wants another leader, whoever that is; a follower then refuses to be made one.
    handing_over: bool = False
    # The voters that were tried since.
    heirs_tried: list[NodeId] = field(default_factory=list)
    # The one learner that is being promoted.
    catch_up: CatchUp | None = None

    def __post_init__(self, stored: PersistentState, now_ns: int) -> None:
        self.node_id, self.leader_lease_ns = self.config.node_id, self.config.leader_lease_ns
        self.term, self.vote = stored.hard_state.term, stored.hard_state.vote
        self.soft_state = SoftState(self.role, self.term, None)
        meta = self.snapshot = stored.snapshot
        if meta is None:
            self.log = Log(0, 0, stored.entries)
        else:
            self.log = Log(meta.index, meta.term, [entry for entry in stored.entries if entry.index > meta.index])
        self.applied_index = self.log.offset
        self.commit_index = max(self.log.offset, min(stored.hard_state.commit, self.log.last_index))
        self.configurations = Configurations(Configuration() if meta is None else meta.configuration)
        self.configurations.append(self.log.between(self.log.offset + 1, self.log.last_index))
        self.durable_index = self.log.last_index
        # A restarted voter can't know whose lease it had acknowledged: it behaves as if it had just heard a leader.
        if self.restarted and "no-restart-silence" not in self.config.flaws:
            self.contact_ns = now_ns
        rearm_election(self, now_ns)
        adopt(self)


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
    # Sorted downwards, the value at place k is reached by k + 1 voters.
    others.sort(reverse=True)
    return others[state.quorum - 1]

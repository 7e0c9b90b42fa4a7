"""One Raft node's state, and what a step has collected for its Ready.

`election`, `replication`, `following`, `reads` and `transfer` are plain functions over it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence

from cluster.raft.config import RaftConfig
from cluster.raft.log import Log
from cluster.raft.progress import NEVER_NS, Progress
from cluster.raft.types import (
    AppendReply,
    Entry,
    HardState,
    Message,
    NodeId,
    ReadReady,
    Role,
    Snapshot,
    SoftState,
)


class Outbox:
    """What one step asks of the driver; `unsaved_from` is the lowest index appended in it (0: none)."""

    __slots__ = (
        "after_persist",
        "empty_persist",
        "failed_reads",
        "hard_changed",
        "install",
        "proposed",
        "reads",
        "sends",
        "unsaved_from",
    )

    def __init__(self) -> None:
        self.sends: list[Message] = []
        self.after_persist: list[Message] = []
        self.hard_changed = False
        self.unsaved_from = 0
        self.install: Snapshot | None = None
        self.reads: list[ReadReady] = []
        self.failed_reads: list[int] = []
        self.proposed: tuple[tuple[int, int], ...] | None = None

    def reset(self) -> None:
        """Start collecting for the next step."""
        self.sends.clear()
        self.after_persist.clear()
        self.hard_changed = False
        self.unsaved_from = 0
        self.install = None
        self.reads.clear()
        self.failed_reads.clear()
        self.proposed = None


class State:
    """Everything a Raft node knows. Times are ns of its own monotonic clock."""

    __slots__ = (
        "applied_index",
        "commit_index",
        "config",
        "confirmed_round",
        "contact_ns",
        "durable_index",
        "elected_ns",
        "election_deadline_ns",
        "election_timeout_ns",
        "entropy",
        "hard_sequence",
        "heartbeat_due_ns",
        "late_ack",
        "leader",
        "leader_entry_index",
        "lease_given_up",
        "log",
        "node_id",
        "out",
        "parked_reads",
        "peers",
        "pending_writes",
        "persisted_sequence",
        "progress",
        "quorum",
        "quorum_acked_ns",
        "read_round",
        "role",
        "round_reads",
        "sequence",
        "snapshot",
        "soft_state",
        "term",
        "transfer_deadline_ns",
        "transfer_target",
        "vote",
        "voters",
        "votes",
    )

    def __init__(
        self,
        config: RaftConfig,
        hard_state: HardState,
        snapshot: Snapshot | None,
        entries: Sequence[Entry],
        now_ns: int,
        entropy: random.Random,
        restarted: bool,
    ) -> None:
        self.config = config
        self.entropy = entropy
        self.node_id: NodeId = config.node_id
        self.voters = config.voters
        self.peers = tuple(voter for voter in config.voters if voter != config.node_id)
        self.quorum = len(config.voters) // 2 + 1
        self.out = Outbox()

        self.term = hard_state.term
        self.vote = hard_state.vote
        self.role = Role.FOLLOWER
        self.leader: NodeId | None = None
        self.votes: dict[NodeId, bool] = {}
        self.soft_state = SoftState(self.role, self.term, None)

        self.snapshot = snapshot
        self.log = recovered_log(snapshot, entries)
        self.applied_index = self.log.offset
        self.commit_index = max(self.log.offset, min(hard_state.commit, self.log.last_index))

        self.sequence = 0
        self.persisted_sequence = 0
        self.hard_sequence = 0
        self.durable_index = self.log.last_index
        self.pending_writes: deque[tuple[int, int]] = deque()
        self.late_ack: AppendReply | None = None

        # A restarted voter can't know whose lease it had acknowledged: it behaves as if it had just heard a leader.
        self.contact_ns = now_ns if restarted else NEVER_NS
        self.election_timeout_ns = 0
        self.election_deadline_ns = 0
        rearm_election(self, now_ns)

        self.progress: dict[NodeId, Progress] = {}
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


def recovered_log(snapshot: Snapshot | None, entries: Sequence[Entry]) -> Log:
    """The log after a restart: what storage holds above its snapshot."""
    if snapshot is None:
        return Log(0, 0, entries)
    meta = snapshot.meta
    return Log(meta.index, meta.term, [entry for entry in entries if entry.index > meta.index])


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
    if state.out.unsaved_from == 0 or first < state.out.unsaved_from:
        state.out.unsaved_from = first


def forget_durable_above(state: State, index: int) -> None:
    """Stop counting entries above `index` as durable: they leave the log or are replaced."""
    state.durable_index = min(state.durable_index, index)
    state.pending_writes = deque((sequence, min(last, index)) for sequence, last in state.pending_writes)


def quorum_value(own: int, others: list[int], quorum: int) -> int:
    """The highest value that `quorum` of the voters, this node's own included, have reached."""
    others.append(own)
    others.sort(reverse=True)
    return others[quorum - 1]

"""Raft as a pure state machine: events in, a `Ready` out. No clock, no randomness, no I/O of its own.

`Raft.step` dispatches; the rules are in `election`, `leader`, `follower`, `reads` (lease and linearizable reads),
`transfer` and `membership`. Section numbers are of Ongaro's thesis.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from cluster.raft import election, follower, leader, membership, quiescence, reads, transfer
from cluster.raft.progress import Mode
from cluster.raft.quiescence import sleeps
from cluster.raft.reads import FOR_EVER_NS
from cluster.raft.state import Outbox, RaftConfig, Rare, State
from cluster.raft.types import (
    AppendEntries,
    AppendReply,
    ChangeMembership,
    Compact,
    Configuration,
    Entry,
    Event,
    HandOver,
    HandOverTo,
    HardState,
    Liveness,
    Message,
    NodeId,
    Persist,
    Persisted,
    PersistentState,
    PreVote,
    PreVoteReply,
    Propose,
    ReadIndex,
    Ready,
    Reason,
    Receive,
    RequestVote,
    RequestVoteReply,
    Role,
    SnapshotMeta,
    SnapshotReceived,
    SnapshotSent,
    SoftState,
    Tick,
    TimeoutNow,
)

__all__ = ["Raft", "RaftConfig"]


class Raft:
    """One node of one Raft group.

    It goes on from what is `stored`; `restarted` says that it may have taken part before, so that it must be silent for
    one lease; `stands` that its first election timeout is over at once. `now_ns` is this node's monotonic clock and
    never goes back; `liveness` is what the heartbeats between nodes tell, without which the group never falls silent.
    The state machine is expected to stand at the snapshot; the first Ready applies from there.
    """

    __slots__ = ("_state",)

    def __init__(
        self,
        config: RaftConfig,
        stored: PersistentState,
        now_ns: int,
        entropy: random.Random,
        restarted: bool,
        liveness: Liveness | None = None,
        stands: bool = False,
    ) -> None:
        self._state = State(config, stored, now_ns, entropy, restarted)
        if stands:
            self._state.election_deadline_ns = now_ns
        self._state.liveness = liveness

    @property
    def role(self) -> Role:
        return self._state.role

    @property
    def term(self) -> int:
        return self._state.term

    @property
    def leader(self) -> NodeId | None:
        """Who leads this term, as far as this node knows."""
        return self._state.leader

    @property
    def configuration(self) -> Configuration:
        """The one in force: the last in the log, committed or not (§4.1)."""
        return self._state.configurations.in_force

    @property
    def committed_configuration(self) -> Configuration:
        """The last one known to be committed."""
        return self._state.configurations.at(self._state.commit_index)

    @property
    def commit_index(self) -> int:
        return self._state.commit_index

    @property
    def last_index(self) -> int:
        return self._state.log.last_index

    @property
    def last_term(self) -> int:
        return self._state.log.last_term

    @property
    def takes_commands(self) -> bool:
        """Whether commands had better be proposed now: see `leader.takes_commands`."""
        return leader.takes_commands(self._state)

    @property
    def first_index(self) -> int:
        """The lowest index that is still in the log."""
        return self._state.log.offset + 1

    def entries(self, first: int, last: int) -> tuple[Entry, ...]:
        """Log entries `first ..= last`, `first` at least `first_index`."""
        return self._state.log.between(first, last)

    def lease_valid(self, now_ns: int) -> bool:
        """Whether this node leads and no other leader can have been elected by now (§6.4.1)."""
        quiescence.hear(self._state)
        return reads.lease_valid(self._state, now_ns)

    @property
    def lease_until_ns(self) -> int:
        """Until when `lease_valid` will hold if no quorum is heard of again; 0 where it does not."""
        quiescence.hear(self._state)
        return reads.lease_until_ns(self._state)

    def committed_as_of(self, now_ns: int) -> tuple[int, int] | None:
        """(Index, age in ns): everything that was committed by anybody so long ago lies at this index or below (M13).

        That is when the newest round was sent that a quorum acknowledged: nobody else led then. None of a replica that
        doesn't lead, or does not know yet what was committed before its term.
        """
        quiescence.hear(self._state)
        return reads.committed_as_of(self._state, now_ns)

    def contacts(self) -> dict[NodeId, int]:
        """The send time of the newest message that each other member has answered in this term; of a leader."""
        quiescence.hear(self._state)
        return {peer: progress.acked_ns for peer, progress in self._state.progress.items()}

    def transfer_refusal(self, target: NodeId, now_ns: int) -> tuple[Reason, str] | None:
        """Why this node can't hand over to `target` now, told in a sentence; None if it can."""
        quiescence.hear(self._state)
        return transfer.refusal(self._state, target, now_ns)

    def lease_read_index(self, now_ns: int) -> int | None:
        """The fast path of `ReadIndex`: a read may be served at once when everything up to this index is applied."""
        quiescence.hear(self._state)
        return reads.lease_read_index(self._state, now_ns)

    @property
    def lease_extension(self) -> int:
        """Up to where this leadership's lease lasts by the promises of all members, as a data timestamp; 0 for none."""
        return quiescence.extension(self._state)

    @property
    def earlier_until(self) -> int | None:
        """Up to where leases of earlier leaders may last by such promises, as those who elected this leader say; None
        where one of them has restarted and can't tell."""
        return quiescence.earlier_until(self._state)

    @property
    def sleeps(self) -> bool:
        """Whether this replica is silent and needs no timer: an asleep leader, or a follower that has agreed (G6)."""
        return quiescence.sleeps(self._state)

    def kept_awake(self, now_ns: int) -> bool:
        """Whether something keeps the group that this node leads from ever falling silent."""
        return quiescence.kept_awake(self._state, now_ns)

    def snapshot_meta(self, applied_index: int) -> SnapshotMeta | None:
        """What a snapshot of the state machine as of `applied_index` covers; None if a later one stands already."""
        state = self._state
        index = snapshot_index(state, applied_index)
        if not state.log.offset <= index <= state.log.last_index:
            return None
        return SnapshotMeta(index, state.log.term(index), state.configurations.at(index))

    def step(self, event: Event, now_ns: int) -> Ready:
        """Take one event in and say what is to be done."""
        state = self._state
        if state.quiet is not None:
            quiescence.hear(state)
        if type(event) is Receive:
            message = event.message
            # Rules apply to whoever sends: the own configuration may be older or newer than the sender's (§4.1).
            if message.target == state.node_id and message.source != state.node_id:
                rule = _RULES.get(type(message))
                if rule is not None:
                    rule(state, message, now_ns)
        elif type(event) is Persisted:
            on_persisted(state, event.sequence, now_ns)
        elif type(event) is Propose:
            leader.propose(state, event.commands, now_ns)
        elif type(event) is Tick:
            on_tick(state, now_ns)
        else:
            self._take_rare(event, now_ns)
        if state.quiet is not None or state.asked_in_term:
            quiescence.settle(state, event, now_ns)
        return collect(state)

    def persisted_quietly(self, sequence: int) -> bool:
        """Take `Persisted` in where its Ready would ask for nothing, as at nearly every follower; else False, and
        nothing is done."""
        state = self._state
        if state.role is not Role.FOLLOWER or state.late_ack is not None or state.config.flaws:
            return False
        if state.quiet is not None or state.asked_in_term:
            return False
        count_durable(state, sequence)
        return True

    def _take_rare(self, event: Event, now_ns: int) -> None:
        """Apart, for what an event is not takes long to find out."""
        state = self._state
        match event:
            case ReadIndex():
                reads.on_read_index(state, event.context, now_ns)
            case HandOverTo():
                transfer.start(state, event.target, now_ns)
            case HandOver():
                transfer.hand_over(state, event.wanted, now_ns)
            case ChangeMembership():
                membership.on_change(state, event, now_ns)
            case Compact():
                compact(state, event.meta)
            case SnapshotSent():
                leader.on_snapshot_sent(state, event, now_ns)
            case SnapshotReceived():
                follower.on_snapshot_received(state, event, now_ns)
            case _:
                pass


_RULES: dict[type[Message], Callable[[State, Any, int], None]] = {
    AppendEntries: follower.on_append_entries,
    AppendReply: leader.on_append_reply,
    PreVote: election.on_pre_vote,
    PreVoteReply: election.on_pre_vote_reply,
    RequestVote: election.on_request_vote,
    RequestVoteReply: election.on_request_vote_reply,
    TimeoutNow: transfer.on_timeout_now,
}
"""What is done about each message; those of snapshots are the driver's business."""


def on_tick(state: State, now_ns: int) -> None:
    if state.role is Role.LEADER:
        leader.on_leader_tick(state, now_ns)
    elif now_ns >= state.election_deadline_ns:
        election.on_election_timeout(state, now_ns)


def on_persisted(state: State, sequence: int, now_ns: int) -> None:
    """Count what has become durable: the own vote, the leader's own log, and what a follower held back."""
    count_durable(state, sequence)
    role = state.role
    if role is Role.LEADER:
        leader.advance_commit(state, now_ns)
        return
    if role is Role.CANDIDATE:
        election.count_own_vote(state, now_ns)
    if state.late_ack is not None:
        follower.send_late_ack(state)


def count_durable(state: State, sequence: int) -> None:
    """Every `Persist` up to `sequence` is durable."""
    if sequence > state.persisted_sequence:
        state.persisted_sequence = sequence
    # Persists become durable in their order, and what was truncated since no longer counts (`forget_durable_above`).
    pending = state.pending_writes
    while pending and pending[0][0] <= sequence:
        durable = pending.popleft()[1]
        if durable > state.durable_index:
            state.durable_index = durable


def compact(state: State, meta: SnapshotMeta) -> None:
    """Drop the log up to a snapshot of what was applied, but for the entries kept for lagging followers (§5.1)."""
    log = state.log
    if meta.index <= (state.snapshot.index if state.snapshot else 0) or meta.index > state.applied_index:
        return
    state.snapshot = meta
    if meta.index > log.last_index:
        log.compact(meta.index, meta.term)
    else:
        # Without what follows a snapshot under way in the log, its receiver would need the next one at once.
        streamed = [progress.snapshot for progress in state.progress.values() if progress.mode is Mode.SNAPSHOT]
        keep_after = max(log.offset, min(meta.index - state.config.retained_entries, *streamed, meta.index))
        log.compact(keep_after, log.term(keep_after))
    state.configurations.compact(log.offset)
    state.durable_index = max(state.durable_index, meta.index)


def snapshot_index(state: State, applied_index: int) -> int:
    """The last entry whose effect is in a state machine that has applied everything up to `applied_index`."""
    if "snapshot-loses-last" in state.config.flaws:
        return min(applied_index + 1, state.log.last_index)
    return applied_index


def collect(state: State) -> Ready:
    """The Ready of the step that just ran; the next step starts with an empty outbox."""
    apply = newly_committed(state) if state.commit_index > state.applied_index or state.config.flaws else ()
    last = state.soft_state
    soft_state = None
    if last.role is not state.role or last.term != state.term or last.leader != state.leader:
        soft_state = state.soft_state = SoftState(state.role, state.term, state.leader)
    if state.quiet is not None or state.transfer_target is not None:
        wake_ns = next_wake_ns(state)
    else:
        wake_ns = state.heartbeat_due_ns if state.role is Role.LEADER else state.election_deadline_ns
    out = state.out
    if out.rare is not None:
        return all_of(state, out.rare, apply, soft_state, wake_ns)
    if not (out.sends or out.unsaved_from or out.after_persist or out.hard_changed):
        proposed, out.proposed = out.proposed, None
        return Ready((), None, None, apply, (), (), soft_state, proposed, wake_ns)
    persist = persist_of(state, out) if out.unsaved_from or out.after_persist or out.hard_changed else None
    ready = Ready(tuple(out.sends), persist, None, apply, (), (), soft_state, out.proposed, wake_ns)
    out.sends.clear()  # emptied for the next step: a new one costs more than what most steps do
    out.after_persist.clear()
    out.hard_changed, out.unsaved_from, out.proposed = False, 0, None
    return ready


def all_of(state: State, rare: Rare, apply: tuple[Entry, ...], soft_state: SoftState | None, wake_ns: int) -> Ready:
    """The Ready of a step that asks for what few steps ask for."""
    out, state.out = state.out, Outbox()
    saves = out.hard_changed or out.unsaved_from or out.after_persist or rare.install
    return Ready(
        tuple(out.sends),
        persist_of(state, out, rare.install) if saves else None,
        rare.install,
        apply,
        tuple(rare.reads),
        tuple(rare.failed_reads),
        soft_state,
        out.proposed,
        wake_ns,
        tuple(rare.changes),
        rare.configuration,
        tuple(rare.send_snapshots),
        rare.quiescence,
        rare=True,
    )


def persist_of(state: State, out: Outbox, install: SnapshotMeta | None = None) -> Persist:
    """What must be durable before its messages leave; sequences count from 1."""
    state.sequence += 1
    hard_state = None
    if out.hard_changed:
        # The vote survives a crash, so that no voter votes twice in a term (§3.8).
        vote = None if "raft-forget-vote" in state.config.flaws else state.vote
        hard_state = HardState(state.term, vote, state.commit_index)
        state.hard_sequence = state.sequence
    entries: tuple[Entry, ...] = ()
    if out.unsaved_from:
        entries = state.log.between(out.unsaved_from, state.log.last_index)
    if entries or install:
        state.pending_writes.append((state.sequence, state.log.last_index))
    return Persist(state.sequence, hard_state, entries, install, tuple(out.after_persist))


def newly_committed(state: State) -> tuple[Entry, ...]:
    """Committed entries that were not handed out before."""
    last = state.commit_index  # what is committed can't change any more (§3.5)
    if "apply-uncommitted" in state.config.flaws:
        last = max(last, state.durable_index)
    if last <= state.applied_index:
        return ()
    entries = state.log.between(state.applied_index + 1, last)
    state.applied_index = last
    return entries


def next_wake_ns(state: State) -> int:
    if state.quiet is not None and sleeps(state):
        return FOR_EVER_NS
    if state.role is not Role.LEADER:
        return state.election_deadline_ns
    if state.transfer_target is not None:
        return min(state.heartbeat_due_ns, state.transfer_deadline_ns)
    return state.heartbeat_due_ns

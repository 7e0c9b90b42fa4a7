"""Turning what a step has collected into its Ready."""

from __future__ import annotations

from cluster.raft.quiescence import sleeps
from cluster.raft.reads import FOR_EVER_NS
from cluster.raft.state import Outbox, Rare, State
from cluster.raft.types import Entry, HardState, NodeId, Persist, Ready, Role, SnapshotMeta, SoftState


def collect(state: State) -> Ready:
    """The Ready of the step that just ran; the next step starts with an empty outbox."""
    apply = newly_committed(state) if state.commit_index > state.applied_index or state.config.flaws else ()
    last = state.soft_state
    same = last.role is state.role and last.term == state.term and last.leader == state.leader
    soft_state = None if same else changed_soft_state(state)
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
        hard_state = HardState(state.term, saved_vote(state), state.commit_index)
        state.hard_sequence = state.sequence
    entries: tuple[Entry, ...] = ()
    if out.unsaved_from:
        entries = state.log.between(out.unsaved_from, state.log.last_index)
    if entries or install:
        state.pending_writes.append((state.sequence, state.log.last_index))
    return Persist(state.sequence, hard_state, entries, install, tuple(out.after_persist))


def saved_vote(state: State) -> NodeId | None:
    """The vote that survives a crash, so that no voter votes twice in a term (§3.8)."""
    return None if "raft-forget-vote" in state.config.flaws else state.vote


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


def changed_soft_state(state: State) -> SoftState:
    state.soft_state = SoftState(state.role, state.term, state.leader)
    return state.soft_state


def next_wake_ns(state: State) -> int:
    if state.quiet is not None and sleeps(state):
        return FOR_EVER_NS
    if state.role is not Role.LEADER:
        return state.election_deadline_ns
    if state.transfer_target is not None:
        return min(state.heartbeat_due_ns, state.transfer_deadline_ns)
    return state.heartbeat_due_ns

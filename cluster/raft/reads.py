"""The leader's lease and linearizable reads (§6.4, §6.4.1)."""

from __future__ import annotations

from cluster.raft import leader
from cluster.raft.state import State, quorum_value
from cluster.raft.types import ReadReady, Role

FOR_EVER_NS = 1 << 62


def own_term_committed(state: State) -> bool:
    """Whether an entry of the leader's own term is committed: before, it can't know what is committed (§6.4)."""
    return state.commit_index >= state.leader_entry_index


def knows_commit(state: State) -> bool:
    """Whether the leader may serve reads at its commit index."""
    return "read-before-own-term" in state.config.flaws or own_term_committed(state)


def lease_valid(state: State, now_ns: int) -> bool:
    """Whether no other leader can have been elected by now.

    Timed from the send time of the newest round that a quorum acknowledged, shortened by the clock drift bound. Once
    TimeoutNow has left, this term has no lease any more, however the transfer ends: the message may be under way still.
    """
    return now_ns < lease_until_ns(state)


def lease_until_ns(state: State) -> int:
    """The end of the lease as far as it was acknowledged; 0 for none, far away for a group of one."""
    if state.role is not Role.LEADER:
        return 0
    if state.commit_index < state.leader_entry_index and not knows_commit(state):
        return 0
    if state.transfer_target is not None or state.lease_given_up:
        return 0
    return FOR_EVER_NS if state.sole_voter else max(0, state.quorum_acked_ns + state.leader_lease_ns)


def committed_as_of(state: State, now_ns: int) -> tuple[int, int] | None:
    """The commit index, and the age of the proof that it held all that was committed; see `Raft.committed_as_of`."""
    if state.role is not Role.LEADER or not own_term_committed(state) or state.quorum_acked_ns < 0:
        return None
    return state.commit_index, 0 if state.sole_voter else max(0, now_ns - state.quorum_acked_ns)


def may_serve_now(state: State, now_ns: int) -> bool:
    """Whether the leader may serve reads without asking a quorum."""
    return now_ns < lease_until_ns(state) or "read-without-lease" in state.config.flaws


def lease_read_index(state: State, now_ns: int) -> int | None:
    """The index that a read may be served at without any message, or None."""
    if state.role is not Role.LEADER:
        return None
    if state.commit_index < state.leader_entry_index and not knows_commit(state):
        return None
    return state.commit_index if may_serve_now(state, now_ns) else None


def on_read_index(state: State, context: int, now_ns: int) -> None:
    if state.role is not Role.LEADER:
        state.out.rarely.failed_reads.append(context)
    elif state.transfer_target is not None or not knows_commit(state):
        state.parked_reads.append(context)
    else:
        admit(state, context, now_ns)


def admit(state: State, context: int, now_ns: int) -> None:
    """Serve under the lease, else once a round that starts after this moment is acknowledged by a quorum (§6.4)."""
    if may_serve_now(state, now_ns):
        state.out.rarely.reads.append(ReadReady(context, state.commit_index))
        return
    # A round that is under way began before the read: only a later one proves that nobody led by then (§6.4, step 3).
    state.round_reads.append((state.read_round + 1, context, state.commit_index))
    if state.read_round == state.confirmed_round:
        start_round(state, now_ns)


def start_round(state: State, now_ns: int) -> None:
    state.read_round += 1
    leader.send_heartbeats(state, now_ns)
    if state.sole_voter:
        confirm(state, now_ns)


def join_heartbeat(state: State) -> None:
    """Let a heartbeat that is about to leave start the next round, if reads wait for one."""
    if state.round_reads and state.round_reads[-1][0] > state.read_round:
        state.read_round += 1


def confirm(state: State, now_ns: int) -> None:
    """Serve the reads whose round a quorum has acknowledged, and start the next round for those that came later."""
    rounds = [progress.acked_round for progress in state.voter_progress]
    state.confirmed_round = max(state.confirmed_round, quorum_value(state, state.read_round, rounds))
    while state.round_reads and state.round_reads[0][0] <= state.confirmed_round:
        _, context, index = state.round_reads.popleft()
        state.out.rarely.reads.append(ReadReady(context, index))
    if state.round_reads and state.read_round == state.confirmed_round:
        start_round(state, now_ns)


def release_parked(state: State, now_ns: int) -> None:
    """Admit the reads that waited for an own-term commit or the end of a transfer."""
    if not state.parked_reads or state.transfer_target is not None or not knows_commit(state):
        return
    parked, state.parked_reads = state.parked_reads, []
    for context in parked:
        admit(state, context, now_ns)


def fail_all(state: State) -> None:
    """Leadership is over: nothing asked of this leader will be answered."""
    state.out.rarely.failed_reads.extend(state.parked_reads)
    state.out.rarely.failed_reads.extend(context for _, context, _ in state.round_reads)
    state.parked_reads.clear()
    state.round_reads.clear()

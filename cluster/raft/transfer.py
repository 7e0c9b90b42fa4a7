"""Leadership transfer (§3.10): give the lease up, bring the target up to date, tell it to start an election."""

from __future__ import annotations

from cluster.raft import election, reads
from cluster.raft.progress import Mode, Progress
from cluster.raft.state import State
from cluster.raft.types import NodeId, Reason, Role, TimeoutNow


def refusal(state: State, target: NodeId, now_ns: int) -> tuple[Reason, str] | None:
    """Why leadership can't go to `target`, as one sentence; None if it can.

    While it is brought up to date nothing is proposed (§3.10): it must answer, and lack no more than may be under way
    to it anyway.
    """
    if state.role is not Role.LEADER:
        return Reason.NOT_THE_LEADER, "this replica does not lead the group"
    if state.transfer_target is not None or state.handing_over:
        return Reason.BUSY, "the leader is handing over already"
    if target == state.node_id:
        return Reason.INVALID, f"{target} leads the group already"
    if target not in state.voters:
        return Reason.INVALID, f"{target} is no voter of the group"
    progress, window = state.progress[target], state.config.max_batch_entries * state.config.max_inflight
    if now_ns - progress.acked_ns > state.config.election_timeout_ns:
        return Reason.NOT_CAUGHT_UP, f"{target} has not answered for an election timeout"
    lag = state.log.last_index - progress.match
    if progress.mode is Mode.SNAPSHOT or lag > window:
        return Reason.NOT_CAUGHT_UP, f"{target} lacks {lag} entries"
    return None


def start(state: State, target: NodeId, now_ns: int) -> None:
    """Stop serving and proposing until the target leads, or for one election timeout; no-op where it can't be done."""
    if state.role is not Role.LEADER or state.transfer_target is not None or target == state.node_id:
        return
    if target not in state.voters:
        return
    state.transfer_target = target
    state.transfer_deadline_ns = now_ns + state.config.election_timeout_ns
    on_progress(state, target, state.progress[target])


def hand_over(state: State, wanted: bool, now_ns: int) -> None:
    """Look for a voter that takes over until there is one, or until that is not wanted any more.

    A follower notes that it would have to hand over at once: nobody need give it leadership.
    """
    state.handing_over = wanted
    state.heirs_tried.clear()
    try_next_heir(state, now_ns)


def try_next_heir(state: State, now_ns: int) -> None:
    """Every healthy voter gets its turn, the one with most of the log first; then they are tried anew."""
    if state.role is not Role.LEADER or not state.handing_over or state.transfer_target is not None:
        return
    healthy_since_ns = now_ns - state.config.election_timeout_ns
    healthy = [
        peer
        for peer, progress in state.progress.items()
        if peer in state.voters and progress.acked_ns >= healthy_since_ns
    ]
    heirs = [peer for peer in healthy if peer not in state.heirs_tried]
    if not heirs:
        state.heirs_tried.clear()
        heirs = healthy
    if heirs:
        heir = max(heirs, key=lambda peer: state.progress[peer].match)
        state.heirs_tried.append(heir)
        start(state, heir, now_ns)


def on_progress(state: State, peer: NodeId, progress: Progress) -> None:
    """Tell the target to stand, once it has the whole log."""
    if peer != state.transfer_target or progress.match < state.log.last_index:
        return
    state.lease_given_up = True
    state.out.sends.append(TimeoutNow(state.node_id, peer, state.term))


def on_tick(state: State, now_ns: int) -> None:
    """Abandon a transfer that took too long; a leader that wants to hand over tries the next, another leads on."""
    if state.transfer_target is not None and now_ns >= state.transfer_deadline_ns:
        state.transfer_target = None
        reads.release_parked(state, now_ns)
    try_next_heir(state, now_ns)
    idle = state.transfer_target is None and not state.handing_over and not state.round_reads
    if state.lease_given_up and idle and now_ns < state.quorum_acked_ns + state.leader_lease_ns:
        lead_on(state, now_ns)


def lead_on(state: State, now_ns: int) -> None:
    """Stand for a term of one's own, with a quorum in reach: in the old one no lease can be held any more.

    TimeoutNow may be under way in it for ever; the new term ignores it. The lease was given up, so that voters needn't
    wait for its end.
    """
    election.become_follower(state, state.term, None, now_ns)
    if election.may_stand(state):
        election.start_election(state, now_ns, transferred=True)


def abdicate(state: State, now_ns: int) -> None:
    """A leader that is no voter any more steps down (§4.2.2); a voter that has the whole log may stand at once."""
    heirs = [
        peer for peer, each in state.progress.items() if peer in state.voters and each.match == state.log.last_index
    ]
    if heirs:
        state.out.sends.append(TimeoutNow(state.node_id, heirs[0], state.term))
    election.become_follower(state, state.term, None, now_ns)


def forget(state: State) -> None:
    """Leadership is over, and with it the transfer."""
    state.transfer_target = None
    state.heirs_tried.clear()


def on_timeout_now(state: State, message: TimeoutNow, now_ns: int) -> None:
    """The leader of this very term gave its lease up for this node: stand at once, with no pre-vote.

    Not where it would have to be handed on at once. Two such nodes would go on giving it to each other, however
    healthy a third one is; so the leader's transfer ends by its deadline, and its next heir gets its turn.
    """
    if state.handing_over:
        return
    if state.role is Role.FOLLOWER and message.term == state.term and election.may_stand(state):
        election.start_election(state, now_ns, transferred=True)

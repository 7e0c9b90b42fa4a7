"""Leadership transfer (§3.10): give the lease up, bring the target up to date, tell it to start an election."""

from __future__ import annotations

from cluster.raft import election, reads
from cluster.raft.progress import Progress
from cluster.raft.state import State
from cluster.raft.types import NodeId, Role, TimeoutNow


def start(state: State, target: NodeId, now_ns: int) -> None:
    """Stop serving and proposing until the target leads, or for one election timeout; no-op where it can't be done."""
    if state.role is not Role.LEADER or state.transfer_target is not None or target not in state.progress:
        return
    state.transfer_target = target
    state.transfer_deadline_ns = now_ns + state.config.election_timeout_ns
    on_progress(state, target, state.progress[target])


def on_progress(state: State, peer: NodeId, progress: Progress) -> None:
    """Tell the target to stand, once it has the whole log."""
    if peer != state.transfer_target or progress.match < state.log.last_index:
        return
    state.lease_given_up = True
    state.out.sends.append(TimeoutNow(state.node_id, peer, state.term))


def on_tick(state: State, now_ns: int) -> None:
    """Abandon a transfer that took too long."""
    if state.transfer_target is not None and now_ns >= state.transfer_deadline_ns:
        state.transfer_target = None
        reads.release_parked(state, now_ns)


def forget(state: State) -> None:
    """Leadership is over, and with it the transfer."""
    state.transfer_target = None


def on_timeout_now(state: State, term: int, now_ns: int) -> None:
    """The leader of this very term gave its lease up for this node: stand at once, with no pre-vote."""
    if state.role is Role.FOLLOWER and term == state.term:
        election.start_election(state, now_ns, transferred=True)

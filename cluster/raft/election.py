"""Elections with pre-vote (§3.4, §3.6.1, §9.6), and the voters' side of the lease (§4.2.3, §6.4.1)."""

from __future__ import annotations

from cluster.raft import leader, membership, quiescence, reads, transfer
from cluster.raft.state import State, hard_state_is_durable, rearm_election, send_answer, set_term
from cluster.raft.types import (
    NodeId,
    PreVote,
    PreVoteReply,
    RequestVote,
    RequestVoteReply,
    Role,
)

PRE_VOTES_PER_TIMEOUT = 8
"""How often a candidate that is refused asks around in an election timeout; the intervals are as random as these."""


def become_follower(state: State, term: int, leader: NodeId | None, now_ns: int) -> None:
    """Follow `leader` (or nobody yet) in `term`, which is this node's term or a later one."""
    if term > state.term:
        set_term(state, term)
    if state.role is Role.LEADER:
        reads.fail_all(state)
        transfer.forget(state)
        membership.forget(state)
        state.progress = {}
        state.voter_progress = []
    if state.role is not Role.FOLLOWER:
        state.role = Role.FOLLOWER
        state.votes.clear()
        rearm_election(state, now_ns)
    state.leader = leader


def hear_leader(state: State, term: int, leader: NodeId, now_ns: int) -> None:
    """A message of this term's leader has come in: the election timer starts over (§3.4)."""
    if term > state.term or state.role is not Role.FOLLOWER or state.leader != leader:
        become_follower(state, term, leader, now_ns)
    state.contact_ns = now_ns
    state.election_deadline_ns = now_ns + state.election_timeout_ns


def hear_silently(state: State, heard_ns: int) -> None:
    """The node of this silent group's leader was heard at that time: as good as a heartbeat of the leader (G6)."""
    if heard_ns > state.contact_ns:
        state.contact_ns = heard_ns
        state.election_deadline_ns = heard_ns + state.election_timeout_ns


def lease_binds(state: State, now_ns: int) -> bool:
    """Whether this voter may have promised a live leader its lease: it then elects nobody else (§4.2.3).

    It doesn't ask whether the candidate belongs to the group: a removed server is kept from disturbing by this alone,
    for it may have a log that wins a pre-vote, and it never learns that it was removed.
    """
    if "voters-ignore-lease" in state.config.flaws:
        return False
    if state.role is Role.LEADER and state.sole_voter:
        return True
    contact_ns = state.contact_ns
    if state.role is Role.LEADER:
        # A leader hears of itself as long as a quorum answers; its election was such a moment.
        contact_ns = max(state.quorum_acked_ns, state.elected_ns)
    return now_ns < contact_ns + state.config.voter_lease_ns


def may_stand(state: State) -> bool:
    """Whether this server is a voter, or was one before a change that may not be committed.

    It may still be needed then: nobody else may hold the entry that removes it (§4.2.2, figure 4.6). A learner, and a
    server that knows of no configuration, waits to be told.
    """
    if state.votes_itself:
        return True
    configurations = state.configurations
    uncommitted = configurations.in_force.index > state.commit_index
    return uncommitted and state.node_id in configurations.before.voter_ids


def on_election_timeout(state: State, now_ns: int) -> None:
    """Ask around before disturbing anybody's term (§9.6).

    Others keep their promise to the old leader a little longer, or shorter: a candidate that was refused asks again
    soon, for a timeout more would double the time of most fail-overs. Where nobody answers the
    intervals double, up to an election timeout: a node that is cut off has every one of its groups ask.
    """
    if lease_binds(state, now_ns):
        state.election_deadline_ns = state.contact_ns + state.config.voter_lease_ns
        return
    if not may_stand(state):
        election_is_not_ours(state, now_ns)
        return
    in_vain = state.asked_in_vain if state.role is Role.PRE_CANDIDATE else 0
    state.asked_in_vain = min(2 * in_vain, PRE_VOTES_PER_TIMEOUT) or 1
    state.role = Role.PRE_CANDIDATE
    state.leader = None
    state.votes = {state.node_id: True}
    rearm_election(state, now_ns)
    state.election_deadline_ns = now_ns + state.election_timeout_ns * state.asked_in_vain // PRE_VOTES_PER_TIMEOUT
    log = state.log
    for voter in other_voters(state):
        state.out.sends.append(PreVote(state.node_id, voter, state.term + 1, log.last_index, log.last_term))
    if won(state):
        start_election(state, now_ns, transferred=False)


def election_is_not_ours(state: State, now_ns: int) -> None:
    """A candidate whom a new configuration leaves out falls back; it looks again after an election timeout."""
    if state.role is not Role.FOLLOWER:
        become_follower(state, state.term, None, now_ns)
    rearm_election(state, now_ns)


def other_voters(state: State) -> list[NodeId]:
    return [voter for voter in state.voters if voter != state.node_id]


def won(state: State) -> bool:
    """Whether a majority of the voters in force is for this candidate, which may not be one of them (§4.2.2)."""
    return sum(voter in state.votes for voter in state.voters) >= state.quorum


def start_election(state: State, now_ns: int, transferred: bool) -> None:
    """Enter a new term as candidate; the own vote counts, and requests leave, once term and vote are durable."""
    set_term(state, state.term + 1)
    state.vote = state.node_id
    state.role = Role.CANDIDATE
    state.leader = None
    state.votes.clear()
    state.granted_until = 0
    rearm_election(state, now_ns)
    log = state.log
    for voter in other_voters(state):
        request = RequestVote(state.node_id, voter, state.term, log.last_index, log.last_term, transferred)
        state.out.after_persist.append(request)


def count_own_vote(state: State, now_ns: int) -> None:
    """This candidate's vote for itself is as good as any other once it is durable."""
    if hard_state_is_durable(state):
        count_vote(state, state.node_id, now_ns)


def count_vote(state: State, voter: NodeId, now_ns: int) -> None:
    state.votes[voter] = True
    # The own vote counts once it is durable; also who votes no more, but stands, must keep its term over a crash.
    if won(state) and state.node_id in state.votes:
        leader.become_leader(state, now_ns)


def would_vote(state: State, request: PreVote | RequestVote) -> bool:
    """One vote a term, and only for a log at least as up to date as the own one (§3.6.1)."""
    free = request.term > state.term or (request.term == state.term and state.vote in (None, request.source))
    log = state.log
    if "vote-stale-log" in state.config.flaws:
        return free
    return free and (request.last_term, request.last_index) >= (log.last_term, log.last_index)


def on_pre_vote(state: State, message: PreVote, now_ns: int) -> None:
    """Answer without changing anything; a refusal tells the own term, so that the asker can catch up."""
    granted = not lease_binds(state, now_ns) and would_vote(state, message)
    term = message.term if granted else state.term
    send_answer(state, PreVoteReply(state.node_id, message.source, term, granted))


def on_pre_vote_reply(state: State, message: PreVoteReply, now_ns: int) -> None:
    state.asked_in_vain = 0
    if not message.granted:
        if message.term > state.term:
            become_follower(state, message.term, None, now_ns)
        return
    if state.role is not Role.PRE_CANDIDATE or message.term != state.term + 1:
        return
    state.votes[message.source] = True
    if won(state):
        start_election(state, now_ns, transferred=False)


def on_request_vote(state: State, message: RequestVote, now_ns: int) -> None:
    """Vote, or refuse; within a lease neither vote nor term change (§4.2.3), unless the leader asked for it (§3.10)."""
    if message.term < state.term:
        send_answer(state, RequestVoteReply(state.node_id, message.source, state.term, False))
        return
    if not message.transfer and lease_binds(state, now_ns):
        return
    granted = would_vote(state, message)
    if message.term > state.term:
        become_follower(state, message.term, None, now_ns)
    # A vote that was given already, to the same candidate, is only said again.
    if granted and state.vote is None:
        become_follower(state, message.term, None, now_ns)
        state.vote = message.source
        state.out.hard_changed = True
        rearm_election(state, now_ns)
    reply = RequestVoteReply(
        state.node_id,
        message.source,
        state.term,
        granted,
        quiescence.promised_ever(state, quiescence.promised(state)) if granted else 0,
    )
    if "vote-before-fsync" in state.config.flaws:
        state.out.sends.append(reply)
    else:
        send_answer(state, reply)


def on_request_vote_reply(state: State, message: RequestVoteReply, now_ns: int) -> None:
    if message.term > state.term:
        become_follower(state, message.term, None, now_ns)
    elif message.granted and message.term == state.term and state.role is Role.CANDIDATE:
        if state.granted_until is not None:
            state.granted_until = None if message.until is None else max(state.granted_until, message.until)
        count_vote(state, message.source, now_ns)

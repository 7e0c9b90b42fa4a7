"""Changes of the configuration at the leader (§4.1 to §4.2.2): one server at a time, each a CONFIG entry.

Any majority of a configuration has a server in common with any majority of one that differs by a single voter, so
both may be in force on different servers at once; with two changes under way that would not hold. A change waits until
the one before is committed, and until this leader has committed an entry of its own term: without that, a change that
a deposed leader appended may come back and meet one that it doesn't overlap with (Ongaro, raft-dev, July 10th 2015,
"bug in single-server membership changes").
"""

from __future__ import annotations

from cluster.raft import leader, reads, transfer
from cluster.raft.log import configuration_entry
from cluster.raft.progress import Progress
from cluster.raft.state import CatchUp, State, append_entries_to_log
from cluster.raft.types import (
    ChangeKind,
    ChangeMembership,
    ChangeResult,
    Configuration,
    Member,
    NodeId,
    OpId,
    Reason,
    Role,
)


def on_change(state: State, event: ChangeMembership, now_ns: int) -> None:
    """Append the change, begin a learner's rounds, or say why not.

    A learner that is catching up can be removed: where writes outrun it, its rounds would keep other changes waiting
    for as long as they go on.
    """
    refusal = not_now(state, event) or not_so(state, event, now_ns)
    if refusal is not None:
        refuse(state, event.context, *refusal)
        return
    abandon(state, f"{event.member.server_id} is removed")
    if event.kind is ChangeKind.PROMOTE:
        last = state.log.last_index
        state.catch_up = CatchUp(event.context, event.member.server_id, 1, last, now_ns)
        on_progress(state, event.member.server_id, state.progress[event.member.server_id], now_ns)
    else:
        append_change(state, event.context, event.kind, event.member, now_ns)


def not_now(state: State, event: ChangeMembership) -> tuple[Reason, str] | None:
    """Why this leader can't take any change at this moment."""
    if state.role is not Role.LEADER:
        return Reason.NOT_THE_LEADER, "this replica does not lead the group"
    if not reads.own_term_committed(state) and "raft-unsafe-membership" not in state.config.flaws:
        return Reason.NO_OWN_COMMIT, "the leader has not yet committed an entry of its own term"
    configuration = state.configurations.in_force
    if configuration.index > state.commit_index:
        return Reason.BUSY, "the change before is not yet committed"
    catch_up = state.catch_up
    if catch_up is not None and (event.kind, event.member.server_id) != (ChangeKind.REMOVE, catch_up.server_id):
        return Reason.BUSY, f"{catch_up.server_id} is catching up to be promoted"
    if state.transfer_target is not None:
        return Reason.BUSY, "leadership is being handed over"
    if configuration.op_id != event.expected and "no-config-cas" not in state.config.flaws:
        found = configuration.op_id
        return Reason.STALE, f"the configuration is that of term {found.term}, index {found.index}"
    return None


def not_so(state: State, event: ChangeMembership, now_ns: int) -> tuple[Reason, str] | None:
    """Why the change makes no sense, or would leave the group without a quorum."""
    configuration = state.configurations.in_force
    server_id = event.member.server_id
    voter, learner = server_id in configuration.voter_ids, server_id in configuration.learner_ids
    match event.kind:
        case ChangeKind.ADD_LEARNER:
            wrong = f"{server_id} is a member already" if voter or learner else ""
        case ChangeKind.PROMOTE:
            wrong = "" if learner else f"{server_id} is no learner"
        case ChangeKind.DEMOTE:
            wrong = "" if voter else f"{server_id} is no voter"
        case ChangeKind.REMOVE:
            wrong = "" if voter or learner else f"{server_id} is no member"
    if wrong:
        return Reason.INVALID, wrong
    return loses_quorum(state, changed(configuration, event.kind, event.member), now_ns)


def loses_quorum(state: State, after: Configuration, now_ns: int) -> tuple[Reason, str] | None:
    """Whether too few of the voters after a change have been heard of lately to commit anything."""
    if not after.voters:
        return Reason.LOSES_QUORUM, "the group would be left without voters"
    if after.voter_ids == state.voters:
        return None
    heard = [voter for voter in after.voter_ids if heard_lately(state, voter, now_ns)]
    if len(heard) > len(after.voters) // 2:
        return None
    message = f"of the {len(after.voters)} voters that would be left only {len(heard)} are in contact with the leader"
    return Reason.LOSES_QUORUM, message


def heard_lately(state: State, server_id: NodeId, now_ns: int) -> bool:
    """Whether a server has answered within the time that a leader keeps its office without a quorum."""
    if server_id == state.node_id:
        return True
    progress = state.progress.get(server_id)
    return progress is not None and now_ns - progress.acked_ns < state.config.leader_check_quorum_ns


def changed(configuration: Configuration, kind: ChangeKind, member: Member) -> Configuration:
    """Voters and learners after a change that makes sense; without an op id."""
    known = {each.server_id: each for each in configuration.members}
    subject = known.get(member.server_id, member)
    voters = tuple(each for each in configuration.voters if each != subject)
    learners = tuple(each for each in configuration.learners if each != subject)
    match kind:
        case ChangeKind.PROMOTE:
            voters = (*voters, subject)
        case ChangeKind.ADD_LEARNER | ChangeKind.DEMOTE:
            learners = (*learners, subject)
        case ChangeKind.REMOVE:
            pass
    return Configuration(voters, learners)


def append_change(state: State, context: int, kind: ChangeKind, member: Member, now_ns: int) -> None:
    """It is in force from here on, also for the commitment of its own entry (§4.1)."""
    after = changed(state.configurations.in_force, kind, member)
    position = OpId(state.term, state.log.last_index + 1)
    entry = configuration_entry(Configuration(after.voters, after.learners, position.index, position.term))
    append_entries_to_log(state, (entry,))
    state.out.rarely.changes.append(ChangeResult(context, position))
    leader.replicate(state, now_ns)


def refuse(state: State, context: int, reason: Reason, message: str) -> None:
    state.out.rarely.changes.append(ChangeResult(context, None, reason, message))


def on_progress(state: State, peer: NodeId, progress: Progress, now_ns: int) -> None:
    """The rounds of a learner to be promoted (§4.2.1): each replicates what the leader had when the round began.

    A round that took less than an election timeout leaves so little to fetch that the group won't wait for it.
    """
    catch_up = state.catch_up
    if catch_up is None or peer != catch_up.server_id or state.transfer_target is not None:
        return
    # Each turn ends a round, or the promotion: a round whose goal is reached already took no time at all.
    while progress.match >= catch_up.goal:
        if now_ns - catch_up.began_ns < state.config.election_timeout_ns:
            state.catch_up = None
            append_change(state, catch_up.context, ChangeKind.PROMOTE, Member(peer, ""), now_ns)
            return
        if catch_up.round >= state.config.catch_up_rounds:
            abandon(state, f"{peer} has not caught up in {catch_up.round} rounds")
            return
        catch_up.round += 1
        catch_up.goal = state.log.last_index
        catch_up.began_ns = now_ns


def on_tick(state: State, now_ns: int) -> None:
    """A learner that doesn't answer will not catch up; it must not keep other changes from being made."""
    catch_up = state.catch_up
    if catch_up is None or now_ns - catch_up.began_ns < state.config.leader_check_quorum_ns:
        return
    if not heard_lately(state, catch_up.server_id, now_ns):
        abandon(state, f"{catch_up.server_id} does not answer")


def abandon(state: State, message: str) -> None:
    if state.catch_up is not None:
        refuse(state, state.catch_up.context, Reason.NOT_CAUGHT_UP, message)
        state.catch_up = None


def on_commit(state: State, now_ns: int) -> None:
    """A leader that is no voter steps down once its last change is committed (§4.2.2), not before: it may be needed."""
    committed = state.configurations.in_force.index <= state.commit_index
    if committed and not state.votes_itself and state.role is Role.LEADER:
        transfer.abdicate(state, now_ns)


def forget(state: State) -> None:
    """Leadership is over: what this leader had begun for a learner is nobody's."""
    if state.catch_up is not None:
        refuse(state, state.catch_up.context, Reason.NOT_THE_LEADER, "leadership was lost meanwhile")
        state.catch_up = None

"""The leader's side of log replication and commitment (§3.5, §3.6.2, §5.1, §10.2)."""

from __future__ import annotations

from cluster.raft import election, membership, quiescence, reads, transfer
from cluster.raft.progress import NEVER_NS, Mode, Progress
from cluster.raft.state import State, append_entries_to_log, follow_members, quorum_value
from cluster.raft.types import (
    AppendEntries,
    AppendReply,
    Entry,
    EntryKind,
    NodeId,
    Role,
    SendSnapshot,
    SnapshotSent,
)

STEP_BYTES = 2 << 20
"""One step sends about so much to one follower; each answer lets more go, up to `max_inflight` batches."""


def become_leader(state: State, now_ns: int) -> None:
    """Lead this term, with an empty entry to commit what earlier terms left (§6.4)."""
    state.role = Role.LEADER
    state.leader = state.node_id
    state.votes.clear()
    state.elected_ns = now_ns
    state.progress = {}
    follow_members(state)
    state.quorum_acked_ns = NEVER_NS
    state.lease_given_up = state.handing_over = False
    state.bound_until = state.elected_until = quiescence.promised(state)
    state.extended_until = 0
    state.read_round = 0
    state.confirmed_round = 0
    state.heartbeat_due_ns = now_ns + state.config.heartbeat_ns
    state.leader_entry_index = state.log.last_index + 1
    append_entries_to_log(state, (Entry(state.term, state.leader_entry_index, EntryKind.LEADER, b""),))
    replicate(state, now_ns)


def propose(state: State, commands: tuple[bytes, ...], now_ns: int) -> None:
    """Append commands in the current term, or refuse: not the leader, or leadership is being handed over (§3.10)."""
    if state.role is not Role.LEADER or state.transfer_target is not None:
        return
    term = state.term
    first = state.log.last_index + 1
    entries = [Entry(term, index, EntryKind.COMMAND, data) for index, data in enumerate(commands, first)]
    state.out.proposed = tuple((term, entry.index) for entry in entries)
    if entries:
        append_entries_to_log(state, entries)
        replicate(state, now_ns)


def takes_commands(state: State) -> bool:
    """Whether commands proposed now are refused at once, or a quorum was sent all but one batch of the log.

    What is proposed while a quorum's windows are full (§10.2.1) could not be sent before they have room, and in the
    log it can't be refused any more: it had better wait outside, where its deadline counts.
    """
    if state.role is not Role.LEADER:
        return True
    log, config = state.log, state.config
    first = max(quorum_value(state, log.last_index + 1, [each.next for each in state.voter_progress]), log.offset + 1)
    if first > log.last_index:
        return True
    return log.batch(first, config.max_batch_entries, config.max_batch_bytes)[-1].index == log.last_index


def on_leader_tick(state: State, now_ns: int) -> None:
    """Heartbeats, and the end of a leadership that has lost its quorum for long (check-quorum, §6.2)."""
    if quiescence.sleeps(state):
        return
    silent_ns = now_ns - max(state.quorum_acked_ns, state.elected_ns)
    if silent_ns >= state.config.leader_check_quorum_ns and not state.sole_voter:
        election.become_follower(state, state.term, None, now_ns)
        return
    transfer.on_tick(state, now_ns)
    membership.on_tick(state, now_ns)
    if now_ns >= state.heartbeat_due_ns:
        state.heartbeat_due_ns = now_ns + state.config.heartbeat_ns
        reads.join_heartbeat(state)
        quiesce = quiescence.asks(state, now_ns)
        if quiesce or state.round_reads:
            send_heartbeats(state, now_ns, quiesce)
        else:
            send_to_idle(state, now_ns)


def send_heartbeats(state: State, now_ns: int, quiesce: bool = False) -> None:
    for peer, progress in state.progress.items():
        heartbeat(state, peer, progress, now_ns, quiesce)


def send_to_idle(state: State, now_ns: int) -> None:
    """Heartbeats "during idle periods" (figure 3.1): to whom has answered nothing that was sent within an interval.

    An answer to entries says as much as one to a heartbeat. Its sender is looked at again when that has become too old,
    so contact is never older than if there had been a heartbeat in each interval.
    """
    interval_ns = state.config.heartbeat_ns
    for peer, progress in state.progress.items():
        due_ns = progress.acked_ns + interval_ns
        if due_ns <= now_ns or progress.mode is not Mode.REPLICATE:
            heartbeat(state, peer, progress, now_ns, False)
        elif due_ns < state.heartbeat_due_ns:
            state.heartbeat_due_ns = due_ns


def heartbeat(state: State, peer: NodeId, progress: Progress, now_ns: int, quiesce: bool) -> None:
    """Renew lease and rounds; also finds out what was lost: repeats a probe or an install, tests the pipeline's end."""
    if progress.mode is Mode.PROBE:
        progress.paused = False
        send_appends(state, peer, progress, now_ns)
    elif progress.mode is Mode.REPLICATE and progress.next > state.log.offset:
        send_batch(state, peer, progress.next, (), now_ns, quiesce)
    else:
        if not progress.streaming and now_ns >= progress.snapshot_ns + state.config.election_timeout_ns:
            send_snapshot(state, peer, progress)
        ask_for_snapshot(state, peer, progress, now_ns)


def replicate(state: State, now_ns: int) -> None:
    for peer, progress in state.progress.items():
        send_appends(state, peer, progress, now_ns)


def send_appends(state: State, peer: NodeId, progress: Progress, now_ns: int) -> None:
    """Send what the follower lacks, as far as its window allows (§10.2.1)."""
    log, config = state.log, state.config
    if progress.mode is Mode.SNAPSHOT or (progress.mode is Mode.PROBE and progress.paused):
        return
    if progress.next <= log.offset:
        send_snapshot(state, peer, progress)
        return
    if progress.mode is Mode.PROBE:
        # Where the logs agree is not known: one batch goes out, and its answer says where to go on.
        progress.paused = True
        entries = log.batch(progress.next, config.max_batch_entries, config.max_batch_bytes)
        send_batch(state, peer, progress.next, entries, now_ns)
        return
    # Optimistic: `next` moves on before the answers come, and goes back where one is a refusal.
    room = STEP_BYTES
    while progress.next <= log.last_index and len(progress.inflight) < config.max_inflight and room > 0:
        entries = log.batch(progress.next, config.max_batch_entries, config.max_batch_bytes)
        room -= len(entries[0].data) if len(entries) == 1 else sum([len(entry.data) for entry in entries])
        send_batch(state, peer, progress.next, entries, now_ns)
        progress.next = entries[-1].index + 1
        progress.inflight.append(entries[-1].index)


def send_batch(
    state: State, peer: NodeId, first: int, entries: tuple[Entry, ...], now_ns: int, quiesce: bool = False
) -> None:
    state.out.sends.append(
        AppendEntries(
            state.node_id,
            peer,
            state.term,
            first - 1,
            state.log.term(first - 1),
            entries,
            state.commit_index,
            now_ns,
            state.read_round,
            quiesce,
        )
    )


def ask_for_snapshot(state: State, peer: NodeId, progress: Progress, now_ns: int) -> None:
    """Keep in contact with a follower that gets a snapshot; it agrees as soon as it has installed it."""
    if state.log.offset <= progress.snapshot <= state.log.last_index:
        send_batch(state, peer, progress.snapshot + 1, (), now_ns)
    else:
        reach_out(state, peer, now_ns)


def reach_out(state: State, peer: NodeId, now_ns: int) -> None:
    """An AppendEntries that agrees with any log: it carries nothing but the leader's presence."""
    state.out.sends.append(AppendEntries(state.node_id, peer, state.term, 0, 0, (), 0, now_ns, state.read_round))


def send_snapshot(state: State, peer: NodeId, progress: Progress) -> None:
    """Have the latest snapshot streamed to a follower that needs entries which are compacted away (§5.1)."""
    if state.snapshot is None:
        return
    progress.await_snapshot(state.snapshot.index)
    state.out.rarely.send_snapshots.append(SendSnapshot(peer, state.term, state.snapshot))


def on_snapshot_sent(state: State, event: SnapshotSent, now_ns: int) -> None:
    """The driver's stream of a snapshot has ended; one that was replaced meanwhile is of no interest."""
    progress = state.progress.get(event.target)
    if progress is not None and progress.mode is Mode.SNAPSHOT and progress.snapshot == event.index:
        progress.stream_ended(event.delivered, now_ns)


def on_append_reply(state: State, message: AppendReply, now_ns: int) -> None:
    progress = follower_progress(state, message.source, message.term, now_ns)
    if progress is None:
        return
    note_contact(state, progress, message.sent_ns, message.read_round, now_ns)
    if message.success:
        on_match(state, message.source, progress, message.match, now_ns)
        if state.quiet is not None:
            quiescence.on_answer(state, message)
    elif not progress.refusal_is_stale(message.match):
        # The follower hints at its last entry whose term may agree; the own log has no such term above `agreed`.
        agreed = state.log.last_index_at_or_below(message.hint_index, message.hint_term)
        progress.probe(max(1, min(message.match, agreed + 1)))
        send_appends(state, message.source, progress, now_ns)


def follower_progress(state: State, source: NodeId, term: int, now_ns: int) -> Progress | None:
    """The progress that a reply is about; None if it isn't for this node's current leadership."""
    if term > state.term:
        election.become_follower(state, term, None, now_ns)
    if term != state.term or state.role is not Role.LEADER:
        return None
    return state.progress.get(source)


def note_contact(state: State, progress: Progress, sent_ns: int, read_round: int, now_ns: int) -> None:
    """Count an echo for lease and read rounds, if this incarnation sent it in this leadership."""
    if sent_ns > progress.acked_ns and state.elected_ns <= sent_ns <= now_ns:
        # The promise began when the voter answered, at `sent_ns` or later: counted from there the lease errs safely.
        progress.acked_ns = sent_ns
        if sent_ns > state.quorum_acked_ns:
            acked = [each.acked_ns for each in state.voter_progress]
            state.quorum_acked_ns = quorum_value(state, now_ns, acked)
    if read_round > progress.acked_round:
        progress.acked_round = read_round
        reads.confirm(state, now_ns)


def on_match(state: State, peer: NodeId, progress: Progress, match: int, now_ns: int) -> None:
    last = state.log.last_index
    progress.matched(match if match < last else last)
    if progress.match > state.commit_index:
        advance_commit(state, now_ns)
        if state.role is not Role.LEADER:
            return
    if peer == state.transfer_target:
        transfer.on_progress(state, peer, progress)
    if state.catch_up is not None:
        membership.on_progress(state, peer, progress, now_ns)
    if progress.next <= state.log.last_index or progress.mode is not Mode.REPLICATE:
        send_appends(state, peer, progress, now_ns)


def own_match(state: State) -> int:
    """Up to where the leader counts itself: its log may be sent, but not counted, before it is durable (§10.2.1)."""
    if "raft-ack-before-fsync" in state.config.flaws:
        return state.log.last_index
    return state.durable_index


def advance_commit(state: State, now_ns: int) -> None:
    """Commit what a quorum holds, if it is of this term; earlier terms' entries follow with it (§3.6.2)."""
    # Figure 3.1: "If there exists an N such that N > commitIndex, a majority of matchIndex[i] >= N, and log[N].term ==
    # currentTerm: set commitIndex = N". The highest such N is enough: every lower one is committed with it.
    matches = [progress.match for progress in state.voter_progress]
    index = quorum_value(state, own_match(state), matches)
    if index <= state.commit_index:
        return
    # An entry of an earlier term that a majority holds may still be overwritten by a later leader (figure 3.7).
    if state.log.term(index) != state.term and "raft-commit-old-term" not in state.config.flaws:
        return
    state.commit_index = index
    if state.parked_reads:
        reads.release_parked(state, now_ns)
    membership.on_commit(state, now_ns)

"""The follower's side of log replication and snapshots (§3.5, §5.1)."""

from __future__ import annotations

from cluster.raft import quiescence
from cluster.raft.election import hear_leader
from cluster.raft.log import Configurations, Log
from cluster.raft.progress import NEVER_NS
from cluster.raft.state import State, adopt, append_entries_to_log, forget_durable_above, send_answer
from cluster.raft.types import AppendEntries, AppendReply, InvariantBroken, Role, SnapshotMeta, SnapshotReceived


def leads_this_term(state: State, term: int) -> bool:
    """Whether this node leads the term of the message: a second leader of one term (a flaw's work) is ignored."""
    return term == state.term and state.role is Role.LEADER


def on_append_entries(state: State, message: AppendEntries, now_ns: int) -> None:
    if message.term < state.term:
        refuse_old_term(state, message)
        return
    if leads_this_term(state, message.term):
        return
    hear_leader(state, message.term, message.source, now_ns)
    if state.quiet is not None and not message.quiesce:
        quiescence.on_ordinary(state, message)
    log = state.log
    previous = message.prev_index
    if previous > log.last_index or (previous >= log.offset and log.term(previous) != message.prev_term):
        refuse_gap(state, message)
        return
    # The entry before agrees, so by induction does all that comes before it: the Log Matching Property (§3.5).
    appended = append_new(state, message)
    match = previous + len(message.entries)
    # Figure 3.1: commitIndex = min(leaderCommit, index of last new entry); what lies behind it may still conflict.
    commit = message.commit if message.commit < match else match
    if commit > state.commit_index:
        state.commit_index = commit
    if message.quiesce and quiescence.agree(state, message):
        state.out.sends.append(agreement(state, message, match, quiesced=True))
    else:
        acknowledge(state, message, match, appended)


def refuse_old_term(state: State, message: AppendEntries) -> None:
    """Tell a deposed leader of the newer term; its times and rounds mean nothing in that term."""
    reply = AppendReply(state.node_id, message.source, state.term, False, message.prev_index, 0, 0, NEVER_NS, 0)
    send_answer(state, reply)


def refuse_gap(state: State, message: AppendEntries) -> None:
    """The log doesn't hold the entry before: hint where the two logs may agree, skipping whole terms (§3.5)."""
    hint_index = state.log.last_index_at_or_below(message.prev_index, message.prev_term)
    hint_term = state.log.term(hint_index)
    send_answer(
        state,
        AppendReply(
            state.node_id,
            message.source,
            state.term,
            False,
            message.prev_index,
            hint_index,
            hint_term,
            message.sent_ns,
            message.read_round,
        ),
    )


def append_new(state: State, message: AppendEntries) -> bool:
    """Append what is new, dropping what conflicts with it (§3.5); True if the log changed."""
    log = state.log
    entries = message.entries
    if not entries:
        return False
    if message.prev_index == log.last_index:
        append_entries_to_log(state, entries)
        return True
    for position, entry in enumerate(entries):
        if entry.index > log.last_index:
            append_entries_to_log(state, entries[position:])
            return True
        # What is here already is not truncated: the message may be older than entries that were acknowledged since.
        if entry.index > log.offset and log.term(entry.index) != entry.term:
            truncate(state, entry.index - 1)
            append_entries_to_log(state, entries[position:])
            return True
    return False


def truncate(state: State, last: int) -> None:
    """Drop everything above `last`, and with it the configurations set there (§4.1).

    Raises InvariantBroken below the commit index: what was committed is in the log of every later leader (§3.6.3), so
    there has been a second leader of a term, or a disk has lost what was acknowledged.
    """
    if last < state.commit_index:
        raise InvariantBroken(
            f"{state.leader} of term {state.term} replaces entry {last + 1}, but {state.commit_index} are committed"
        )
    state.log.truncate(last)
    forget_durable_above(state, last)
    if state.configurations.truncate(last):
        adopt(state)


def acknowledge(state: State, message: AppendEntries, match: int, appended: bool) -> None:
    """Answer that the log agrees up to `match`: what isn't durable yet is acknowledged once it is (§3.8).

    Where nothing was appended, the leader hears at once what is durable, for its lease; the rest follows (`late_ack`).
    """
    reply = agreement(state, message, match)
    if match <= state.durable_index or "raft-ack-before-fsync" in state.config.flaws:
        send_answer(state, reply)
    elif appended:
        state.out.after_persist.append(reply)
    else:
        state.late_ack = reply
        send_answer(state, agreement(state, message, state.durable_index))


def agreement(state: State, message: AppendEntries, match: int, quiesced: bool = False) -> AppendReply:
    head = (state.node_id, message.source, state.term, True, match, 0, 0)
    return AppendReply(*head, message.sent_ns, message.read_round, quiesced)


def send_late_ack(state: State) -> None:
    """What could only be half acknowledged has become durable."""
    reply = state.late_ack
    if reply is None or state.durable_index < reply.match:
        return
    state.late_ack = None
    if reply.term == state.term:
        send_answer(state, reply)


def on_snapshot_received(state: State, event: SnapshotReceived, now_ns: int) -> None:
    """All of a snapshot is here: use it unless the log has it all (figure 5.3); answered when it is durable."""
    if event.term < state.term or leads_this_term(state, event.term):
        return
    hear_leader(state, event.term, event.source, now_ns)
    meta = event.meta
    log = state.log
    # "If existing log entry has same index and term as lastIndex and lastTerm", the log has it all (figure 5.3).
    if log.offset <= meta.index <= log.last_index and log.term(meta.index) == meta.term:
        state.commit_index = max(state.commit_index, meta.index)
    if meta.index > state.commit_index:
        install(state, meta)
        state.out.after_persist.append(has_snapshot(state, event, meta.index))
    else:
        send_answer(state, has_snapshot(state, event, min(state.commit_index, state.durable_index)))


def has_snapshot(state: State, event: SnapshotReceived, match: int) -> AppendReply:
    """An answer to the leader that it didn't ask for: it echoes no time and no round."""
    return AppendReply(state.node_id, event.source, state.term, True, match, 0, 0, NEVER_NS, 0)


def install(state: State, meta: SnapshotMeta) -> None:
    """Replace log, configuration and state machine by the snapshot's (§5.1, figure 5.3)."""
    state.log = Log(meta.index, meta.term, ())
    forget_durable_above(state, 0)
    state.snapshot = meta
    state.commit_index = meta.index
    state.applied_index = meta.index
    state.configurations = Configurations(meta.configuration)
    adopt(state)
    state.out.rarely.install = meta

"""Quiescence (G6): an idle group falls silent; heartbeats between nodes keep its lease and its followers' patience.

The idea is CockroachDB's (quiescence, and its later store liveness), on the lease of §6.4.1. A leader at rest *asks*
with its heartbeats; a follower that has all of the log, and knows all of it to be committed, *agrees*. Once every
member has agreed the leader is *asleep*: no timer, no message, no entry. From then on a heartbeat from node to node
counts, in each group that is silent between the two, as a heartbeat of its leader at the follower, and its echo as the
follower's answer at the leader (`Liveness`).

Why no rule of Raft is weakened: only leases and elections depend on time, and what counts as contact is true contact.
A follower that has agreed stays bound until its leader speaks in the group itself, in a message younger than the
question; when it sent that, it had stopped to count echoes. Should the follower end its silence for any other reason,
its node withdraws its support from the leader's node *before* it answers another heartbeat: echoes then carry another
number, and wake every group between the two nodes. A leader that is none any more withdraws likewise, so that nobody
waits for it. So every echo that a leader counts is of a follower that was bound, in this term, when it answered, and
renewed its promise to elect nobody within a lease.

The record of a lease runs out meanwhile. So the heartbeats also carry up to where a lease of their sender may last, and
each echo is a promise: whoever is elected next hears of it with a vote, and begins its own lease above (`extension`,
`promised`). Nobody is refused a vote for it. `docs/design/time.md` has the argument.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cluster.raft import election, leader, reads
from cluster.raft.progress import Mode
from cluster.raft.state import State, hard_state_is_durable
from cluster.raft.types import (
    AppendEntries,
    AppendReply,
    Event,
    NodeId,
    PreVote,
    Propose,
    Quiescence,
    ReadIndex,
    Receive,
    RequestVote,
    Role,
    Silence,
    Wake,
)

FOUNDING_ENTRIES = 3
"""The first configuration, the first leader's empty entry, and its lease record."""


@dataclass(slots=True)
class Quiet:
    """A silence, at its leader or at a follower."""

    leader: NodeId
    term: int
    # The last index of the log, all of which was durable and committed when the silence began; it lasts no longer.
    index: int
    # At the leader when it first asked, at a follower when its leader sent the newest question; by the leader's clock.
    since_ns: int
    # At the leader: the members that have agreed. All of them, and it is asleep.
    answered: dict[NodeId, None] = field(default_factory=dict)
    asleep: bool = False


def hear(state: State) -> None:
    """Count what the nodes have told each other meanwhile; before every step, and before anybody asks for the lease."""
    quiet, liveness = state.quiet, state.liveness
    if quiet is None or liveness is None:
        return
    if quiet.leader != state.node_id:
        election.hear_silently(state, liveness.heard_ns(quiet.leader))
        return
    for peer in quiet.answered:
        progress, echoed_ns = state.progress.get(peer), liveness.echoed_ns(peer)
        if progress is not None:
            leader.note_contact(state, progress, echoed_ns, progress.acked_round, echoed_ns)
    if quiet.asleep:
        extension(state)  # its node closes timestamps by it, and asks each group only where something happens


def sleeps(state: State) -> bool:
    """Whether this replica needs no timer: an asleep leader, or a follower that has agreed."""
    quiet = state.quiet
    return quiet is not None and (quiet.asleep or quiet.leader != state.node_id)


def settle(state: State, event: Event, now_ns: int) -> None:
    """After every step: end a silence that what happened doesn't allow."""
    quiet = state.quiet
    led = state.role is Role.LEADER and state.term == state.asked_in_term
    if state.asked_in_term and not led:
        # Followers may be bound to this leadership still.
        state.asked_in_term = 0
        withdraw(state)
    elif quiet is None:
        return
    elif quiet.leader == state.node_id:
        if not at_rest(state) or wakes(state, event):
            resume(state)
            reaches_all = isinstance(event, Propose | ReadIndex)
            state.heartbeat_due_ns = now_ns + state.config.heartbeat_ns if reaches_all else now_ns
    elif isinstance(event, Wake) or not still_bound(state, quiet):
        withdraw(state)


def wakes(state: State, event: Event) -> bool:
    """A member that asks for votes has not heard of the leader."""
    if not isinstance(event, Receive):
        return isinstance(event, Wake)
    message = event.message
    return isinstance(message, PreVote | RequestVote) and message.source in state.progress


def resume(state: State) -> None:
    state.bound_until = promised(state)
    state.quiet = None
    state.out.rarely.quiescence = Quiescence(Silence.RESUMED, ())


def withdraw(state: State) -> None:
    state.bound_until = promised(state)
    state.quiet = None
    state.out.rarely.quiescence = Quiescence(Silence.WITHDRAWN, ())


# ---- the ends of leases ----


def extension(state: State) -> int:
    """Up to where the leader's lease lasts by the promises of all members, 0 for none; so every majority that elects
    another knows of it. What was promised once stands, also when the group speaks again.
    """
    quiet, liveness = state.quiet, state.liveness
    if quiet is not None and quiet.asleep and state.progress and liveness is not None:
        until = min([liveness.supported(peer) for peer in state.progress])
        if until > state.extended_until:
            state.extended_until = until
    return state.extended_until


def promised(state: State) -> int:
    """Up to where this replica has let leases last, its own and others', in this life."""
    until, quiet = max(state.bound_until, state.extended_until), state.quiet
    if quiet is None or quiet.leader == state.node_id or state.liveness is None:
        return until
    return max(until, state.liveness.promised(quiet.leader))


def promised_ever(state: State, until: int) -> int | None:
    """What this life has promised (`until`) or earlier ones; None while the clock can't tell."""
    if not state.restarted or state.liveness is None:
        return until
    before = state.liveness.before_start()
    return None if before is None else max(before, until)


def earlier_until(state: State) -> int | None:
    """Up to where leases of earlier leaders may last, as those who elected this one say; None where one can't tell.

    What this one is promised itself, in a silence that it falls into before it has a lease, says nothing of them: it
    would wait for what moves on as it waits.
    """
    own = promised_ever(state, state.elected_until)
    return None if own is None or state.granted_until is None else max(own, state.granted_until)


# ---- the leader ----


def at_rest(state: State) -> bool:
    """Everything is durable, committed and held by every member; nobody waits for anything."""
    last = state.log.last_index
    if not last == state.commit_index == state.durable_index or not reads.own_term_committed(state):
        return False
    if state.transfer_target is not None or state.handing_over or state.catch_up is not None:
        return False
    if state.round_reads or state.parked_reads:
        return False
    return all(each.match == last and each.mode is Mode.REPLICATE for each in state.progress.values())


def asks(state: State, now_ns: int) -> bool:
    """Whether the heartbeats that leave now ask for silence: the group has been at rest for a while, or is new.

    What was sent in the group at the moment of the first question asked for it too: nothing else was sent since the
    heartbeats before, or the group would not have been at rest.
    """
    if state.liveness is None or not state.config.quiesce_after_ns:
        return False
    mark = (state.term, state.log.last_index, state.read_round)
    if mark != state.rest_mark or not at_rest(state):
        state.rest_mark, state.rest_since_ns = mark, now_ns
        return False
    timeout_ns = state.config.election_timeout_ns
    if state.quiet is not None:
        # Asked again with each heartbeat until all have agreed; a member that doesn't in time ends the attempt.
        if now_ns - state.quiet.since_ns < timeout_ns:
            return True
        resume(state)
        state.rest_since_ns = now_ns
        return False
    heard = all(each.acked_ns >= now_ns - timeout_ns for each in state.progress.values())
    rest_ns = 0 if is_new(state) else state.config.quiesce_after_ns
    if not heard or now_ns - state.rest_since_ns < rest_ns:
        return False
    state.quiet = Quiet(state.node_id, state.term, state.log.last_index, now_ns, asleep=not state.progress)
    state.asked_in_term = state.term
    state.out.rarely.quiescence = Quiescence(Silence.LEADS, tuple(state.progress))
    return True


def kept_awake(state: State, now_ns: int) -> bool:
    """Whether the leader's group can't fall silent, however long it is at rest: nobody asks for that here, or a member
    does not answer, or lags so far behind that it is not sent what follows."""
    if state.liveness is None or not state.config.quiesce_after_ns:
        return True
    heard_ns = now_ns - state.config.election_timeout_ns
    return any(each.acked_ns < heard_ns or each.mode is not Mode.REPLICATE for each in state.progress.values())


def is_new(state: State) -> bool:
    """Whether nothing but its founding stands in the group's log: it is as likely as not that nobody uses it yet.

    Of a thousand groups that are founded together each would else cost as much at rest as it did until it was led.
    """
    return state.log.offset == 0 and state.log.last_index <= FOUNDING_ENTRIES


def on_answer(state: State, message: AppendReply) -> None:
    """A member may have agreed; an answer to an earlier question says nothing of this one."""
    quiet = state.quiet
    if quiet is None or not message.quiesced or message.sent_ns < quiet.since_ns:
        return
    quiet.answered[message.source] = None
    quiet.asleep = all(peer in quiet.answered for peer in state.progress)


# ---- a follower ----


def agree(state: State, message: AppendEntries) -> bool:
    """Fall silent, if this replica holds durably, and knows to be committed, all that its leader has."""
    last = state.log.last_index
    complete = message.prev_index == last == state.commit_index == state.durable_index
    if state.liveness is None or state.asked_in_term or not complete or not hard_state_is_durable(state):
        return False
    if state.quiet is None:
        state.quiet = Quiet(message.source, state.term, last, message.sent_ns)
        state.out.rarely.quiescence = Quiescence(Silence.FOLLOWS, (message.source,))
    state.quiet.since_ns = max(state.quiet.since_ns, message.sent_ns)
    return True


def on_ordinary(state: State, message: AppendEntries) -> None:
    """The leader speaks in the group again; what it had sent before it asked changes nothing."""
    quiet = state.quiet
    if quiet is not None and quiet.leader == message.source and message.sent_ns > quiet.since_ns:
        resume(state)


def still_bound(state: State, quiet: Quiet) -> bool:
    same = (state.role, state.term, state.leader) == (Role.FOLLOWER, quiet.term, quiet.leader)
    return same and state.log.last_index == state.commit_index == quiet.index

"""Replication, commitment, persistence and snapshots of the pure state machine, message by message."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cluster.raft.core import Raft, RaftConfig
from cluster.raft.leader import STEP_BYTES
from cluster.raft.log import Log
from cluster.raft.progress import NEVER_NS
from cluster.raft.types import (
    AppendEntries,
    AppendReply,
    Compact,
    Entry,
    EntryKind,
    HardState,
    InvariantBroken,
    Message,
    Persist,
    Persisted,
    PersistentState,
    PreVote,
    PreVoteReply,
    Propose,
    Ready,
    Receive,
    RequestVote,
    RequestVoteReply,
    Role,
    SnapshotAck,
    SnapshotChunk,
    SnapshotMeta,
    SnapshotReceived,
    Tick,
)
from cluster.wire.messages import GroupMessages, PeerEnvelope, decode_envelope, encode
from tests.cluster.raft.raft_rig import MS, RaftRig, founded

VOTERS = ("a", "b", "c")


def entry(index: int, term: int, data: bytes = b"") -> Entry:
    return Entry(term, index, EntryKind.COMMAND, data)


def snapshot_at(index: int, term: int) -> SnapshotMeta:
    return SnapshotMeta(index, term, founded(VOTERS))


def node(entries: tuple[Entry, ...] = (), term: int = 1, snapshot: SnapshotMeta | None = None, **options: Any) -> Raft:
    """`a`, whose log begins behind a snapshot that only says who the voters are."""
    base = snapshot or snapshot_at(0, 0)
    return Raft(
        RaftConfig("a", **options),
        PersistentState(HardState(term), base, entries),
        0,
        random.Random(1),
        restarted=False,
    )


def lead(raft: Raft, now_ns: int = 2_000 * MS) -> int:
    """Elect `a` by the votes of `b`; returns the time."""
    ready = raft.step(Tick(), now_ns)
    (asked, _) = ready.send_now
    ready = raft.step(Receive(granted(asked)), now_ns)
    assert ready.persist is not None
    raft.step(Persisted(ready.persist.sequence), now_ns)
    raft.step(Receive(granted(ready.persist.then_send[0])), now_ns)
    assert raft.role is Role.LEADER
    return now_ns


def granted(request: Message) -> Message:
    """The granting answer of `b` to a PreVote or RequestVote."""
    if isinstance(request, RequestVote):
        return RequestVoteReply("b", "a", request.term, True)
    assert isinstance(request, PreVote)
    return PreVoteReply("b", "a", request.term, True)


def appends(ready: Ready, target: str) -> list[AppendEntries]:
    return [each for each in ready.send_now if isinstance(each, AppendEntries) and each.target == target]


def acknowledge(raft: Raft, match: int, now_ns: int, source: str = "b") -> Ready:
    reply = AppendReply(source, "a", raft.term, True, match, 0, 0, now_ns, 0)
    return raft.step(Receive(reply), now_ns)


def test_a_leader_sends_before_its_own_fsync_but_does_not_count_itself() -> None:
    """§10.2.1: the leader may write to its disk in parallel; its log counts only once durable."""
    raft = node()
    now = lead(raft)
    acknowledge(raft, 1, now)
    ready = raft.step(Propose((b"x",)), now)
    assert [each.entries[-1].data for each in appends(ready, "b")] == [b"x"]
    assert ready.proposed == ((raft.term, 2),)
    assert acknowledge(raft, 2, now).apply == ()
    assert ready.persist is not None
    assert [each.data for each in raft.step(Persisted(ready.persist.sequence), now).apply] == [b"", b"x"]


def test_two_followers_commit_what_the_leader_has_not_written_yet() -> None:
    """§10.2.1: a quorum of others is a quorum."""
    raft = node()
    now = lead(raft)
    acknowledge(raft, 1, now, "b")
    assert len(acknowledge(raft, 1, now, "c").apply) == 1


def test_pipelining_keeps_the_window_full_and_batches_within_both_limits() -> None:
    """§10.2: optimistic next index, batches, and a bound on what is under way."""
    raft = node(max_batch_entries=2, max_inflight=2, max_batch_bytes=10)
    now = lead(raft)
    acknowledge(raft, 1, now)
    sent = []
    for size in (4, 4, 4, 11, 1):
        sent += appends(raft.step(Propose((b"x" * size,)), now), "b")
    assert [[each.index for each in message.entries] for message in sent] == [[2], [3]]
    sent = appends(acknowledge(raft, 2, now), "b")
    assert [[each.index for each in message.entries] for message in sent] == [[4]]
    sent = appends(acknowledge(raft, 4, now), "b")
    assert [[each.index for each in message.entries] for message in sent] == [[5], [6]]


def test_commands_are_taken_while_a_quorum_was_sent_all_but_one_batch() -> None:
    """§10.2.1: what can't be sent yet is better refused, which it can't be once it is in the log."""
    raft = node(max_batch_entries=2, max_inflight=1)
    now = lead(raft)
    assert filled(raft, now) == 2, "two go with the first probe, whoever answers it"
    acknowledge(raft, 1, now)
    assert filled(raft, now) == 3, "two are under way, two come next, and the last is one more than they carry"
    acknowledge(raft, 3, now, "c")
    assert raft.takes_commands, "one follower is a quorum with the leader"


def test_a_follower_that_is_probed_was_not_sent_what_it_lacks() -> None:
    """Seeds 49 and 51 of `snapshot-race`: each lost message let all that waited, thousands of commands, into the log,
    which then took a minute to be committed."""
    raft = node(max_batch_entries=2, max_inflight=2)
    now = lead(raft)
    for follower in ("b", "c"):
        acknowledge(raft, 1, now, follower)
    filled(raft, now)
    for follower in ("b", "c"):
        refusal = AppendReply(follower, "a", raft.term, False, 3, 1, raft.term, now, 0)
        (probe,) = appends(raft.step(Receive(refusal), now), follower)
        assert (probe.prev_index, len(probe.entries)) == (1, 2)
    assert not raft.takes_commands
    acknowledge(raft, raft.last_index, now)
    assert raft.takes_commands


def filled(raft: Raft, now_ns: int, most: int = 50) -> int:
    """Propose one command after the other while it takes any; how many those were."""
    for count in range(most):
        if not raft.takes_commands:
            return count
        raft.step(Propose((b"x",)), now_ns)
    return most


def test_a_refusal_makes_the_leader_probe_past_the_conflicting_term() -> None:
    """§3.5: one message for each conflicting term, not for each entry."""
    raft = node((entry(1, 1), entry(2, 1), entry(3, 1), entry(4, 5), entry(5, 5)), term=5)
    now = lead(raft)
    refusal = AppendReply("b", "a", raft.term, False, 5, 5, 3, now, 0)
    (probe,) = appends(raft.step(Receive(refusal), now), "b")
    assert (probe.prev_index, probe.prev_term, len(probe.entries)) == (3, 1, 3)
    assert appends(raft.step(Receive(refusal), now), "b") == [], "a duplicate of the refusal is stale"
    assert appends(raft.step(Propose((b"x",)), now), "b") == [], "one probe at a time"


def test_a_follower_acknowledges_when_durable_and_only_what_is_durable() -> None:
    """Nothing leaves before what it states is durable (§3.8)."""
    raft = node()
    append = AppendEntries("b", "a", 1, 0, 0, (entry(1, 1), entry(2, 1)), 0, 7, 3)
    first = raft.step(Receive(append), 0)
    assert first.send_now == () and first.persist is not None
    assert [each.match for each in first.persist.then_send if isinstance(each, AppendReply)] == [2]
    again = raft.step(Receive(append), 0)
    assert again.send_now == (AppendReply("a", "b", 1, True, 0, 0, 0, 7, 3),) and again.persist is None
    late = raft.step(Persisted(first.persist.sequence), 0)
    assert late.send_now == (AppendReply("a", "b", 1, True, 2, 0, 0, 7, 3),)


def test_a_later_term_is_durable_before_it_is_answered() -> None:
    """§3.8: and an answer that comes meanwhile keeps its place behind the write."""
    raft = node(term=1)
    first = raft.step(Receive(AppendEntries("b", "a", 4, 0, 0, (), 0, 7, 3)), 0)
    assert first.send_now == () and first.persist is not None
    assert first.persist.hard_state == HardState(4, None, 0)
    second = raft.step(Receive(AppendEntries("b", "a", 4, 0, 0, (), 0, 8, 3)), 0)
    assert second.send_now == () and second.persist is not None
    assert (second.persist.hard_state, second.persist.entries) == (None, ())


def test_conflicting_entries_are_replaced_and_no_longer_count_as_durable() -> None:
    """§3.5: an existing entry that conflicts with a new one goes, and all that follow it."""
    raft = node((entry(1, 1), entry(2, 1), entry(3, 1)))
    ready = raft.step(Receive(AppendEntries("b", "a", 2, 1, 1, (entry(2, 2, b"new"),), 0, 0, 0)), 0)
    assert ready.persist is not None
    assert ready.persist.entries == (entry(2, 2, b"new"),)
    assert raft.last_index == 2
    heartbeat = AppendEntries("b", "a", 2, 2, 2, (), 0, 0, 0)
    (reply,) = raft.step(Receive(heartbeat), 0).persist.then_send  # type: ignore[union-attr]
    assert isinstance(reply, AppendReply) and reply.match == 1


def test_old_entries_that_agree_truncate_nothing() -> None:
    """§3.5: a delayed AppendEntries must not drop what came after it."""
    raft = node((entry(1, 1), entry(2, 1), entry(3, 1)))
    ready = raft.step(Receive(AppendEntries("b", "a", 1, 0, 0, (entry(1, 1),), 3, 0, 0)), 0)
    assert raft.last_index == 3
    assert raft.commit_index == 1, "only what this message vouches for is known to be committed"
    assert len(ready.apply) == 1


def test_a_follower_that_is_to_truncate_what_is_committed_stops() -> None:
    """§3.6.3: every later leader holds what is committed; here someone has lost it, and silence would spread that."""
    raft = node((entry(1, 1), entry(2, 1), entry(3, 1)))
    raft.step(Receive(AppendEntries("b", "a", 1, 3, 1, (), 2, 0, 0)), 0)
    assert raft.commit_index == 2
    with pytest.raises(InvariantBroken, match="replaces entry 2, but 2 are committed"):
        raft.step(Receive(AppendEntries("c", "a", 2, 1, 1, (entry(2, 2),), 0, 0, 0)), 0)
    assert (raft.last_index, raft.commit_index) == (3, 2), "nothing was touched"


def has_it_up_to(match: int, term: int) -> AppendReply:
    return AppendReply("a", "b", term, True, match, 0, 0, NEVER_NS, 0)


def test_a_snapshot_replaces_a_log_that_does_not_hold_its_last_entry() -> None:
    """§5.1, figure 5.3: discard the entire log, install, and answer when durable."""
    raft = node((entry(1, 1), entry(2, 1), entry(3, 1)))
    ready = raft.step(SnapshotReceived("b", 2, snapshot_at(2, 2)), 0)
    assert ready.install == snapshot_at(2, 2) and ready.persist is not None
    assert (ready.persist.snapshot, ready.persist.entries) == (snapshot_at(2, 2), ())
    assert has_it_up_to(2, 2) in ready.persist.then_send
    assert (raft.last_index, raft.last_term, raft.commit_index) == (2, 2, 2)


def test_a_snapshot_of_what_the_log_holds_only_commits() -> None:
    """Figure 5.3, step 6: entries that follow are kept."""
    raft = node((entry(1, 1), entry(2, 1), entry(3, 1)))
    ready = raft.step(SnapshotReceived("b", 1, snapshot_at(2, 1)), 0)
    assert (ready.install, ready.persist, len(ready.apply), raft.last_index) == (None, None, 2, 3)
    assert ready.send_now == (has_it_up_to(2, 1),)


def test_a_snapshot_of_a_deposed_leader_is_not_used() -> None:
    """Figure 5.3, step 1."""
    raft = node(term=3)
    assert raft.step(SnapshotReceived("b", 2, snapshot_at(2, 2)), 0).install is None


def test_restart_from_a_snapshot_ignores_entries_it_covers() -> None:
    raft = node((entry(2, 1), entry(3, 1), entry(4, 1)), snapshot=snapshot_at(3, 1))
    assert (raft.first_index, raft.last_index, raft.commit_index) == (4, 4, 3)


def test_compaction_keeps_entries_for_followers_that_lag_a_little() -> None:
    raft = node(tuple(entry(index, 1) for index in range(1, 8)), retained_entries=2)
    raft.step(Receive(AppendEntries("b", "a", 1, 7, 1, (), 6, 0, 0)), 0)
    raft.step(Compact(snapshot_at(7, 1)), 0)
    assert raft.first_index == 1, "nothing is dropped that isn't applied"
    raft.step(Compact(snapshot_at(6, 1)), 0)
    assert (raft.first_index, raft.last_index) == (5, 7)


def test_a_follower_that_lost_acknowledged_entries_is_repaired() -> None:
    """A broken disk (or a flaw) must not wedge the pair for ever."""
    rig = RaftRig(flaws=("raft-ack-before-fsync",))
    rig.elect("a")
    rig.nodes["b"].fsync_ns = 10_000 * MS
    rig.propose("a", b"x")
    rig.run(150)
    rig.crash("b")
    rig.nodes["b"].fsync_ns = MS
    rig.start("b")
    rig.run(500)
    assert rig.commands("b") == [b"x"]


@pytest.mark.parametrize("index, term, expected", [(9, 9, 5), (5, 2, 4), (5, 1, 2), (4, 0, 0), (1, 1, 1)])
def test_where_two_logs_may_first_agree(index: int, term: int, expected: int) -> None:
    log = Log(0, 0, [entry(1, 1), entry(2, 1), entry(3, 2), entry(4, 2), entry(5, 4)])
    assert log.last_index_at_or_below(index, term) == expected


def test_misdirected_messages_are_ignored() -> None:
    raft = node()
    for source, target in (("b", "c"), ("a", "a")):
        ready = raft.step(Receive(RequestVote(source, target, 9, 9, 9, False)), 0)
        assert (ready.send_now, ready.persist, raft.term) == ((), None, 1)


def test_messages_survive_the_wire() -> None:
    message = AppendEntries("a", "b", 3, 1, 1, (entry(2, 3, b"x"),), 1, -5, 2)
    chunk = SnapshotChunk("a", "b", 3, snapshot_at(2, 2), 0, b"part", False)
    messages = (message, chunk, SnapshotAck("b", "a", 3, 2, 2, 4, False))
    envelope = PeerEnvelope("a", 1, 0, 7, (GroupMessages("group", messages),))
    assert decode_envelope(encode(envelope)) == envelope


def test_proposals_are_refused_by_all_but_the_leader() -> None:
    raft = node()
    assert raft.step(Propose((b"x",)), 0).proposed is None
    assert raft.last_index == 0
    now = lead(raft)
    assert raft.step(Propose((b"x", b"y")), now).proposed == ((2, 2), (2, 3))
    persist = raft.step(Propose((b"z",)), now).persist
    assert isinstance(persist, Persist) and [each.data for each in persist.entries] == [b"z"]


def test_a_follower_far_behind_gets_its_entries_in_several_steps() -> None:
    """One step sends a few megabytes, and each answer lets more go until all is sent."""
    raft = node(max_batch_bytes=1 << 20)
    now = lead(raft)
    acknowledge(raft, 1, now)
    messages = appends(raft.step(Propose(tuple(bytes(1 << 20) for _ in range(12))), now), "b")
    sent: list[int] = []
    while messages:
        assert sum(len(entry.data) for message in messages for entry in message.entries) <= STEP_BYTES + (1 << 20)
        sent += [entry.index for message in messages for entry in message.entries]
        messages = appends(acknowledge(raft, sent[-1], now), "b")
    assert sent == list(range(2, 14))


def test_only_who_has_answered_nothing_for_an_interval_gets_a_heartbeat() -> None:
    """Figure 3.1: heartbeats "during idle periods". `b` answers entries, `c` is silent: its lease needs asking for."""
    raft = node(heartbeat_ns=100 * MS)
    now_ns = lead(raft)
    for _ in range(10):
        now_ns += 30 * MS
        raft.step(Propose((b"x",)), now_ns)
        raft.step(Receive(AppendReply("b", "a", raft.term, True, raft.last_index, 0, 0, now_ns, 0)), now_ns + MS)
    ready = raft.step(Tick(), now_ns + 20 * MS)
    assert (len(appends(ready, "b")), len(appends(ready, "c"))) == (0, 1)
    assert ready.wake_ns == now_ns + 100 * MS, "the answer is as old as a heartbeat may be"
    assert [each.entries for each in appends(raft.step(Tick(), now_ns + 100 * MS), "b")] == [()]

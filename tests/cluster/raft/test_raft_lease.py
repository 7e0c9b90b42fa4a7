"""Leases, linearizable reads and leadership transfer (§3.10, §4.2.3, §6.2, §6.4)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cluster.raft.core import Raft, RaftConfig
from cluster.raft.types import (
    AppendEntries,
    AppendReply,
    HardState,
    Message,
    Persisted,
    PersistentState,
    PreVote,
    PreVoteReply,
    Receive,
    RequestVote,
    RequestVoteReply,
    Role,
    SnapshotMeta,
    Tick,
    TimeoutNow,
)
from tests.cluster.raft.raft_rig import MS, Node, RaftRig, founded

VOTERS = ("a", "b", "c")
LEASE_NS = 600 * MS


def voter(restarted: bool = False, term: int = 1) -> Raft:
    config = RaftConfig("b", lease_ns=LEASE_NS)
    base = SnapshotMeta(0, 0, founded(VOTERS))
    return Raft(config, PersistentState(HardState(term), base), 0, random.Random(1), restarted)


def answers(raft: Raft, message: Message, now_ns: int) -> list[Message]:
    """What a node sends in answer to a message, durable or not."""
    ready = raft.step(Receive(message), now_ns)
    return [*ready.send_now, *(ready.persist.then_send if ready.persist else ())]


def heartbeat(term: int, now_ns: int = 0) -> AppendEntries:
    return AppendEntries("a", "b", term, 0, 0, (), 0, now_ns, 0)


def test_a_voter_in_contact_with_a_leader_keeps_vote_and_term() -> None:
    """§4.2.3: within a lease of hearing from a leader, neither vote nor term change."""
    raft = voter()
    answers(raft, heartbeat(1), 0)
    assert answers(raft, RequestVote("c", "b", 2, 9, 9, False), LEASE_NS - 1) == []
    assert answers(raft, PreVote("c", "b", 2, 9, 9), LEASE_NS - 1) == [PreVoteReply("b", "c", 1, False)]
    assert raft.term == 1
    assert answers(raft, PreVote("c", "b", 2, 9, 9), LEASE_NS) == [PreVoteReply("b", "c", 2, True)]
    assert answers(raft, RequestVote("c", "b", 2, 9, 9, False), LEASE_NS) == [RequestVoteReply("b", "c", 2, True)]


def test_a_transfer_vote_passes_the_lease() -> None:
    """§3.10, §4.2.3: the old leader gave its lease up before it asked the target to stand."""
    raft = voter()
    answers(raft, heartbeat(1), 0)
    assert answers(raft, RequestVote("c", "b", 2, 9, 9, True), 1) == [RequestVoteReply("b", "c", 2, True)]


def test_a_restarted_voter_is_silent_for_one_lease() -> None:
    """§6.4.1: it may have acknowledged a leader's lease just before it crashed."""
    raft = voter(restarted=True)
    assert answers(raft, RequestVote("c", "b", 2, 9, 9, False), LEASE_NS - 1) == []
    assert answers(raft, RequestVote("c", "b", 2, 9, 9, False), LEASE_NS) == [RequestVoteReply("b", "c", 2, True)]


def test_a_first_start_needs_no_silence() -> None:
    assert answers(voter(), RequestVote("c", "b", 2, 9, 9, False), 0) == [RequestVoteReply("b", "c", 2, True)]


def leader_lease_end_ns(rig: RaftRig, name: str) -> int:
    """The real time from now at which the node's lease is out, if it hears nothing more."""
    node = rig.nodes[name]
    return next(after for after in range(0, 2_000 * MS, MS // 4) if not held(rig, node, after))


def held(rig: RaftRig, node: Node, after_ns: int) -> bool:
    return rig.raft(node.name).lease_valid(node.clock_ns(rig.now_ns + after_ns))


def test_the_lease_runs_from_the_send_time_of_the_acknowledged_round() -> None:
    """§6.4.1: a slow answer earns no longer lease than a quick one, and the drift bound shortens it."""
    rig = RaftRig()
    rig.elect("a")
    rig.asleep = ["b", "c"]
    rig.delay_ns = lambda: 40 * MS
    rig.run(1_000)
    lease_ns = int(600 * MS * 0.99 / 1.01)
    round_trip_ns = 80 * MS
    heartbeat_ns = 100 * MS
    left_ns = leader_lease_end_ns(rig, "a")
    assert lease_ns - round_trip_ns - heartbeat_ns - MS <= left_ns <= lease_ns - round_trip_ns + MS


def race(declared_drift: float) -> list[str]:
    """Cut the leader off, its clock slow and the others' fast by a tenth, with voters that stand at once."""
    violations: list[str] = []
    for seed in range(12):
        rig = RaftRig(seed=seed, max_clock_drift=declared_drift)
        rig.elect("a")
        for name in rig.names:
            rig.set_rate(name, 0.9 if name == "a" else 1.1)
        rig.run(300)
        rig.isolate("a")
        rig.run(1_500)
        violations += rig.violations
    return violations


def test_leases_stay_disjoint_up_to_the_declared_drift() -> None:
    assert race(0.1) == []
    assert any(violation.startswith("lease disjointness") for violation in race(0.0))


def test_a_new_leader_serves_nothing_before_its_own_entry_is_committed() -> None:
    """§6.4: until then it doesn't know what is committed."""
    rig = RaftRig()
    rig.elect("a")
    rig.stand("a")
    rig.crash("a")
    rig.stand("b")
    rig.run_until(lambda: rig.raft("b").role is Role.LEADER)
    context = rig.read("b")
    assert context not in rig.reads
    rig.run(50)
    assert (rig.reads[context] or 0) >= rig.raft("b")._state.leader_entry_index
    assert rig.violations == []


def test_echoes_of_another_term_or_incarnation_extend_no_lease() -> None:
    """A reply counts in the term it was sent for, and times that this leadership didn't send don't count."""
    rig = RaftRig()
    rig.elect("a")
    rig.isolate("a")
    rig.run(700)
    raft, node = rig.raft("a"), rig.nodes["a"]
    now_ns = node.clock_ns(rig.now_ns)
    assert not raft.lease_valid(now_ns)
    last = raft.last_index
    for term, sent_ns in ((raft.term - 1, now_ns), (raft.term, now_ns + 10**12), (raft.term, now_ns - 2_000 * MS)):
        reply = AppendReply("b", "a", term, True, last, 0, 0, sent_ns, 0)
        raft.step(Receive(reply), now_ns)
        assert not raft.lease_valid(now_ns)
    raft.step(Receive(AppendReply("b", "a", raft.term, True, last, 0, 0, now_ns, 0)), now_ns)
    assert raft.lease_valid(now_ns)


def test_a_refusal_by_a_later_term_echoes_no_time() -> None:
    """The asker may lead that later term by the time it arrives, with another clock."""
    raft = voter(term=5)
    (reply,) = answers(raft, heartbeat(3, now_ns=77), 0)
    assert isinstance(reply, AppendReply) and not reply.success
    assert reply.sent_ns < 0 and reply.read_round == 0


def test_reads_without_a_lease_wait_for_a_round_that_starts_after_them() -> None:
    """§6.4: read-index; reads that come while a round is under way share the next one."""
    rig = RaftRig(lease_ns=120 * MS)
    rig.elect("a")
    rig.delay_ns = lambda: 200 * MS
    rig.run(500)
    assert not rig.raft("a").lease_valid(rig.nodes["a"].clock_ns(rig.now_ns))
    first, second = rig.read("a"), rig.read("a")
    rounds = [read_round for read_round, _, _ in rig.raft("a")._state.round_reads]
    assert rounds == [1, 2]
    rig.run(1_000)
    assert None not in (rig.reads[first], rig.reads[second])
    assert rig.violations == []


def test_a_leader_without_quorum_steps_down_in_the_end() -> None:
    """§6.2: and until then it leads, with no lease."""
    rig = RaftRig()
    rig.elect("a")
    rig.isolate("a")
    context = rig.read("a")
    assert rig.reads[context] is not None
    rig.run(2_200)
    assert rig.raft("a").role is Role.LEADER
    late = rig.read("a")
    assert late not in rig.reads
    rig.run(300)
    assert rig.raft("a").role is not Role.LEADER
    assert rig.reads[late] is None


def test_transfer_gives_the_lease_up_first_and_moves_leadership() -> None:
    """§3.10: within a round trip, with no election timeout waited for."""
    rig = RaftRig()
    rig.elect("a")
    term = rig.raft("a").term
    rig.transfer("a", "c")
    assert not rig.raft("a").lease_valid(rig.nodes["a"].clock_ns(rig.now_ns))
    assert not rig.propose("a", b"x")
    parked = rig.read("a")
    assert parked not in rig.reads
    rig.run(50)
    assert rig.leader() == "c"
    assert rig.raft("c").term == term + 1
    assert rig.reads[parked] is None
    assert rig.violations == []


def test_after_an_abandoned_transfer_a_leader_leads_on_in_a_new_term() -> None:
    """TimeoutNow may be under way still: in the old term no lease can be held again, in the new one it is ignored."""
    rig = RaftRig()
    rig.elect("a")
    term = rig.raft("a").term
    rig.transfer("a", "c")
    (late,) = [flight for flight in rig.flights if isinstance(flight.message, TimeoutNow)]
    rig.cut("a", "c")
    parked = rig.read("a")
    rig.run(700)
    assert rig.reads[parked] is not None
    rig.run(100)
    assert (rig.raft("a").role, rig.raft("a").term) == (Role.LEADER, term + 1)
    assert rig.propose("a", b"x")
    rig.run(100)
    assert rig.raft("a").lease_valid(rig.nodes["a"].clock_ns(rig.now_ns))
    rig.heal()
    rig.run(150)
    rig.flights.append(late)
    rig.run(100)
    assert rig.leader() == "a"
    assert rig.violations == []


def test_a_stale_timeout_now_is_ignored() -> None:
    raft = voter(term=5)
    assert answers(raft, TimeoutNow("a", "b", 4), 0) == []
    assert raft.role is Role.FOLLOWER


def test_pre_vote_spares_a_live_leader() -> None:
    """§9.6: a node that was cut off comes back without raising anybody's term."""
    rig = RaftRig()
    rig.elect("a")
    term = rig.raft("a").term
    rig.isolate("c")
    rig.run(5_000)
    assert rig.raft("c").term == term
    rig.heal()
    rig.run(500)
    assert (rig.leader(), rig.raft("c").term, rig.raft("c").leader) == ("a", term, "a")


def test_single_voter_leads_by_itself() -> None:
    base = SnapshotMeta(0, 0, founded("a"))
    raft = Raft(RaftConfig("a"), PersistentState(HardState(), base), 0, random.Random(1), False)
    ready = raft.step(Tick(), 2_000 * MS)
    assert ready.persist is not None and raft.role is Role.CANDIDATE, "its own vote counts once it is durable (§3.8)"
    ready = raft.step(Persisted(ready.persist.sequence), 2_000 * MS)
    assert raft.role is Role.LEADER and ready.persist is not None
    assert len(raft.step(Persisted(ready.persist.sequence), 2_000 * MS).apply) == 1
    assert raft.lease_valid(9_000 * MS)


@pytest.mark.parametrize(
    "options",
    [
        {"lease_ns": 700 * MS},
        {"heartbeat_ns": 600 * MS},
        {"max_clock_drift": 1.0},
        {"max_inflight": 0},
        {"catch_up_rounds": 0},
    ],
)
def test_configurations_that_cannot_keep_the_rules_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        RaftConfig(node_id="a", **options)


def test_a_candidate_that_came_within_the_lease_asks_again_soon() -> None:
    """`b` stands a moment before `c` may elect anybody; a pre-vote disturbs nobody, so `b` need not wait a timeout."""
    rig = RaftRig(3)
    rig.elect("a")
    rig.raft("b")._state.election_timeout_ns = 600 * MS
    rig.raft("c")._state.election_timeout_ns = 1_200 * MS
    rig.run(150)
    rig.cut("a", "b")
    rig.run(120)
    rig.crash("a")
    assert rig.run_until(lambda: rig.raft("b").role is Role.PRE_CANDIDATE, 600)
    rig.run(10)
    assert rig.raft("b").role is Role.PRE_CANDIDATE, "c still keeps its promise"
    assert rig.run_until(lambda: rig.raft("b").role is Role.LEADER, 300)


def test_a_leader_that_is_heard_and_hears_nobody_tells_an_age_that_grows() -> None:
    """M13: age counts from the last round that a quorum acknowledged, not from a heartbeat that arrived."""
    rig = RaftRig()
    rig.elect("a")
    rig.propose("a", b"x")
    rig.run(300)

    def as_of() -> tuple[int, int] | None:
        return rig.raft("a").committed_as_of(rig.nodes["a"].clock_ns(rig.now_ns))

    known = as_of()
    assert known is not None and known[0] == rig.raft("a").commit_index and known[1] < 150 * MS
    assert rig.raft("b").committed_as_of(rig.now_ns) is None, "only a leader can tell"
    for name in ("b", "c"):
        rig.cut(name, "a")
    rig.run(1_000)
    grown = as_of()
    assert rig.raft("a").role is Role.LEADER and rig.raft("b").leader == "a"
    assert grown is not None and grown[0] == known[0] and grown[1] >= 900 * MS
    rig.run(4_000)
    assert as_of() is None


def asked_by(rig: RaftRig, name: str, seconds: int) -> int:
    """In how many instants so long from now the node sends pre-votes."""
    found = 0
    for _ in range(seconds * 1_000):
        before = rig.sent
        rig.run(1)
        found += rig.sent > before
    return found


def test_a_candidate_that_nobody_answers_asks_less_and_less() -> None:
    """A node that is cut off has every group of its ask; a refusal, in contrast, is worth asking again for soon."""
    rig = RaftRig(3)
    rig.elect("a")
    rig.crash("a", "c")
    assert rig.run_until(lambda: rig.raft("b").role is Role.PRE_CANDIDATE, 2_000)
    rig.run(3_000)
    assert asked_by(rig, "b", 30) <= 30_000 / 600
    rig.start("c")
    rig.elect("b")

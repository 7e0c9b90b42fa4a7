"""Changes of the configuration (§4.1 to §4.2.3): when it is in force, who counts, who may be elected, who disturbs."""

from __future__ import annotations

import pytest
from raft_bench import MS, Bench

from cluster.raft.types import ChangeKind, ChangeResult, OpId, PreVote, PreVoteReply, Reason, RequestVote, Role

ADD, PROMOTE, DEMOTE, REMOVE = ChangeKind.ADD_LEARNER, ChangeKind.PROMOTE, ChangeKind.DEMOTE, ChangeKind.REMOVE


def led(size: int = 3, spares: int = 1, **options: int) -> Bench:
    """A group that `a` leads."""
    bench = Bench(size, spares=spares, **options)
    bench.elect("a")
    return bench


def asked(bench: Bench, kind: ChangeKind, server_id: str, expected: OpId | None = None) -> ChangeResult:
    """A change asked of `a`, with its result, which is there at once but for a promotion's."""
    return bench.changes[bench.change("a", kind, server_id, expected)]


def done(bench: Bench, kind: ChangeKind, server_id: str) -> None:
    """A change made by `a`, and committed."""
    context = bench.change("a", kind, server_id)
    assert bench.run_until(lambda: context in bench.changes), f"{kind} {server_id} has no end"
    assert bench.changes[context].position is not None, bench.changes[context].message
    bench.run(150)


def outrun(rounds: int) -> tuple[Bench, int]:
    """`a` leads and promotes `d`, whose disk is too slow for what is written; with the promotion's context."""
    bench = led(catch_up_rounds=rounds, max_batch_entries=1, max_inflight=1)
    done(bench, ADD, "d")
    bench.nodes["d"].fsync_ns = 700 * MS
    bench.propose("a", b"first")
    return bench, bench.change("a", PROMOTE, "d")


def test_a_configuration_is_in_force_when_appended_and_goes_back_with_a_truncation() -> None:
    """§4.1: a server always uses the latest configuration in its log, regardless of whether it is committed."""
    bench = led()
    bench.isolate("a")
    position = asked(bench, ADD, "d").position
    assert bench.raft("a").configuration.op_id == position
    assert bench.raft("a").committed_configuration.learner_ids == ()
    bench.elect("b")
    bench.heal()
    bench.run(300)
    assert bench.raft("a").configuration == bench.raft("b").configuration
    assert bench.raft("a").configuration.learner_ids == ()
    assert bench.violations == []


def test_one_change_at_a_time_compare_and_set_and_only_what_makes_sense() -> None:
    bench = led()
    first = bench.raft("a").configuration.op_id
    assert asked(bench, ADD, "d").position is not None
    assert asked(bench, ADD, "e").reason is Reason.BUSY
    bench.run(150)
    stale = asked(bench, REMOVE, "b", first)
    assert (stale.reason, stale.message) == (Reason.STALE, "the configuration is that of term 2, index 3")
    for kind, server_id, message in (
        (ADD, "d", "d is a member already"),
        (ADD, "b", "b is a member already"),
        (PROMOTE, "b", "b is no learner"),
        (DEMOTE, "d", "d is no voter"),
        (REMOVE, "x", "x is no member"),
    ):
        result = asked(bench, kind, server_id)
        assert (result.reason, result.message) == (Reason.INVALID, message)
    assert bench.changes[bench.change("b", REMOVE, "a")].reason is Reason.NOT_THE_LEADER


def test_a_change_that_would_lose_the_quorum_is_refused() -> None:
    bench = led(size=3)
    bench.crash("c")
    bench.run(2_500)
    result = asked(bench, REMOVE, "b")
    assert result.reason is Reason.LOSES_QUORUM
    assert result.message == "of the 2 voters that would be left only 1 are in contact with the leader"
    done(bench, REMOVE, "c")
    done(bench, REMOVE, "b")
    assert asked(bench, REMOVE, "a").message == "the group would be left without voters"
    assert bench.propose("a", b"alone") and bench.violations == []
    bench.run(20)
    assert bench.commands("a") == [b"alone"]


def test_learners_count_for_nothing() -> None:
    """§4.2.1: non-voting members get the log and are not counted for voting or commitment."""
    bench = led(spares=2)
    done(bench, ADD, "d")
    done(bench, ADD, "e")
    bench.isolate("b", "c")
    bench.propose("a", b"x")
    bench.run(800)
    assert bench.raft("d").last_index == bench.raft("e").last_index == bench.raft("a").last_index
    assert bench.commands("a") == [], "a, d and e hold it; a alone votes"
    assert not bench.raft("a").lease_valid(bench.nodes["a"].clock_ns(bench.now_ns))
    bench.run(2_500)
    assert bench.raft("a").role is not Role.LEADER, "learners keep nobody in office"
    bench.crash("a")
    bench.run(3_000)
    assert all(bench.raft(name).role is Role.FOLLOWER for name in "de"), "and they never stand"


def test_a_server_without_a_configuration_waits_and_answers() -> None:
    """RPCs are processed whatever the own configuration says (§4.1); on its own authority it does nothing (G1)."""
    bench = led()
    bench.run(5_000)
    assert (bench.raft("d").role, bench.raft("d").term) == (Role.FOLLOWER, 0)
    bench.take_in("d", RequestVote("a", "d", 7, 9, 2, False))
    bench.persist("d")
    assert bench.nodes["d"].disk_hard.vote == "a"


def test_a_learner_far_behind_is_promoted_after_it_has_caught_up() -> None:
    bench = led(retained_entries=0)
    for number in range(20):
        bench.propose("a", b"%d" % number)
    bench.run(200)
    bench.compact("a")
    done(bench, ADD, "d")
    done(bench, PROMOTE, "d")
    assert bench.raft("d").configuration.voter_ids == ("a", "b", "c", "d")
    assert bench.commands("d") == bench.commands("a")
    assert bench.violations == []


def test_a_learner_that_cannot_catch_up_is_not_promoted() -> None:
    """§4.2.1: rounds that stay longer than an election timeout, or a server that doesn't answer."""
    bench, context = outrun(rounds=3)
    assert context not in bench.changes
    assert asked(bench, REMOVE, "b").reason is Reason.BUSY
    while context not in bench.changes:
        bench.propose("a", b"more")
        bench.run(100)
    assert bench.changes[context].message == "d has not caught up in 3 rounds"
    bench.crash("d")
    bench.propose("a", b"unheard")
    silent = bench.change("a", PROMOTE, "d")
    bench.run(2_900)
    assert bench.changes[silent].message == "d does not answer"
    assert bench.raft("a").configuration.learner_ids == ("d",)


def test_a_learner_that_is_catching_up_can_be_removed() -> None:
    """Seed 576 of a swarm: writes outran a learner for 35 s, and nobody could take back that it was to be promoted."""
    bench, promotion = outrun(rounds=10)
    assert asked(bench, REMOVE, "d", OpId(1, 1)).reason is Reason.STALE
    assert promotion not in bench.changes
    done(bench, REMOVE, "d")
    assert bench.changes[promotion].reason is Reason.NOT_CAUGHT_UP
    assert bench.raft("a").configuration.learner_ids == ()
    done(bench, ADD, "d")
    assert bench.violations == []


def test_a_removed_leader_leads_until_its_removal_is_committed() -> None:
    """§4.2.2: it doesn't count itself, and steps down then; figure 4.6: until then it may be needed."""
    bench = led()
    bench.isolate("a")
    assert asked(bench, REMOVE, "a").position is not None
    bench.run(100)
    assert bench.raft("a").role is Role.LEADER
    bench.heal()
    bench.run(200)
    assert bench.raft("a").role is Role.FOLLOWER
    heir = bench.leader()
    assert heir != "a" and bench.raft(heir).configuration.voter_ids == ("b", "c")
    bench.run(3_000)
    assert bench.raft("a").term == bench.raft(heir).term or bench.raft("a").role is Role.FOLLOWER
    assert bench.violations == []


def test_a_server_outside_its_own_configuration_may_have_to_be_elected() -> None:
    """Figure 4.6: `a` alone holds the entry that removes it, and its log keeps `b` from being elected."""
    bench = led(size=2, spares=0)
    bench.isolate("a")
    assert asked(bench, REMOVE, "a").position is not None
    bench.run(10)
    bench.crash("a")
    bench.start("a")
    bench.heal()
    bench.asleep = ["b"]
    assert bench.run_until(lambda: bench.raft("a").role is Role.LEADER, 3_000, grain=1)
    bench.wake_all()
    bench.run(100)
    assert (bench.leader(), bench.raft("b").configuration.voter_ids) == ("b", ("b",))
    assert bench.violations == []


@pytest.mark.parametrize("flaw", ["", "voters-ignore-lease"])
def test_a_removed_server_cannot_disturb_although_its_log_would_win_a_pre_vote(flaw: str) -> None:
    """§4.2.3, figure 4.7: `d` is removed, and its log is as good as that of `b`, which hasn't got the entry yet."""
    bench = Bench(size=4, flaws=(flaw,))
    bench.elect("a")
    bench.run(100)
    bench.cut("a", "b")
    assert asked(bench, REMOVE, "d").position is not None
    term, last = bench.raft("d").term, bench.raft("d").last_index
    assert bench.raft("b").last_index == last
    bench.take_in("b", PreVote("d", "b", term + 1, last, term))
    (answer,) = [flight.message for flight in bench.flights if isinstance(flight.message, PreVoteReply)]
    bench.take_in("b", RequestVote("d", "b", term + 1, last, term, False))
    disturbed = (answer.granted, bench.raft("b").term)
    assert disturbed == ((True, term + 1) if flaw else (False, term))


def test_a_snapshot_carries_the_configuration() -> None:
    bench = led(retained_entries=0)
    done(bench, ADD, "d")
    bench.compact("a")
    assert bench.nodes["a"].disk_snapshot is not None
    assert bench.nodes["a"].disk_snapshot.meta.configuration == bench.raft("a").configuration
    bench.crash("a")
    bench.start("a")
    assert bench.raft("a").configuration.learner_ids == ("d",)


def test_a_leader_that_hands_over_tries_every_healthy_voter_until_one_takes_over() -> None:
    """Item 5 of the ground: it was tried once, with one voter, and that one was cut off."""
    bench = led(size=5, spares=0)
    bench.run(200)
    for deaf in "bcd":
        bench.cut("a", deaf)
    bench.hand_over("a")
    bench.run(5_000)
    assert bench.leader() == "e"
    assert bench.violations == []


def test_a_hand_over_can_be_taken_back() -> None:
    bench = led(size=3, spares=0)
    bench.isolate("a")
    bench.hand_over("a")
    assert not bench.propose("a", b"x")
    bench.hand_over("a", wanted=False)
    bench.run(700)
    bench.heal()
    bench.run(200)
    assert bench.leader() == "a" and bench.propose("a", b"x")

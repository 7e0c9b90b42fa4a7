"""Changes of the configuration (§4.1 to §4.2.3): when it is in force, who counts, who may be elected, who disturbs."""

from __future__ import annotations

import pytest

from cluster.raft.types import ChangeKind, ChangeResult, OpId, PreVote, PreVoteReply, Reason, RequestVote, Role
from tests.cluster.raft.raft_rig import MS, RaftRig

ADD, PROMOTE, DEMOTE, REMOVE = ChangeKind.ADD_LEARNER, ChangeKind.PROMOTE, ChangeKind.DEMOTE, ChangeKind.REMOVE


def led(size: int = 3, spares: int = 1, **options: int) -> RaftRig:
    """A group that `a` leads."""
    rig = RaftRig(size, spares=spares, **options)
    rig.elect("a")
    return rig


def asked(rig: RaftRig, kind: ChangeKind, server_id: str, expected: OpId | None = None) -> ChangeResult:
    """A change asked of `a`, with its result, which is there at once but for a promotion's."""
    return rig.changes[rig.change("a", kind, server_id, expected)]


def done(rig: RaftRig, kind: ChangeKind, server_id: str) -> None:
    """A change made by `a`, and committed."""
    context = rig.change("a", kind, server_id)
    assert rig.run_until(lambda: context in rig.changes), f"{kind} {server_id} has no end"
    assert rig.changes[context].position is not None, rig.changes[context].message
    rig.run(150)


def outrun(rounds: int) -> tuple[RaftRig, int]:
    """`a` leads and promotes `d`, whose disk is too slow for what is written; with the promotion's context."""
    rig = led(catch_up_rounds=rounds, max_batch_entries=1, max_inflight=1)
    done(rig, ADD, "d")
    rig.nodes["d"].fsync_ns = 700 * MS
    rig.propose("a", b"first")
    return rig, rig.change("a", PROMOTE, "d")


def test_a_configuration_is_in_force_when_appended_and_goes_back_with_a_truncation() -> None:
    """§4.1: a server always uses the latest configuration in its log, regardless of whether it is committed."""
    rig = led()
    rig.isolate("a")
    position = asked(rig, ADD, "d").position
    assert rig.raft("a").configuration.op_id == position
    assert rig.raft("a").committed_configuration.learner_ids == ()
    rig.elect("b")
    rig.heal()
    rig.run(300)
    assert rig.raft("a").configuration == rig.raft("b").configuration
    assert rig.raft("a").configuration.learner_ids == ()
    assert rig.violations == []


def test_one_change_at_a_time_compare_and_set_and_only_what_makes_sense() -> None:
    rig = led()
    first = rig.raft("a").configuration.op_id
    assert asked(rig, ADD, "d").position is not None
    assert asked(rig, ADD, "e").reason is Reason.BUSY
    rig.run(150)
    stale = asked(rig, REMOVE, "b", first)
    assert (stale.reason, stale.message) == (Reason.STALE, "the configuration is that of term 2, index 3")
    for kind, server_id, message in (
        (ADD, "d", "d is a member already"),
        (ADD, "b", "b is a member already"),
        (PROMOTE, "b", "b is no learner"),
        (DEMOTE, "d", "d is no voter"),
        (REMOVE, "x", "x is no member"),
    ):
        result = asked(rig, kind, server_id)
        assert (result.reason, result.message) == (Reason.INVALID, message)
    assert rig.changes[rig.change("b", REMOVE, "a")].reason is Reason.NOT_THE_LEADER


def test_a_change_that_would_lose_the_quorum_is_refused() -> None:
    rig = led(size=3)
    rig.crash("c")
    rig.run(2_500)
    result = asked(rig, REMOVE, "b")
    assert result.reason is Reason.LOSES_QUORUM
    assert result.message == "of the 2 voters that would be left only 1 are in contact with the leader"
    done(rig, REMOVE, "c")
    done(rig, REMOVE, "b")
    assert asked(rig, REMOVE, "a").message == "the group would be left without voters"
    assert rig.propose("a", b"alone") and rig.violations == []
    rig.run(20)
    assert rig.commands("a") == [b"alone"]


def test_learners_count_for_nothing() -> None:
    """§4.2.1: non-voting members get the log and are not counted for voting or commitment."""
    rig = led(spares=2)
    done(rig, ADD, "d")
    done(rig, ADD, "e")
    rig.isolate("b", "c")
    rig.propose("a", b"x")
    rig.run(800)
    assert rig.raft("d").last_index == rig.raft("e").last_index == rig.raft("a").last_index
    assert rig.commands("a") == [], "a, d and e hold it; a alone votes"
    assert not rig.raft("a").lease_valid(rig.nodes["a"].clock_ns(rig.now_ns))
    rig.run(2_500)
    assert rig.raft("a").role is not Role.LEADER, "learners keep nobody in office"
    rig.crash("a")
    rig.run(3_000)
    assert all(rig.raft(name).role is Role.FOLLOWER for name in "de"), "and they never stand"


def test_a_server_without_a_configuration_waits_and_answers() -> None:
    """RPCs are processed whatever the own configuration says (§4.1); on its own authority it does nothing (G1)."""
    rig = led()
    rig.run(5_000)
    assert (rig.raft("d").role, rig.raft("d").term) == (Role.FOLLOWER, 0)
    rig.take_in("d", RequestVote("a", "d", 7, 9, 2, False))
    rig.persist("d")
    assert rig.nodes["d"].disk_hard.vote == "a"


def test_a_learner_far_behind_is_promoted_after_it_has_caught_up() -> None:
    rig = led(retained_entries=0)
    for number in range(20):
        rig.propose("a", b"%d" % number)
    rig.run(200)
    rig.compact("a")
    done(rig, ADD, "d")
    done(rig, PROMOTE, "d")
    assert rig.raft("d").configuration.voter_ids == ("a", "b", "c", "d")
    assert rig.commands("d") == rig.commands("a")
    assert rig.violations == []


def test_a_learner_that_cannot_catch_up_is_not_promoted() -> None:
    """§4.2.1: rounds that stay longer than an election timeout, or a server that doesn't answer."""
    rig, context = outrun(rounds=3)
    assert context not in rig.changes
    assert asked(rig, REMOVE, "b").reason is Reason.BUSY
    while context not in rig.changes:
        rig.propose("a", b"more")
        rig.run(100)
    assert rig.changes[context].message == "d has not caught up in 3 rounds"
    rig.crash("d")
    rig.propose("a", b"unheard")
    silent = rig.change("a", PROMOTE, "d")
    rig.run(2_900)
    assert rig.changes[silent].message == "d does not answer"
    assert rig.raft("a").configuration.learner_ids == ("d",)


def test_a_learner_that_is_catching_up_can_be_removed() -> None:
    """Seed 576 of a swarm: writes outran a learner for 35 s, and nobody could take back that it was to be promoted."""
    rig, promotion = outrun(rounds=10)
    assert asked(rig, REMOVE, "d", OpId(1, 1)).reason is Reason.STALE
    assert promotion not in rig.changes
    done(rig, REMOVE, "d")
    assert rig.changes[promotion].reason is Reason.NOT_CAUGHT_UP
    assert rig.raft("a").configuration.learner_ids == ()
    done(rig, ADD, "d")
    assert rig.violations == []


def test_a_removed_leader_leads_until_its_removal_is_committed() -> None:
    """§4.2.2: it doesn't count itself, and steps down then; figure 4.6: until then it may be needed."""
    rig = led()
    rig.isolate("a")
    assert asked(rig, REMOVE, "a").position is not None
    rig.run(100)
    assert rig.raft("a").role is Role.LEADER
    rig.heal()
    rig.run(200)
    assert rig.raft("a").role is Role.FOLLOWER
    heir = rig.leader()
    assert heir != "a" and rig.raft(heir).configuration.voter_ids == ("b", "c")
    rig.run(3_000)
    assert rig.raft("a").term == rig.raft(heir).term or rig.raft("a").role is Role.FOLLOWER
    assert rig.violations == []


def test_a_server_outside_its_own_configuration_may_have_to_be_elected() -> None:
    """Figure 4.6: `a` alone holds the entry that removes it, and its log keeps `b` from being elected."""
    rig = led(size=2, spares=0)
    rig.isolate("a")
    assert asked(rig, REMOVE, "a").position is not None
    rig.run(10)
    rig.crash("a")
    rig.start("a")
    rig.heal()
    rig.asleep = ["b"]
    assert rig.run_until(lambda: rig.raft("a").role is Role.LEADER, 3_000, grain=1)
    rig.wake_all()
    rig.run(100)
    assert (rig.leader(), rig.raft("b").configuration.voter_ids) == ("b", ("b",))
    assert rig.violations == []


@pytest.mark.parametrize("flaw", ["", "voters-ignore-lease"])
def test_a_removed_server_cannot_disturb_although_its_log_would_win_a_pre_vote(flaw: str) -> None:
    """§4.2.3, figure 4.7: `d` is removed, and its log is as good as that of `b`, which hasn't got the entry yet."""
    rig = RaftRig(size=4, flaws=(flaw,))
    rig.elect("a")
    rig.run(100)
    rig.cut("a", "b")
    assert asked(rig, REMOVE, "d").position is not None
    term, last = rig.raft("d").term, rig.raft("d").last_index
    assert rig.raft("b").last_index == last
    rig.take_in("b", PreVote("d", "b", term + 1, last, term))
    (answer,) = [flight.message for flight in rig.flights if isinstance(flight.message, PreVoteReply)]
    rig.take_in("b", RequestVote("d", "b", term + 1, last, term, False))
    disturbed = (answer.granted, rig.raft("b").term)
    assert disturbed == ((True, term + 1) if flaw else (False, term))


def test_a_snapshot_carries_the_configuration() -> None:
    rig = led(retained_entries=0)
    done(rig, ADD, "d")
    rig.compact("a")
    assert rig.nodes["a"].disk_snapshot is not None
    assert rig.nodes["a"].disk_snapshot.meta.configuration == rig.raft("a").configuration
    rig.crash("a")
    rig.start("a")
    assert rig.raft("a").configuration.learner_ids == ("d",)


def test_a_leader_that_hands_over_tries_every_healthy_voter_until_one_takes_over() -> None:
    """G7: it was tried once, with one voter, and that one was cut off."""
    rig = led(size=5, spares=0)
    rig.run(200)
    for deaf in "bcd":
        rig.cut("a", deaf)
    rig.hand_over("a")
    rig.run(5_000)
    assert rig.leader() == "e"
    assert rig.violations == []


def test_a_hand_over_can_be_taken_back() -> None:
    rig = led(size=3, spares=0)
    rig.isolate("a")
    rig.hand_over("a")
    assert not rig.propose("a", b"x")
    rig.hand_over("a", wanted=False)
    rig.run(700)
    rig.heal()
    rig.run(200)
    assert rig.leader() == "a" and rig.propose("a", b"x")


def test_two_who_would_hand_over_at_once_do_not_give_it_to_each_other() -> None:
    """Two voters with fenced clocks did, ten times a second, while the third was healthy (swarm seed 375)."""
    rig = led(size=3, spares=0)
    rig.run(200)
    term = rig.raft("a").term
    rig.hand_over("b")
    rig.hand_over("a")
    rig.run(3_000)
    assert rig.leader() == "c" and rig.raft("c").term == term + 1
    rig.hand_over("b", wanted=False)
    rig.transfer("c", "b")
    rig.run(3_000)
    assert rig.leader() == "b", "it may lead again"
    assert rig.violations == []

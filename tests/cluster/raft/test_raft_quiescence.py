"""Quiescence on chosen schedules (G6): who falls silent, what wakes, and the two rules that keep leases apart."""

from __future__ import annotations

from typing import Any

import pytest
from raft_flights import LEASE_NS, Beat, Flight, RigEnds

from cluster.raft.types import AppendEntries, AppendReply, ChangeKind, Role
from tests.cluster.raft.raft_rig import MS, RaftRig

DRIFT = 0.1


def silent_group(size: int = 3, **options: Any) -> RaftRig:
    """A group that `a` leads and that sleeps."""
    rig = RaftRig(size, spares=1, quiesce_after_ns=100 * MS, max_clock_drift=DRIFT, **options)
    rig.elect("a")
    assert rig.run_until(lambda: all(rig.raft(name).sleeps for name in "abc"[:size]), 1_000)
    return rig


def hold_back(rig: RaftRig, source: str, target: str) -> list[Flight]:
    """Take what is under way from one node to another out of the network."""
    held = [each for each in rig.flights if (each.message.source, each.message.target) == (source, target)]
    rig.flights = [each for each in rig.flights if each not in held]
    return held


def has_lease(rig: RaftRig, name: str) -> bool:
    return rig.raft(name).lease_valid(rig.nodes[name].clock_ns(rig.now_ns))


def raft_messages(rig: RaftRig) -> list[object]:
    return [each.message for each in rig.flights if not isinstance(each.message, Beat)]


def test_a_silent_group_sends_nothing_and_its_leader_keeps_the_lease() -> None:
    rig = silent_group()
    rig.run(5)
    for _ in range(2_000):
        rig.run(5)
        assert raft_messages(rig) == []
        assert has_lease(rig, "a"), "heartbeats between the nodes renew it"
    assert rig.raft("a").role is Role.LEADER and rig.violations == []


def test_a_new_group_falls_silent_without_waiting_and_one_that_was_written_to_waits() -> None:
    rig = RaftRig(3, quiesce_after_ns=2_000 * MS, max_clock_drift=DRIFT)
    rig.elect("a")
    assert rig.run_until(lambda: all(rig.raft(name).sleeps for name in "abc"), 400)
    for command in (b"1", b"2"):
        rig.propose("a", command)
        rig.run(20)
    assert not rig.run_until(lambda: rig.raft("a").sleeps, 1_900)
    assert rig.run_until(lambda: all(rig.raft(name).sleeps for name in "abc"), 500)


def test_a_proposal_wakes_everybody_and_the_group_falls_silent_again() -> None:
    rig = silent_group()
    assert rig.propose("a", b"x")
    rig.run(20)
    assert [rig.commands(name) for name in "abc"] == [[b"x"]] * 3 or rig.run(150) is None
    assert not any(rig.raft(name).sleeps for name in "abc")
    assert rig.run_until(lambda: all(rig.raft(name).sleeps for name in "abc"), 1_000)
    assert [rig.commands(name) for name in "abc"] == [[b"x"]] * 3


def test_a_group_with_a_member_that_lags_or_is_away_stays_awake() -> None:
    rig = silent_group()
    rig.isolate("c")
    rig.propose("a", b"x")
    rig.run(3_000)
    assert rig.raft("a").role is Role.LEADER and not rig.raft("a").sleeps
    rig.heal()
    assert rig.run_until(lambda: all(rig.raft(name).sleeps for name in "abc"), 3_000)


def test_a_learner_falls_silent_too() -> None:
    rig = silent_group()
    rig.change("a", ChangeKind.ADD_LEARNER, "d")
    rig.run(50)
    assert not rig.raft("a").sleeps
    assert rig.run_until(lambda: all(rig.raft(name).sleeps for name in "abcd"), 2_000)


def test_the_leader_of_a_silent_group_dies_and_another_is_elected_as_fast_as_ever() -> None:
    rig = silent_group()
    rig.crash("a")
    assert rig.run_until(lambda: any(rig.raft(name).role is Role.LEADER for name in "bc"), 2 * 600 + 100)


def test_a_follower_that_starts_anew_wakes_the_leader() -> None:
    """Its next life has agreed to nothing."""
    rig = silent_group()
    rig.crash("b")
    rig.quiesced.clear()
    rig.start("b")
    rig.run(3_000)
    assert rig.quiesced[0] == ("a", "resumed")
    assert (rig.leader(), rig.raft("a").term) == ("a", rig.raft("b").term)
    assert all(rig.raft(name).sleeps for name in "abc")


def test_a_leader_that_is_none_any_more_leaves_nobody_waiting() -> None:
    """The node of the old leader lives on, and its heartbeats must not keep followers from electing another."""
    rig = silent_group(5)
    for other in "bcde":
        rig.cut(other, "a")
        rig.cut("a", other)
    rig.run(4 * 600 + 200)
    assert rig.raft("a").role is not Role.LEADER
    rig.heal()
    assert rig.run_until(lambda: all(rig.raft(name).sleeps for name in "abcde"), 5_000)
    assert rig.violations == []


def test_a_follower_that_has_voted_withdraws_before_it_answers_another_heartbeat() -> None:
    """Else the answer would renew a lease that this voter does not keep any more.

    `b`, whose clock is fast, hears nothing more and stands before the leader misses it; `c` votes for it, for what the
    leader's node sent it lately is late.
    """
    rig = silent_group(lease_ns=300 * MS)
    rig.delay_ns = lambda: 4 * MS
    rig.set_rate("a", 1 - DRIFT)
    rig.set_rate("b", 1 + DRIFT)
    rig.raft("b")._state.election_timeout_ns = 600 * MS
    rig.run(250)
    began_ns = rig.now_ns
    late: list[Flight] = []

    def elected() -> bool:
        hold_back(rig, "a", "b")
        hold_back(rig, "b", "a")
        if rig.now_ns > began_ns + 150 * MS:
            late.extend(hold_back(rig, "a", "c"))
        return rig.raft("b").role is Role.LEADER

    assert rig.run_until(elected, 700, grain=1)
    heartbeat = [each for each in late if isinstance(each.message, Beat)][-1]
    assert rig.raft("a").sleeps
    rig.flights.append(heartbeat)
    rig.deliver(heartbeat)
    rig.run(5)
    assert not has_lease(rig, "a")
    assert rig.violations == []


def test_an_answer_to_an_earlier_question_does_not_count() -> None:
    """`c` had agreed, and speaks since; its agreement arrives when the leader asks again, and `c` hears nothing."""
    rig = RaftRig(3, quiesce_after_ns=400 * MS, max_clock_drift=DRIFT)
    rig.elect("a")
    for command in (b"1", b"2"):
        rig.propose("a", command)
        rig.run(20)
    rig.delay_ns = lambda: 4 * MS
    old: list[Flight] = []

    def agreed() -> bool:
        old.extend(each for each in hold_back(rig, "c", "a"))
        return any(isinstance(each.message, AppendReply) and each.message.quiesced for each in old)

    assert rig.run_until(agreed, 1_000, grain=1)
    agreement = next(each for each in old if isinstance(each.message, AppendReply) and each.message.quiesced)
    rig.propose("a", b"x")
    rig.run(150)
    assert not rig.raft("c").sleeps

    def asked_again() -> bool:
        asked = [each for each in hold_back(rig, "a", "c") if not is_question(each)]
        rig.flights.extend(asked)
        return any(name == "a" and silence == "leads" for name, silence in rig.quiesced[-1:])

    assert rig.run_until(asked_again, 2_000, grain=1)
    rig.deliver(agreement, keep=True)
    rig.run(12)
    assert rig.raft("b").sleeps and not rig.raft("a").sleeps


def is_question(flight: Flight) -> bool:
    return isinstance(flight.message, AppendEntries) and flight.message.quiesce


def test_a_heartbeat_from_before_the_question_does_not_wake() -> None:
    """A follower that woke by it would stand while the leader counts on its silence."""
    rig = silent_group()
    assert rig.propose("a", b"x")
    rig.run(20)
    before: list[Flight] = []

    def silent() -> bool:
        before.extend(
            each for each in rig.flights if isinstance(each.message, AppendEntries) and each.message.target == "c"
        )
        return all(rig.raft(name).sleeps for name in "abc")

    assert rig.run_until(silent, 1_000)
    heartbeat = [each for each in before if not is_question(each)][-1]
    rig.flights.append(heartbeat)
    rig.deliver(heartbeat)
    assert rig.raft("c").sleeps


def test_a_silent_leader_has_its_lease_extended_by_what_all_members_promise() -> None:
    rig = silent_group()
    rig.run(500)
    until = rig.raft("a").lease_extension
    assert rig.now_ns < until <= rig.now_ns + LEASE_NS
    rig.isolate("c")
    rig.run(250)
    held = rig.raft("a").lease_extension
    rig.run(250)
    assert rig.raft("a").lease_extension == held >= until, "one member that doesn't promise more is enough"
    rig.propose("a", b"x")
    rig.run(50)
    assert rig.raft("a").lease_extension == held, "what was promised stands"


@pytest.mark.parametrize("speaks", [False, True])
def test_whoever_is_elected_next_knows_of_the_promises_after_the_silence_too(speaks: bool) -> None:
    rig = silent_group()
    rig.run(500)
    until = rig.raft("a").lease_extension
    if speaks:
        rig.propose("a", b"x")
        rig.run(20)
    rig.crash("a")
    assert rig.run_until(lambda: any(rig.raft(name).role is Role.LEADER for name in "bc"), 2_000)
    earlier = rig.raft(rig.leader()).earlier_until
    assert earlier is not None and until <= earlier <= until + LEASE_NS


def test_a_group_of_one_voter_has_nobody_to_promise_anything() -> None:
    rig = RaftRig(1, quiesce_after_ns=100 * MS)
    rig.elect("a")
    assert rig.run_until(lambda: rig.raft("a").sleeps, 1_000)
    rig.run(500)
    assert rig.raft("a").lease_extension == 0


@pytest.mark.parametrize("cant_tell", ["", "b", "c"])
def test_voters_that_have_restarted_tell_of_all_that_they_may_have_promised_or_that_they_cant(cant_tell: str) -> None:
    rig = silent_group()
    rig.run(500)
    until = rig.raft("a").lease_extension
    rig.crash("a", "b", "c")
    for name in "bc":
        rig.nodes[name].liveness._ends = NeverProven() if name == cant_tell else RigEnds(lambda: rig.now_ns, False)
        rig.start(name)
    rig.run(600)
    rig.elect("c")
    earlier = rig.raft("c").earlier_until
    assert earlier is None if cant_tell else earlier is not None and earlier >= until


class NeverProven:
    """What a node says whose clock is never proven."""

    def next_end(self) -> int:
        return 0

    def before_start(self) -> int | None:
        return None

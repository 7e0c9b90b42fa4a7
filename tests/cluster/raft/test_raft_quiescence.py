"""Quiescence on chosen schedules (G6): who falls silent, what wakes, and the two rules that keep leases apart."""

from __future__ import annotations

from typing import Any

from raft_bench import MS, Bench
from raft_flights import Beat, Flight

from cluster.raft.types import AppendEntries, AppendReply, ChangeKind, Role

DRIFT = 0.1


def silent_group(size: int = 3, **options: Any) -> Bench:
    """A group that `a` leads and that sleeps."""
    bench = Bench(size, spares=1, quiesce_after_ns=100 * MS, max_clock_drift=DRIFT, **options)
    bench.elect("a")
    assert bench.run_until(lambda: all(bench.raft(name).sleeps for name in "abc"[:size]), 1_000)
    return bench


def hold_back(bench: Bench, source: str, target: str) -> list[Flight]:
    """Take what is under way from one node to another out of the network."""
    held = [each for each in bench.flights if (each.message.source, each.message.target) == (source, target)]
    bench.flights = [each for each in bench.flights if each not in held]
    return held


def has_lease(bench: Bench, name: str) -> bool:
    return bench.raft(name).lease_valid(bench.nodes[name].clock_ns(bench.now_ns))


def raft_messages(bench: Bench) -> list[object]:
    return [each.message for each in bench.flights if not isinstance(each.message, Beat)]


def test_a_silent_group_sends_nothing_and_its_leader_keeps_the_lease() -> None:
    bench = silent_group()
    bench.run(5)
    for _ in range(2_000):
        bench.run(5)
        assert raft_messages(bench) == []
        assert has_lease(bench, "a"), "heartbeats between the nodes renew it"
    assert bench.raft("a").role is Role.LEADER and bench.violations == []


def test_a_new_group_falls_silent_without_waiting_and_one_that_was_written_to_waits() -> None:
    bench = Bench(3, quiesce_after_ns=2_000 * MS, max_clock_drift=DRIFT)
    bench.elect("a")
    assert bench.run_until(lambda: all(bench.raft(name).sleeps for name in "abc"), 400)
    for command in (b"1", b"2"):
        bench.propose("a", command)
        bench.run(20)
    assert not bench.run_until(lambda: bench.raft("a").sleeps, 1_900)
    assert bench.run_until(lambda: all(bench.raft(name).sleeps for name in "abc"), 500)


def test_a_proposal_wakes_everybody_and_the_group_falls_silent_again() -> None:
    bench = silent_group()
    assert bench.propose("a", b"x")
    bench.run(20)
    assert [bench.commands(name) for name in "abc"] == [[b"x"]] * 3 or bench.run(150) is None
    assert not any(bench.raft(name).sleeps for name in "abc")
    assert bench.run_until(lambda: all(bench.raft(name).sleeps for name in "abc"), 1_000)
    assert [bench.commands(name) for name in "abc"] == [[b"x"]] * 3


def test_a_group_with_a_member_that_lags_or_is_away_stays_awake() -> None:
    bench = silent_group()
    bench.isolate("c")
    bench.propose("a", b"x")
    bench.run(3_000)
    assert bench.raft("a").role is Role.LEADER and not bench.raft("a").sleeps
    bench.heal()
    assert bench.run_until(lambda: all(bench.raft(name).sleeps for name in "abc"), 3_000)


def test_a_learner_falls_silent_too() -> None:
    bench = silent_group()
    bench.change("a", ChangeKind.ADD_LEARNER, "d")
    bench.run(50)
    assert not bench.raft("a").sleeps
    assert bench.run_until(lambda: all(bench.raft(name).sleeps for name in "abcd"), 2_000)


def test_the_leader_of_a_silent_group_dies_and_another_is_elected_as_fast_as_ever() -> None:
    bench = silent_group()
    bench.crash("a")
    assert bench.run_until(lambda: any(bench.raft(name).role is Role.LEADER for name in "bc"), 2 * 600 + 100)


def test_a_follower_that_starts_anew_wakes_the_leader() -> None:
    """Its next life has agreed to nothing."""
    bench = silent_group()
    bench.crash("b")
    bench.quiesced.clear()
    bench.start("b")
    bench.run(3_000)
    assert bench.quiesced[0] == ("a", "resumed")
    assert (bench.leader(), bench.raft("a").term) == ("a", bench.raft("b").term)
    assert all(bench.raft(name).sleeps for name in "abc")


def test_a_leader_that_is_none_any_more_leaves_nobody_waiting() -> None:
    """The node of the old leader lives on, and its heartbeats must not keep followers from electing another."""
    bench = silent_group(5)
    for other in "bcde":
        bench.cut(other, "a")
        bench.cut("a", other)
    bench.run(4 * 600 + 200)
    assert bench.raft("a").role is not Role.LEADER
    bench.heal()
    assert bench.run_until(lambda: all(bench.raft(name).sleeps for name in "abcde"), 5_000)
    assert bench.violations == []


def test_a_follower_that_has_voted_withdraws_before_it_answers_another_heartbeat() -> None:
    """Else the answer would renew a lease that this voter does not keep any more.

    `b`, whose clock is fast, hears nothing more and stands before the leader misses it; `c` votes for it, for what the
    leader's node sent it lately is late.
    """
    bench = silent_group(lease_ns=300 * MS)
    bench.delay_ns = lambda: 4 * MS
    bench.set_rate("a", 1 - DRIFT)
    bench.set_rate("b", 1 + DRIFT)
    bench.raft("b")._state.election_timeout_ns = 600 * MS
    bench.run(250)
    began_ns = bench.now_ns
    late: list[Flight] = []

    def elected() -> bool:
        hold_back(bench, "a", "b")
        hold_back(bench, "b", "a")
        if bench.now_ns > began_ns + 150 * MS:
            late.extend(hold_back(bench, "a", "c"))
        return bench.raft("b").role is Role.LEADER

    assert bench.run_until(elected, 700, grain=1)
    heartbeat = [each for each in late if isinstance(each.message, Beat)][-1]
    assert bench.raft("a").sleeps
    bench.flights.append(heartbeat)
    bench.deliver(heartbeat)
    bench.run(5)
    assert not has_lease(bench, "a")
    assert bench.violations == []


def test_an_answer_to_an_earlier_question_does_not_count() -> None:
    """`c` had agreed, and speaks since; its agreement arrives when the leader asks again, and `c` hears nothing."""
    bench = Bench(3, quiesce_after_ns=400 * MS, max_clock_drift=DRIFT)
    bench.elect("a")
    for command in (b"1", b"2"):
        bench.propose("a", command)
        bench.run(20)
    bench.delay_ns = lambda: 4 * MS
    old: list[Flight] = []

    def agreed() -> bool:
        old.extend(each for each in hold_back(bench, "c", "a"))
        return any(isinstance(each.message, AppendReply) and each.message.quiesced for each in old)

    assert bench.run_until(agreed, 1_000, grain=1)
    agreement = next(each for each in old if isinstance(each.message, AppendReply) and each.message.quiesced)
    bench.propose("a", b"x")
    bench.run(150)
    assert not bench.raft("c").sleeps

    def asked_again() -> bool:
        asked = [each for each in hold_back(bench, "a", "c") if not is_question(each)]
        bench.flights.extend(asked)
        return any(name == "a" and silence == "leads" for name, silence in bench.quiesced[-1:])

    assert bench.run_until(asked_again, 2_000, grain=1)
    bench.deliver(agreement, keep=True)
    bench.run(12)
    assert bench.raft("b").sleeps and not bench.raft("a").sleeps


def is_question(flight: Flight) -> bool:
    return isinstance(flight.message, AppendEntries) and flight.message.quiesce


def test_a_heartbeat_from_before_the_question_does_not_wake() -> None:
    """A follower that woke by it would stand while the leader counts on its silence."""
    bench = silent_group()
    assert bench.propose("a", b"x")
    bench.run(20)
    before: list[Flight] = []

    def silent() -> bool:
        before.extend(
            each for each in bench.flights if isinstance(each.message, AppendEntries) and each.message.target == "c"
        )
        return all(bench.raft(name).sleeps for name in "abc")

    assert bench.run_until(silent, 1_000)
    heartbeat = [each for each in before if not is_question(each)][-1]
    bench.flights.append(heartbeat)
    bench.deliver(heartbeat)
    assert bench.raft("c").sleeps

"""More flaws of the pure core, each in the schedule that the rule it breaks exists for; without it nothing breaks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from raft_bench import MS, Bench

from cluster.raft.types import ChangeKind, Reason, Role


def broken(bench: Bench) -> list[str]:
    """Names of the broken invariants, each once."""
    return sorted({violation.split(":")[0] for violation in bench.violations})


def cut_between(bench: Bench, some: str, others: str) -> None:
    for one in some:
        for other in others:
            bench.cut(one, other)
            bench.cut(other, one)


def apply_what_is_only_appended(*flaws: str) -> Bench:
    """`a` is cut off with a command of its own; the others go on without it."""
    bench = Bench(flaws=flaws)
    bench.elect("a")
    bench.isolate("a")
    bench.propose("a", b"x")
    bench.run(20)
    bench.elect("b")
    bench.propose("b", b"y")
    bench.run(50)
    return bench


def vote_and_crash_before_the_fsync(*flaws: str) -> Bench:
    """`c` votes for `a` on a slow disk and crashes; then `b`, which `a` can't reach, stands in the same term."""
    bench = Bench(flaws=flaws)
    bench.elect("c")
    bench.cut("a", "b")
    bench.cut("b", "a")
    bench.crash("c")
    bench.start("c")
    bench.nodes["c"].fsync_ns = 10_000 * MS
    bench.stand("a")
    bench.run(5)
    bench.isolate("a")
    bench.crash("c")
    bench.start("c")
    bench.nodes["c"].fsync_ns = MS
    bench.run(601)
    bench.stand("b")
    bench.run(50)
    return bench


def ask_for_votes_with_a_stale_log(*flaws: str) -> Bench:
    """`c` misses a committed command; then the leader that has it is cut off, and `c` is the first to stand."""
    bench = Bench(flaws=flaws)
    bench.elect("a")
    bench.isolate("c")
    bench.propose("a", b"x")
    bench.run(150)
    bench.heal()
    bench.isolate("a")
    bench.stand("c")
    bench.run(50)
    return bench


def starve_a_follower_within_the_lease(*flaws: str, restart: bool = False) -> Bench:
    """`c` can't hear `a` and stands while `b` just has; then `a` is cut off. `b` may crash in between."""
    bench = Bench(flaws=flaws)
    bench.elect("a")
    cut_between(bench, "a", "c")
    bench.stand("c")
    if restart:
        bench.crash("b")
        bench.start("b")
    cut_between(bench, "a", "b")
    bench.asleep = ["b"]
    bench.run(200)
    return bench


def restart_a_voter_within_the_lease(*flaws: str) -> Bench:
    return starve_a_follower_within_the_lease(*flaws, restart=True)


def crash_after_a_snapshot_beside_a_write(*flaws: str) -> Bench:
    """A snapshot is taken while the next command is in the log and not yet applied; then its node restarts."""
    bench = Bench(flaws=flaws, retained_entries=0)
    bench.elect("a")
    bench.propose("a", b"x")
    bench.run(50)
    bench.propose("a", b"y")
    bench.compact("a")
    bench.run(50)
    bench.propose("a", b"z")
    bench.run(50)
    bench.crash("a")
    bench.start("a")
    bench.run(1_500)
    return bench


def read_at_a_leader_that_has_committed_nothing(*flaws: str) -> Bench:
    """`b` holds what `a` has acknowledged and doesn't know that it is committed; it leads, and a read comes in."""
    bench = Bench(flaws=flaws)
    bench.elect("a")
    bench.cut("a", "c")
    bench.propose("a", b"x")
    bench.run_until(lambda: bool(bench.acknowledged), 20)
    bench.crash("a")
    bench.heal()
    bench.nodes["c"].fsync_ns = 30 * MS
    bench.stand("b")
    bench.run_until(lambda: bench.raft("b").role is Role.LEADER)
    bench.read("b")
    bench.run(15)
    return bench


SCHEDULES: dict[str, tuple[Callable[..., Bench], str]] = {
    "apply-uncommitted": (apply_what_is_only_appended, "state machine safety"),
    "vote-before-fsync": (vote_and_crash_before_the_fsync, "election safety"),
    "vote-stale-log": (ask_for_votes_with_a_stale_log, "leader completeness"),
    "voters-ignore-lease": (starve_a_follower_within_the_lease, "lease disjointness"),
    "no-restart-silence": (restart_a_voter_within_the_lease, "lease disjointness"),
    "snapshot-loses-last": (crash_after_a_snapshot_beside_a_write, "state machine safety"),
    "read-before-own-term": (read_at_a_leader_that_has_committed_nothing, "linearizable read"),
}


@pytest.mark.parametrize("flaw", SCHEDULES)
def test_flaw_breaks_the_invariant_and_its_absence_does_not(flaw: str) -> None:
    schedule, invariant = SCHEDULES[flaw]
    assert schedule().violations == []
    assert invariant in broken(schedule(flaw))


def two_changes_that_do_not_overlap(*flaws: str) -> tuple[Bench, Reason | None]:
    """The example of Ongaro's note to raft-dev of July 10th 2015; what the second change was refused for.

    `a` appends {a,b,c,d,e} and gets it to `e` alone. `b` is elected by {a,b,c,d}, and changes to {b,c,d} before it has
    committed anything (`c` is slow): with `c` that is a majority, and `d` has heard of nothing. Then `a` stands, and
    `d` and `e` elect it: with `a` they are a majority of five.
    """
    bench = Bench(size=4, spares=1, flaws=flaws)
    bench.elect("a")
    bench.change("a", ChangeKind.ADD_LEARNER, "e")
    bench.run(200)
    cut_between(bench, "ae", "bcd")
    promotion = bench.changes[bench.change("a", ChangeKind.PROMOTE, "e")]
    assert promotion.position is not None
    bench.nodes["c"].fsync_ns = 150 * MS
    bench.stand("b")
    bench.run_until(lambda: bench.raft("b").role is Role.LEADER)
    bench.cut("b", "d")
    bench.run(110)
    second = bench.changes[bench.change("b", ChangeKind.REMOVE, "a")]
    bench.run(300)
    bench.heal()
    cut_between(bench, "bc", "ade")
    bench.run(700)
    bench.stand("a")
    bench.run(100)
    return bench, second.reason


def test_changes_wait_until_the_leader_has_committed_in_its_own_term() -> None:
    bench, reason = two_changes_that_do_not_overlap()
    assert reason is Reason.NO_OWN_COMMIT
    assert bench.violations == []


def test_flaw_unsafe_membership_commits_two_entries_at_one_index() -> None:
    bench, reason = two_changes_that_do_not_overlap("raft-unsafe-membership")
    assert reason is None
    assert "state machine safety" in broken(bench)
    assert "leader completeness" in broken(bench)

"""Each flaw breaks exactly the rule it names, in the schedule that the rule exists for; without it nothing breaks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cluster.raft.types import ChangeKind, Reason, Role
from tests.cluster.raft.raft_rig import MS, RaftRig


def broken(rig: RaftRig) -> list[str]:
    """Names of the broken invariants, each once, in order."""
    return list(dict.fromkeys(violation.split(":")[0] for violation in rig.violations))


def cut_between(rig: RaftRig, some: str, others: str) -> None:
    for one in some:
        for other in others:
            rig.cut(one, other)
            rig.cut(other, one)


def restart_at_once(rig: RaftRig, name: str) -> None:
    rig.crash(name)
    rig.start(name)


def crash_between_answer_and_fsync(*flaws: str) -> RaftRig:
    rig = RaftRig(flaws=flaws)
    rig.elect("a")
    for node in rig.nodes.values():
        node.fsync_ns = 20 * MS
    rig.propose("a", b"x")
    rig.run(5)
    rig.crash("a", "b", "c")
    for name in rig.names:
        rig.start(name)
    rig.run(3_000)
    return rig


def test_entries_are_acknowledged_only_when_durable() -> None:
    """§3.8: a server must have an entry in persistent storage before it answers for it."""
    rig = crash_between_answer_and_fsync()
    assert (rig.acknowledged, rig.violations) == ([], [])


def test_flaw_ack_before_fsync_loses_an_acknowledged_command() -> None:
    rig = crash_between_answer_and_fsync("raft-ack-before-fsync")
    assert rig.lost_acknowledged() == [b"x"]
    assert broken(rig) == ["durable commit", "leader completeness", "state machine safety"]


def restart_a_voter_between_two_candidates(*flaws: str) -> RaftRig:
    """`a` wins term 3 by the vote of `c`, and is cut off before `c` has its first entry; `c` restarts; `b` stands."""
    rig = RaftRig(flaws=flaws)
    rig.elect("c")
    cut_between(rig, "a", "b")
    restart_at_once(rig, "c")
    rig.stand("a")
    rig.run_until(lambda: rig.raft("a").role is Role.LEADER)
    rig.isolate("a")
    rig.propose("a", b"from a")
    restart_at_once(rig, "c")
    rig.run(601)
    rig.stand("b")
    rig.run_until(lambda: rig.raft("b").role is Role.LEADER, 100)
    rig.propose("b", b"from b")
    rig.run(50)
    return rig


def test_a_vote_survives_a_restart() -> None:
    """§3.8: each server persists its vote, so that it can't vote twice in a term."""
    rig = restart_a_voter_between_two_candidates()
    assert rig.raft("a").role is Role.LEADER
    assert rig.raft("b").role is not Role.LEADER
    rig.heal()
    rig.wake_all()
    rig.run(3_000)
    assert rig.violations == []


def test_flaw_forget_vote_elects_two_leaders_of_one_term() -> None:
    rig = restart_a_voter_between_two_candidates("raft-forget-vote")
    assert rig.raft("a").role is rig.raft("b").role is Role.LEADER
    assert rig.raft("a").term == rig.raft("b").term
    rig.heal()
    rig.run(400)
    positions = {command: (term, index) for term, index, command in rig.acknowledged}
    assert positions[b"from a"] == positions[b"from b"], "two commands acknowledged for one place in the log"
    assert broken(rig)[0] == "election safety"
    assert "state machine safety" in broken(rig)


def figure_8(*flaws: str) -> RaftRig:
    """Figure 3.7: `a` replicates an entry of term 2 to `b` while it leads term 4; `c` holds an entry of term 3."""
    rig = RaftRig(flaws=flaws, max_batch_entries=1, max_inflight=1)
    rig.elect("a")
    rig.isolate("a")
    rig.propose("a", b"x")
    rig.stand("c")
    rig.run_until(lambda: rig.raft("c").role is Role.LEADER)
    rig.heal()
    rig.isolate("c")
    rig.run(150)
    assert rig.raft("a").role is Role.FOLLOWER
    rig.stand("a")
    rig.run_until(lambda: rig.raft("a").role is Role.LEADER)
    rig.run_until(lambda: rig.raft("b").last_index == rig.raft("a").last_index - 1)
    rig.run_until(lambda: bool(rig.acknowledged), 2)
    assert rig.raft("b").last_term == 2
    rig.heal()
    rig.isolate("a")
    return rig


def finish_figure_8(rig: RaftRig) -> None:
    rig.wake_all()
    rig.asleep = ["b"]
    rig.run_until(lambda: rig.raft("c").commit_index >= 4, 8_000)
    rig.heal()
    rig.wake_all()
    rig.run(1_000)


def test_entries_of_earlier_terms_are_not_committed_by_counting() -> None:
    """§3.6.2: only entries of the leader's current term are committed by counting replicas."""
    rig = figure_8()
    assert rig.acknowledged == []
    finish_figure_8(rig)
    assert rig.violations == []


def test_flaw_commit_old_term_overwrites_a_committed_command() -> None:
    rig = figure_8("raft-commit-old-term")
    assert [command for _, _, command in rig.acknowledged] == [b"x"]
    finish_figure_8(rig)
    assert rig.lost_acknowledged() == [b"x"]
    assert broken(rig) == ["leader completeness", "state machine safety", "committed prefix"]


def cut_a_leader_off(*flaws: str) -> tuple[RaftRig, int]:
    rig = RaftRig(flaws=flaws)
    rig.elect("a")
    rig.isolate("a")
    rig.elect("b")
    rig.propose("b", b"new")
    rig.run(20)
    assert [command for _, _, command in rig.acknowledged] == [b"new"]
    assert rig.raft("a").role is Role.LEADER
    return rig, rig.read("a")


def test_a_deposed_leader_serves_no_reads() -> None:
    """§6.4: without a lease, a leader asks a quorum whether it still leads before it serves a read."""
    rig, context = cut_a_leader_off()
    assert context not in rig.reads
    rig.run(3_000)
    assert rig.reads[context] is None
    assert rig.violations == []


def test_flaw_read_without_lease_serves_stale_reads() -> None:
    rig, context = cut_a_leader_off("read-without-lease")
    index = rig.reads[context]
    assert index is not None and index < rig.raft("b").commit_index
    assert "linearizable read" in broken(rig)


def apply_what_is_only_appended(*flaws: str) -> RaftRig:
    """`a` is cut off with a command of its own; the others go on without it."""
    rig = RaftRig(flaws=flaws)
    rig.elect("a")
    rig.isolate("a")
    rig.propose("a", b"x")
    rig.run(20)
    rig.elect("b")
    rig.propose("b", b"y")
    rig.run(50)
    return rig


def vote_and_crash_before_the_fsync(*flaws: str) -> RaftRig:
    """`c` votes for `a` on a slow disk and crashes; then `b`, which `a` can't reach, stands in the same term."""
    rig = RaftRig(flaws=flaws)
    rig.elect("c")
    cut_between(rig, "a", "b")
    restart_at_once(rig, "c")
    rig.nodes["c"].fsync_ns = 10_000 * MS
    rig.stand("a")
    rig.run(5)
    rig.isolate("a")
    restart_at_once(rig, "c")
    rig.nodes["c"].fsync_ns = MS
    rig.run(601)
    rig.stand("b")
    rig.run(50)
    return rig


def ask_for_votes_with_a_stale_log(*flaws: str) -> RaftRig:
    """`c` misses a committed command; then the leader that has it is cut off, and `c` is the first to stand."""
    rig = RaftRig(flaws=flaws)
    rig.elect("a")
    rig.isolate("c")
    rig.propose("a", b"x")
    rig.run(150)
    rig.heal()
    rig.isolate("a")
    rig.stand("c")
    rig.run(50)
    return rig


def starve_a_follower_within_the_lease(*flaws: str, restart: bool = False) -> RaftRig:
    """`c` can't hear `a` and stands while `b` just has; then `a` is cut off. `b` may crash in between."""
    rig = RaftRig(flaws=flaws)
    rig.elect("a")
    cut_between(rig, "a", "c")
    rig.stand("c")
    if restart:
        restart_at_once(rig, "b")
    cut_between(rig, "a", "b")
    rig.asleep = ["b"]
    rig.run(200)
    return rig


def restart_a_voter_within_the_lease(*flaws: str) -> RaftRig:
    return starve_a_follower_within_the_lease(*flaws, restart=True)


def crash_after_a_snapshot_beside_a_write(*flaws: str) -> RaftRig:
    """A snapshot is taken while the next command is in the log and not yet applied; then its node restarts."""
    rig = RaftRig(flaws=flaws, retained_entries=0)
    rig.elect("a")
    rig.propose("a", b"x")
    rig.run(50)
    rig.propose("a", b"y")
    rig.compact("a")
    rig.run(50)
    rig.propose("a", b"z")
    rig.run(50)
    restart_at_once(rig, "a")
    rig.run(1_500)
    return rig


def read_at_a_leader_that_has_committed_nothing(*flaws: str) -> RaftRig:
    """`b` holds what `a` has acknowledged and doesn't know that it is committed; it leads, and a read comes in."""
    rig = RaftRig(flaws=flaws)
    rig.elect("a")
    rig.cut("a", "c")
    rig.propose("a", b"x")
    rig.run_until(lambda: bool(rig.acknowledged), 20)
    rig.crash("a")
    rig.heal()
    rig.nodes["c"].fsync_ns = 30 * MS
    rig.stand("b")
    rig.run_until(lambda: rig.raft("b").role is Role.LEADER)
    rig.read("b")
    rig.run(15)
    return rig


SCHEDULES: dict[str, tuple[Callable[..., RaftRig], str]] = {
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


def two_changes_that_do_not_overlap(*flaws: str) -> tuple[RaftRig, Reason | None]:
    """The example of Ongaro's note to raft-dev of July 10th 2015; what the second change was refused for.

    `a` appends {a,b,c,d,e} and gets it to `e` alone. `b` is elected by {a,b,c,d}, and changes to {b,c,d} before it has
    committed anything (`c` is slow): with `c` that is a majority, and `d` has heard of nothing. Then `a` stands, and
    `d` and `e` elect it: with `a` they are a majority of five.
    """
    rig = RaftRig(size=4, spares=1, flaws=flaws)
    rig.elect("a")
    rig.change("a", ChangeKind.ADD_LEARNER, "e")
    rig.run(200)
    cut_between(rig, "ae", "bcd")
    promotion = rig.changes[rig.change("a", ChangeKind.PROMOTE, "e")]
    assert promotion.position is not None
    rig.nodes["c"].fsync_ns = 150 * MS
    rig.stand("b")
    rig.run_until(lambda: rig.raft("b").role is Role.LEADER)
    rig.cut("b", "d")
    rig.run(110)
    second = rig.changes[rig.change("b", ChangeKind.REMOVE, "a")]
    rig.run(300)
    rig.heal()
    cut_between(rig, "bc", "ade")
    rig.run(700)
    rig.stand("a")
    rig.run(100)
    return rig, second.reason


def test_changes_wait_until_the_leader_has_committed_in_its_own_term() -> None:
    rig, reason = two_changes_that_do_not_overlap()
    assert reason is Reason.NO_OWN_COMMIT
    assert rig.violations == []


def test_flaw_unsafe_membership_commits_two_entries_at_one_index() -> None:
    rig, reason = two_changes_that_do_not_overlap("raft-unsafe-membership")
    assert reason is None
    assert "state machine safety" in broken(rig)
    assert "leader completeness" in broken(rig)

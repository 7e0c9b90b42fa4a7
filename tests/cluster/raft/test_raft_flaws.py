"""Each flaw breaks exactly the rule it names, in the schedule that the rule exists for; without it nothing breaks."""

from __future__ import annotations

from cluster.raft.types import Role
from tests.cluster.raft.raft_rig import MS, RaftRig


def broken(rig: RaftRig) -> list[str]:
    """Names of the broken invariants, each once, in order."""
    return list(dict.fromkeys(violation.split(":")[0] for violation in rig.violations))


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
    rig.cut("a", "b")
    rig.cut("b", "a")
    rig.crash("c")
    rig.start("c")
    rig.stand("a")
    rig.run_until(lambda: rig.raft("a").role is Role.LEADER)
    rig.isolate("a")
    rig.propose("a", b"from a")
    rig.crash("c")
    rig.start("c")
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

"""Each flaw breaks exactly the rule it names, in the schedule that the rule exists for; without it nothing breaks."""

from __future__ import annotations

from raft_bench import MS, Bench

from cluster.raft.types import Role


def broken(bench: Bench) -> list[str]:
    """Names of the broken invariants, each once, in order."""
    return list(dict.fromkeys(violation.split(":")[0] for violation in bench.violations))


def crash_between_answer_and_fsync(*flaws: str) -> Bench:
    bench = Bench(flaws=flaws)
    bench.elect("a")
    for node in bench.nodes.values():
        node.fsync_ns = 20 * MS
    bench.propose("a", b"x")
    bench.run(5)
    bench.crash("a", "b", "c")
    for name in bench.names:
        bench.start(name)
    bench.run(3_000)
    return bench


def test_entries_are_acknowledged_only_when_durable() -> None:
    """§3.8: a server must have an entry in persistent storage before it answers for it."""
    bench = crash_between_answer_and_fsync()
    assert (bench.acknowledged, bench.violations) == ([], [])


def test_flaw_ack_before_fsync_loses_an_acknowledged_command() -> None:
    bench = crash_between_answer_and_fsync("raft-ack-before-fsync")
    assert bench.lost_acknowledged() == [b"x"]
    assert broken(bench) == ["durable commit", "leader completeness", "state machine safety"]


def restart_a_voter_between_two_candidates(*flaws: str) -> Bench:
    """`a` wins term 3 by the vote of `c`, and is cut off before `c` has its first entry; `c` restarts; `b` stands."""
    bench = Bench(flaws=flaws)
    bench.elect("c")
    bench.cut("a", "b")
    bench.cut("b", "a")
    bench.crash("c")
    bench.start("c")
    bench.stand("a")
    bench.run_until(lambda: bench.raft("a").role is Role.LEADER)
    bench.isolate("a")
    bench.propose("a", b"from a")
    bench.crash("c")
    bench.start("c")
    bench.run(601)
    bench.stand("b")
    bench.run_until(lambda: bench.raft("b").role is Role.LEADER, 100)
    bench.propose("b", b"from b")
    bench.run(50)
    return bench


def test_a_vote_survives_a_restart() -> None:
    """§3.8: each server persists its vote, so that it can't vote twice in a term."""
    bench = restart_a_voter_between_two_candidates()
    assert bench.raft("a").role is Role.LEADER
    assert bench.raft("b").role is not Role.LEADER
    bench.heal()
    bench.wake_all()
    bench.run(3_000)
    assert bench.violations == []


def test_flaw_forget_vote_elects_two_leaders_of_one_term() -> None:
    bench = restart_a_voter_between_two_candidates("raft-forget-vote")
    assert bench.raft("a").role is bench.raft("b").role is Role.LEADER
    assert bench.raft("a").term == bench.raft("b").term
    bench.heal()
    bench.run(400)
    positions = {command: (term, index) for term, index, command in bench.acknowledged}
    assert positions[b"from a"] == positions[b"from b"], "two commands acknowledged for one place in the log"
    assert broken(bench)[0] == "election safety"
    assert "state machine safety" in broken(bench)


def figure_8(*flaws: str) -> Bench:
    """Figure 3.7: `a` replicates an entry of term 2 to `b` while it leads term 4; `c` holds an entry of term 3."""
    bench = Bench(flaws=flaws, max_batch_entries=1, max_inflight=1)
    bench.elect("a")
    bench.isolate("a")
    bench.propose("a", b"x")
    bench.stand("c")
    bench.run_until(lambda: bench.raft("c").role is Role.LEADER)
    bench.heal()
    bench.isolate("c")
    bench.run(150)
    assert bench.raft("a").role is Role.FOLLOWER
    bench.stand("a")
    bench.run_until(lambda: bench.raft("a").role is Role.LEADER)
    bench.run_until(lambda: bench.raft("b").last_index == bench.raft("a").last_index - 1)
    bench.run_until(lambda: bool(bench.acknowledged), 2)
    assert bench.raft("b").last_term == 2
    bench.heal()
    bench.isolate("a")
    return bench


def finish_figure_8(bench: Bench) -> None:
    bench.wake_all()
    bench.asleep = ["b"]
    bench.run_until(lambda: bench.raft("c").commit_index >= 4, 8_000)
    bench.heal()
    bench.wake_all()
    bench.run(1_000)


def test_entries_of_earlier_terms_are_not_committed_by_counting() -> None:
    """§3.6.2: only entries of the leader's current term are committed by counting replicas."""
    bench = figure_8()
    assert bench.acknowledged == []
    finish_figure_8(bench)
    assert bench.violations == []


def test_flaw_commit_old_term_overwrites_a_committed_command() -> None:
    bench = figure_8("raft-commit-old-term")
    assert [command for _, _, command in bench.acknowledged] == [b"x"]
    finish_figure_8(bench)
    assert bench.lost_acknowledged() == [b"x"]
    assert broken(bench) == ["leader completeness", "state machine safety", "committed prefix"]


def cut_a_leader_off(*flaws: str) -> tuple[Bench, int]:
    bench = Bench(flaws=flaws)
    bench.elect("a")
    bench.isolate("a")
    bench.elect("b")
    bench.propose("b", b"new")
    bench.run(20)
    assert [command for _, _, command in bench.acknowledged] == [b"new"]
    assert bench.raft("a").role is Role.LEADER
    return bench, bench.read("a")


def test_a_deposed_leader_serves_no_reads() -> None:
    """§6.4: without a lease, a leader asks a quorum whether it still leads before it serves a read."""
    bench, context = cut_a_leader_off()
    assert context not in bench.reads
    bench.run(3_000)
    assert bench.reads[context] is None
    assert bench.violations == []


def test_flaw_read_without_lease_serves_stale_reads() -> None:
    bench, context = cut_a_leader_off("read-without-lease")
    index = bench.reads[context]
    assert index is not None and index < bench.raft("b").commit_index
    assert "linearizable read" in broken(bench)

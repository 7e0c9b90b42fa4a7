"""Random walks: seeded ones, and ones that hypothesis steers and shrinks; the invariants hold after every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from raft_flights import Beat
from raft_walk import DRIFT, Walk

from cluster.raft import quiescence
from cluster.raft.types import ChangeKind, Role, Silence
from tests.cluster.raft.raft_rig import MS, RaftRig
from tests.support.few_seeds import few_of

WORKING = range(5)
"""Seeds of `test_random_walks_get_work_done` and its like, which look for violations too."""

SEEDS = few_of(3, 60)


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("seed", SEEDS)
def test_invariants_hold_on_a_random_walk(size: int, seed: int) -> None:
    """Figure 3.2: election safety, append-only, log matching, completeness, one state machine; §6.4: reads, lease."""
    walk = Walk(size, len(WORKING) + seed)
    walk.run(1_500)
    assert walk.rig.violations == []


QUIET = {"quiesce_after_ns": 100 * MS}


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("seed", few_of(2, 30))
def test_invariants_hold_where_groups_fall_silent(size: int, seed: int) -> None:
    """Leases above all: heartbeats between nodes renew them while the group says nothing (G6)."""
    walk = Walk(size, len(WORKING) + seed, **QUIET)
    walk.run(1_500)
    assert walk.rig.violations == []


def test_random_walks_fall_silent_and_speak_again() -> None:
    """Each end of a silence happens, to leaders and followers, or the walks above would prove nothing."""
    seen: Counter[str] = Counter()
    for seed in WORKING:
        walk = Walk(3, seed, **QUIET)
        walk.run(1_500)
        assert walk.rig.violations == []
        seen.update(silence for _, silence in walk.rig.quiesced)
        assert walk.rig.acknowledged
    assert min(seen[str(silence)] for silence in Silence) > 20, seen


def test_random_walks_extend_leases_and_tell_of_it() -> None:
    extended = 0
    for seed in WORKING:
        walk = Walk(3, seed, **QUIET)
        walk.run(1_500)
        extended += walk.rig.invariants.extensions_reported
    assert extended > 100


@pytest.mark.parametrize("forgets", ["promised", "promised_ever"])
def test_random_walks_find_voters_that_forget_what_they_promised(monkeypatch: pytest.MonkeyPatch, forgets: str) -> None:
    """When their silence ends, or when they start anew."""
    mutant = (lambda _, until: until) if forgets == "promised_ever" else lambda state: state.extended_until
    monkeypatch.setattr(quiescence, forgets, mutant)
    found = found_within(range(20), **QUIET)
    assert any("extended lease" in violation for violation in found), found


def test_random_walks_get_work_done() -> None:
    """The walks would prove nothing if nobody led, committed, read, restarted or caught up by snapshot."""
    walks = [Walk(3, seed) for seed in WORKING]
    for walk in walks:
        walk.run(1_500)
        rig = walk.rig
        assert rig.violations == []
        assert len(rig.acknowledged) > 10
        assert sum(index is not None for index in rig.reads.values()) > 10
        assert sum(node.starts for node in rig.nodes.values()) > 5
        assert len([result for result in rig.changes.values() if result.position is not None]) > 2
    assert any(node.disk_snapshot is not None for walk in walks for node in walk.rig.nodes.values())
    assert {len(voters) for walk in walks for voters in walk.rig.configured} > {3}
    assert any(walk.rig.installed for walk in walks)


def found_within(seeds: Sequence[int], *flaws: str, **options: Any) -> list[str]:
    """What the first walk that breaks something breaks."""
    for seed in seeds:
        walk = Walk(3, seed, flaws, **options)
        walk.run(2_000)
        if walk.rig.violations:
            return walk.rig.violations
    return []


@pytest.mark.parametrize("flaw", ["raft-ack-before-fsync", "read-without-lease"])
def test_random_walks_find_flaws(flaw: str) -> None:
    assert found_within(range(20), flaw)


def test_random_walks_find_drift_beyond_the_declared_bound() -> None:
    assert any("lease" in violation for violation in found_within(range(40), max_clock_drift=0.0))


class RaftMachine(RuleBasedStateMachine):
    """Every single choice is hypothesis's own: which message, which disk, which clock, which node."""

    rig: RaftRig
    commands = 0

    @initialize(size=st.sampled_from([3, 5]), seed=st.integers(0, 1_000), elect=st.booleans(), silent=st.booleans())
    def begin(self, size: int, seed: int, elect: bool, silent: bool) -> None:
        options: dict[str, Any] = {
            "max_batch_entries": 2,
            "max_inflight": 2,
            "retained_entries": 1,
            "catch_up_rounds": 2,
        }
        options |= {"catch_up_rounds": 2, **(QUIET if silent else {})}
        self.rig = RaftRig(size, seed, spares=2, max_clock_drift=DRIFT, **options)
        if elect:
            self.rig.elect("a")
            self.rig.run(500 if silent else 0)

    def up(self, number: int) -> str | None:
        alive = self.rig.alive()
        return alive[number % len(alive)] if alive else None

    def leader_or(self, number: int) -> str | None:
        alive = self.rig.alive()
        leaders = [name for name in alive if self.rig.raft(name).role is Role.LEADER]
        return (leaders or alive)[number % len(leaders or alive)] if alive else None

    @precondition(lambda self: self.rig.flights)
    @rule(number=st.integers(0, 40), duplicate=st.booleans())
    def deliver(self, number: int, duplicate: bool) -> None:
        flights = self.rig.flights
        self.rig.deliver(flights[number % len(flights)], keep=duplicate)

    @precondition(lambda self: self.rig.flights)
    @rule(number=st.integers(0, 40))
    def drop(self, number: int) -> None:
        flights = self.rig.flights
        del flights[number % len(flights)]

    @rule(milliseconds=st.sampled_from([1, 5, 30, 100, 400, 700, 1_300]))
    def run(self, milliseconds: int) -> None:
        self.rig.run(milliseconds)

    @rule(milliseconds=st.sampled_from([1, 90, 590, 610]), number=st.integers(0, 4))
    def skip_and_tick(self, milliseconds: int, number: int) -> None:
        """Time passes with nothing delivered; one node notices."""
        self.rig.now_ns += milliseconds * 1_000_000
        if (name := self.up(number)) is not None:
            self.rig.tick(name)

    @rule(number=st.integers(0, 4), count=st.integers(1, 4))
    def persist(self, number: int, count: int) -> None:
        if (name := self.up(number)) is not None:
            self.rig.persist(name, count)

    @rule(number=st.integers(0, 4), rate=st.floats(1 - DRIFT, 1 + DRIFT))
    def skew(self, number: int, rate: float) -> None:
        if (name := self.up(number)) is not None:
            self.rig.set_rate(name, rate)

    @rule(number=st.integers(0, 4))
    def propose(self, number: int) -> None:
        if (name := self.leader_or(number)) is not None:
            self.commands += 1
            self.rig.propose(name, b"%d" % self.commands)

    @rule(number=st.integers(0, 4))
    def read(self, number: int) -> None:
        if (name := self.leader_or(number)) is not None:
            self.rig.read(name)

    @rule(number=st.integers(0, 4))
    def compact(self, number: int) -> None:
        if (name := self.up(number)) is not None:
            self.rig.compact(name)

    @rule(number=st.integers(0, 4), heir=st.integers(0, 4))
    def transfer(self, number: int, heir: int) -> None:
        name, to = self.leader_or(number), self.up(heir)
        if name is not None and to is not None:
            self.rig.transfer(name, to)

    @rule(number=st.integers(0, 4), wanted=st.booleans())
    def hand_over(self, number: int, wanted: bool) -> None:
        if (name := self.leader_or(number)) is not None:
            self.rig.hand_over(name, wanted)

    @rule(number=st.integers(0, 4), server=st.integers(0, 4))
    def withdraw(self, number: int, server: int) -> None:
        if (name := self.up(number)) is not None:
            self.rig.withdraw(name, self.rig.names[server])

    @rule(number=st.integers(0, 4), server=st.integers(0, 4))
    def beat(self, number: int, server: int) -> None:
        name, target = self.up(number), self.rig.names[server]
        if name is not None and name != target:
            now_ns = self.rig.nodes[name].clock_ns(self.rig.now_ns)
            self.rig.send((Beat(name, target, heartbeat_ns=now_ns),))

    @rule(number=st.integers(0, 4), kind=st.sampled_from(ChangeKind), whom=st.integers(0, 6))
    def change(self, number: int, kind: ChangeKind, whom: int) -> None:
        if (name := self.leader_or(number)) is not None:
            self.rig.change(name, kind, self.rig.names[whom % len(self.rig.names)])

    @rule(number=st.integers(0, 4))
    def crash(self, number: int) -> None:
        if (name := self.up(number)) is not None:
            self.rig.crash(name)

    @rule()
    def restart_all(self) -> None:
        for name in self.rig.names:
            if name not in self.rig.alive():
                self.rig.start(name)

    @rule(source=st.integers(0, 4), sink=st.integers(0, 4), alone=st.booleans())
    def cut(self, source: int, sink: int, alone: bool) -> None:
        names = self.rig.names
        if alone:
            self.rig.isolate(names[source % len(names)])
        else:
            self.rig.cut(names[source % len(names)], names[sink % len(names)])

    @rule()
    def heal(self) -> None:
        self.rig.heal()

    @invariant()
    def nothing_is_broken(self) -> None:
        assert self.rig.violations == []


TestRaftMachine = RaftMachine.TestCase
TestRaftMachine.settings = settings(deadline=None, stateful_step_count=60, suppress_health_check=list(HealthCheck))

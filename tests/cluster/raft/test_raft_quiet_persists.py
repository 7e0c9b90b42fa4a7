"""`Raft.persisted_quietly` leaves out a step only where that step would have asked for nothing."""

from __future__ import annotations

import copy
import random
from collections import deque

from cluster.raft.core import Raft
from cluster.raft.log import Log
from cluster.raft.progress import Progress
from cluster.raft.state import State
from cluster.raft.types import Event, Ready, Role
from tests.cluster.raft.raft_rig import RaftRig


class Twins(RaftRig):
    """A rig that has a copy of each node take in quietly what the node takes in as a step, and compares the two."""

    quiet = 0
    last = Ready()

    def persist(self, name: str, count: int = 1) -> None:
        for _ in range(min(count, len(self.nodes[name].queue))):
            node, twin = self.nodes[name], twin_of(self.raft(name))
            wake_ns, quietly = node.wake_ns, twin.persisted_quietly(node.queue[0][1].sequence)
            super().persist(name)
            if quietly:
                self.quiet += 1
                assert self.last == Ready(wake_ns=wake_ns)
                assert known(twin._state) == known(self.raft(name)._state)

    def step(self, name: str, event: Event) -> Ready:
        self.last = super().step(name, event)
        return self.last


def twin_of(raft: Raft) -> Raft:
    """A copy of everything but what all nodes share."""
    state = raft._state
    liveness, state.liveness = state.liveness, None
    try:
        return copy.deepcopy(raft)
    finally:
        state.liveness = liveness


def known(found: object) -> object:
    """All that a state holds, for comparison."""
    if isinstance(found, random.Random):
        return found.getstate()
    if isinstance(found, dict):
        return {key: known(value) for key, value in found.items()}
    if isinstance(found, list | deque):
        return [known(each) for each in found]
    if isinstance(found, State | Log | Progress):
        return {slot: known(getattr(found, slot)) for slot in type(found).__slots__ if slot != "liveness"}
    return None if type(found).__eq__ is object.__eq__ else found


def test_a_step_is_left_out_only_where_it_would_have_asked_for_nothing() -> None:
    rig = Twins(seed=3)
    for number in range(4):
        assert rig.run_until(lambda: any(rig.raft(name).role is Role.LEADER for name in rig.alive()))
        for command in range(20):
            rig.propose(rig.leader(), b"%d" % command)
            rig.run(5)
        victim = rig.leader() if number % 2 else next(name for name in rig.alive() if name != rig.leader())
        rig.crash(victim)
        rig.run(1_500)
        rig.start(victim)
        rig.run(500)
    assert rig.quiet > 50
    assert not rig.violations


def test_candidates_leaders_and_flaws_take_a_step() -> None:
    rig = Twins(seed=4)
    rig.elect("a")
    assert not rig.raft("a").persisted_quietly(1)
    flawed = Twins(seed=4, flaws=("apply-uncommitted",))
    assert not flawed.raft("b").persisted_quietly(0)
    assert rig.raft("b").persisted_quietly(0)

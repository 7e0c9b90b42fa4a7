"""A seeded random walk over a rig: every fault that the model allows, in any order."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from raft_flights import Beat

from cluster.raft.types import ChangeKind, Role
from tests.cluster.raft.raft_rig import MS, RaftRig

DRIFT = 0.1


class Walk:
    """Random actions, biased so that leaders come to be, work gets done, and old messages stay around.

    `spares` begin outside the group; they, and whoever was removed, come and go as learners and voters.
    """

    def __init__(self, size: int, seed: int, flaws: Iterable[str] = (), spares: int = 2, **options: Any) -> None:
        self.entropy = random.Random(seed)
        options = {
            "max_clock_drift": DRIFT,
            "max_batch_entries": 3,
            "max_inflight": 2,
            "retained_entries": 2,
            **options,
        }
        self.rig = RaftRig(size, seed, flaws, spares, **options)
        self.rig.delay_ns = self.delay_ns
        self.commands = 0
        for name in self.rig.names:
            self.rig.set_rate(name, self.entropy.uniform(1 - DRIFT, 1 + DRIFT))
        self.actions = [
            (self.deliver, 40),
            (self.pass_time, 25),
            (self.fsync, 20),
            (self.propose, 8),
            (self.read, 8),
            (self.duplicate, 3),
            (self.drop, 3),
            (self.long_time, 2),
            (self.compact, 1),
            (self.transfer, 1),
            (self.hand_over, 0.3),
            (self.change, 4),
            (self.crash, 0.7),
            (self.restart, 1.5),
            (self.partition, 0.6),
            (self.heal, 0.8),
            (self.skew, 1),
            (self.slow_disk, 1),
            (self.stalk, 0.7),
            (self.race_clocks, 0.5),
            *(((self.rest, 3), (self.withdraw, 0.5), (self.beat, 8)) if "quiesce_after_ns" in options else ()),
        ]

    def run(self, steps: int) -> None:
        actions = [action for action, _ in self.actions]
        weights = [weight for _, weight in self.actions]
        for action in self.entropy.choices(actions, weights, k=steps):
            action()

    def delay_ns(self) -> int:
        """A few messages are very late: older than elections, restarts and leases."""
        late = self.entropy.random() < 0.05
        return int(self.entropy.expovariate(1) * (800 * MS if late else MS))

    def deliver(self) -> None:
        """Mostly the oldest message, sometimes any."""
        flights = self.rig.flights
        if flights:
            chosen = flights[0] if self.entropy.random() < 0.7 else self.entropy.choice(flights)
            self.rig.deliver(chosen)

    def duplicate(self) -> None:
        if self.rig.flights:
            self.rig.deliver(self.entropy.choice(self.rig.flights), keep=True)

    def drop(self) -> None:
        if self.rig.flights:
            self.rig.flights.remove(self.entropy.choice(self.rig.flights))

    def pass_time(self) -> None:
        self.rig.run(self.entropy.choice((0.3, 2, 10, 40)))

    def long_time(self) -> None:
        self.rig.run(self.entropy.choice((200, 700, 1500)))

    def fsync(self) -> None:
        name = self.entropy.choice(self.rig.names)
        if self.rig.nodes[name].raft is not None:
            self.rig.persist(name, self.entropy.randint(1, 3))

    def leader_or_any(self) -> str | None:
        alive = self.rig.alive()
        leaders = [name for name in alive if self.rig.raft(name).role is Role.LEADER]
        return self.entropy.choice(leaders or alive) if alive else None

    def propose(self) -> None:
        if (name := self.leader_or_any()) is not None:
            self.commands += 1
            self.rig.propose(name, b"%d" % self.commands)

    def read(self) -> None:
        if (name := self.leader_or_any()) is not None:
            self.rig.read(name)

    def compact(self) -> None:
        if alive := self.rig.alive():
            self.rig.compact(self.entropy.choice(alive))

    def transfer(self) -> None:
        if (name := self.leader_or_any()) is not None:
            self.rig.transfer(name, self.entropy.choice(self.rig.names))

    def hand_over(self) -> None:
        if (name := self.leader_or_any()) is not None:
            self.rig.hand_over(name, self.entropy.random() < 0.5)

    def change(self) -> None:
        """Mostly ask a leader, and often for what it can do; removals are rarer, or nobody would be left to fail."""
        if (name := self.leader_or_any()) is None:
            return
        kinds = (ChangeKind.ADD_LEARNER, ChangeKind.PROMOTE, ChangeKind.DEMOTE, ChangeKind.REMOVE)
        kind = self.entropy.choices(kinds, (3, 4, 1, 1))[0]
        configuration = self.rig.raft(name).configuration
        outside = [other for other in self.rig.names if other not in configuration.voter_ids]
        fitting = {ChangeKind.ADD_LEARNER: outside, ChangeKind.PROMOTE: configuration.learner_ids}
        self.rig.change(name, kind, self.entropy.choice(fitting.get(kind) or self.rig.names))

    def crash(self) -> None:
        if alive := self.rig.alive():
            self.rig.crash(self.entropy.choice(alive))

    def restart(self) -> None:
        down = [name for name in self.rig.names if self.rig.nodes[name].raft is None]
        if down:
            self.rig.start(self.entropy.choice(down))

    def partition(self) -> None:
        names = self.rig.names
        if self.entropy.random() < 0.5:
            self.rig.isolate(self.entropy.choice(names))
        else:
            source, target = self.entropy.sample(names, 2)
            self.rig.cut(source, target)

    def heal(self) -> None:
        self.rig.heal()

    def skew(self) -> None:
        self.rig.set_rate(self.entropy.choice(self.rig.names), self.entropy.uniform(1 - DRIFT, 1 + DRIFT))

    def slow_disk(self) -> None:
        node = self.rig.nodes[self.entropy.choice(self.rig.names)]
        node.fsync_ns = self.entropy.choice((MS // 2, 50 * MS))

    def stalk(self) -> None:
        """Starve a follower of its leader until it stands; then maybe restart a voter, maybe cut the leader off."""
        name = self.leader_or_any()
        if name is None or self.rig.raft(name).role is not Role.LEADER:
            return
        others = [other for other in self.rig.alive() if other != name]
        if not others:
            return
        rival = self.entropy.choice(others)
        self.rig.cut(name, rival)
        self.rig.run_until(lambda: self.rig.raft(rival).role is not Role.FOLLOWER, 2_000, grain=1)
        voter = self.entropy.choice(others)
        if self.entropy.random() < 0.5 and voter != rival:
            self.rig.crash(voter)
            self.rig.start(voter)
        if self.entropy.random() < 0.5:
            self.rig.isolate(name)
            self.rig.run(20)

    def rest(self) -> None:
        """Let everything arrive, and leave the group alone until it is silent; then maybe something happens to it."""
        self.rig.heal()
        self.rig.run(self.entropy.choice((300, 600, 1_200)))
        if self.entropy.random() < 0.5:
            self.entropy.choice((self.partition, self.crash, self.stalk, self.race_clocks, self.transfer))()

    def beat(self) -> None:
        """A node's heartbeats leave, as they do while other groups are silent; an echo may be any old one."""
        if alive := self.rig.alive():
            source, target = self.entropy.choice(alive), self.entropy.choice(self.rig.names)
            if source != target:
                self.rig.send((Beat(source, target, self.rig.nodes[source].clock_ns(self.rig.now_ns)),))

    def withdraw(self) -> None:
        """Another group between two nodes ends the support of one for the other."""
        if alive := self.rig.alive():
            self.rig.withdraw(self.entropy.choice(alive), self.entropy.choice(self.rig.names))

    def race_clocks(self) -> None:
        """The leader's clock as slow, the voters' as fast as they may be, and the leader cut off."""
        name = self.leader_or_any()
        for other in self.rig.names:
            self.rig.set_rate(other, 1 - DRIFT if other == name else 1 + DRIFT)
        self.rig.run(200)
        if name is not None:
            self.rig.isolate(name)
        self.rig.run(1_000)

"""Random transactional histories from stores that run transactions a micro-operation at a time, interleaved, with
snapshots, conflicts and replicas, each weakened at random; each history from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from weak_store import Txn

State = dict[int, tuple[int, ...]]

LEVELS = ("serial", "snapshot", "committed", "uncommitted")
WEAKNESSES = ("stale", "lost", "dirty_abort", "overwriting", "forked", "half_committed", "doubled", "shuffled")


@dataclass(frozen=True)
class Shape:
    """What a history and its store are like; probabilities are per transaction, `lost` is per write."""

    lists: bool
    level: str
    txns: int
    keys: int
    processes: int
    mops: int
    info: float = 0.0
    fail: float = 0.0
    refuses_conflicts: bool = True
    stale: float = 0.0
    lost: float = 0.0
    dirty_abort: float = 0.0
    overwriting: float = 0.0
    forked: float = 0.0
    half_committed: float = 0.0
    doubled: float = 0.0
    shuffled: float = 0.0

    @classmethod
    def any(cls, dice: random.Random, lists: bool, most_txns: int) -> Shape:
        """A shape with no, one or two weaknesses."""
        weak = dice.sample(WEAKNESSES, dice.choice([0, 1, 1, 2]))
        return cls(
            lists,
            dice.choice(LEVELS),
            dice.randint(3, most_txns),
            dice.randint(1, 6),
            dice.randint(2, 8),
            dice.choice([1, 2, 4, 4]),
            info=dice.choice([0.0, 0.05, 0.15]),
            fail=dice.choice([0.0, 0.05, 0.3]),
            refuses_conflicts=dice.random() < 0.6,
            **{name: dice.choice([0.02, 0.1, 0.3]) for name in weak},
        )


@dataclass
class Open:
    """A transaction under way: its snapshot, its own writes, and what it did so far."""

    process: int
    invoke: int
    began: int
    todo: list[tuple[str, int, Any]]
    view: State
    done: list[tuple[str, int, Any]] = field(default_factory=list)
    own: list[tuple[int, int]] = field(default_factory=list)
    replica: int = 0


class StepwiseStore:
    """Runs one history. `commits` are the committed states of each replica, `changed` when keys were last written."""

    def __init__(self, shape: Shape, dice: random.Random) -> None:
        self.shape, self.dice = shape, dice
        self.commits: list[list[State]] = [[{}], [{}]]
        self.dirty: State = {}
        self.changed: dict[int, int] = {}
        self.late: list[tuple[int, list[tuple[int, int]]]] = []
        self.found: list[Txn] = []
        self.written: dict[int, int] = {}
        self.clock = 0

    def begin(self, process: int) -> Open:
        todo: list[tuple[str, int, Any]] = []
        for _ in range(self.dice.randint(1, self.shape.mops)):
            key = self.dice.randrange(self.shape.keys)
            if self.dice.random() < 0.5:
                todo.append(("r", key, None))
            else:
                self.written[key] = self.written.get(key, 0) + 1
                todo.append(("append" if self.shape.lists else "w", key, self.written[key]))
        replica = int(self.dice.random() < self.shape.forked)
        states = self.commits[replica]
        back = self.dice.randrange(min(5, len(states))) if self.dice.random() < self.shape.stale else 0
        return Open(process, self.clock, len(states) - back, todo, states[-1 - back], replica=replica)

    def step(self, txn: Open) -> None:
        f, key, value = txn.todo.pop(0)
        if f != "r":
            txn.own.append((key, value))
            self.dirty = self._with(self.dirty, [(key, value)])
            txn.done.append((f, key, value))
            return
        base = {"snapshot": txn.view, "uncommitted": self.dirty}.get(self.shape.level, self.commits[txn.replica][-1])
        mine = [] if self.shape.level == "uncommitted" else [write for write in txn.own if write[0] == key]
        held = self._with(base, mine).get(key, ())
        txn.done.append((f, key, held if self.shape.lists else held[-1] if held else None))

    def finish(self, txn: Open) -> str:
        """Commit or abort; returns the outcome."""
        shape, dice = self.shape, self.dice
        conflict = any(self.changed.get(key, 0) > txn.began for key, _ in txn.own)
        refused = shape.level in ("snapshot", "serial") and shape.refuses_conflicts and conflict
        if refused or dice.random() < shape.fail:
            if dice.random() < shape.dirty_abort:
                self._commit(txn)
            return "fail"
        if dice.random() < shape.info:
            if dice.random() < 0.5:
                self._commit(txn)
            return "info"
        self._commit(txn)
        return "ok"

    def _commit(self, txn: Open) -> None:
        shape, dice = self.shape, self.dice
        writes = [write for write in txn.own if dice.random() >= shape.lost]
        parts = [writes]
        if len(writes) > 1 and dice.random() < shape.half_committed:
            parts = [writes[:1], writes[1:]]
        states = self.commits[txn.replica]
        if dice.random() < shape.overwriting:
            states.append(states[-1] | {key: txn.view.get(key, ()) for key, _ in writes})
        for part in parts:
            states.append(self._with(states[-1], part))
        self.changed |= {key: len(states) for key, _ in writes}
        if shape.forked:
            self.late.append((1 - txn.replica, writes))
        self.dirty = dict(states[-1])

    def catch_up(self) -> None:
        """Now and then a replica takes up what the other committed."""
        while self.late and self.dice.random() < 0.5:
            replica, writes = self.late.pop(0)
            states = self.commits[replica]
            states.append(self._with(states[-1], writes))

    def _with(self, state: State, writes: list[tuple[int, int]]) -> State:
        after = dict(state)
        for key, value in writes:
            held = after.get(key, ())
            place = self.dice.randrange(len(held) + 1) if self.dice.random() < self.shape.shuffled else len(held)
            copies = 2 if self.dice.random() < self.shape.doubled else 1
            after[key] = (*held[:place], *(value,) * copies, *held[place:])
        return after

    def run(self) -> list[Txn]:
        """The history in order of invocation."""
        shape, dice = self.shape, self.dice
        processes, running, begun = list(range(shape.processes)), dict[int, Open](), 0
        while begun < shape.txns or running:
            choices = [p for p in processes if begun < shape.txns or p in running]
            process = dice.choice(choices)
            if process not in running:
                running[process] = self.begin(process)
                begun, self.clock = begun + 1, self.clock + 1
            elif running[process].todo and (shape.level != "serial" or dice.random() < 0.5):
                self._advance(running[process])
            else:
                self._complete(running.pop(process), processes)
            self.catch_up()
        return sorted(self.found, key=lambda txn: txn.invoke)

    def _advance(self, txn: Open) -> None:
        if self.shape.level != "serial":
            self.step(txn)

    def _complete(self, txn: Open, processes: list[int]) -> None:
        if self.shape.level == "serial":
            txn.began = len(self.commits[txn.replica])
            txn.view = self.commits[txn.replica][-1]
        while txn.todo:
            self.step(txn)
        outcome = self.finish(txn)
        mops = tuple(txn.done) if outcome == "ok" else tuple((f, k, None if f == "r" else v) for f, k, v in txn.done)
        self.found.append(Txn(txn.process, outcome, txn.invoke, None if outcome == "info" else self.clock, mops))
        self.clock += 1
        if outcome == "info":
            processes[processes.index(txn.process)] = max(processes) + 1


def stepwise_history(seed: int, lists: bool, most_txns: int = 150) -> list[Txn]:
    """A history in order of invocation."""
    dice = random.Random(f"{seed} {lists}")
    return StepwiseStore(Shape.any(dice, lists, most_txns), dice).run()

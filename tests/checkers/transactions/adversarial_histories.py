"""Small transactional histories at the edge of each level: each from a seed, drawn as an abstract execution of a level.

Transactions take place in an order; what each sees is drawn as a level's axioms ask, and it reads that. Some reads then
find another version, and transactions of unknown outcome may or may not have taken place, so most histories are allowed
at some levels and refuted at others.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from abstract_executions import AXIOMS
from weak_store import Txn

Mops = list[tuple[str, int, Any]]

DRAWN: Final = (*("read-committed",) * 4, *("read-atomic", "causal-cerone") * 2, *AXIOMS)
"""Of which levels executions are drawn: the weak ones, in which anomalies are likely, more often."""

GARBAGE: Final = 99
"""A value that nobody writes."""

SHAPES: Final = (
    *("rx wx|rx wx|rx", "wx|rx wx|rx wx|rx", "wx|wx|rx|rx"),  # lost updates, orders of blind writes
    *("wx wy|wx wy|rx ry", "wx wy|rx wx|rx ry", "wx wy|wx wy|rx wy|ry wx"),  # fractured reads
    *("wx|rx wy|ry rx", "wx|rx wy|ry wz|rz rx", "wx wz|wz wy|ry rx", "wx|rx wy|wy wz|rz rx"),  # causality
    *("wx|wy|rx ry|ry rx", "wx wz|wy|rx ry|ry rx") * 2,  # long forks
    *("wx|wy|rx wz|ry wz|rx ry rz", "wx|wy|rx ry wz|ry rx", "wx|rx wy|wz|ry rz|rz rx"),
    *(
        "rx wy|ry wx",
        "wx wy|rx ry wx|rx ry wy",
        "rx wy|ry wz|rz wx",
        "rx wx wy|ry wz|rz rx",
        "wx ry wz|wx wy rz",
    ),  # skew
    *("rx wx rx|wx wx rx|rx rx", "wx rx wy|rx ry rx"),  # own writes and intermediate versions
)
OTHERS: Final = ("rx ry", "ry rx", "rx rx", "rx wx", "rx ry wx", "ry wy", "wx wy", "rx wy", "wx", "rx ry rz", "wy ry")
"""Transactions of known anomalies, and what may run beside them; their micro-operations on keys x, y and z."""


class Small(NamedTuple):
    """A history in order of invocation, and what its registers begin as."""

    txns: list[Txn]
    initial: int | None


def adversarial(seed: int, lists: bool) -> Small:
    """At most five transactions, of at most four micro-operations each."""
    dice = random.Random(f"adversarial {seed} {lists}")
    initial = 0 if not lists and dice.random() < 0.3 else None
    world = World(dice, lists, dice.choice(DRAWN), dice.choice((0, 1, 2)), dice.choice((0.0, 0.0, 0.1, 0.3)), initial)
    return Small(world.run(), initial)


@dataclass
class World:
    """Draws one history, `asked` of its transactions' views in the form; reads go wrong with probability `strange`."""

    dice: random.Random
    lists: bool
    level: str
    form: int
    strange: float
    initial: int | None
    versions: dict[int, list[tuple[int, Any]]] = field(
        default_factory=dict
    )  # by key the place of the writer, and value
    shown: dict[int, list[Any]] = field(
        default_factory=dict
    )  # by key all states that it was ever in, of failed ones too
    written: list[int] = field(default_factory=list)  # by place the keys, as bits
    views: list[int] = field(default_factory=list)

    def run(self) -> list[Txn]:
        plans = self._plans()
        outcomes = self.dice.choices(("ok", "info", "fail"), self.dice.choice(((1, 0, 0), (80, 12, 8))), k=len(plans))
        times = self._times(len(plans))
        processes = self._processes(times, outcomes)
        done = []
        for place, (plan, outcome) in enumerate(zip(plans, outcomes, strict=True)):
            done.append(self._take(place, plan, self._before(place, times, processes, outcomes), outcome))
        txns = [
            Txn(process, outcome, invoke, None if outcome == "info" else complete, self._changed(mops, outcome))
            for process, outcome, (invoke, complete), mops in zip(processes, outcomes, times, done, strict=True)
        ]
        return sorted(txns, key=lambda txn: txn.invoke)

    def _changed(self, mops: Mops, outcome: str) -> tuple[tuple[str, int, Any], ...]:
        """The micro-operations, but some reads find what others wrote to the key, whenever that was."""
        return tuple(
            (f, key, self.dice.choice((*self.shown[key], (GARBAGE,) if self.lists else GARBAGE)))
            if f == "r" and outcome == "ok" and self.dice.random() < self.strange
            else (f, key, value)
            for f, key, value in mops
        )

    def _plans(self) -> list[Mops]:
        """A shape, as it is or shuffled, and random transactions around it; no value twice."""
        dice, values = self.dice, itertools.count(1)
        shape = dice.choice(SHAPES).split("|")
        if dice.random() < 0.25:
            dice.shuffle(shape)
        for _ in range(dice.choice((0, 0, 1, 1, 2)) if len(shape) < 5 else 0):
            shape.insert(dice.randint(0, len(shape)), dice.choice(OTHERS))
        plans = [txn.split() for txn in shape[:5]]
        return [[(f, "xyz".index(key), next(values) if f == "w" else None) for f, key in plan] for plan in plans]

    def _times(self, count: int) -> list[tuple[int, int]]:
        """By place an invocation and a completion, all different; long or short, near the place or not."""
        dice, wide, off = self.dice, self.dice.choice((0.3, 1.0, 3.0)), self.dice.choice((0.0, 0.0, 1.5))
        middles = [place + dice.uniform(-off, off) for place in range(count)]
        ends = [m + sign * dice.uniform(0, wide) for m in middles for sign in (-1, 1)]
        rank = {end: number for number, end in enumerate(sorted(range(2 * count), key=ends.__getitem__))}
        return [(rank[2 * place], rank[2 * place + 1]) for place in range(count)]

    def _processes(self, times: list[tuple[int, int]], outcomes: list[str]) -> list[int]:
        """A process does one thing at a time, and nothing after an unknown outcome."""
        free: dict[int, int] = {}
        processes = [0] * len(times)
        for place in sorted(range(len(times)), key=lambda p: times[p][0]):
            idle = [process for process, end in free.items() if end < times[place][0]]
            process = self.dice.choice(idle) if idle and self.dice.random() < 0.75 else len(free)
            processes[place] = process
            free[process] = 10**6 if outcomes[place] == "info" else times[place][1]
        return processes

    def _before(self, place: int, times: list[tuple[int, int]], processes: list[int], outcomes: list[str]) -> int:
        """Whom the form has a transaction see, of those at earlier places."""
        return sum(
            1 << other
            for other in range(place)
            if self.form and outcomes[other] == "ok" and times[other][1] < times[place][0]
            if self.form == 2 or processes[other] == processes[place]
        )

    def _view(self, place: int, least: int) -> int:
        axioms, every = AXIOMS.get(self.level, frozenset()), (1 << place) - 1
        if "TOTALVIS" in axioms:
            return every
        if "PREFIX" in axioms:
            return (1 << self.dice.randint(least.bit_length(), place)) - 1
        likely = self.dice.choice((0.3, 0.6, 0.85))
        view = least | sum(1 << other for other in range(place) if self.dice.random() < likely)
        for other in range(place):
            if "TRANSVIS" in axioms and view >> (place - 1 - other) & 1:
                view |= self.views[place - 1 - other]
        return view

    def _take(self, place: int, plan: Mops, least: int, outcome: str) -> Mops:
        """Read and write as one that sees at least those given; its micro-operations with what they found."""
        keys = sum(1 << key for key in {key for f, key, _ in plan if f == "w"})
        if "NOCONFLICT" in AXIOMS.get(self.level, ()):
            least |= sum(1 << other for other, theirs in enumerate(self.written) if theirs & keys)
        view = self._view(place, least)
        done: Mops = []
        own: dict[int, list[int]] = {}
        for f, key, value in plan:
            if f == "w":
                own.setdefault(key, []).append(value)
                done.append(("append" if self.lists else "w", key, value))
                continue
            if self.level == "read-committed":
                view = self._view(place, least)
            done.append(("r", key, self._found(key, view, own.get(key, [])) if outcome == "ok" else None))
        happened = outcome == "ok" or (outcome == "info" and self.dice.random() < 0.5)
        self.views.append(view)
        self.written.append(keys if happened else 0)
        for key, values in own.items():
            last = self._of(key)[-1][1]
            states = [
                (*last, *values[:number]) if self.lists else values[number - 1] for number in range(1, len(values) + 1)
            ]
            self.shown[key] += states
            if happened:
                self._of(key).append((place, states[-1]))
        return done

    def _of(self, key: int) -> list[tuple[int, Any]]:
        nothing = () if self.lists else self.initial
        self.shown.setdefault(key, [nothing])
        return self.versions.setdefault(key, [(-1, nothing)])

    def _found(self, key: int, view: int, own: list[int]) -> Any:
        seen = [shown for place, shown in self._of(key) if place < 0 or view >> place & 1]
        return (*seen[-1], *own) if self.lists else own[-1] if own else seen[-1]

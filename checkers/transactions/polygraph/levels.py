"""What a polygraph says of a consistency model: by its own condition, else by what the lattice says of others."""

from __future__ import annotations

import time
from typing import Any, Final, NamedTuple

import numpy as np

from checkers.transactions.lattice import implied_models, impossible_models
from checkers.transactions.polygraph.clauses import Clause, CycleStep
from checkers.transactions.polygraph.conditions import CONDITIONS, READS, SERIAL, SNAPSHOT, WRITES
from checkers.transactions.polygraph.decide import DecisionBudget, Holds, Refuted, decide
from checkers.transactions.polygraph.history_polygraph import REALTIME, Polygraph

_NO_CONDITION: Final = (
    "What {} asks for is not looked for by itself; none of the stronger models that are decided holds here, and none "
    "of the weaker ones is refuted."
)


class LevelQuestion(NamedTuple):
    """Picklable: whether a consistency model holds. `shown` are the anomalies that were found; `stated` says whether
    what settings state of version orders counts, `timed` whether the history has real time; `seconds` and `memory`
    (bytes) bound the answer."""

    consistency: str
    shown: tuple[str, ...]
    stated: bool
    timed: bool
    seconds: float
    memory: int


class LevelAnswer(NamedTuple):
    """`valid`: true or false by the model `level`, None if nothing decides, for a `reason`. A model that holds has a
    witness (`decide.Holds.order`), one that is refuted has cycles, in the history's numbers of transactions."""

    valid: bool | None
    level: str = ""
    reason: str = ""
    witness: Any = None
    cycles: tuple[Clause, ...] = ()


def is_open(consistency: str, lists: bool, open_keys: int, shown: tuple[str, ...]) -> bool:
    """Whether cycles of dependencies that were observed (Elle's) leave open if the model holds.

    They don't where all orders of versions are known, and at levels that hang on no order; but a transaction whose
    reads of a register differ depends on several versions, of which they see the first.
    """
    condition = CONDITIONS[consistency][0] if consistency in CONDITIONS else None
    several = not lists and "internal" in shown
    if condition in (WRITES, READS):
        return several or (lists and open_keys > 0)
    return open_keys > 0 or several or not (condition in (SNAPSHOT, SERIAL) or consistency == "consistent-view")


def answered(polygraph: Polygraph, question: LevelQuestion) -> LevelAnswer:
    """What the polygraph says of a model that no anomaly of single reads rules out."""
    budget = DecisionBudget(time.perf_counter() + question.seconds, question.memory)
    if question.consistency in CONDITIONS:
        return _by_own_condition(polygraph, question.consistency, budget)
    reasons = [_NO_CONDITION.format(question.consistency)]
    for level, proves in _neighbours(question):
        answer = _by_own_condition(polygraph, level, budget)
        if answer.valid is proves:
            return answer
        if answer.valid is None:
            reasons.append(answer.reason)
    return LevelAnswer(None, reason=" ".join(dict.fromkeys(reasons)))


def _neighbours(question: LevelQuestion) -> list[tuple[str, bool]]:
    """Models with a condition, and what of them decides: that one of the nearest stronger holds, that one of the
    nearest weaker does not."""
    consistency, impossible = question.consistency, impossible_models(question.shown)
    known = [name for name, (_, form) in CONDITIONS.items() if question.timed or form != REALTIME]
    above = [name for name in known if consistency in implied_models(name) and name not in impossible]
    below = [name for name in known if name in implied_models(consistency)]
    nearest = [name for name in above if not implied_models(name) & set(above)]
    under = [name for name in below if not any(name in implied_models(other) for other in below)]
    return [*((name, True) for name in nearest), *((name, False) for name in under)]


def _by_own_condition(polygraph: Polygraph, level: str, budget: DecisionBudget) -> LevelAnswer:
    found = decide(polygraph, *CONDITIONS[level], budget)
    if isinstance(found, Holds):
        return LevelAnswer(True, level, witness=found.order)
    if isinstance(found, Refuted):
        return LevelAnswer(False, level, cycles=tuple(_numbered(polygraph, clause) for clause in found.cycles))
    return LevelAnswer(None, level, found.why)


def _numbered(polygraph: Polygraph, clause: Clause) -> Clause:
    """A cycle by the history's numbers of transactions."""
    numbers = np.append(polygraph.txn, -1)

    def step(each: CycleStep) -> CycleStep:
        source, target, first, second, reader = (
            int(numbers[txn]) for txn in (each.source, each.target, each.first, each.second, each.reader)
        )
        return CycleStep(source, target, each.kind, each.key, first, second, reader)

    return Clause(tuple(map(step, clause.cycle)), clause.pairs)

"""Whether a history is possible under a condition, whatever order of versions nobody observed: with a witness, or with
the cycles by which there is none."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from checkers.columns.codes import Ints
from checkers.transactions.polygraph.choice_graph import NO_CHAIN, ChoiceGraph, choice_graph
from checkers.transactions.polygraph.clauses import Clause, Step
from checkers.transactions.polygraph.conditions import SERIAL, Condition
from checkers.transactions.polygraph.demanded_orders import judge_demands
from checkers.transactions.polygraph.history_polygraph import REALTIME, SESSIONS, Polygraph
from checkers.transactions.polygraph.refutations import contradiction, irreducible
from checkers.transactions.polygraph.rounds import Chosen, GaveUp, Impossible, Limit, choose
from checkers.transactions.polygraph.saturation import Saturated, saturate

_FEW_ROUNDS: Final = 8
"""Rounds that a stronger form or condition gets: its witness would do, its refutation would not."""

_BYTES_PER_EDGE: Final = 160


class Holds(NamedTuple):
    """A witness: the history's numbers of transactions in an order in which all that was read is explained; if the
    condition has begins of their own, each twice, where it begins and where it commits (`certificate`)."""

    order: Ints


class Refuted(NamedTuple):
    """Cycles of transactions, by the polygraph's numbers: every way to choose closes one, and none can be left out.

    A choice is a pair of chains of one key, of which the first comes before the second (`Clause.pairs`). A step that
    hangs on one has the last writer of the first and the first of the second as `first` and `second`, others -1.
    """

    cycles: tuple[Clause, ...]


class Undecided(NamedTuple):
    """Why there is no answer, in a sentence."""

    why: str


@dataclass(frozen=True, slots=True)
class Budget:
    """`until` is a moment of `time.perf_counter`, `memory` in bytes."""

    until: float = field(default_factory=lambda: time.perf_counter() + 60)
    memory: int = 1 << 30


def decide(polygraph: Polygraph, condition: Condition, form: int, budget: Budget) -> Holds | Refuted | Undecided:
    """Whether the history is possible under the condition with the form's order (PLAIN, SESSIONS, REALTIME).

    What is wrong with single reads (aborted, intermediate, internal, of nobody's values) is not looked for.
    """
    if not condition.chosen:
        return _decide_demands(polygraph, condition, form, budget)
    for stronger, more in _stronger(condition, form):
        graph = choice_graph(polygraph, stronger, more)
        found = _chosen(graph, budget, _FEW_ROUNDS)
        if isinstance(found, Chosen):
            return Holds(_told(graph, found.order, condition))
    graph = choice_graph(polygraph, condition, form)
    answer = _chosen(graph, budget, 1 << 30)
    if isinstance(answer, Chosen):
        return Holds(_told(graph, answer.order, condition))
    return Undecided(answer.why) if isinstance(answer, GaveUp) else Refuted(_cycles_of(graph, answer))


def _stronger(condition: Condition, form: int) -> list[tuple[Condition, int]]:
    """What is tried first: a serial order, or a witness of a stronger form, proves what is asked."""
    attempts = [(SERIAL, REALTIME), (condition, REALTIME), (condition, SESSIONS)]
    return [each for each in dict.fromkeys(attempts) if each[1] >= form and each != (condition, form)]


def _decide_demands(
    polygraph: Polygraph, condition: Condition, form: int, budget: Budget
) -> Holds | Refuted | Undecided:
    graph = choice_graph(polygraph, condition, form)
    if condition.demands and (why := _too_large(graph, budget, 2)):
        return Undecided(why)
    found = judge_demands(graph)
    return Refuted((found,)) if isinstance(found, Clause) else Holds(_told(graph, found, condition))


def _chosen(graph: ChoiceGraph, budget: Budget, rounds: int) -> Chosen | GaveUp | Saturated | _NoChoice:
    """An order, or what there is to say why there is none."""
    if why := _too_large(graph, budget, 1 if graph.condition.rw_edges else 2):
        return GaveUp(why)
    saturated = saturate(graph)
    if saturated.cyclic or saturated.contradicted:
        return saturated
    found = choose(graph, saturated, Limit(budget.until, rounds))
    return _NoChoice(saturated, found.clauses) if isinstance(found, Impossible) else found


class _NoChoice(NamedTuple):
    saturated: Saturated
    clauses: tuple[Clause, ...]


def _cycles_of(graph: ChoiceGraph, refuted: Saturated | _NoChoice) -> tuple[Clause, ...]:
    if isinstance(refuted, Saturated):
        clauses = contradiction(graph, refuted)
    else:
        clauses = irreducible(graph, refuted.saturated, refuted.clauses)
    return tuple(_with_writers(graph, clause) for clause in clauses)


def _with_writers(graph: ChoiceGraph, clause: Clause) -> Clause:
    """A cycle whose steps name, of each choice, the writers in place of the chains."""
    chains = graph.chains

    def step(each: Step) -> Step:
        if (each.first, each.second) not in clause.pairs:
            return each._replace(first=NO_CHAIN, second=NO_CHAIN)
        return each._replace(first=int(chains.tail[each.first]), second=int(chains.head[each.second]))

    return Clause(tuple(map(step, clause.cycle)), clause.pairs)


def _too_large(graph: ChoiceGraph, budget: Budget, tables: int) -> str | None:
    """Why the tables of what leads where don't fit, or None."""
    rows = tables * graph.nodes * ((graph.columns + 63) // 64) * 8
    pairs = 2 * int(graph.chains.pair_at[-1]) if graph.condition.chosen else 0
    if rows + pairs + _BYTES_PER_EDGE * len(graph.known.source) <= budget.memory:
        return None
    return (
        f"To order versions that nobody observed among {graph.size} transactions takes more than the memory limit of "
        f"{budget.memory >> 20} MiB."
    )


def _told(graph: ChoiceGraph, order: Ints, condition: Condition) -> Ints:
    """An order of the graph's events as one of the history's transactions: twice each if the condition has begins."""
    txns = graph.polygraph.txn[order[order < graph.columns] % max(1, graph.size)]
    return np.repeat(txns, 2) if condition.split and not graph.condition.split else txns

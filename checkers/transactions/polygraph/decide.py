"""Whether a history is possible under a condition, whatever order of versions nobody observed: with a witness, or with
the cycles by which there is none."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from checkers.columns.codes import Ints
from checkers.transactions.polygraph.choice_graph import NO_CHAIN, ChoiceGraph, choice_graph
from checkers.transactions.polygraph.clauses import Clause, CycleStep
from checkers.transactions.polygraph.conditions import SERIAL, Condition
from checkers.transactions.polygraph.demanded_orders import judge_demands
from checkers.transactions.polygraph.history_polygraph import REALTIME, SESSIONS, Polygraph
from checkers.transactions.polygraph.refutations import contradiction, irreducible
from checkers.transactions.polygraph.rounds import Chosen, GaveUp, Impossible, RoundsLimit, choose, sorted_events
from checkers.transactions.polygraph.saturation import Saturated, saturate
from checkers.transactions.polygraph.time_components import TimePart, split_by_time

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


class NotDecided(NamedTuple):
    """Why there is no answer, in a sentence."""

    why: str


@dataclass(frozen=True, slots=True)
class DecisionBudget:
    """`until` is a moment of `time.perf_counter`, `memory` in bytes."""

    until: float = field(default_factory=lambda: time.perf_counter() + 60)
    memory: int = 1 << 30


def decide(
    polygraph: Polygraph, condition: Condition, form: int, budget: DecisionBudget
) -> Holds | Refuted | NotDecided:
    """Whether the history is possible under the condition with the form's order (PLAIN, SESSIONS, REALTIME).

    What is wrong with single reads (aborted, intermediate, internal, of nobody's values) is not looked for.
    """
    if not condition.chosen:
        return _decide_demands(polygraph, condition, form, budget)
    for stronger, more in _stronger(condition, form):
        found = _ordered(choice_graph(polygraph, stronger, more), budget, _FEW_ROUNDS)
        if isinstance(found, Chosen):
            return Holds(_told(polygraph, stronger, found.order, condition))
    graph = choice_graph(polygraph, condition, form)
    answer = _ordered(graph, budget, 1 << 30)
    if isinstance(answer, Chosen):
        return Holds(_told(polygraph, condition, answer.order, condition))
    if isinstance(answer, GaveUp):
        return NotDecided(answer.why)
    # A part takes as known what others show; so that the cycles say why, they are looked for in the whole if it fits.
    whole = answer if answer.part is None else _chosen(graph, budget, 1 << 30)
    return (whole if isinstance(whole, _NoOrder) else answer).refuted()


def _stronger(condition: Condition, form: int) -> list[tuple[Condition, int]]:
    """What is tried first: a serial order, or a witness of a stronger form, proves what is asked. Serial orders come
    before others of the same form, since they have half the events."""
    attempts = [(SERIAL, REALTIME), (condition, REALTIME), (SERIAL, SESSIONS), (condition, SESSIONS)]
    return [each for each in dict.fromkeys(attempts) if each[1] >= form and each != (condition, form)]


def _decide_demands(
    polygraph: Polygraph, condition: Condition, form: int, budget: DecisionBudget
) -> Holds | Refuted | NotDecided:
    graph = choice_graph(polygraph, condition, form)
    if condition.demands and (why := _too_large(graph, budget, 2)):
        serial = _ordered(choice_graph(polygraph, SERIAL, REALTIME), budget, _FEW_ROUNDS)
        if isinstance(serial, Chosen):
            return Holds(_told(polygraph, SERIAL, serial.order, condition))
        return NotDecided(why)
    found = judge_demands(graph)
    return Refuted((found,)) if isinstance(found, Clause) else Holds(_told(polygraph, condition, found, condition))


class _NoOrder(NamedTuple):
    """What there is to say why there is no order: clauses, or what follows from the known edges."""

    graph: ChoiceGraph
    saturated: Saturated
    clauses: tuple[Clause, ...]
    part: TimePart | None = None

    def refuted(self) -> Refuted:
        if self.clauses:
            clauses = irreducible(self.graph, self.saturated, self.clauses)
        else:
            clauses = contradiction(self.graph, self.saturated)
        return Refuted(tuple(_with_writers(self.graph, clause, self.part) for clause in clauses))


def _ordered(graph: ChoiceGraph, budget: DecisionBudget, rounds: int) -> Chosen | GaveUp | _NoOrder:
    """An order of the events; where real time counts that of each part by itself."""
    split = split_by_time(graph) if graph.form == REALTIME and not graph.condition.one_edge else None
    if split is None:
        return _chosen(graph, budget, rounds)
    place = np.zeros(graph.columns, np.int64)
    place[: graph.size] = 1  # a commit stands behind its begin
    for part in split.parts:
        found = _chosen(choice_graph(part.polygraph, graph.condition, graph.form), budget, rounds)
        if isinstance(found, GaveUp):
            return found
        if isinstance(found, _NoOrder):
            return found._replace(part=part)
        inside = len(part.members)
        events = found.order[found.order < (2 * inside if graph.condition.split else inside)]
        whole = part.members[events % inside] + np.where(events < inside, 0, graph.size)
        place[whole] = np.arange(len(events))
    component = np.concatenate((split.component, split.component))[: graph.columns]
    return Chosen(np.lexsort((place, component)))


def _chosen(graph: ChoiceGraph, budget: DecisionBudget, rounds: int) -> Chosen | GaveUp | _NoOrder:
    why = _too_large(graph, budget, 1 if graph.condition.rw_edges else 2)
    if why and sorted_events(graph, graph.known) is not None:  # a cycle of what is known takes no tables
        return GaveUp(why)
    saturated = saturate(graph)
    if saturated.cyclic or saturated.contradicted:
        return _NoOrder(graph, saturated, ())
    found = choose(graph, saturated, RoundsLimit(budget.until, rounds))
    return _NoOrder(graph, saturated, found.clauses) if isinstance(found, Impossible) else found


def _with_writers(graph: ChoiceGraph, clause: Clause, part: TimePart | None) -> Clause:
    """A cycle by the whole polygraph's numbers, whose steps name, of each choice, the writers in place of chains."""
    chains = graph.chains
    txns = np.arange(graph.size) if part is None else part.members
    keys = np.arange(graph.polygraph.keys) if part is None else part.keys

    def step(each: CycleStep) -> CycleStep:
        first, second = NO_CHAIN, NO_CHAIN
        if (each.first, each.second) in clause.pairs:
            first, second = int(txns[chains.tail[each.first]]), int(txns[chains.head[each.second]])
        key = int(keys[each.key]) if each.key >= 0 else -1
        return CycleStep(int(txns[each.source]), int(txns[each.target]), each.kind, key, first, second, each.reader)

    return Clause(tuple(map(step, clause.cycle)), clause.pairs)


def _too_large(graph: ChoiceGraph, budget: DecisionBudget, tables: int) -> str | None:
    """Why the tables of what leads where don't fit, or None."""
    rows = tables * graph.nodes * ((graph.columns + 63) // 64) * 8
    pairs = 2 * int(graph.chains.pair_at[-1]) if graph.condition.chosen else 0
    if rows + pairs + _BYTES_PER_EDGE * len(graph.known.source) <= budget.memory:
        return None
    return (
        f"To order versions that nobody observed among {graph.size} transactions takes more than the memory limit of "
        f"{budget.memory >> 20} MiB."
    )


def _told(polygraph: Polygraph, found: Condition, order: Ints, condition: Condition) -> Ints:
    """An order of events under the condition `found` as one of the history's transactions, for `condition`: twice each
    if that has begins."""
    columns = polygraph.size * (2 if found.split else 1)
    txns = polygraph.txn[order[order < columns] % max(1, polygraph.size)]
    return np.repeat(txns, 2) if condition.split and not found.split else txns

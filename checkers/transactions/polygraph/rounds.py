"""Choosing an order for each pair of chains that is open: a solver of clauses proposes, the graph objects.

In each round all chains of a key are put in an order that agrees with a topological order of what is known and chosen.
If the graph then has no cycle that order is the answer. Each cycle that it has becomes a clause: one of its choices has
to be the other way (lazy clauses, as in Viper, Zhang et al. 2023, and MonoSAT, Bayless et al. 2015). A pair of chains
becomes a variable when a cycle rests on it.
"""

from __future__ import annotations

import time
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from checkers.columns.codes import Ids, Ints
from checkers.columns.graph import digraph, peel_by_place
from checkers.transactions.polygraph.choice_graph import ChoiceGraph, EventEdges, joined_edges, pair_edges
from checkers.transactions.polygraph.clauses import Clause, clause_of
from checkers.transactions.polygraph.light_cycles import light_cycles
from checkers.transactions.polygraph.saturation import Saturated, is_known
from checkers.transactions.polygraph.single_rw import closed_rw

_SOLVER: Final = "glucose4"
_CONFLICTS: Final = 20_000
"""Conflicts of the solver between two looks at the clock."""


class Chosen(NamedTuple):
    """An order of the events in which nothing closes a cycle."""

    order: Ints


class Impossible(NamedTuple):
    """Clauses that no choice satisfies."""

    clauses: tuple[Clause, ...]


class GaveUp(NamedTuple):
    """Why no answer was found, in a sentence."""

    why: str


@dataclass(slots=True)
class Variables:
    """Pairs of chains as the solver knows them: by number from 1, true if the lower chain comes first."""

    number: dict[tuple[int, int], int] = field(default_factory=dict)
    pairs: list[tuple[int, int]] = field(default_factory=list)

    def literal(self, first: int, second: int) -> int:
        """What says that chain `first` comes before `second`."""
        pair = (min(first, second), max(first, second))
        if pair not in self.number:
            self.number[pair] = len(self.pairs) + 1
            self.pairs.append(pair)
        return self.number[pair] if first < second else -self.number[pair]


@dataclass(slots=True)
class RoundsLimit:
    """When to give up: at the moment `until` of the process's clock, or after `rounds` rounds."""

    until: float
    rounds: int = 1 << 30

    def passed(self) -> str | None:
        """Why to give up now, or None."""
        if time.perf_counter() > self.until:
            return "The time limit ended the search for an order of the versions that nobody observed."
        return None


def choose(graph: ChoiceGraph, saturated: Saturated, limit: RoundsLimit) -> Chosen | Impossible | GaveUp:
    """An order of all chains without a cycle, or why there is none, or why that is not known."""
    from pysat.solvers import Solver

    variables, clauses, rank = Variables(), list[Clause](), _ranks(graph, saturated.order)
    seen = set[frozenset[tuple[int, int]]]()
    with Solver(name=_SOLVER) as solver:
        for _ in range(limit.rounds):
            if why := limit.passed():
                return GaveUp(why)
            assigned = _assigned(solver, variables, limit)
            if assigned is None:
                return Impossible(tuple(clauses))
            if isinstance(assigned, GaveUp):
                return assigned
            found, rank = _tried(graph, saturated, assigned, rank)
            if not found:
                return Chosen(np.argsort(rank[:-1]))
            fresh = [clause for clause in found if clause.pairs not in seen]
            assert fresh, "a cycle that was excluded came back"
            for clause in fresh:
                if clause.pairs in seen:
                    continue
                seen.add(clause.pairs)
                clauses.append(clause)
                if not clause.pairs:
                    return Impossible((clause,))
                literals = [-variables.literal(*pair) for pair in sorted(clause.pairs)]
                solver.add_clause(literals)
            solver.set_phases(_phases(graph, variables, rank))
    return GaveUp("The search for an order of the versions that nobody observed took too many rounds.")


def _assigned(solver: Any, variables: Variables, limit: RoundsLimit) -> tuple[Ints, Ints] | GaveUp | None:
    """Pairs of chains, each in the order that the solver proposes; None if the clauses have no solution."""
    while True:
        solver.conf_budget(_CONFLICTS)
        answer = solver.solve_limited()
        if answer is False:
            return None
        if answer is True:
            break
        if why := limit.passed():
            return GaveUp(why)
    model = np.array([literal > 0 for literal in solver.get_model()[: len(variables.pairs)]], np.bool_)
    pairs = np.array(variables.pairs[: len(model)], np.int64).reshape(-1, 2)
    return np.where(model, pairs[:, 0], pairs[:, 1]), np.where(model, pairs[:, 1], pairs[:, 0])


def _ranks(graph: ChoiceGraph, order: Ids) -> Ints:
    """By event its place in an order; behind them that of INITIAL, before all."""
    rank = np.full(graph.nodes + 1, -1)
    rank[order] = np.arange(len(order))
    return rank


def _phases(graph: ChoiceGraph, variables: Variables, rank: Ints) -> list[int]:
    """What the solver should try first: the order of the events so far."""
    pairs = np.array(variables.pairs, np.int64).reshape(-1, 2)
    head = graph.chains.head
    ahead = rank[head[pairs[:, 0]]] <= rank[head[pairs[:, 1]]]
    number = np.arange(1, len(pairs) + 1)
    phases: list[int] = np.where(ahead, number, -number).tolist()
    return phases


def consecutive(graph: ChoiceGraph, rank: Ints) -> tuple[Ints, Ints]:
    """The chains of each key in the order of their heads' ranks: each with the next."""
    chains = graph.chains
    order = np.lexsort((rank[chains.head], chains.key))
    same = chains.key[order[1:]] == chains.key[order[:-1]]
    return order[:-1][same], order[1:][same]


def _tried(
    graph: ChoiceGraph, saturated: Saturated, assigned: tuple[Ints, Ints], rank: Ints
) -> tuple[list[Clause], Ints]:
    """What is wrong with an assignment, and the ranks of the events in the order that was tried."""
    edges = joined_edges(saturated.edges, pair_edges(graph, *assigned))
    order = sorted_events(graph, edges)
    if order is None:
        first, second = (column.tolist() for column in assigned)
        return cycle_clauses(graph, saturated, edges, set(zip(first, second, strict=True))), rank
    follows = consecutive(graph, _ranks(graph, order))
    edges = joined_edges(edges, pair_edges(graph, *follows))
    final = sorted_events(graph, edges)
    if final is None:
        return cycle_clauses(graph, saturated, edges), _ranks(graph, order)
    rank = _ranks(graph, final)
    return ([] if graph.condition.rw_edges else closed_rw(graph, saturated, edges, final, follows)), rank


def sorted_events(graph: ChoiceGraph, edges: EventEdges) -> Ids | None:
    """A topological order of the events, None if there is a cycle: as they were invoked, where the edges let it be so.
    Most databases come close to that order, so most of it is right at once."""
    ahead = digraph(graph.nodes, edges.source.astype(np.int32), edges.target.astype(np.int32))
    invoke = np.full(graph.nodes, -1)  # moments come as soon as they can
    invoke[: graph.columns] = np.tile(graph.polygraph.invoke, graph.columns // max(1, graph.size))
    event = np.argsort(invoke, kind="stable")
    place = np.empty(graph.nodes, np.int64)
    place[event] = np.arange(graph.nodes)
    order, heap = np.empty(graph.nodes, np.int32), np.empty(graph.nodes, np.int64)
    done = peel_by_place(ahead.offsets, ahead.targets, place, event, heap, order)
    return order if done == graph.nodes else None


def cycle_clauses(
    graph: ChoiceGraph, saturated: Saturated, edges: EventEdges, assigned: Set[tuple[int, int]] = frozenset()
) -> list[Clause]:
    """Cycles of the edges that rest on few choices; some of these may be `assigned`, whatever that leads to, while
    others agree with an order of all events."""
    choice = is_known(graph, saturated.before, edges.first, edges.second) == 0
    cycles = light_cycles(graph.nodes, edges.source, edges.target, choice)
    return [clause_of(graph, saturated.before, edges, cycle, assigned=assigned) for cycle in cycles]

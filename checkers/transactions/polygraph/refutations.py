"""Why no order is possible: cycles, one or more for each choice, of which none can be left out."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from checkers.columns.codes import Bools
from checkers.columns.graph import digraph
from checkers.transactions.graph.edges import RW, WW
from checkers.transactions.polygraph.choice_graph import NO_CHAIN, ChoiceGraph
from checkers.transactions.polygraph.clauses import Clause, CycleStep, pair_since, steps_of
from checkers.transactions.polygraph.history_polygraph import INITIAL
from checkers.transactions.polygraph.light_cycles import Ways, lightest_path, path_edges, paths, shortest_known_cycle
from checkers.transactions.polygraph.rounds import Variables
from checkers.transactions.polygraph.saturation import Saturated


def contradiction(graph: ChoiceGraph, saturated: Saturated) -> tuple[Clause, ...]:
    """The cycles by which what follows from the known edges contradicts itself."""
    if saturated.cyclic:
        edges = saturated.edges
        cycle = steps_of(graph, edges, shortest_known_cycle(graph.nodes, edges.source, edges.target))
        return irreducible(graph, saturated, [Clause(cycle, frozenset())])
    pair = _twofold(graph, saturated)
    if pair[0] == NO_CHAIN:
        return ()
    return irreducible(graph, saturated, _both(graph, saturated, *pair))


def _both(graph: ChoiceGraph, saturated: Saturated, first: int, second: int) -> list[Clause]:
    reasons = _Reasons(graph, saturated)
    pairs = [pair for pair in ((first, second), (second, first)) if not _is_initial(graph, pair[0])]
    return [reasons.of(*pair) for pair in pairs]


def _is_initial(graph: ChoiceGraph, chain: int) -> bool:
    return bool(graph.chains.at[graph.chains.key[chain]] == chain)


def _twofold(graph: ChoiceGraph, saturated: Saturated) -> tuple[int, int]:
    """Two chains that can come in neither order."""
    chains = graph.chains
    for key in range(len(chains.at) - 1):
        size, begin = int(chains.at[key + 1] - chains.at[key]), int(chains.pair_at[key])
        table = saturated.before[begin : begin + size * size].reshape(size, size)
        both = np.argwhere((table > 0) & (table.T > 0))
        if len(both):
            return int(both[0, 0] + chains.at[key]), int(both[0, 1] + chains.at[key])
    return NO_CHAIN, NO_CHAIN


def irreducible(graph: ChoiceGraph, saturated: Saturated, clauses: Iterable[Clause]) -> tuple[Clause, ...]:
    """Clauses and the reasons of what they take as known, as few as contradict each other."""
    reasons, every = _Reasons(graph, saturated), dict[frozenset[tuple[int, int]], Clause]()
    waiting, told = list(clauses), set[tuple[int, int]]()
    while waiting:
        clause = waiting.pop()
        pairs = _choices(graph, clause)
        every.setdefault(pairs, Clause(clause.cycle, pairs))
        for pair in sorted(pairs - told):
            told.add(pair)
            if pair_since(graph, saturated.before, *pair):
                waiting.append(reasons.of(*pair))
    return _fewest(list(every.values()))


def _choices(graph: ChoiceGraph, clause: Clause) -> frozenset[tuple[int, int]]:
    """All orders of chains that a cycle rests on, but that initial versions come first."""
    pairs = {(step.first, step.second) for step in clause.cycle if step.first != NO_CHAIN}
    return frozenset(pair for pair in pairs if not _is_initial(graph, pair[0]))


def _fewest(clauses: list[Clause]) -> tuple[Clause, ...]:
    """A subset that contradicts itself, of which no clause can be left out."""
    kept = clauses if len(clauses) == 1 else _core(clauses)
    for clause in list(kept):
        fewer = [other for other in kept if other is not clause]
        if not _satisfiable(fewer):
            kept = fewer
    return tuple(kept)


def _core(clauses: list[Clause]) -> list[Clause]:
    from pysat.solvers import Solver

    variables = Variables()
    literals = [[-variables.literal(*pair) for pair in sorted(clause.pairs)] for clause in clauses]
    count = len(variables.pairs)
    selectors = [count + 1 + i for i in range(len(clauses))]
    with Solver(name="glucose4") as solver:
        for selector, clause in zip(selectors, literals, strict=True):
            solver.add_clause([-selector, *clause])
        assert not solver.solve(assumptions=selectors), "a refutation that is none"
        return [clauses[selector - count - 1] for selector in sorted(solver.get_core() or ())]


def _satisfiable(clauses: list[Clause]) -> bool:
    from pysat.solvers import Solver

    if any(not clause.pairs for clause in clauses):
        return False
    variables = Variables()
    with Solver(name="glucose4") as solver:
        for clause in clauses:
            solver.add_clause([-variables.literal(*pair) for pair in sorted(clause.pairs)])
        return bool(solver.solve())


class _Reasons:
    """Why a chain comes before another: the cycle that the other order would close, by edges known before that."""

    def __init__(self, graph: ChoiceGraph, saturated: Saturated) -> None:
        edges = saturated.edges
        self._graph, self._saturated, self._searches = graph, saturated, 0
        self._ahead = digraph(graph.nodes, edges.source.astype(np.int32), edges.target.astype(np.int32))
        self._work, self._whole = paths(graph.nodes), np.zeros(graph.nodes, np.int32)
        self._later = saturated.since > 0

    def of(self, first: int, second: int) -> Clause:
        """The cycle by which `second` can't come before `first`."""
        graph, chains = self._graph, self._graph.chains
        allowed = self._saturated.since < pair_since(graph, self._saturated.before, first, second)
        head, tail = chains.head[first : first + 1], int(chains.tail[second])
        key = int(chains.key[first])
        if tail != INITIAL and (path := self._path(int(graph.ww_head(head)[0]), tail, allowed)) is not None:
            return self._clause(CycleStep(tail, int(head[0]), WW, key, second, first), path)
        for reader in chains.reader[chains.reader_at[second] : chains.reader_at[second + 1]]:
            if reader != head[0]:
                path = self._path(int(head[0]), int(graph.begin(np.array([reader]))[0]), allowed)
                if path is not None:
                    return self._clause(CycleStep(int(reader), int(head[0]), RW, key, second, first), path)
        raise AssertionError("an order of chains without a reason")

    def _path(self, source: int, target: int, allowed: Bools) -> list[int] | None:
        self._searches += 1
        ways = Ways(self._ahead, self._later, allowed, self._whole)
        found = lightest_path(ways, source, target, self._work, self._searches)
        return path_edges(self._work, source, target, self._saturated.edges.source) if found else None

    def _clause(self, step: CycleStep, path: list[int]) -> Clause:
        cycle = (step, *steps_of(self._graph, self._saturated.edges, path))
        return Clause(cycle, frozenset())

"""Cycles in an event graph as clauses: not all the choices that a cycle rests on can be so."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import NamedTuple

from checkers.transactions.graph.edges import FREE, WW
from checkers.transactions.polygraph.choice_graph import NO_CHAIN, ChoiceGraph, EventEdges
from checkers.transactions.polygraph.saturation import BASE, Turns


class CycleStep(NamedTuple):
    """An edge of a cycle between transactions; it holds if chain `first` comes before `second` (NO_CHAIN: it holds)."""

    source: int
    target: int
    kind: int  # WW … REALTIME of `graph.edges`
    key: int  # -1: none
    first: int = NO_CHAIN
    second: int = NO_CHAIN
    reader: int = -1  # of a demanded ww: who saw the source and read from the target


class Clause(NamedTuple):
    """A cycle, and the pairs of chains (first, second) whose order it rests on: not all of them can be so."""

    cycle: tuple[CycleStep, ...]
    pairs: frozenset[tuple[int, int]]


def clause_of(
    graph: ChoiceGraph,
    before: Turns,
    edges: EventEdges,
    cycle: Sequence[int],
    closed: CycleStep | None = None,
    assigned: Set[tuple[int, int]] = frozenset(),
) -> Clause:
    """The clause of a cycle of edges, or of a path that the step `closed` closes. What leads through several chains of
    one key in a row is one choice, unless the other order of the two is known or `assigned`: then the clause would not
    speak of what closed the cycle."""
    steps = _event_steps(edges, cycle)
    if closed is not None:
        steps.append(_EventStep(*closed[:6]))

    def may_come(first: int, second: int) -> bool:
        return (second, first) not in assigned and not pair_since(graph, before, second, first)

    named = _named(graph, _without_detours(graph, steps, may_come))
    rests = frozenset((s.first, s.second) for s in named if s.first != NO_CHAIN and not _known(graph, before, s))
    return Clause(named, rests)


class _EventStep(NamedTuple):
    source: int
    target: int
    kind: int
    key: int
    first: int
    second: int


def _event_steps(edges: EventEdges, cycle: Sequence[int]) -> list[_EventStep]:
    return [_EventStep(*(int(column[edge]) for column in edges)) for edge in cycle]


def steps_of(graph: ChoiceGraph, edges: EventEdges, path: Sequence[int]) -> tuple[CycleStep, ...]:
    """A path or cycle of edges as it is."""
    return _named(graph, _event_steps(edges, path))


def _known(graph: ChoiceGraph, before: Turns, step: CycleStep) -> bool:
    return pair_since(graph, before, step.first, step.second) != 0


def pair_since(graph: ChoiceGraph, before: Turns, first: int, second: int) -> int:
    """Since which turn a chain is known to come before another of its key; 0: that is open."""
    if first == NO_CHAIN:
        return BASE
    chains = graph.chains
    key = int(chains.key[first])
    at, size = int(chains.at[key]), int(chains.at[key + 1] - chains.at[key])
    return int(before[int(chains.pair_at[key]) + (first - at) * size + second - at])


def _without_detours(
    graph: ChoiceGraph, steps: list[_EventStep], may_come: Callable[[int, int], bool]
) -> list[_EventStep]:
    """The cycle with one step in place of a walk from chain to chain of a key: if a comes before b and b before c then
    a comes before c, where that may be so. But an rw does not end where ww does if that leads to begins of their own,
    and no read is missed by its own transaction."""
    same_end = not graph.condition.split or graph.condition.ww_to_commit
    at = next((i for i, step in enumerate(steps) if step.first != NO_CHAIN), 0)
    out, told = list[_EventStep](), {(step.first, step.second) for step in steps}
    for step in steps[at:] + steps[:at]:
        place = next(
            (
                i
                for i, earlier in enumerate(out)
                if step.first != NO_CHAIN
                and step.kind == WW
                and earlier.second == step.first
                and (same_end or earlier.kind == WW)
                and earlier.source != step.target
                and (step.second, earlier.first) not in told
                and may_come(earlier.first, step.second)
            ),
            None,
        )
        if place is None:
            out.append(step)
        else:
            out[place:] = [out[place]._replace(target=step.target, second=step.second)]
            told.add((out[place].first, step.second))
    return out


def _named(graph: ChoiceGraph, steps: list[_EventStep]) -> tuple[CycleStep, ...]:
    """The steps between transactions: what only leads from begin to commit, and the moments between, are left out."""
    size, columns = graph.size, graph.columns
    out = list[CycleStep]()
    start = next((i for i, step in enumerate(steps) if step.source < columns), 0)
    for step in steps[start:] + steps[:start]:
        if step.kind == FREE:
            continue
        if step.source >= columns:  # from a moment on: the way goes on from who completed into it
            out[-1] = out[-1]._replace(target=step.target % size if step.target < columns else out[-1].target)
            continue
        target = step.target % size if step.target < columns else -1
        out.append(CycleStep(step.source % size, target, step.kind, step.key, step.first, step.second))
    return tuple(out)

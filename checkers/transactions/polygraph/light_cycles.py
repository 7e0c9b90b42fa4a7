"""Cycles that rest on few choices: breadth first, where an edge that is known costs nothing and a choice costs one."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.columns.codes import Bools, Ids, Ints
from checkers.columns.graph import Digraph, components, digraph
from checkers.compiled import lean

_TRIES: Final = 256
"""Edges of a graph through which cycles are looked for at once."""


class Ways(NamedTuple):
    """Edges that may be followed, by number as in the graph: `costly` ones cost one, others that are `allowed` nothing.
    No path leaves a component of `label`."""

    graph: Digraph
    costly: Bools
    allowed: Bools
    label: Ids


class Paths(NamedTuple):
    """Scratch of a search, by event: where it was met (the number of the search), at what cost, by which edge."""

    met: Ints
    cost: Ints
    via: Ints
    now: Ids
    later: Ids


def paths(nodes: int) -> Paths:
    """Scratch for graphs of that many events."""
    return Paths(
        np.full(nodes, -1),
        np.empty(nodes, np.int64),
        np.empty(nodes, np.int64),
        np.empty(2 * nodes + 2, np.int32),
        np.empty(2 * nodes + 2, np.int32),
    )


@lean
def lightest_path(ways, source, target, work, search):
    """Whether a path of allowed edges leads from `source` to `target` within one component of `label`; the lightest
    (in which `costly` edges cost one) is then read backwards off `work.via`.

    Each turn of the outer loop is of one cost: `now[:count]` are met at that cost and yet to be followed, `later` at
    the next. An event may be in both; it is followed at the lower cost.
    """
    graph, costly, allowed, label = ways.graph, ways.costly, ways.allowed, ways.label
    now, later = work.now, work.later
    now[0], count, waiting, level = source, 1, 0, 0
    work.met[source], work.cost[source] = search, 0
    while count > 0:
        while count > 0:
            count -= 1
            event = now[count]
            if work.cost[event] < level:
                continue
            if event == target:
                return True
            for place in range(graph.offsets[event], graph.offsets[event + 1]):
                other, edge = graph.targets[place], graph.edges[place]
                if not allowed[edge] or label[other] != label[source]:
                    continue
                cost = level + (1 if costly[edge] else 0)
                if work.met[other] == search and work.cost[other] <= cost:
                    continue
                work.met[other], work.cost[other], work.via[other] = search, cost, edge
                if costly[edge]:
                    later[waiting] = other
                    waiting += 1
                else:
                    now[count] = other
                    count += 1
        now, later, count, waiting = later, now, waiting, 0
        level += 1
    return False


def path_edges(work: Paths, source: int, target: int, edge_source: Ints) -> list[int]:
    """The edges of the path that was found last, in order."""
    edges = []
    while target != source:
        edge = int(work.via[target])
        edges.append(edge)
        target = int(edge_source[edge])
    return edges[::-1]


def light_cycles(nodes: int, source: Ints, target: Ints, costly: Bools) -> list[list[int]]:
    """Cycles of few costly edges, at least one if there is any: lists of edges, each through another costly edge, or
    through none."""
    one, other = source.astype(np.int32), target.astype(np.int32)
    graph = digraph(nodes, one, other)
    label = components(graph)
    known = np.flatnonzero(~costly)
    free = shortest_known_cycle(nodes, source[known], target[known])
    if free:
        return [known[free].tolist()]
    starts = np.flatnonzero((label[source] == label[target]) & costly)
    chosen = starts[:: max(1, len(starts) // _TRIES)]
    ways, work = Ways(graph, costly, np.ones(len(source), np.bool_), label), paths(nodes)
    found = []
    for search, edge in enumerate(chosen.tolist()):
        begin, end = int(target[edge]), int(source[edge])
        if lightest_path(ways, begin, end, work, search):
            found.append([edge, *path_edges(work, begin, end, source)])
    return found


def shortest_known_cycle(nodes: int, source: Ints, target: Ints) -> list[int]:
    """A short cycle of the edges, empty if there is none: the shortest through one of the first that are on cycles."""
    one, other = source.astype(np.int32), target.astype(np.int32)
    graph = digraph(nodes, one, other)
    label = components(graph)
    every, work, best = np.ones(len(source), np.bool_), paths(nodes), list[int]()
    ways = Ways(graph, every, every, label)
    for search, edge in enumerate(np.flatnonzero(label[one] == label[other])[:_TRIES].tolist()):
        begin, end = int(target[edge]), int(source[edge])
        if lightest_path(ways, begin, end, work, search):
            cycle = [edge, *path_edges(work, begin, end, source)]
            best = cycle if not best or len(cycle) < len(best) else best
    return best

"""Directed graphs over small integers, compiled: what lies on cycles, strong components, shortest cycles."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.kernels.compiled import kernel

Nodes = npt.NDArray[np.int32]


class Digraph(NamedTuple):
    """Edges by source: those of node v are `targets[offsets[v]:offsets[v + 1]]`, each with its number in `edges`."""

    offsets: npt.NDArray[np.int64]
    targets: Nodes
    edges: npt.NDArray[np.int64]


@kernel
def _place(source, target, fill, targets, edges):
    for edge in range(source.shape[0]):
        place = fill[source[edge]]
        targets[place] = target[edge]
        edges[place] = edge
        fill[source[edge]] += 1


def digraph(nodes: int, source: Nodes, target: Nodes) -> Digraph:
    """The graph of these edges; linear in nodes and edges."""
    offsets = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(source, minlength=nodes), out=offsets[1:])
    targets, edges = np.empty(len(source), np.int32), np.empty(len(source), np.int64)
    _place(source, target, offsets[:-1].copy(), targets, edges)
    return Digraph(offsets, targets, edges)


@kernel
def peel(offsets, targets, order):
    """Write a topological order of all nodes that no cycle leads to into `order`; returns how many there are.

    All of them are there if and only if the graph has no cycle (Kahn 1962).
    """
    nodes = offsets.shape[0] - 1
    into = np.zeros(nodes, np.int32)
    for place in range(targets.shape[0]):
        into[targets[place]] += 1
    done, head = 0, 0
    for node in range(nodes):
        if into[node] == 0:
            order[done] = node
            done += 1
    while head < done:
        node = order[head]
        head += 1
        for place in range(offsets[node], offsets[node + 1]):
            into[targets[place]] -= 1
            if into[targets[place]] == 0:
                order[done] = targets[place]
                done += 1
    return done


@kernel
def strong_components(offsets, targets, component):
    """Number the strong components of two or more nodes (or a node with an edge to itself) from 0; -1 for the rest.

    Tarjan 1972 with its own stack. Returns how many there are.
    """
    nodes = offsets.shape[0] - 1
    index, low = np.full(nodes, -1, np.int32), np.zeros(nodes, np.int32)
    on_stack = np.zeros(nodes, np.bool_)
    stack, path = np.empty(nodes, np.int32), np.empty(nodes, np.int32)
    at = offsets[:-1].copy()
    stacked, found, counter = 0, 0, 0
    component[:] = -1
    for root in range(nodes):
        if index[root] >= 0:
            continue
        depth = 0
        path[0] = root
        index[root], low[root] = counter, counter
        counter += 1
        stack[stacked], on_stack[root] = root, True
        stacked += 1
        while depth >= 0:
            node = path[depth]
            if at[node] < offsets[node + 1]:
                other = targets[at[node]]
                at[node] += 1
                if index[other] < 0:
                    index[other], low[other] = counter, counter
                    counter += 1
                    stack[stacked], on_stack[other] = other, True
                    stacked += 1
                    depth += 1
                    path[depth] = other
                elif on_stack[other]:
                    low[node] = min(low[node], index[other])
                continue
            depth -= 1
            if depth >= 0:
                low[path[depth]] = min(low[path[depth]], low[node])
            if low[node] == index[node]:
                found += _close_component(offsets, targets, node, stack, stacked, on_stack, component, found)
                while stack[stacked - 1] != node:
                    stacked -= 1
                    on_stack[stack[stacked]] = False
                stacked -= 1
                on_stack[node] = False
    return found


@kernel
def _close_component(offsets, targets, root, stack, stacked, on_stack, component, number):
    """Number what is on the stack down to `root`, unless that is one node without an edge to itself."""
    alone = stack[stacked - 1] == root
    if alone:
        looped = False
        for place in range(offsets[root], offsets[root + 1]):
            looped = looped or targets[place] == root
        if not looped:
            return 0
    place = stacked - 1
    while True:
        component[stack[place]] = number
        if stack[place] == root:
            return 1
        place -= 1


@kernel
def _search(offsets, targets, start, component, parent, via, queue, limit):
    """Breadth first inside the component. Returns the length of a shortest cycle through `start` (0: none of at most
    `limit` edges), read backwards off `parent` and `via`, and how many nodes were queued."""
    head, tail, depth, depth_end = 0, 1, 1, 1
    queue[0] = start
    while head < tail and depth <= limit:
        node = queue[head]
        head += 1
        for place in range(offsets[node], offsets[node + 1]):
            other = targets[place]
            if other == start:
                via[start], parent[start] = place, node
                return depth, tail
            if component[other] == component[start] and parent[other] < 0:
                parent[other], via[other] = node, place
                queue[tail] = other
                tail += 1
        if head == depth_end:
            depth_end = tail
            depth += 1
    return 0, tail


@kernel
def _shortest(offsets, targets, edges, starts, component, out):
    """Writes the edge numbers of the shortest cycle through any of `starts` to `out`, in order; returns its length."""
    nodes = offsets.shape[0] - 1
    parent, via, queue = np.full(nodes, -1, np.int32), np.empty(nodes, np.int64), np.empty(nodes, np.int32)
    best, limit = 0, out.shape[0]
    for start in starts:
        length, queued = _search(offsets, targets, start, component, parent, via, queue, limit)
        if length > 0:
            best, limit, node = length, length - 1, start
            for step in range(length):
                out[length - 1 - step] = edges[via[node]]
                node = parent[node]
        for place in range(queued):
            parent[queue[place]] = -1
    return best


def shortest_cycle(graph: Digraph, component: Nodes, members: Nodes, tries: int = 64) -> npt.NDArray[np.int64]:
    """The edge numbers of a shortest cycle through one of the first `tries` members of a component, in order."""
    out = np.empty(len(members), np.int64)
    length = _shortest(*graph, members[:tries], component, out)
    return out[:length]

"""Graphs over small integers, compiled: what is linked; what lies on cycles, strong components, shortest cycles."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.compiled import kernel

Nodes = npt.NDArray[np.int32]


@kernel
def _find(parents, node):
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


@kernel
def unite(op, node, parents):
    """Let `parents[v]` be the node that stands for all that operations link v with, directly or not; a row says that an
    operation touches a node, those of an operation stand together."""
    for row in range(1, op.shape[0]):
        if op[row] == op[row - 1]:
            parents[_find(parents, node[row])] = _find(parents, node[row - 1])
    for number in range(parents.shape[0]):
        parents[number] = _find(parents, number)


class Digraph(NamedTuple):
    """Edges by source: those of node v are `targets[offsets[v]:offsets[v + 1]]`, each with its number in `edges`."""

    offsets: npt.NDArray[np.int64]
    targets: Nodes
    edges: Nodes


@kernel
def _adjacency(nodes, source, target):
    """Offsets by source node, and the targets and the edges' numbers in order of source, else as they were."""
    offsets = np.zeros(nodes + 1, np.int64)
    for edge in range(source.shape[0]):
        offsets[source[edge] + 1] += 1
    for node in range(nodes):
        offsets[node + 1] += offsets[node]
    fill = offsets[:-1].copy()
    targets, edges = np.empty(source.shape[0], np.int32), np.empty(source.shape[0], np.int32)
    for edge in range(source.shape[0]):
        place = fill[source[edge]]
        targets[place] = target[edge]
        edges[place] = edge
        fill[source[edge]] += 1
    return offsets, targets, edges


def digraph(nodes: int, source: Nodes, target: Nodes) -> Digraph:
    """The graph of these edges; linear in nodes and edges."""
    return Digraph(*_adjacency(nodes, source, target))


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
    # order[:done] are nodes into which no edge is left; those of order[:head] have taken theirs away.
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
def peel_by_place(offsets, targets, place, node_at, heap, order):
    """As `peel`, but of the nodes into which no edge is left the one with the lowest `place` comes next; places are
    0, 1, …, and `node_at` says who has which. `heap` is scratch for as many."""
    into, size, done = np.zeros(place.shape[0], np.int32), 0, 0
    for at in range(targets.shape[0]):
        into[targets[at]] += 1
    # A binary heap of the places of those nodes: none is below its parent, at half its index.
    for at in range(place.shape[0]):
        if into[node_at[at]] == 0:
            heap[size] = at
            size += 1
    while size > 0:
        node = node_at[heap[0]]
        size -= 1
        last, at = heap[size], 0
        while 2 * at + 1 < size:
            child = 2 * at + 1
            if child + 1 < size and heap[child + 1] < heap[child]:
                child += 1
            if heap[child] >= last:
                break
            heap[at] = heap[child]
            at = child
        heap[at] = last
        order[done] = node
        done += 1
        for edge in range(offsets[node], offsets[node + 1]):
            other = targets[edge]
            into[other] -= 1
            if into[other] == 0:
                at = size
                while at > 0 and heap[(at - 1) // 2] > place[other]:
                    heap[at] = heap[(at - 1) // 2]
                    at = (at - 1) // 2
                heap[at] = place[other]
                size += 1
    return done


@kernel
def _label_components(offsets, targets):
    """The strong component of each node, numbered against topological order (Tarjan 1972, without recursion).

    `path` is the way from the root to the node at hand, `stack` what was met and has no component yet. `low[v]` is the
    least index on the stack that v is known to reach; where it stays v's own, all above v on the stack are v's.
    """
    nodes = offsets.shape[0] - 1
    label, low = np.full(nodes, -1, np.int32), np.full(nodes, -1, np.int32)
    place, stack, path = offsets[:-1].copy(), np.empty(nodes, np.int32), np.empty(nodes, np.int32)
    index, labels, top, deep = 0, 0, 0, 0
    number = np.full(nodes, -1, np.int32)
    for root in range(nodes):
        if number[root] >= 0:
            continue
        path[0], deep = root, 1
        number[root] = low[root] = index
        index += 1
        stack[top] = root
        top += 1
        # All edges of path[:deep] before `place` are followed; those of nodes that have left the path are all followed.
        while deep > 0:
            node = path[deep - 1]
            if place[node] < offsets[node + 1]:
                other = targets[place[node]]
                place[node] += 1
                if number[other] < 0:
                    number[other] = low[other] = index
                    index += 1
                    stack[top] = path[deep] = other
                    top += 1
                    deep += 1
                elif label[other] < 0:  # still on the stack: an edge back into the component at hand
                    low[node] = min(low[node], number[other])
                continue
            deep -= 1  # all edges of the node are followed: what it reaches its parent on the path reaches
            if deep > 0:
                low[path[deep - 1]] = min(low[path[deep - 1]], low[node])
            if low[node] == number[node]:  # it reaches nothing older: with all above it, it is a component
                while True:
                    top -= 1
                    label[stack[top]] = labels
                    if stack[top] == node:
                        break
                labels += 1
    return label


def components(graph: Digraph) -> Nodes:
    """The strong component of each node, numbered against topological order."""
    label: Nodes = _label_components(graph.offsets, graph.targets)
    return label


@kernel
def _component_depths(offsets, targets, label, order):
    depth = np.zeros(order.shape[0], np.int64)
    # In topological order of the components, so that all edges into one have been followed before those out of it.
    for node in order:
        for place in range(offsets[node], offsets[node + 1]):
            other = label[targets[place]]
            if other != label[node]:
                depth[other] = max(depth[other], depth[label[node]] + 1)
    return depth


def depths(graph: Digraph, label: Nodes) -> npt.NDArray[np.int64]:
    """For each node the most edges between `components` (`label`) that a way to it has: an edge from one component to
    another leads deeper."""
    order = np.argsort(label, kind="stable")[::-1]
    depth: npt.NDArray[np.int64] = _component_depths(graph.offsets, graph.targets, label, order)[label]
    return depth


def cyclic_components(graph: Digraph) -> tuple[Nodes, int]:
    """The strong component of each node if it has a cycle (two or more nodes, or an edge to itself), numbered from 0
    (-1 for the rest), and how many there are."""
    label = components(graph)
    cyclic = np.bincount(label) > 1
    loops = graph.targets == np.repeat(np.arange(len(label)), np.diff(graph.offsets))
    cyclic[label[graph.targets[loops]]] = True
    number = np.cumsum(cyclic) - 1
    return np.where(cyclic[label], number[label], -1).astype(np.int32), int(cyclic.sum())


class _Way(NamedTuple):
    """Scratch by node: the node before it on the way (-1: not met), the place of the edge from there; a queue."""

    parent: Nodes
    via: npt.NDArray[np.int64]
    queue: Nodes


@kernel
def _search(graph, start, component, way, limit):
    """Breadth first inside the component. Returns the length of a shortest cycle through `start` (0: none of at most
    `limit` edges), read backwards off `parent` and `via`, and how many nodes were queued."""
    parent, via, queue = way.parent, way.via, way.queue
    head, tail, depth, depth_end = 0, 1, 1, 1
    queue[0] = start
    while head < tail and depth <= limit:
        node = queue[head]
        head += 1
        for place in range(graph.offsets[node], graph.offsets[node + 1]):
            other = graph.targets[place]
            if other == start:
                via[start], parent[start] = place, node
                return depth, tail
            if component[other] == component[start] and parent[other] < 0:
                parent[other], via[other] = node, place
                queue[tail] = other
                tail += 1
        # All nodes at this depth are done with: the queue holds just those one edge farther.
        if head == depth_end:
            depth_end = tail
            depth += 1
    return 0, tail


@kernel
def _shortest(graph, starts, component, out):
    """Writes the edge numbers of the shortest cycle through any of `starts` to `out`, in order; returns its length."""
    nodes = graph.offsets.shape[0] - 1
    way = _Way(np.full(nodes, -1, np.int32), np.empty(nodes, np.int64), np.empty(nodes, np.int32))
    best, limit = 0, out.shape[0]
    for start in starts:
        length, queued = _search(graph, start, component, way, limit)
        if length > 0:
            best, limit, node = length, length - 1, start
            for step in range(length):
                out[length - 1 - step] = graph.edges[way.via[node]]
                node = way.parent[node]
        for place in range(queued):
            way.parent[way.queue[place]] = -1
    return best


def shortest_cycle(graph: Digraph, component: Nodes, members: Nodes, tries: int = 64) -> npt.NDArray[np.int64]:
    """The edge numbers of a shortest cycle through one of the first `tries` members of a component, in order."""
    out = np.empty(len(members), np.int64)
    length = _shortest(graph, members[:tries], component, out)
    return out[:length]

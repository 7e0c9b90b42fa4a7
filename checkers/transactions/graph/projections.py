"""Projections of a dependency graph: what no topological order can place, strong components, closed walks in them.

Real time is an interval order, whose edges are not drawn: a transaction may come next once all that completed before
its invocation are out. In order of invocation these are released one after the other as the earliest completion still
to come moves on (Kahn's algorithm, O(n + m)). What is left over lies on cycles or behind them.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from checkers.columns.codes import NEVER, Bools, Codes, Ids, Ints
from checkers.columns.graph import Digraph, components, depths, digraph
from checkers.compiled import lean
from checkers.transactions.graph.closed_walks import STATES, Board, Ground, Starts, Walks, Wanted, find_walks
from checkers.transactions.graph.edges import FREE, RW

Numbers: TypeAlias = npt.NDArray[np.signedinteger]


class Graph(NamedTuple):
    """Nodes 0… are transactions in order of invocation with their event indices (`complete` is NEVER where unknown);
    behind them are helper nodes, up to `nodes`."""

    nodes: int
    source: Numbers
    target: Numbers
    kind: Codes
    key: Numbers
    invoke: Ints
    complete: Ints

    @property
    def timed(self) -> int:
        return len(self.invoke)


class GraphProjection(NamedTuple):
    """Some of a graph's edges between nodes that may be copies."""

    node: Ints  # by copy whose it is, -1: a helper's
    invoke: Ints  # by copy the event of its node's invocation
    complete: Ints  # by copy the event of its node's completion, NEVER: unknown, or a helper's
    source: Numbers  # by edge the copy that it leads from
    target: Numbers  # by edge the copy that it leads to
    kind: Codes  # by edge
    late: Ints  # the copies that real time leads to, in order of invocation


def plain(graph: Graph, kinds: tuple[int, ...]) -> GraphProjection:
    """The edges of some kinds."""
    kept = np.isin(graph.kind, (*kinds, FREE))
    invoke, complete = _times(graph)
    node = np.where(np.arange(graph.nodes) < graph.timed, np.arange(graph.nodes), -1)
    return GraphProjection(
        node, invoke, complete, graph.source[kept], graph.target[kept], graph.kind[kept], np.arange(graph.timed)
    )


def nonadjacent(graph: Graph, kinds: tuple[int, ...]) -> GraphProjection:
    """The edges of some kinds and rw edges, but no two rw edges in a row: copy 2n of node n is reached by any edge but
    rw, copy 2n + 1 by rw edges only."""
    base = np.flatnonzero(np.isin(graph.kind, kinds))
    anti, free = np.flatnonzero(graph.kind == RW), np.flatnonzero(graph.kind == FREE)
    parts = (
        (2 * graph.source[base], 2 * graph.target[base], base),
        (2 * graph.source[base] + 1, 2 * graph.target[base], base),
        (2 * graph.source[anti], 2 * graph.target[anti] + 1, anti),
        (2 * graph.source[free], 2 * graph.target[free], free),
        (2 * graph.source[free] + 1, 2 * graph.target[free] + 1, free),
    )
    source, target, edge = (np.concatenate([part[i] for part in parts]) for i in range(3))
    invoke, complete = (np.repeat(times, 2) for times in _times(graph))
    node = np.repeat(np.where(np.arange(graph.nodes) < graph.timed, np.arange(graph.nodes), -1), 2)
    return GraphProjection(node, invoke, complete, source, target, graph.kind[edge], 2 * np.arange(graph.timed))


def _times(graph: Graph) -> tuple[Ints, Ints]:
    helpers = np.full(graph.nodes - graph.timed, NEVER)
    return np.concatenate((graph.invoke, -helpers)), np.concatenate((graph.complete, helpers))


def label(projection: GraphProjection, realtime: bool) -> Ints:
    """The strong component of each node."""
    return components(_drawn(projection, realtime))[: len(projection.node)].astype(np.int64)


class Ranks(NamedTuple):
    """Of nodes where there are no rw edges: the strong component of each, and how deep that lies (`depths`)."""

    label: Ints
    depth: Ints


def ranks(projection: GraphProjection, realtime: bool) -> Ranks:
    """Components and depths of a projection without rw edges."""
    graph = _drawn(projection, realtime)
    found, nodes = components(graph), len(projection.node)
    return Ranks(found[:nodes].astype(np.int64), depths(graph, found)[:nodes])


def _drawn(projection: GraphProjection, realtime: bool) -> Digraph:
    """Real time is drawn by a chain of ticks, one for each completion: a completion leads to its tick, a tick to the
    next and to what is invoked before the next completion."""
    nodes, source, target = len(projection.node), projection.source, projection.target
    if realtime:
        completing = np.flatnonzero(projection.complete != NEVER)
        completing = completing[np.argsort(projection.complete[completing], kind="stable")]
        ticks = nodes + np.arange(len(completing))
        last = np.searchsorted(projection.complete[completing], projection.invoke[projection.late]) - 1
        told = last >= 0
        source = np.concatenate((source, completing, ticks[:-1], ticks[last[told]]))
        target = np.concatenate((target, ticks, ticks[1:], projection.late[told]))
        nodes += len(ticks)
    return digraph(nodes, source.astype(np.int32), target.astype(np.int32))


class Field(NamedTuple):
    """A projection's strong components of two or more nodes, the groups, laid out for searching."""

    ground: Ground
    first: Ints  # by group its first node in the projection
    edge_source: Ids  # by edge inside a group the place that it leads from
    edge_target: Ids  # the place that it leads to
    edge_kind: Codes
    edge_group: Ints  # the group that it is in

    @property
    def groups(self) -> int:
        return len(self.first)


def lay_out(projection: GraphProjection, labels: Ints, nodes: Ints, rank: Ranks) -> Field:
    """Lay out some components, given their nodes in order; `rank` is of the graph's nodes."""
    kept = nodes[np.argsort(labels[nodes], kind="stable")]
    place = np.full(len(labels), -1)
    place[kept] = np.arange(len(kept))
    cuts = np.flatnonzero(np.diff(labels[kept], prepend=-1))
    group_at = np.concatenate((cuts, [len(kept)]))
    group = np.repeat(np.arange(len(cuts)), np.diff(group_at))
    source, target = place[projection.source], place[projection.target]
    inside = (source >= 0) & (target >= 0)
    inside[inside] = group[source[inside]] == group[target[inside]]
    source, target = source[inside].astype(np.int32), target[inside].astype(np.int32)
    kind = projection.kind[inside]
    graph = digraph(len(kept), source, target)
    is_late = np.zeros(len(labels), bool)
    is_late[projection.late] = True
    late = np.flatnonzero(is_late[kept])
    late_at, late_invoke = np.searchsorted(group[late], np.arange(len(cuts) + 1)), projection.invoke[kept[late]]
    of_graph = kept // (len(labels) // len(rank.label))
    complete, alone = projection.complete[kept], np.bincount(rank.label)[rank.label[of_graph]] == 1
    ground = Ground(
        group_at,
        projection.node[kept].astype(np.int32),
        complete,
        graph.offsets,
        graph.targets,
        kind[graph.edges],
        late_at,
        late.astype(np.int32),
        late_invoke,
        rank.depth[of_graph],
        _late_end(late_at, late_invoke, group, np.where(alone, complete, NEVER)),
    )
    return Field(ground, kept[cuts], source, target, kind, group[source])


def _late_end(late_at: Ints, late_invoke: Ints, group: Ints, complete: Ints) -> Ints:
    """For each place the first of its group's late ones that is invoked after it has completed."""
    span = int(late_invoke.max(initial=0)) + 2  # so that one search serves all groups
    times = np.repeat(np.arange(len(late_at) - 1), np.diff(late_at)) * span + late_invoke
    return np.searchsorted(times, group * span + np.minimum(complete, span - 1), side="right")


def search(field: Field, wanted: Wanted, kinds: tuple[int, ...], tries: Ints, most_work: int) -> Walks:
    """Search each group for a closed walk through one of its edges of `kinds`, of them `tries` (by group) are tried.

    Edges back in time come first, the shortest of them first: every cycle has one, and a short one rather a short one.
    """
    chosen = np.flatnonzero(np.isin(field.edge_kind, kinds))
    ahead = field.edge_target[chosen].astype(np.int64) - field.edge_source[chosen]
    chosen = chosen[np.lexsort((np.abs(ahead), ahead > 0, field.edge_group[chosen]))]
    edge_at = np.searchsorted(field.edge_group[chosen], np.arange(field.groups + 1))
    most = int(np.diff(field.ground.group_at).max(initial=0))
    size = most * STATES
    board = Board(
        np.zeros(size, np.int32),
        np.empty(size, np.int32),
        np.empty(size, np.uint8),
        np.empty(size, np.int32),
        np.empty(STATES, np.int64),
        np.zeros(int(field.ground.node.max(initial=-1)) + 1, np.int64),
        np.empty(2 * size, np.int32),
    )
    room = 2 * len(field.ground.node) + size
    walks = Walks(
        np.zeros(field.groups, np.uint8),
        np.zeros(field.groups, np.int64),
        np.zeros(field.groups, np.int64),
        np.empty(room, np.int32),
        np.empty(room, np.uint8),
        np.zeros(2, np.int64),
    )
    starts = Starts(edge_at, field.edge_source[chosen], field.edge_target[chosen], field.edge_kind[chosen], tries)
    find_walks(field.ground, board, wanted, starts, most_work, walks)
    return walks


@lean
def _emit(
    graph: Digraph, entering: Ids, invoke: Ints, complete: Ints, completing: Ints, left: Bools, queue: Ids
) -> None:
    """Clear `left` of nodes as they come out. `completing` are the timed nodes that complete, by completion.

    Timed nodes below `released` have no real-time edge left into them: all that completed before their invocation is
    out. `queue[head:tail]` are nodes that may come out now.
    """
    timed, head, tail, released, ended = invoke.shape[0], 0, 0, 0, 0
    for node in range(timed, left.shape[0]):
        if entering[node] == 0:
            queue[tail] = node
            tail += 1
    while True:
        # Kahn's algorithm for the edges that are there …
        while head < tail:
            node = queue[head]
            head += 1
            left[node] = False
            for i in range(graph.offsets[node], graph.offsets[node + 1]):
                target = graph.targets[i]
                entering[target] -= 1
                if entering[target] == 0 and (target >= timed or target < released):
                    queue[tail] = target
                    tail += 1
        # … and for real time, whose edges nobody writes down: who began before the first completion of what is left
        # waits for nothing any more. What neither lets out lies on a cycle or behind one.
        while ended < completing.shape[0] and not left[completing[ended]]:
            ended += 1
        frontier = complete[completing[ended]] if ended < completing.shape[0] else NEVER
        before = released
        while released < timed and (invoke[released] < frontier or frontier == NEVER):
            if entering[released] == 0:
                queue[tail] = released
                tail += 1
            released += 1
        if released == before and head == tail:
            return


def leftovers(nodes: int, source: Ids, target: Ids, invoke: Ints, complete: Ints, realtime: bool) -> Ints:
    """The nodes that no topological order can place: all that are on cycles, and those behind them.

    Nodes are transactions in order of `invoke`, then helper nodes without time. With `realtime`, a transaction comes
    before all that are invoked after its completion (NEVER: none).
    """
    graph = digraph(nodes, source, target)
    entering = np.bincount(target, minlength=nodes).astype(np.int32)
    if realtime:
        completing = np.flatnonzero(complete != NEVER)
        completing = completing[np.argsort(complete[completing], kind="stable")]
    else:
        completing = np.empty(0, np.int64)
    left, queue = np.ones(nodes, np.bool_), np.empty(nodes, np.int32)
    _emit(graph, entering, invoke, complete, completing, left, queue)
    return np.flatnonzero(left)

"""Topological order of transactions under dependencies and real time, without drawing the real-time edges.

Real time is an interval order: a transaction may come next once all that completed before its invocation are out. In
order of invocation these are released one after the other as the earliest completion still to come moves on (Kahn's
algorithm, O(n + m)). What is left over lies on cycles or behind them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from checkers.columns.codes import NEVER
from checkers.columns.graph import digraph
from checkers.compiled import lean

Ids = npt.NDArray[np.int32]
Ints = npt.NDArray[np.int64]


@lean
def _emit(graph, entering, invoke, complete, completing, left, queue):
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

"""Strongly connected components (Tarjan 1972, without recursion)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from checkers.kernels.compiled import kernel
from checkers.kernels.graph_order import adjacency

Ints = npt.NDArray[np.int64]


@kernel
def label_components(offsets, order, target):
    """The component of each node, numbered against topological order, and how many there are."""
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
        while deep > 0:
            node = path[deep - 1]
            if place[node] < offsets[node + 1]:
                other = target[order[place[node]]]
                place[node] += 1
                if number[other] < 0:
                    number[other] = low[other] = index
                    index += 1
                    stack[top] = path[deep] = other
                    top += 1
                    deep += 1
                elif label[other] < 0:
                    low[node] = min(low[node], number[other])
                continue
            deep -= 1
            if deep > 0:
                low[path[deep - 1]] = min(low[path[deep - 1]], low[node])
            if low[node] == number[node]:
                while True:
                    top -= 1
                    label[stack[top]] = labels
                    if stack[top] == node:
                        break
                labels += 1
    return label, labels


def components(nodes: int, source: Ints, target: Ints) -> npt.NDArray[np.int32]:
    """The component of each node."""
    offsets, order = adjacency(nodes, source, target)
    label, _ = label_components(offsets, order, target)
    return label

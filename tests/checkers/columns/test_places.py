"""A topological order in which the lowest place goes first, against networkx."""

from __future__ import annotations

import networkx
import numpy as np

from checkers.columns.graph import digraph, peel_by_place


def test_of_the_nodes_that_are_free_the_lowest_place_comes_next() -> None:
    dice = np.random.default_rng(1)
    for _ in range(200):
        nodes = int(dice.integers(0, 12))
        edges = dice.integers(0, max(1, nodes), (2, int(dice.integers(0, 2 * nodes + 1)))).astype(np.int32)
        if dice.random() < 0.7:  # without a cycle
            edges = np.sort(edges[:, edges[0] != edges[1]], axis=0)
        event = dice.permutation(nodes)
        place, order = np.argsort(event), np.empty(nodes, np.int32)
        graph = digraph(nodes, *edges)
        done = peel_by_place(graph.offsets, graph.targets, place, event, np.empty(nodes, np.int64), order)
        whole: networkx.DiGraph[int] = networkx.DiGraph(zip(*edges.tolist(), strict=True))
        whole.add_nodes_from(range(nodes))
        if networkx.is_directed_acyclic_graph(whole):
            expected = networkx.lexicographical_topological_sort(whole, place.__getitem__)
            assert order[:done].tolist() == list(expected)
        else:
            assert done < nodes

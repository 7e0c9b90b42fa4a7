"""The kernels of the transactional models, each against its definition."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkers.columns.codes import NEVER
from checkers.columns.graph import components, digraph
from checkers.transactions.graph.cycle_anomalies import Cycle, find_cycles
from checkers.transactions.graph.edges import FREE, RW, grown_edges, make_edges, put_product
from checkers.transactions.graph.projections import Graph, label, leftovers, plain
from checkers.transactions.transaction_mops import Txns, make_key_table, number_keys

PAIRS = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)).filter(lambda pair: pair[0] != pair[1]), max_size=30)
LENGTHS = st.lists(st.integers(0, 8), min_size=12, max_size=12)


def columns(pairs):
    table = np.array(pairs, np.int32).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()


def intervals(lengths):
    """Invocations every third event; completion after a while, or never."""
    invoke = 3 * np.arange(len(lengths))
    complete = np.array([NEVER if last == 0 else 3 * i + 3 * last - 2 for i, last in enumerate(lengths)])
    return invoke, complete


def with_realtime(pairs, invoke, complete):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(invoke)))
    graph.add_edges_from(pairs)
    graph.add_edges_from(
        (i, j) for i in range(len(invoke)) for j in range(len(invoke)) if complete[i] < invoke[j] and i != j
    )
    return graph


@settings(deadline=None)
@given(PAIRS, LENGTHS)
def test_what_no_order_can_place_is_on_cycles_or_behind_them(pairs, lengths):
    invoke, complete = intervals(lengths)
    graph = with_realtime(pairs, invoke, complete)
    cyclic = [node for part in nx.strongly_connected_components(graph) if len(part) > 1 for node in part]
    behind = set(cyclic).union(*(nx.descendants(graph, node) for node in cyclic))
    assert set(leftovers(12, *columns(pairs), invoke, complete, True).tolist()) == behind


@settings(deadline=None)
@given(PAIRS, LENGTHS, st.booleans())
def test_components_with_and_without_real_time(pairs, lengths, realtime):
    invoke, complete = intervals(lengths)
    source, target = columns(pairs)
    graph = Graph(12, source, target, np.full(len(source), FREE, np.uint8), source, invoke, complete)
    labels = label(plain(graph, ()), realtime)
    theirs = with_realtime(pairs, invoke, complete if realtime else np.full(12, NEVER))
    ours = {frozenset(np.flatnonzero(labels == name).tolist()) for name in labels}
    assert ours == {frozenset(part) for part in nx.strongly_connected_components(theirs)}


def test_components_of_a_long_path_need_no_recursion():
    count = 200_000
    source = np.arange(count - 1, dtype=np.int32)
    assert len(np.unique(components(digraph(count, source, source + np.int32(1))))) == count


@pytest.mark.parametrize("helped", [False, True])
def test_products_of_readers_and_writers(helped):
    size = 40 if helped else 3
    readers = np.arange(size, dtype=np.int32)
    writers = np.arange(size - 2, 2 * size - 2, dtype=np.int32)
    edges = make_edges(4000, 100)
    put_product(edges, readers, writers, np.full(100, -1), RW, 0)
    count = int(edges.used[0])
    graph = nx.DiGraph(list(zip(edges.source[:count].tolist(), edges.target[:count].tolist(), strict=True)))
    assert (int(edges.used[1]) > 100) is helped
    assert not helped or count < size * size
    for reader in readers.tolist():
        assert set(writers.tolist()) - {reader} <= nx.descendants(graph, reader)
    for writer in range(size, 2 * size - 2):
        assert not nx.descendants(graph, writer)


@settings(deadline=None)
@given(st.lists(st.tuples(*(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2) for _ in range(4))), max_size=60))
def test_keys_get_dense_numbers(addresses):
    keys, numbers = make_key_table(2), []
    for address in addresses:
        keys, ids = number_keys(keys, tuple(np.array([part]) for part in address))
        numbers.append(int(ids[0]))
    assert numbers == [list(dict.fromkeys(addresses)).index(address) for address in addresses]


def txns_of(count: int) -> Txns:
    invoke = np.arange(count)
    return Txns(invoke, invoke + count, np.zeros(count, np.uint8), invoke)


def graph_of(*edges: tuple[int, int, int]):
    made = make_edges(len(edges), 1 + max(max(edge[:2]) for edge in edges))
    for place, (source, target, kind) in enumerate(edges):
        made.source[place], made.target[place], made.kind[place], made.key[place] = source, target, kind, place
    made.used[0] = len(edges)
    return made


def test_a_long_cycle_is_found_whole():
    count = 3000
    edges = graph_of(*((i, (i + 1) % count, 0) for i in range(count)))
    found = find_cycles(edges, txns_of(count), 0, 1)
    assert found.counts == {"G0": 1}
    assert found.kept["G0"] == (Cycle(tuple(range(count)), (0,) * count, tuple(range(count))),)


def test_the_shortest_cycle_is_shown():
    chain = [(i, i + 1, 1) for i in range(50)]
    found = find_cycles(graph_of(*chain, (50, 0, 0), (20, 18, 1)), txns_of(51), 0, 1)
    assert found.counts == {"G1c": 1}
    assert sorted(found.kept["G1c"][0].txns) == [18, 19, 20]


def test_going_round_twice_is_no_long_fork():
    """A cycle with one rw edge passed twice has two that are not neighbours; it is still read skew only."""
    found = find_cycles(graph_of((0, 1, 0), (1, 2, 0), (2, 0, RW)), txns_of(3), 0, 4)
    assert found.counts == {"G-single-item": 1}


def test_two_read_skews_that_share_a_transaction():
    found = find_cycles(graph_of((0, 1, 0), (1, 0, RW), (0, 2, 0), (2, 0, RW)), txns_of(3), 0, 4)
    assert found.counts == {"G-single-item": 1}


def test_room_for_edges_grows_even_where_none_were_kept():
    """A key whose edges did not fit is begun again, so that growth can't be measured by the edges that are there."""
    edges = make_edges(6000, 0)
    assert len(grown_edges(edges, 4096).source) == 10096
    assert len(grown_edges(make_edges(100_000, 0), 4096).source) == 150_000

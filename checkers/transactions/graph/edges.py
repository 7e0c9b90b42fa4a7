"""Edges of dependency graphs, as kernels write them."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.columns.codes import Codes, Ids, Int, Ints
from checkers.compiled import lean

WW: Final = 0
WR: Final = 1
RW: Final = 2
PROCESS: Final = 3
REALTIME: Final = 4
FREE: Final = 5
"""From a helper node on: such a node stands for a set of transactions, and the edge into it says of what kind the pair
of edges is. It saves the product where many readers of a version precede many writers."""

_DIRECT: Final = 64
"""Products of readers and writers up to this size and a few times their number are written out."""


class Edges(NamedTuple):
    """Edges by number; nodes are transactions in order of invocation, then helpers (see FREE)."""

    source: Ids  # the node that it leads from, never its target
    target: Ids
    kind: Codes  # WW … FREE
    key: Ids  # the key that it is about, -1: none
    used: Ints  # used[0]: how many edges there are, behind them is room; used[1]: the number of the next helper;
    # used[2]: keys of which some versions' order nobody observed


def make_edges(room: int, first_helper: int) -> Edges:
    """Room for `room` edges; helper nodes are numbered from `first_helper`."""
    columns = (np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.uint8), np.empty(room, np.int32))
    return Edges(*columns, np.array([0, first_helper, 0]))


def grown_edges(edges: Edges, room: int) -> Edges:
    """The given edges with room for at least `room` more, and for half as many again as before."""
    count, held = int(edges.used[0]), len(edges.source)
    bigger = make_edges(held + max(room, held // 2), int(edges.used[1]))
    bigger.source[:count], bigger.target[:count] = edges.source[:count], edges.target[:count]
    bigger.kind[:count], bigger.key[:count] = edges.kind[:count], edges.key[:count]
    bigger.used[0], bigger.used[2] = count, edges.used[2]
    return bigger


def written(edges: Edges) -> Edges:
    """Just the edges that are there."""
    count = int(edges.used[0])
    return Edges(edges.source[:count], edges.target[:count], edges.kind[:count], edges.key[:count], edges.used)


@lean
def put(edges: Edges, source: Int, target: Int, kind: Int, key: Int) -> None:
    """Add an edge unless it is a loop; there must be room."""
    if source != target:
        place = edges.used[0]
        edges.source[place], edges.target[place] = source, target
        edges.kind[place], edges.key[place] = kind, key
        edges.used[0] += 1


@lean
def product_bound(readers: Int, writers: Int) -> Int:
    """How many edges `put_product` may add."""
    return 4 * (readers + writers) + _DIRECT


@lean
def put_product(edges: Edges, readers: Ids, writers: Ids, stamp: Ints, kind: Int, key: Int) -> None:
    """An edge from every reader to every other transaction that is a writer, through helper nodes where that is less.

    `stamp` is scratch by transaction, below the numbers of helpers. Transactions that are both are tied into one strong
    component if helpers are used: each pair of them is a cycle anyway.
    """
    if readers.shape[0] * writers.shape[0] <= 4 * (readers.shape[0] + writers.shape[0]) + _DIRECT:
        for reader in readers:
            for writer in writers:
                put(edges, reader, writer, kind, key)
        return
    # `helper` points to all writers, for readers that do not write; `helper + 1` to the writers that do not read, for
    # readers that write too, lest one get an edge to itself: these are tied to each other both ways. A stamp of `mark`
    # tells who reads, of `mark + 1` who does both.
    helper, mark = edges.used[1], edges.used[1]
    edges.used[1] += 2
    for reader in readers:
        stamp[reader] = mark
    for writer in writers:
        put(edges, helper, writer, FREE, key)
        if stamp[writer] == mark:
            stamp[writer] = mark + 1
        else:
            put(edges, helper + 1, writer, FREE, key)
    before = -1
    for reader in readers:
        if stamp[reader] == mark:
            put(edges, reader, helper, kind, key)
        elif stamp[reader] == mark + 1:
            put(edges, reader, helper + 1, kind, key)
            if before >= 0:
                put(edges, reader, before, kind, key)
                put(edges, before, reader, kind, key)
            before = reader
        stamp[reader] = -1

"""What closes one rw where a condition lets several through: a path of the other dependencies (parallel snapshot
isolation, Cerone et al. 2015), or a single one of them (update atomic)."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.columns.codes import Ids, Ints
from checkers.columns.graph import digraph
from checkers.compiled import lean
from checkers.transactions.graph.edges import PROCESS, REALTIME, RW, WR, WW
from checkers.transactions.polygraph.choice_graph import NO_CHAIN, ChoiceGraph, EventEdges
from checkers.transactions.polygraph.clauses import Clause, Step, clause_of, pair_since
from checkers.transactions.polygraph.history_polygraph import SESSIONS
from checkers.transactions.polygraph.light_cycles import lightest_path, path_edges, paths
from checkers.transactions.polygraph.saturation import Saturated, close, is_known

_MOST: Final = 256
"""Objections that are told at once."""


class _Rows(NamedTuple):
    """Single rw edges: reader, the writer that comes later, key, and the chains between which that is a choice."""

    reader: Ints
    writer: Ints
    key: Ints
    first: Ints
    second: Ints


def closed_rw(
    graph: ChoiceGraph, saturated: Saturated, edges: EventEdges, order: Ids, follows: tuple[Ints, Ints]
) -> list[Clause]:
    """What is wrong with chains in an order (`follows`: each with the next of its key) whose edges have no cycle: rw
    edges that others close; `order` is a topological one of the events."""
    if graph.condition.one_edge:
        return _closed_by_one(graph, saturated, order)
    return _closed_by_paths(graph, saturated, edges, order, follows)


def _single_rw(graph: ChoiceGraph, follows: tuple[Ints, Ints]) -> _Rows:
    """From each reader to the next writer of what it read, behind whom all others come."""
    chains, (first, second) = graph.chains, follows
    count = chains.reader_at[first + 1] - chains.reader_at[first]
    one, other = np.repeat(first, count), np.repeat(second, count)
    place = np.arange(len(one)) + np.repeat(chains.reader_at[first] - (np.cumsum(count) - count), count)
    nobody = np.full(graph.anti.shape[1], NO_CHAIN)
    rows = _Rows(
        np.concatenate((chains.reader[place], graph.anti[1])),
        np.concatenate((chains.head[other], graph.anti[2])),
        np.concatenate((chains.key[one], graph.anti[0])),
        np.concatenate((one, nobody)),
        np.concatenate((other, nobody)),
    )
    return _Rows(*(column[rows.reader != rows.writer] for column in rows))


def _closed_by_paths(
    graph: ChoiceGraph, saturated: Saturated, edges: EventEdges, order: Ids, follows: tuple[Ints, Ints]
) -> list[Clause]:
    one, other = edges.source.astype(np.int32), edges.target.astype(np.int32)
    back = digraph(graph.nodes, other, one)
    rows = np.zeros((graph.nodes, (graph.columns + 63) // 64), np.uint64)
    close(back.offsets, back.targets, order, graph.columns, rows)
    single = _single_rw(graph, follows)
    word, bit = single.writer >> 6, (single.writer & 63).astype(np.uint64)
    closed = np.flatnonzero((rows[single.reader, word] >> bit) & np.uint64(1))
    costly = is_known(graph, saturated.before, edges.first, edges.second) == 0
    ahead, work, allowed = digraph(graph.nodes, one, other), paths(graph.nodes), np.ones(len(one), np.bool_)
    whole, found = np.zeros(graph.nodes, np.int32), list[Clause]()
    for search, i in enumerate(closed[:: max(1, len(closed) // _MOST)].tolist()):
        reader, writer, key, first, second = (int(column[i]) for column in single)
        assert lightest_path(ahead, writer, reader, costly, allowed, whole, work, search)
        path = path_edges(work, writer, reader, edges.source)
        step = Step(reader, writer, RW, key, first, second)
        found.append(clause_of(graph, saturated.before, edges, path, step))
    return found


@lean
def _closed(write_at, writes, write_key, read_at, reads, version_at, version, place_of, wr, form, times, out):
    """Write (reader, later writer, by read, place by which ww closes it or -1) of rw edges that one edge closes; returns
    how many there are, at most as many as there is room.

    Places of a key's writers stand in the order of its versions in `version[version_at[k]:version_at[k + 1]]`;
    `place_of` is where each stands there. `stamp` marks who comes directly before the reader at hand.
    """
    stamp, by = out.stamp, out.by
    used = 0
    for txn in range(write_at.shape[0] - 1):
        for i in range(read_at[txn], read_at[txn + 1]):
            source = wr[reads[i], 1]
            if source >= 0:
                stamp[source], by[source] = txn, -1
        for i in range(write_at[txn], write_at[txn + 1]):
            own = writes[i]
            for place in range(version_at[write_key[own]] + 1, place_of[own]):
                other = version[place]
                if stamp[out.txn[other]] != txn:
                    stamp[out.txn[other]], by[out.txn[other]] = txn, own
        for i in range(read_at[txn], read_at[txn + 1]):
            read = reads[i]
            key = wr[read, 0]
            for at in range(place_of[wr[read, 2]] + 1, version_at[key + 1]):
                writer = out.txn[version[at]]
                if writer == txn:
                    continue
                told = -2
                if stamp[writer] == txn:
                    told = by[writer]
                elif (
                    form != 0 and times[1, writer] < times[0, txn] and (form != 1 or times[2, writer] == times[2, txn])
                ):
                    told = -3
                if told != -2:
                    if used == out.found.shape[0]:
                        return used
                    out.found[used, 0], out.found[used, 1] = read, version[at]
                    out.found[used, 2] = told
                    used += 1
    return used


class _Scratch(NamedTuple):
    """By transaction who came directly before whom; by place its transaction; what was found."""

    stamp: Ints
    by: Ints
    txn: Ints
    found: Ints


def _closed_by_one(graph: ChoiceGraph, saturated: Saturated, order: Ids) -> list[Clause]:
    """rw edges that are closed by a single other dependency."""
    polygraph, places = graph.polygraph, graph.places
    rank = np.full(graph.nodes + 1, -1)  # the last of them is for INITIAL
    rank[order] = np.arange(len(order))
    version = np.lexsort((rank[places.txn], places.key))
    place_of = np.empty(len(version), np.int64)
    place_of[version] = np.arange(len(version))
    own = np.flatnonzero(places.txn >= 0)
    own = own[np.argsort(places.txn[own], kind="stable")]
    reads = np.argsort(polygraph.reader, kind="stable")
    every = np.arange(graph.size + 1)
    source = places.of(polygraph.read_key, polygraph.read_from, graph.size)
    wr = np.stack((polygraph.read_key, polygraph.read_from, source), axis=1)
    scratch = _Scratch(
        np.full(graph.size, -1), np.empty(graph.size, np.int64), places.txn, np.empty((4096, 3), np.int64)
    )
    used = _closed(
        np.searchsorted(places.txn[own], every),
        own,
        places.key,
        np.searchsorted(polygraph.reader[reads], every),
        reads,
        places.at,
        version,
        place_of,
        wr,
        graph.form,
        np.stack((polygraph.invoke, polygraph.complete, polygraph.process)),
        scratch,
    )
    found = scratch.found[:used]
    return [_one_edge(graph, saturated, *map(int, row)) for row in found[:: max(1, used // _MOST)]]


def _one_edge(graph: ChoiceGraph, saturated: Saturated, read: int, later: int, told: int) -> Clause:
    polygraph, places, chain = graph.polygraph, graph.places, graph.chain_of
    reader, key, writer = int(polygraph.reader[read]), int(polygraph.read_key[read]), int(places.txn[later])
    source = int(places.of(polygraph.read_key[read : read + 1], polygraph.read_from[read : read + 1], graph.size)[0])
    rw = _between(graph, reader, writer, RW, key, int(chain[source]), int(chain[later]))
    if told >= 0:
        other = int(places.key[told])
        place = int(places.of(np.array([other]), np.array([writer]), graph.size)[0])
        back = _between(graph, writer, reader, WW, other, int(chain[place]), int(chain[told]))
    else:
        kind = WR if told == -1 else (PROCESS if graph.form == SESSIONS else REALTIME)
        shared = (polygraph.reader == reader) & (polygraph.read_from == writer)
        of_key = int(polygraph.read_key[shared][0]) if told == -1 else -1
        back = Step(writer, reader, kind, of_key, NO_CHAIN, NO_CHAIN)
    rests = [(s.first, s.second) for s in (rw, back) if pair_since(graph, saturated.before, s.first, s.second) == 0]
    return Clause((rw, back), frozenset(rests))


def _between(graph: ChoiceGraph, source: int, target: int, kind: int, key: int, first: int, second: int) -> Step:
    """A step that is a choice unless both ends are of one chain."""
    chains = (first, second) if first != second else (NO_CHAIN, NO_CHAIN)
    return Step(source, target, kind, key, *chains)

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
from checkers.transactions.polygraph.clauses import Clause, CycleStep, clause_of, pair_since
from checkers.transactions.polygraph.history_polygraph import REALTIME as REALTIME_FORM
from checkers.transactions.polygraph.history_polygraph import SESSIONS
from checkers.transactions.polygraph.light_cycles import Ways, lightest_path, path_edges, paths
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
    whole, every = np.zeros(graph.nodes, np.int32), np.ones(len(one), np.bool_)
    ways, work, found = Ways(digraph(graph.nodes, one, other), costly, every, whole), paths(graph.nodes), list[Clause]()
    for search, i in enumerate(closed[:: max(1, len(closed) // _MOST)].tolist()):
        reader, writer, key, first, second = (int(column[i]) for column in single)
        assert lightest_path(ways, writer, reader, work, search)
        path = path_edges(work, writer, reader, edges.source)
        step = CycleStep(reader, writer, RW, key, first, second)
        found.append(clause_of(graph, saturated.before, edges, path, step))
    return found


class _Versions(NamedTuple):
    """A history with its versions in order: `version` has the places of each key's writers so, from `at` on, and
    `place_of` says where each place stands there. Places by transaction are `own[own_at[t]:own_at[t + 1]]`, reads by
    transaction `reads[read_at[t]:read_at[t + 1]]`."""

    at: Ints
    key: Ints  # by place
    txn: Ints  # by place
    version: Ints
    place_of: Ints
    own_at: Ints
    own: Ints
    read_at: Ints
    reads: Ints
    read: Ints  # by read its key, its writer or INITIAL, and the place of that
    times: Ints  # invocation, completion and process by transaction


class _Scratch(NamedTuple):
    """By transaction who came directly before whom, and by which place; what was found: read, place of the later
    writer, and the place by which ww closes it, `_BY_WR` or `_BY_FORM`."""

    stamp: Ints
    by: Ints
    found: Ints


_BY_WR: Final = -1
_BY_FORM: Final = -2
_OPEN: Final = -3


@lean
def _mark(history, txn, scratch):
    """Stamp whom a transaction read from, and who wrote before it what it writes."""
    stamp, by, read, version = scratch.stamp, scratch.by, history.read, history.version
    for i in range(history.read_at[txn], history.read_at[txn + 1]):
        source = read[history.reads[i], 1]
        if source >= 0:
            stamp[source], by[source] = txn, _BY_WR
    for i in range(history.own_at[txn], history.own_at[txn + 1]):
        own = history.own[i]
        for place in range(history.at[history.key[own]] + 1, history.place_of[own]):
            other = history.txn[version[place]]
            if stamp[other] != txn:
                stamp[other], by[other] = txn, own


@lean
def _by(history, writer, txn, form, scratch):
    """What brings a writer directly before a transaction."""
    if scratch.stamp[writer] == txn:
        return scratch.by[writer]
    ended = history.times[1, writer] < history.times[0, txn]
    if form == REALTIME_FORM and ended:
        return _BY_FORM
    return _BY_FORM if form == SESSIONS and ended and history.times[2, writer] == history.times[2, txn] else _OPEN


@lean
def _closed(history, form, scratch):
    """Write the rw edges that a single edge closes; returns how many there are, at most as many as there is room."""
    used = 0
    for txn in range(history.own_at.shape[0] - 1):
        _mark(history, txn, scratch)
        for i in range(history.read_at[txn], history.read_at[txn + 1]):
            read = history.reads[i]
            for at in range(history.place_of[history.read[read, 2]] + 1, history.at[history.read[read, 0] + 1]):
                later = history.version[at]
                writer = history.txn[later]
                by = _by(history, writer, txn, form, scratch)
                if writer != txn and by != _OPEN:
                    if used == scratch.found.shape[0]:
                        return used
                    scratch.found[used, 0], scratch.found[used, 1], scratch.found[used, 2] = read, later, by
                    used += 1
    return used


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
    history = _Versions(
        places.at,
        places.key,
        places.txn,
        version,
        place_of,
        np.searchsorted(places.txn[own], every),
        own,
        np.searchsorted(polygraph.reader[reads], every),
        reads,
        np.stack((polygraph.read_key, polygraph.read_from, source), axis=1),
        np.stack((polygraph.invoke, polygraph.complete, polygraph.process)),
    )
    scratch = _Scratch(np.full(graph.size, -1), np.empty(graph.size, np.int64), np.empty((4096, 3), np.int64))
    used = _closed(history, graph.form, scratch)
    found = scratch.found[:used]
    return [_one_edge(graph, saturated, *map(int, row)) for row in found[:: max(1, used // _MOST)]]


def _one_edge(graph: ChoiceGraph, saturated: Saturated, read: int, later: int, by: int) -> Clause:
    polygraph, places, chain = graph.polygraph, graph.places, graph.chain_of
    reader, key, writer = int(polygraph.reader[read]), int(polygraph.read_key[read]), int(places.txn[later])
    source = int(places.of(polygraph.read_key[read : read + 1], polygraph.read_from[read : read + 1], graph.size)[0])
    rw = _between(graph, reader, writer, RW, key, int(chain[source]), int(chain[later]))
    if by >= 0:
        other = int(places.key[by])
        place = int(places.of(np.array([other]), np.array([writer]), graph.size)[0])
        back = _between(graph, writer, reader, WW, other, int(chain[place]), int(chain[by]))
    else:
        kind = WR if by == _BY_WR else (PROCESS if graph.form == SESSIONS else REALTIME)
        shared = (polygraph.reader == reader) & (polygraph.read_from == writer)
        of_key = int(polygraph.read_key[shared][0]) if by == _BY_WR else -1
        back = CycleStep(writer, reader, kind, of_key, NO_CHAIN, NO_CHAIN)
    rests = [(s.first, s.second) for s in (rw, back) if pair_since(graph, saturated.before, s.first, s.second) == 0]
    return Clause((rw, back), frozenset(rests))


def _between(graph: ChoiceGraph, source: int, target: int, kind: int, key: int, first: int, second: int) -> CycleStep:
    """A step that is a choice unless both ends are of one chain."""
    chains = (first, second) if first != second else (NO_CHAIN, NO_CHAIN)
    return CycleStep(source, target, kind, key, *chains)

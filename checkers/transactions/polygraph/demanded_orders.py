"""Conditions that leave no choice: which writers have to come before the one that was read (Biswas and Enea 2019)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from checkers.columns.codes import Ids, Ints, Words
from checkers.columns.graph import digraph, peel
from checkers.compiled import lean
from checkers.transactions.graph.edges import PROCESS, REALTIME, RW, WR, WW
from checkers.transactions.polygraph.choice_graph import ChoiceGraph, EventEdges, edges_of, joined_edges
from checkers.transactions.polygraph.clauses import Clause, CycleStep, steps_of
from checkers.transactions.polygraph.history_polygraph import INITIAL
from checkers.transactions.polygraph.light_cycles import Ways, lightest_path, path_edges, paths, shortest_known_cycle
from checkers.transactions.polygraph.saturation import close


def judge_demands(graph: ChoiceGraph) -> Ints | Clause:
    """A topological order of the transactions (and moments) in which all that is demanded holds, or the cycle."""
    edges, readers = graph.known, np.full(len(graph.known.source), -1)
    order = _order(graph, edges)
    if order is not None and graph.condition.demands:
        seen, refuted = _seen(graph, order)
        if refuted is not None:
            return refuted
        more, who = _demanded(graph, order, seen)
        edges, readers = joined_edges(edges, more), np.concatenate((readers, who))
        order = _order(graph, edges)
    if order is not None:
        return order.astype(np.int64)
    cycle = shortest_known_cycle(graph.nodes, edges.source, edges.target)
    marked = edges._replace(first=np.where(readers >= 0, readers, edges.first))
    steps = steps_of(graph, marked, cycle)
    return Clause(tuple(_demanded_step(step) for step in steps), frozenset())


def _demanded_step(step: CycleStep) -> CycleStep:
    """A step whose `first` is the reader that demands it."""
    return step._replace(first=-1, reader=step.first)


def _order(graph: ChoiceGraph, edges: EventEdges) -> Ids | None:
    ahead = digraph(graph.nodes, edges.source.astype(np.int32), edges.target.astype(np.int32))
    order = np.empty(graph.nodes, np.int32)
    return order if peel(ahead.offsets, ahead.targets, order) == graph.nodes else None


def _closure(graph: ChoiceGraph, edges: EventEdges, order: Ids, kinds: tuple[int, ...]) -> Words:
    chosen = np.isin(edges.kind, kinds)
    back = digraph(graph.nodes, edges.target[chosen].astype(np.int32), edges.source[chosen].astype(np.int32))
    rows = np.zeros((graph.nodes, (graph.columns + 63) // 64), np.uint64)
    close(back.offsets, back.targets, order, graph.columns, rows)
    return rows


def _seen(graph: ChoiceGraph, order: Ids) -> tuple[Words, Clause | None]:
    """By transaction whom it sees, and, if a read of an initial version can't be so, the cycle that it closes."""
    ordered = (PROCESS, REALTIME)
    kinds = (WR, *ordered) if graph.condition.demands == "causal" else ordered
    rows, polygraph = _closure(graph, graph.known, order, kinds), graph.polygraph
    if graph.condition.demands == "seen":
        read = polygraph.read_from != INITIAL
        source, reader = polygraph.read_from[read], polygraph.reader[read]
        np.bitwise_or.at(rows, (reader, source >> 6), np.uint64(1) << (source & 63).astype(np.uint64))
    place, writer = _initial_seen(graph.places.at, graph.places.txn, _reads(graph), rows)
    return rows, None if place < 0 else _closed_initial(graph, int(place), int(writer), kinds)


def _reads(graph: ChoiceGraph) -> Ints:
    polygraph = graph.polygraph
    return np.stack((polygraph.read_key, polygraph.reader, polygraph.read_from), axis=1)


@lean
def _initial_seen(at, txn, reads, rows):
    """A read of an initial version whose reader sees somebody who wrote the key, and whom; or (-1, -1)."""
    for read in range(reads.shape[0]):
        key, reader = reads[read, 0], reads[read, 1]
        if reads[read, 2] >= 0:
            continue
        for place in range(at[key] + 1, at[key + 1]):
            writer = txn[place]
            if writer != reader and (rows[reader, writer >> 6] >> np.uint64(writer & 63)) & np.uint64(1) != 0:
                return read, writer
    return -1, -1


def _closed_initial(graph: ChoiceGraph, read: int, writer: int, kinds: tuple[int, ...]) -> Clause:
    polygraph, edges = graph.polygraph, graph.known
    reader, key = int(polygraph.reader[read]), int(polygraph.read_key[read])
    ahead = digraph(graph.nodes, edges.source.astype(np.int32), edges.target.astype(np.int32))
    allowed = np.isin(edges.kind, kinds if WR in kinds else (WR, *kinds))
    ways = Ways(ahead, np.ones(len(edges.source), np.bool_), allowed, np.zeros(graph.nodes, np.int32))
    work = paths(graph.nodes)
    assert lightest_path(ways, writer, reader, work, 0)
    back = steps_of(graph, edges, path_edges(work, writer, reader, edges.source))
    return Clause((CycleStep(reader, writer, RW, key), *back), frozenset())


class _Demanding(NamedTuple):
    """Places of writers by key, and in topological order; reads; whom each transaction sees; what leads where."""

    at: Ints
    txn: Ints  # by place
    version: Ints
    reads: Ints  # key, reader and writer or INITIAL by read
    seen: Words
    closed: Words


@lean
def _demands(history, place, out):
    """Write (source, target, key, reader) for writers that a reader sees and that have to come before the one that it
    read, but those that others say; `version` has the places of each key's writers in topological order. Returns the
    read before which room ran out, or how many there are, and how many were written."""
    at, txn, version, reads = history.at, history.txn, history.version, history.reads
    seen, closed, used = history.seen, history.closed, 0
    for read in range(place, reads.shape[0]):
        key, reader, source = reads[read, 0], reads[read, 1], reads[read, 2]
        if source < 0:
            continue
        if used + at[key + 1] - at[key] > out.shape[0]:
            return read, used
        begin = used
        for i in range(at[key + 1] - 1, at[key], -1):
            writer = txn[version[i]]
            if writer in (reader, source):
                continue
            word, bit = writer >> 6, np.uint64(writer & 63)
            if (seen[reader, word] >> bit) & np.uint64(1) == 0 or (closed[source, word] >> bit) & np.uint64(1) != 0:
                continue
            implied = False
            for before in range(max(begin, used - 16), used):
                if (closed[out[before, 0], word] >> bit) & np.uint64(1) != 0:
                    implied = True
                    break
            if not implied:
                out[used, 0], out[used, 1], out[used, 2], out[used, 3] = writer, source, key, reader
                used += 1
    return reads.shape[0], used


def _demanded(graph: ChoiceGraph, order: Ids, seen: Words) -> tuple[EventEdges, Ints]:
    """The ww edges that are demanded, and by whom."""
    closed = _closure(graph, graph.known, order, (WW, WR, PROCESS, REALTIME))
    rank = np.full(graph.nodes + 1, -1)  # the last of them is for INITIAL
    rank[order] = np.arange(graph.nodes)
    places, place = graph.places, 0
    version = np.lexsort((rank[places.txn], places.key))
    history = _Demanding(places.at, places.txn, version, _reads(graph), seen, closed)
    most = int(np.diff(places.at).max(initial=0))
    out, parts = np.empty((max(most, 1 << 16), 4), np.int64), [np.empty((0, 4), np.int64)]
    while place < len(history.reads):
        place, used = _demands(history, place, out)
        parts.append(out[:used].copy())
    rows = np.concatenate(parts)
    return edges_of(rows[:, 0], rows[:, 1], WW, rows[:, 2]), rows[:, 3]

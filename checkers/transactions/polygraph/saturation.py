"""What choices are no choices: pairs of chains of which one order would close a cycle are put in the other, until
nothing follows any more (the pruning of Cobra, Tan et al. 2020, and PolySI, Huang et al. 2023).

Row v of `rows` has a bit for each event that is no moment: whether a path of known edges leads from it to event v.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from checkers.columns.codes import Ids, Ints, Words
from checkers.columns.graph import digraph, peel
from checkers.compiled import kernel, lean, lean_inline
from checkers.transactions.graph.edges import RW, WW
from checkers.transactions.polygraph.choice_graph import NO_CHAIN, ChoiceGraph, EventEdges, joined_edges
from checkers.transactions.polygraph.history_polygraph import INITIAL

Turns: TypeAlias = npt.NDArray[np.int16]
"""By pair of chains the turn since which the first is known to come before the second, 0: never."""

BASE: Final = 1
"""Stamp of a pair whose order is known from the beginning; later turns of the loop have higher ones."""

_ROOM: Final = 1 << 16


class Pairs(NamedTuple):
    """What the kernels read of chains; `before[pair_at[k] + i * m + j]` is the turn since which chain i of key k's m is
    known to come before chain j, 0: it is not known."""

    at: Ints
    pair_at: Ints
    head: Ints  # by chain; INITIAL: none
    head_begin: Ints  # by chain the event that ww leads to
    tail: Ints
    reader_at: Ints
    reader: Ints
    reader_begin: Ints
    before: Turns


class Saturated(NamedTuple):
    """Known edges, those that followed included, with the turn that each is known since (0: from the beginning), and
    what is known of pairs. `order` is a topological one of the events, or, if `cyclic`, what of it there is."""

    edges: EventEdges
    since: Ints
    before: Turns
    order: Ids
    cyclic: bool
    contradicted: bool  # whether some pair of chains can come in neither order
    rows: Words


def pairs_of(graph: ChoiceGraph) -> Pairs:
    """The table of pairs in which all is open but that initial versions come first."""
    chains = graph.chains
    before = np.zeros(int(chains.pair_at[-1]), np.int16)
    sizes = np.diff(chains.at)
    first = np.repeat(chains.pair_at[:-1], sizes) + np.arange(len(chains.key)) - np.repeat(chains.at[:-1], sizes)
    starts = np.repeat(chains.at[:-1], sizes) == np.arange(len(chains.key))
    before[first[~starts]] = BASE
    head = chains.head
    return Pairs(
        chains.at,
        chains.pair_at,
        head,
        np.where(head == INITIAL, INITIAL, graph.ww_head(head)),
        chains.tail,
        chains.reader_at,
        chains.reader,
        graph.begin(chains.reader),
        before,
    )


@lean_inline
def _reaches(rows, source, target):
    return (rows[target, source >> 6] >> np.uint64(source & 63)) & np.uint64(1) != 0


@lean
def close(offsets, sources, order, columns, rows):
    """Fill the rows of all events, given edges by target and a topological order."""
    words = rows.shape[1]
    for place in range(order.shape[0]):
        event = order[place]
        row = rows[event]
        for word in range(words):
            row[word] = 0
        for i in range(offsets[event], offsets[event + 1]):
            source = sources[i]
            # What leads to it already says all that it leads to.
            if source < columns and (row[source >> 6] >> np.uint64(source & 63)) & np.uint64(1) != 0:
                continue
            other = rows[source]
            for word in range(words):
                row[word] |= other[word]
            if source < columns:
                row[source >> 6] |= np.uint64(1) << np.uint64(source & 63)


@lean
def force(pairs, rows, by_readers, turn):
    """Put those pairs of chains in order of which the other order would close a cycle; returns how many, and whether
    one of them was in that other order already."""
    found, contradicted = 0, False
    for key in range(pairs.at.shape[0] - 1):
        base, size, table = pairs.at[key], pairs.at[key + 1] - pairs.at[key], pairs.pair_at[key]
        for i in range(size):
            chain = base + i
            tail = pairs.tail[chain]
            for j in range(1, size):
                if j == i or pairs.before[table + j * size + i] != 0:
                    continue
                other = base + j
                closes = tail >= 0 and _reaches(rows, pairs.head_begin[other], tail)
                if by_readers and not closes:
                    head = pairs.head[other]
                    for place in range(pairs.reader_at[chain], pairs.reader_at[chain + 1]):
                        if pairs.reader[place] != head and _reaches(rows, head, pairs.reader_begin[place]):
                            closes = True
                            break
                if closes:
                    pairs.before[table + j * size + i] = turn
                    found += 1
                    contradicted |= pairs.before[table + i * size + j] != 0
    return found, contradicted


@lean
def _put(out, used, row):
    for column in range(6):
        out[column, used] = row[column]


@kernel
def tell(pairs, rows, rank, rw_edges, turn, place, out):
    """Write the edges of pairs that are in order since `turn`, from chain `place` on, but those that others say;
    returns the chain before which room ran out, or how many there are, and how many edges were written."""
    used, key = 0, 0
    chains = pairs.head.shape[0]
    while place < chains:
        while pairs.at[key + 1] <= place:
            key += 1
        base, size, table = pairs.at[key], pairs.at[key + 1] - pairs.at[key], pairs.pair_at[key]
        i = place - base
        low, high = pairs.reader_at[place], pairs.reader_at[place + 1]
        count = 0
        for j in range(1, size):
            count += pairs.before[table + i * size + j] == turn
        if count > 0:
            if used + count * (1 + high - low) > out.shape[1]:
                return place, used
            later, ranks = np.empty(count, np.int64), np.empty(count, np.int64)
            count = 0
            for j in range(1, size):
                if pairs.before[table + i * size + j] == turn:
                    later[count], ranks[count] = base + j, rank[pairs.head_begin[base + j]]
                    count += 1
            later = later[np.argsort(ranks)]
            kept = 0
            for at in range(count):
                other = later[at]
                head, begin = pairs.head[other], pairs.head_begin[other]
                # What is kept comes first in topological order: behind it no edge is needed.
                implied = False
                for before in range(max(0, kept - 16), kept):
                    if _reaches(rows, pairs.head[later[before]], begin):
                        implied = True
                        break
                if implied:
                    continue
                later[kept] = other
                kept += 1
                tail = pairs.tail[place]
                if tail >= 0 and not _reaches(rows, tail, begin):
                    _put(out, used, (tail, begin, WW, key, place, other))
                    used += 1
                if rw_edges:
                    for reader in range(low, high):
                        source = pairs.reader_begin[reader]
                        if pairs.reader[reader] != head and not _reaches(rows, source, head):
                            _put(out, used, (source, head, RW, key, place, other))
                            used += 1
        place += 1
    return place, used


def saturate(graph: ChoiceGraph) -> Saturated:
    """All that follows from the known edges by reachability alone."""
    edges, since = graph.known, np.zeros(len(graph.known.source), np.int64)
    # The system gives room for tables as they are written: what is cyclic from the beginning takes none.
    pairs, rows = pairs_of(graph), np.zeros((graph.nodes, (graph.columns + 63) // 64), np.uint64)
    order, turn = np.empty(graph.nodes, np.int32), BASE
    by_readers, out = not graph.condition.one_edge, np.empty((6, _ROOM), np.int64)
    while True:
        one, other = edges.source.astype(np.int32), edges.target.astype(np.int32)
        ahead = digraph(graph.nodes, one, other)
        done = int(peel(ahead.offsets, ahead.targets, order))
        if done < graph.nodes:
            return Saturated(edges, since, pairs.before, order[:done], True, False, rows)
        back = digraph(graph.nodes, other, one)
        close(back.offsets, back.targets, order, graph.columns, rows)
        found, contradicted = force(pairs, rows, by_readers, turn)
        if contradicted or (turn > BASE and not found):
            return Saturated(edges, since, pairs.before, order, False, contradicted, rows)
        rank = np.empty(graph.nodes, np.int64)
        rank[order] = np.arange(graph.nodes)
        more, out = _told(pairs, rows, rank, graph.condition.rw_edges, turn, out)
        edges = joined_edges(edges, more)
        since = np.append(since, np.full(len(more.source), turn))
        turn += 1


def _told(pairs: Pairs, rows: Words, rank: Ints, rw_edges: bool, turn: int, out: Ints) -> tuple[EventEdges, Ints]:
    """The edges of pairs that are in order since `turn`, and the room that it took to write them."""
    place, parts = 0, [np.empty((6, 0), np.int64)]
    while place < len(pairs.head):
        stopped, used = tell(pairs, rows, rank, rw_edges, turn, place, out)
        parts.append(out[:, :used].copy())
        if stopped == place:
            out = np.empty((6, 2 * out.shape[1]), np.int64)
        place = stopped
    return EventEdges(*np.concatenate(parts, axis=1)), out


def pair_place(graph: ChoiceGraph, first: Ints, second: Ints) -> Ints:
    """Where the table of pairs tells of two chains of one key."""
    chains = graph.chains
    key = chains.key[first]
    at = chains.at[key]
    return chains.pair_at[key] + (first - at) * (chains.at[key + 1] - at) + second - at


def is_known(graph: ChoiceGraph, before: Turns, first: Ints, second: Ints) -> Ints:
    """By pair since which turn the first chain is known to come before the second; 0: it is open."""
    known = before[pair_place(graph, np.maximum(first, 0), np.maximum(second, 0))]
    return np.where(first == NO_CHAIN, BASE, known).astype(np.int64)

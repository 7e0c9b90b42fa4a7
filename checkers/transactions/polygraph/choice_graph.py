"""A polygraph as a graph of events in which a condition's cycles are looked for, and the choices that are left.

The writers of a key stand in chains, of which it is known that nobody comes between: by the version order of a list,
or, where the condition says so, since who reads and writes a key follows what it read. A key's first chain is that of
its initial version. A choice is which of two chains of a key comes first.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.columns.codes import Ints
from checkers.compiled import kernel
from checkers.transactions.graph.edges import FREE, PROCESS, REALTIME, RW, WR, WW
from checkers.transactions.polygraph.conditions import Condition
from checkers.transactions.polygraph.history_polygraph import (
    INITIAL,
    PLAIN,
    SESSIONS,
    Polygraph,
    followed_sessions,
    moments,
)

NO_CHAIN: Final = -1


class EventEdges(NamedTuple):
    """Edges between events. One that holds if chain `first` comes before chain `second` names both, else NO_CHAIN."""

    source: Ints
    target: Ints
    kind: Ints  # WW … FREE of `graph.edges`
    key: Ints  # -1: none
    first: Ints
    second: Ints


class VersionChains(NamedTuple):
    """VersionChains by number, those of a key together, that of its initial version first.

    Chain c of key k is one of at[k]:at[k + 1]; those of other keys have nothing to do with it.
    """

    at: Ints
    key: Ints
    head: Ints  # the first writer, INITIAL: none
    tail: Ints  # the last writer, INITIAL: none but the initial version
    reader_at: Ints  # who read what the last writer wrote are reader[reader_at[c]:reader_at[c + 1]]
    reader: Ints
    pair_at: Ints  # by key where the pairs of its chains begin in a table of all


class Places(NamedTuple):
    """A place for each writer of a key, and before them one for the key's initial version: the first of each key."""

    at: Ints
    key: Ints
    txn: Ints

    def of(self, key: Ints, txn: Ints, size: int) -> Ints:
        """The place of a writer (or INITIAL) of a key, which must be there."""
        return np.searchsorted(self.key * (size + 1) + self.txn + 1, key * (size + 1) + txn + 1)


class ChoiceGraph(NamedTuple):
    """Events: 0… are commits of transactions, or the transactions; then begins, if `condition.split`; then moments.

    `known` are edges that hold whatever is chosen. `places` are the chain of each writer, by key as in the polygraph,
    and its place there.
    """

    condition: Condition
    form: int
    polygraph: Polygraph
    places: Places
    size: int  # transactions
    nodes: int
    known: EventEdges
    chains: VersionChains
    anti: Ints  # reads of what is followed in its chain: key, reader, the writer that follows
    chain_of: Ints  # by place of a writer (see `Places`)

    def begin(self, txn: Ints) -> Ints:
        """The event at which a transaction begins."""
        return txn + self.size if self.condition.split else txn

    def ww_head(self, txn: Ints) -> Ints:
        """The event that ww leads to."""
        return txn if self.condition.ww_to_commit else self.begin(txn)

    @property
    def columns(self) -> int:
        """How many events are no moments."""
        return 2 * self.size if self.condition.split else self.size


def places_of(polygraph: Polygraph) -> Places:
    """The places of all writers of a polygraph."""
    keys = np.arange(polygraph.keys)
    key = np.concatenate((keys, np.repeat(keys, np.diff(polygraph.write_at))))
    txn = np.concatenate((np.full(len(keys), INITIAL), polygraph.writer))
    order = np.lexsort((txn, key))
    return Places(polygraph.write_at + np.arange(polygraph.keys + 1), key[order], txn[order])


@kernel
def _lay_chains(following, preceded, chain, head, tail):
    """Number the chains in order of the places of their heads; returns how many there are. Places that follow each
    other in a circle are left without a chain (-1)."""
    count = 0
    for place in range(following.shape[0]):
        if preceded[place]:
            continue
        head[count] = place
        at = place
        chain[at] = count
        while following[at] >= 0:
            at = following[at]
            chain[at] = count
        tail[count] = at
        count += 1
    return count


def _following(polygraph: Polygraph, places: Places, chained: bool) -> Ints:
    """By place the one that comes right behind it, -1: none is known. Where several would, or one behind several, the
    edges alone tell."""
    size = polygraph.size
    earlier = places.of(polygraph.follow_key, polygraph.earlier, size)
    later = places.of(polygraph.follow_key, polygraph.later, size)
    if chained:
        own = places.of(polygraph.read_key, polygraph.reader, size)
        own = np.minimum(own, len(places.txn) - 1)
        both = (places.key[own] == polygraph.read_key) & (places.txn[own] == polygraph.reader)
        found = places.of(polygraph.read_key[both], polygraph.read_from[both], size)
        pairs = np.unique(np.stack((np.append(earlier, found), np.append(later, own[both])), axis=1), axis=0)
        earlier, later = pairs[:, 0], pairs[:, 1]
    count = len(places.txn)
    alone = (np.bincount(earlier, minlength=count)[earlier] == 1) & (np.bincount(later, minlength=count)[later] == 1)
    following = np.full(count, -1)
    following[earlier[alone]] = later[alone]
    return following


def _chains(polygraph: Polygraph, places: Places, following: Ints) -> tuple[Ints, Ints, Ints]:
    """The chain of each place, and the places of heads and tails; breaks circles in `following`."""
    count = len(places.txn)
    while True:
        chain, head, tail = np.full(count, -1), np.empty(count, np.int64), np.empty(count, np.int64)
        preceded = np.zeros(count, np.bool_)
        preceded[following[following >= 0]] = True
        found = _lay_chains(following, preceded, chain, head, tail)
        if (chain >= 0).all():
            return chain, head[:found], tail[:found]
        following[chain < 0] = -1


def choice_graph(polygraph: Polygraph, condition: Condition, form: int) -> ChoiceGraph:
    """The events, the known edges and the chains of a polygraph under a condition, in one of the three forms."""
    places = places_of(polygraph)
    following = _following(polygraph, places, condition.chains)
    chain, head, tail = _chains(polygraph, places, following)
    source = places.of(polygraph.read_key, polygraph.read_from, polygraph.size)
    next_place = following[source]
    last = next_place < 0
    behind = np.flatnonzero(~last)
    anti = np.stack((polygraph.read_key[behind], polygraph.reader[behind], places.txn[next_place[behind]]))
    anti = anti[:, anti[1] != anti[2]]
    readers, of_chain = polygraph.reader[last], chain[source[last]]
    order = np.argsort(of_chain, kind="stable")
    key = places.key[head]
    at = np.searchsorted(key, np.arange(polygraph.keys + 1))
    chains = VersionChains(
        at,
        key,
        places.txn[head],
        places.txn[tail],
        np.searchsorted(of_chain[order], np.arange(len(head) + 1)),
        readers[order],
        np.append(0, np.cumsum(np.diff(at) ** 2)),
    )
    graph = ChoiceGraph(condition, form, polygraph, places, polygraph.size, 0, no_edges(), chains, anti, chain)
    return _with_known_edges(graph)


def no_edges() -> EventEdges:
    """No edge at all."""
    return EventEdges(*np.empty((6, 0), np.int64))


def edges_of(source: Ints, target: Ints, kind: int, key: Ints | int = -1) -> EventEdges:
    """Edges of a kind that depend on no choice."""
    every = np.zeros(len(source), np.int64)
    return EventEdges(source, target, every + kind, every + key, every + NO_CHAIN, every + NO_CHAIN)


def joined_edges(*parts: EventEdges) -> EventEdges:
    """All parts, one after the other."""
    return EventEdges(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def pair_edges(graph: ChoiceGraph, first: Ints, second: Ints) -> EventEdges:
    """What holds if each first chain comes before its second: ww from its tail, and rw from the readers of its tail."""
    chains = graph.chains
    told = np.flatnonzero(chains.tail[first] != INITIAL)
    one, other = first[told], second[told]
    kinds = np.zeros(len(told), np.int64)
    ww = EventEdges(chains.tail[one], graph.ww_head(chains.head[other]), kinds + WW, chains.key[one], one, other)
    if not graph.condition.rw_edges:
        return ww
    count = chains.reader_at[first + 1] - chains.reader_at[first]
    one, other = np.repeat(first, count), np.repeat(second, count)
    begin = np.repeat(chains.reader_at[first] - (np.cumsum(count) - count), count)
    reader, head = chains.reader[begin + np.arange(len(one))], chains.head[other]
    apart = reader != head
    one, other, reader, head = one[apart], other[apart], reader[apart], head[apart]
    kinds = np.zeros(len(one), np.int64)
    rw = EventEdges(graph.begin(reader), head, kinds + RW, chains.key[one], one, other)
    return joined_edges(ww, rw)


def _with_known_edges(graph: ChoiceGraph) -> ChoiceGraph:
    condition, polygraph, nodes = graph.condition, graph.polygraph, graph.columns
    every = np.arange(graph.size)
    parts = [edges_of(graph.begin(every), every, FREE)] if condition.split else []
    if condition.wr_edges:
        read = polygraph.read_from != INITIAL
        parts.append(
            edges_of(polygraph.read_from[read], graph.begin(polygraph.reader[read]), WR, polygraph.read_key[read])
        )
    stated = polygraph.earlier != INITIAL
    for key, one, other in (
        (polygraph.follow_key[stated], polygraph.earlier[stated], polygraph.later[stated]),
        (polygraph.order_key, polygraph.before, polygraph.after),
    ):
        apart = (one != other) | condition.wr_edges  # what is torn is no matter of ww alone
        parts.append(edges_of(one[apart], graph.ww_head(other[apart]), WW, key[apart]))
    if condition.rw_edges and condition.chosen:
        parts.append(edges_of(graph.begin(graph.anti[1]), graph.anti[2], RW, graph.anti[0]))
    if graph.form != PLAIN:
        ordered, more = _form_edges(graph, nodes)
        parts.append(ordered)
        nodes += more
    return graph._replace(nodes=nodes, known=joined_edges(no_edges(), *parts))


def _form_edges(graph: ChoiceGraph, nodes: int) -> tuple[EventEdges, int]:
    """The form's order as edges, and how many moments it takes, which are numbered from `nodes`."""
    if graph.form == SESSIONS:
        one, other = followed_sessions(graph.polygraph)
        return edges_of(one, graph.begin(other), PROCESS), 0
    ended, begun, count = moments(graph.polygraph)
    done, late = np.flatnonzero(ended >= 0), np.flatnonzero(begun >= 0)
    chain = np.arange(nodes, nodes + max(count - 1, 0))
    parts = (
        edges_of(done, nodes + ended[done], REALTIME),
        edges_of(chain, chain + 1, REALTIME),
        edges_of(nodes + begun[late], graph.begin(late), REALTIME),
    )
    return joined_edges(*parts), count

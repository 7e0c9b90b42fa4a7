"""Real time leaves few choices: what it ties together falls into small parts, which are decided one by one.

Chain d of a key can come before chain c unless something that comes behind c's head had completed before something was
invoked that comes before what d's place decides: `early(c) < late(d)`. (At update atomic, where paths close nothing,
that is no reason.) Two chains of which either can come first are tied. In the graph of all that is known and all that
is possible every cycle lies in one strong component, so each component is a history of its own: whoever was read from
in an earlier one is its initial version, and what others showed of its orders is known.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from checkers.columns.codes import NEVER, Ints
from checkers.columns.graph import components, digraph
from checkers.compiled import lean
from checkers.transactions.polygraph.choice_graph import ChoiceGraph, pair_edges
from checkers.transactions.polygraph.conditions import SERIAL
from checkers.transactions.polygraph.history_polygraph import INITIAL, Polygraph, unique_rows

_MOST_PAIRS: Final = 20_000_000
"""Pairs of chains that can come in either order, beyond which nothing is gained."""

_PART: Final = 512
"""Transactions that are judged together, if no component has more."""

_OUTSIDE: Final = -2


class TimePart(NamedTuple):
    """Components that are judged together, as a polygraph of their own."""

    polygraph: Polygraph
    members: Ints  # by transaction its number in the whole polygraph
    keys: Ints  # by key its number there


class Split(NamedTuple):
    """Transactions by component in an order that all edges follow; `parts` are those with choices or cycles."""

    component: Ints  # by transaction; the lower comes first
    parts: tuple[TimePart, ...]


def _times(graph: ChoiceGraph) -> tuple[Ints, Ints]:
    """By chain the earliest completion behind its head, and the latest invocation before its place is decided."""
    polygraph, chains, places = graph.polygraph, graph.chains, graph.places
    early, late = np.full(len(chains.key), NEVER), np.full(len(chains.key), -1)
    own, read, end = places.txn != INITIAL, polygraph.read_from != INITIAL, polygraph.complete.copy()
    # Who was read from was there when its reader had completed, in all keys: else one whose outcome is unknown, and
    # which wrote a key that nobody read, could come as late as anything.
    np.minimum.at(end, polygraph.read_from[read], polygraph.complete[polygraph.reader[read]])
    np.minimum.at(early, graph.chain_of[own], end[places.txn[own]])
    np.maximum.at(late, graph.chain_of[own], polygraph.invoke[places.txn[own]])
    source = places.of(polygraph.read_key, polygraph.read_from, graph.size)
    np.minimum.at(early, graph.chain_of[source], polygraph.complete[polygraph.reader])
    tail = np.repeat(np.arange(len(chains.key)), np.diff(chains.reader_at))
    np.maximum.at(late, tail, polygraph.invoke[chains.reader])
    early[chains.at[:-1]] = -1  # initial versions come first
    return early, late


@lean
def _possible(at, order, early, late, scratch, out):
    """Write pairs (first, second) of chains of a key of which the first can come before the second: both ways where
    either can, else those that no others say; returns how many there are, or -1 if there is no room.

    `order` has the chains of each key by `late`. Behind a chain come all with a later `late` than its `early`; the one
    of them with the least `early` lies before all with a later `late` than that.
    """
    least, second, active, used = scratch[0], scratch[1], scratch[2], 0
    for key in range(at.shape[0] - 1):
        low, high, count = at[key], at[key + 1], 0
        one, two = -1, -1
        for place in range(high - 1, low - 1, -1):
            chain = order[place]
            if one < 0 or early[chain] < early[one]:
                one, two = chain, one
            elif two < 0 or early[chain] < early[two]:
                two = chain
            least[place], second[place] = one, two
        for place in range(low, high):
            chain, kept = order[place], 0
            if used + 2 * count + high - low + 2 > out.shape[0]:
                return -1
            # active[:count] have a lower `late`; those that some later chain can still come before stay.
            for i in range(count):
                other = active[i]
                if early[other] >= late[chain]:
                    active[kept] = other
                    kept += 1
                    if late[other] <= early[chain]:
                        out[used, 0], out[used, 1] = chain, other
                        out[used + 1, 0], out[used + 1, 1] = other, chain
                        used += 2
            active[kept] = chain
            count = kept + 1
            begin, end = low, high
            while begin < end:
                middle = (begin + end) // 2
                if late[order[middle]] > early[chain]:
                    end = middle
                else:
                    begin = middle + 1
            next_one = -1 if begin == high else (least[begin] if least[begin] != chain else second[begin])
            if next_one < 0:
                continue
            out[used, 0], out[used, 1] = chain, next_one
            used += 1
            for behind in range(begin, high):
                other = order[behind]
                if late[other] > early[next_one]:
                    break
                if other not in (chain, next_one):
                    out[used, 0], out[used, 1] = chain, other
                    used += 1
    return used


def split_by_time(graph: ChoiceGraph) -> Split | None:
    """The components of a history in which real time counts; None if too many chains overlap."""
    pairs = _pairs(graph)
    if pairs is None:
        return None
    known, size = graph.known, graph.size
    more = pair_edges(graph._replace(condition=SERIAL), pairs[:, 0], pairs[:, 1])
    source, target = (
        np.concatenate((_transactions(graph, ends), others))
        for ends, others in ((known.source, more.source), (known.target, more.target))
    )
    anti = graph.anti
    source, target = np.concatenate((source, anti[1])), np.concatenate((target, anti[2]))
    moments = graph.nodes - graph.columns
    label = components(digraph(size + moments, source.astype(np.int32), target.astype(np.int32)))
    component = label.max(initial=0) - label[:size].astype(np.int64)  # `components` counts against the edges
    return Split(component, _parts(_with_orders(graph, pairs), component))


def _with_orders(graph: ChoiceGraph, pairs: Ints) -> Polygraph:
    """The polygraph with the orders of chains that time shows, perhaps by transactions of other components."""
    count, chains, polygraph = len(graph.chains.key), graph.chains, graph.polygraph
    first, second = pairs[:, 0], pairs[:, 1]
    sure = ~np.isin(first * count + second, second * count + first) & (chains.tail[first] != INITIAL)
    return polygraph._replace(
        order_key=np.append(polygraph.order_key, chains.key[first[sure]]),
        before=np.append(polygraph.before, chains.tail[first[sure]]),
        after=np.append(polygraph.after, chains.head[second[sure]]),
    )


def _pairs(graph: ChoiceGraph) -> Ints | None:
    chains, (early, late) = graph.chains, _times(graph)
    order, room = np.lexsort((late, chains.key)), 4 * len(chains.key) + int(np.diff(chains.at).max(initial=0)) + 1024
    scratch = np.empty((3, len(chains.key)), np.int64)
    while room <= _MOST_PAIRS:
        out = np.empty((room, 2), np.int64)
        used = int(_possible(chains.at, order, early, late, scratch, out))
        if used >= 0:
            return out[:used][chains.head[out[:used, 1]] != INITIAL]
        room *= 4
    return None


def _transactions(graph: ChoiceGraph, events: Ints) -> Ints:
    """Transactions in place of their begins and commits, and moments behind them."""
    return np.where(events < graph.columns, events % max(1, graph.size), events - graph.columns + graph.size)


def _parts(polygraph: Polygraph, component: Ints) -> tuple[TimePart, ...]:
    """The transactions of components of several, in order of components, in parts of _PART if no component has more."""
    count = np.bincount(component)
    torn = polygraph.before[polygraph.before == polygraph.after]
    members = np.flatnonzero((count[component] > 1) | np.isin(np.arange(polygraph.size), torn))
    order = members[np.argsort(component[members], kind="stable")]
    if not len(order):
        return ()
    ends = np.flatnonzero(np.append(component[order[1:]] != component[order[:-1]], True)) + 1
    parts, begin = list[TimePart](), 0
    while begin < len(order):
        last = int(np.searchsorted(ends, begin + _PART, side="right"))
        end = int(ends[max(last - 1, int(np.searchsorted(ends, begin, side="right")))])
        mine = np.sort(order[begin:end])
        parts.append(_induced(polygraph, component, mine))
        begin = end
    return tuple(parts)


def _induced(polygraph: Polygraph, component: Ints, members: Ints) -> TimePart:
    """The polygraph of some whole components: keys are those of one component each, and what was read from an earlier
    component is the initial version."""
    number = np.full(polygraph.size + 1, _OUTSIDE)
    number[members] = np.arange(len(members))
    keys = np.repeat(np.arange(polygraph.keys), np.diff(polygraph.write_at))
    write = np.stack((keys, polygraph.writer))
    read = np.stack((polygraph.read_key, polygraph.reader, polygraph.read_from))
    follow = np.stack((polygraph.follow_key, polygraph.later, polygraph.earlier))
    order = np.stack((polygraph.order_key, polygraph.after, polygraph.before))
    rows = [each[:, number[each[1]] != _OUTSIDE] for each in (write, read, follow, order)]
    keyed = [component[each[1]] * polygraph.keys + each[0] for each in rows]
    known, place = np.unique(np.concatenate(keyed), return_inverse=True)
    places = np.split(place.reshape(-1), np.cumsum([len(each) for each in keyed])[:-1])
    write, read, follow, order = (
        np.vstack((key, number[each[1]], *_sources(each, component, number)))
        for key, each in zip(places, rows, strict=True)
    )
    write = unique_rows(write)
    order = order[:, order[2] != INITIAL]
    columns: Any = (polygraph.txn[members], *(column[members] for column in polygraph[1:4]))
    at = np.searchsorted(write[0], np.arange(len(known) + 1))
    read = unique_rows(read)
    told: Any = (*read, *unique_rows(follow[[0, 2, 1]]), *unique_rows(order[[0, 2, 1]]))
    whole: Any = (*columns, at, write[1], *told)
    return TimePart(Polygraph(*whole), members, known % max(1, polygraph.keys))


def _sources(rows: Ints, component: Ints, number: Ints) -> tuple[Ints, ...]:
    """The third row, if there is one, with INITIAL for transactions of another component."""
    if len(rows) < 3:
        return ()
    same = (rows[2] != INITIAL) & (component[rows[2]] == component[rows[1]])
    return (np.where(same, number[rows[2]], INITIAL),)

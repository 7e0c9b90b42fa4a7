"""Reads that agree with no order of the versions, whichever it is.

Where the order of versions is known in part only, monotonic reads hold if and only if an order of each cell's versions
fits everything: a comes before b if it is certainly older (`settled[a] < since[b]`), if some strong read of a completed
before some strong read of b began (`shown[a] < asked[b]`), or if one session read a and then b. An order is built from
its oldest end (Kahn 1962): of those left, b may be next unless the least `settled` or `shown` of another is too small,
so sorted lists and a heap do, in O(n log n), without drawing the edges. Where none may be next, one of those least ones
stands in the way of each, and following them gives the cycle: a value was seen, replaced by another, and seen again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.columns.codes import NEVER, NIL, Bools, Ints
from checkers.columns.versions import grouped_order
from checkers.compiled import kernel, lean, lean_inline
from checkers.sessions.session_order import Events

CERTAIN: Final = 0
REAL_TIME: Final = 1
SESSION: Final = 2

_LONGEST: Final = 16
"""A cycle has at most three versions, or more only by sessions; longer ones are shown by their first versions, and
groups without an order are counted whatever is shown."""


class Nodes(NamedTuple):
    """Versions that were read, sorted by group; group g owns `begin[g]:begin[g + 1]`. `shown` is NEVER and `asked` the
    least integer where no strong read showed the version. The columns `by_*` sort each group's nodes."""

    begin: Ints
    settled: Ints
    since: Ints
    shown: Ints
    asked: Ints
    by_settled: Ints
    by_shown: Ints
    by_since: Ints


class SessionEdges(NamedTuple):
    """Sessions read `target[begin[n]:begin[n + 1]]` after node n. Node n may also be a `helper`, which no read shows
    and nothing else orders: what sessions read before it comes before what they read after it."""

    begin: Ints
    target: Ints
    helper: Bools


class _Building(NamedTuple):
    """The state of building orders, by node."""

    waits: Ints  # session edges into it from nodes without a place
    gone: Bools  # whether it has found its place in the order
    ready: Bools  # whether all that is certainly older is gone
    met: npt.NDArray[np.int8]  # 1 if the search for a cycle passed it
    before: Ints  # of a group without an order: a node left with a session edge into it, -1: none is known
    heap: Ints  # scratch of the group at hand: nodes that are ready and wait for no edge, the first `asked` on top


def make_nodes(group: Ints, groups: int, settled: Ints, since: Ints, shown: Ints, asked: Ints) -> Nodes:
    """Nodes, given sorted by group."""
    begin = np.searchsorted(group, np.arange(groups + 1))
    orders = [grouped_order(group, groups, column)[0] for column in (settled, shown, since)]
    return Nodes(begin, settled, np.minimum(since, settled), shown, asked, *orders)


@lean_inline
def _push(heap, size, key, node):
    place = size
    while place > 0:
        above = (place - 1) // 2
        if key[heap[above]] <= key[node]:
            break
        heap[place] = heap[above]
        place = above
    heap[place] = node


@lean_inline
def _pop(heap, size, key):
    """Remove the top of a heap of `size` nodes."""
    last = heap[size - 1]
    size -= 1
    place = 0
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size and key[heap[below + 1]] < key[heap[below]]:
            below += 1
        if key[heap[below]] >= key[last]:
            break
        heap[place] = heap[below]
        place = below
    heap[place] = last


@lean
def _next(order, place, end, gone):
    while place < end and gone[order[place]]:
        place += 1
    return place


@lean_inline
def _may_be_next(nodes, node, first, second, end):
    """Whether no other node left was shown before this one was asked for."""
    rival = first if first < end and nodes.by_shown[first] != node else second
    return rival >= end or nodes.asked[node] <= nodes.shown[nodes.by_shown[rival]]


@kernel
def _build(nodes, edges, group, state):
    """Build an order of a group's nodes; returns how many found a place."""
    waits, gone, ready, heap = state.waits, state.gone, state.ready, state.heap
    begin, end = nodes.begin[group], nodes.begin[group + 1]
    placed, size = 0, 0
    oldest, by_since, first, second = begin, begin, begin, begin
    # At the head: `placed` nodes are `gone`, and nothing left has to come before one of them. `limit` is the least
    # `settled` of those left: nobody who was there only after that (`since`) may be next. The others are `ready`, and
    # those of them that wait for no edge are in the heap, who was asked for first on top. `oldest`, `by_since`,
    # `first` and `second` only move on.
    while placed < end - begin:
        oldest = _next(nodes.by_settled, oldest, end, gone)
        limit = nodes.settled[nodes.by_settled[oldest]]
        while by_since < end and nodes.since[nodes.by_since[by_since]] <= limit:
            node = nodes.by_since[by_since]
            ready[node] = True
            if waits[node] == 0:
                _push(heap, size, nodes.asked, node)
                size += 1
            by_since += 1
        first = _next(nodes.by_shown, first, end, gone)
        second = _next(nodes.by_shown, max(second, first + 1), end, gone)
        while size > 0 and gone[heap[0]]:
            _pop(heap, size, nodes.asked)
            size -= 1
        chosen = -1
        # A node may be next if no other one left was shown before it was asked for. If the one on top may not, nobody
        # may but the one that was shown first, for whom another one is the rival.
        if size > 0 and _may_be_next(nodes, heap[0], first, second, end):
            chosen = heap[0]
        else:
            least = nodes.by_shown[first]
            if ready[least] and waits[least] == 0 and _may_be_next(nodes, least, first, second, end):
                chosen = least
        # Whatever is left has something left before it, so there is a cycle (`_blocker` follows it).
        if chosen < 0:
            return placed
        gone[chosen] = True
        placed += 1
        for place in range(edges.begin[chosen], edges.begin[chosen + 1]):
            later = edges.target[place]
            waits[later] -= 1
            if waits[later] == 0 and ready[later]:
                _push(heap, size, nodes.asked, later)
                size += 1
    return placed


@kernel
def _find_read_before(nodes, edges, group, state):
    for node in range(nodes.begin[group], nodes.begin[group + 1]):
        if state.gone[node]:
            continue
        for place in range(edges.begin[node], edges.begin[node + 1]):
            if state.before[edges.target[place]] < 0:
                state.before[edges.target[place]] = node


@lean
def _blocker(nodes, state, node, oldest, first, second):
    """A node left that must come before this one, and why: of those left, the one that was there first, and the two
    that were shown first (-1: there is no second)."""
    if nodes.settled[oldest] < nodes.since[node]:
        return oldest, CERTAIN
    rival = second if first == node else first
    if rival >= 0 and nodes.shown[rival] < nodes.asked[node]:
        return rival, REAL_TIME
    return state.before[node], SESSION


@kernel
def _cycle(nodes, edges, group, state, out):
    """Follow what stands in the way from a node left until one is met again: writes nodes, each before the last, and
    the reason; returns how many. Helpers are passed over: both edges of theirs are a session's."""
    begin, end = nodes.begin[group], nodes.begin[group + 1]
    oldest = nodes.by_settled[_next(nodes.by_settled, begin, end, state.gone)]
    place = _next(nodes.by_shown, begin, end, state.gone)
    first = nodes.by_shown[place]
    place = _next(nodes.by_shown, place + 1, end, state.gone)
    second = nodes.by_shown[place] if place < end else -1
    _find_read_before(nodes, edges, group, state)
    node = first
    while state.met[node] == 0:
        state.met[node] = 1
        node, _ = _blocker(nodes, state, node, oldest, first, second)
    length, start = 0, node
    while True:
        before, reason = _blocker(nodes, state, node, oldest, first, second)
        if not edges.helper[node]:
            if length < out.shape[0]:
                out[length, 0], out[length, 1] = node, reason
            length += 1
        node = before
        if node == start:
            return length


@kernel
def _all_groups(nodes, edges, state, cycles, lengths, failed):
    """How many groups have no order; of the first, as many as there is room for, their cycles, lengths and numbers."""
    found = 0
    for group in range(nodes.begin.shape[0] - 1):
        size = nodes.begin[group + 1] - nodes.begin[group]
        if size < 2 or _build(nodes, edges, group, state) == size:
            continue
        if found < failed.shape[0]:
            failed[found] = group
            lengths[found] = _cycle(nodes, edges, group, state, cycles[found])
        found += 1
    return found


class Contradiction(NamedTuple):
    """Nodes that would each have to come before the one listed before them (the first before the last), and why."""

    group: int
    nodes: Ints
    reasons: Ints


def contradictions(nodes: Nodes, edges: SessionEdges, explain: int) -> tuple[int, list[Contradiction]]:
    """How many groups have no order that fits, and the cycles of the first `explain` of them."""
    explain = max(1, explain)
    count = len(nodes.settled)
    waits = np.bincount(edges.target, minlength=count).astype(np.int64)
    gone, ready, met = np.zeros(count, np.bool_), np.zeros(count, np.bool_), np.zeros(count, np.int8)
    state = _Building(waits, gone, ready, met, np.full(count, -1), np.empty(2 * count + 1, np.int64))
    cycles, lengths = np.full((explain, _LONGEST, 2), -1), np.zeros(explain, np.int64)
    failed = np.full(explain, -1)
    found = _all_groups(nodes, edges, state, cycles, lengths, failed)
    told = []
    for i in range(min(found, explain)):
        steps = cycles[i, : min(int(lengths[i]), _LONGEST)]
        told.append(Contradiction(int(failed[i]), steps[:, 0], steps[:, 1]))
    return int(found), told


@kernel
def _shown_and_asked(events, shown, asked):
    for row in range(events.read.shape[0]):
        if events.read[row] and events.strong[row] and events.judged[row]:
            shown[events.version[row]] = min(shown[events.version[row]], events.complete[row])
            asked[events.version[row]] = max(asked[events.version[row]], events.invoke[row])


def shown_and_asked(events: Events, versions: int) -> tuple[Ints, Ints]:
    """When each version's first strong read completed and its last began (NEVER and NIL for none)."""
    shown, asked = np.full(versions, NEVER), np.full(versions, NIL)
    _shown_and_asked(events, shown, asked)
    return shown, asked

"""Shortest closed walks of a given class through given edges, breadth first over (node, what the walk has used so far).

What a walk has used is a small state: how many rw edges (0, 1, more), whether the last one was rw, whether two came one
after the other, and whether an edge of the extra kind (process, real time) was among them. Real-time edges are not
drawn: from a node they lead to all nodes invoked after its completion, which in order of invocation are a suffix, so
each state remembers how much of its suffix has been visited and the search stays linear.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.columns.codes import Codes, Ids, Ints
from checkers.compiled import lean
from checkers.transactions.graph.edges import FREE, PROCESS, REALTIME, RW

STATES: Final = 24

MISSED: Final = 0
SIMPLE: Final = 1
CROSSED: Final = 2
"""The closed walk passes a node twice: it is several cycles."""


class Ground(NamedTuple):
    """Nodes in groups (strong components), inside a group in order of invocation: group g has the places
    `group_at[g]:group_at[g + 1]`; `node` tells who is there (-1: a helper). Edges inside groups by source place.
    Real time leads to the places `late[late_at[g]:late_at[g + 1]]`, invoked at `late_invoke` of the same index, from
    places by `complete` (NEVER: from nowhere). No edge but rw leads to a place of less `depth`; what is invoked at
    `late[late_end[place]]` or later does not lead back to a place without rw edges."""

    group_at: Ints
    node: Ids
    complete: Ints
    offsets: Ints
    target: Ids
    kind: Codes
    late_at: Ints
    late: Ids
    late_invoke: Ints
    depth: Ints
    late_end: Ints


class Wanted(NamedTuple):
    """What a closed walk must be like: numbers of rw edges (`most_rw` 2: any number), whether two of them must or must
    not be neighbours, whether an extra edge is needed, and whether real time may be used."""

    least_rw: int
    most_rw: int
    adjacent: int
    extra: int
    realtime: int


BOTTOMLESS: Final = 2**62
"""As a greatest depth: no place lies too deep."""

REFUSED: Final = 0
ALLOWED: Final = 1
REQUIRED: Final = 2


class Walks(NamedTuple):
    """What was found by group: MISSED, SIMPLE or CROSSED, and the walk `place[at[g]:at[g] + length[g]]` with the kind
    of the edge that leaves each place. `used[0]` is how much of `place` is taken, `used[1]` how many edges were
    looked at."""

    status: Codes
    at: Ints
    length: Ints
    place: Ids
    kind: Codes
    used: Ints


class Starts(NamedTuple):
    """Edges that closed walks are to pass, by group: those of group g are `at[g]:at[g + 1]`, from place `source` to
    `target`; `tries[g]` of them are tried before a first walk is found."""

    at: Ints
    source: Ids
    target: Ids
    kind: Codes
    tries: Ints


class Trip(NamedTuple):
    """One search: in which group, through which edge, the stamp of what it visits, how many edges a walk may have, and
    the greatest depth that it may pass."""

    group: int
    source: int
    target: int
    kind: int
    mark: int
    deepest: int | np.int64
    floor: int | np.int64


class Board(NamedTuple):
    """Scratch by place in group and state: a stamp, the step before, the kind of edge from there; the queue; by state
    the part of the suffix that is visited; marks by node; the walk in hand."""

    stamp: Ids
    before: Ids
    by: Codes
    queue: Ids
    visited: Ints
    mark: Ints
    walk: Ids


@lean
def _step(state, kind, wanted):
    """The state after one more edge, or -1 if such a walk is not wanted. A state is rw count * 8 + last * 4 +
    adjacent * 2 + extra."""
    if kind == FREE:
        return state
    if kind == RW:
        count, last = state >> 3, (state >> 2) & 1
        if count == wanted.most_rw and wanted.most_rw < 2:
            return -1
        if last and wanted.adjacent == REFUSED:
            return -1
        return (min(2, count + 1) << 3) | 4 | (((state >> 1) & 1) | last) << 1 | (state & 1)
    extra = 1 if kind in (PROCESS, REALTIME) else 0
    return (state & ~4) | extra


@lean
def _closes(state, first_kind, wanted):
    last, count = (state >> 2) & 1, state >> 3
    if count < wanted.least_rw or (wanted.extra == REQUIRED and not state & 1):
        return False
    joint = last == 1 and first_kind == RW
    if wanted.adjacent == REFUSED:
        return not joint
    return wanted.adjacent != REQUIRED or joint or (state >> 1) & 1 == 1


@lean
def _visit(board, place, state, before, kind, mark, tail):
    code = place * STATES + state
    if board.stamp[code] == mark:
        return tail
    board.stamp[code], board.before[code], board.by[code] = mark, before, kind
    board.queue[tail] = code
    return tail + 1


@lean
def _expand_late(ground, board, wanted, trip, code, tail):
    """Follow real time from a place: visit what of the suffix its state has not visited yet."""
    base, state = ground.group_at[trip.group], _step(code % STATES, REALTIME, wanted)
    first, last = ground.late_at[trip.group], board.visited[state]
    low, high = first, last
    completed = ground.complete[code // STATES + base]
    while low < high:
        middle = (low + high) // 2
        if ground.late_invoke[middle] > completed:
            high = middle
        else:
            low = middle + 1
    for i in range(low, last):
        if ground.depth[ground.late[i]] <= trip.floor:
            tail = _visit(board, ground.late[i] - base, state, code, REALTIME, trip.mark, tail)
    board.visited[state] = min(last, low)
    return tail


@lean
def _search(ground, board, wanted, trip, used):
    """The code of the last step of a shortest closed walk through the trip's edge, or -1."""
    base = ground.group_at[trip.group]
    board.visited[:] = ground.late_at[trip.group + 1] if trip.floor == BOTTOMLESS else ground.late_end[trip.source]
    start = _step(0, trip.kind, wanted)
    tail, head, depth = 0, 0, 1
    if start >= 0 and ground.depth[trip.target] <= trip.floor:
        tail = _visit(board, trip.target - base, start, -1, trip.kind, trip.mark, 0)
    level = tail
    # Breadth first over pairs of a node and a state of the automaton that knows what may still follow (`_step`). Nodes
    # at `depth` steps are queue[head:level], those one step farther are queue[level:tail]; so the first walk that
    # closes is a shortest one.
    while head < tail:
        code = np.int64(board.queue[head])
        head += 1
        place, state = code // STATES + base, code % STATES
        if place == trip.source and _closes(state, trip.kind, wanted):
            return code
        if depth < trip.deepest:
            used[1] += ground.offsets[place + 1] - ground.offsets[place] + 1
            for i in range(ground.offsets[place], ground.offsets[place + 1]):
                after = _step(state, ground.kind[i], wanted)
                if after >= 0 and ground.depth[ground.target[i]] <= trip.floor:
                    tail = _visit(board, ground.target[i] - base, after, code, ground.kind[i], trip.mark, tail)
            if wanted.realtime and ground.late_at[trip.group + 1] > ground.late_at[trip.group]:
                tail = _expand_late(ground, board, wanted, trip, code, tail)
        if head == level:
            depth += 1
            level = tail
    return np.int64(-1)


@lean
def _trace(ground, board, trip, code):
    """Write the closed walk that ends with a step into `walk` (places from the source of its edge on, and the kind of
    the edge behind each); returns its length and whether it passes a node twice."""
    base, steps, at = ground.group_at[trip.group], 0, np.int64(code)
    while at >= 0:
        steps += 1
        at = np.int64(board.before[at])
    at, crossed = np.int64(code), False
    half = board.walk.shape[0] // 2
    for i in range(steps - 1, -1, -1):
        place = at // STATES + base
        board.walk[i] = trip.source if i == 0 else np.int64(board.before[at]) // STATES + base
        board.walk[half + i] = board.by[at]
        if ground.node[place] >= 0:
            crossed |= board.mark[ground.node[place]] == trip.mark
            board.mark[ground.node[place]] = trip.mark
        at = np.int64(board.before[at])
    return steps, crossed


@lean
def _keep(walks, board, group, length, crossed):
    """Take the walk in hand as the group's; a shorter one replaces it in place."""
    if walks.status[group] == MISSED or walks.length[group] < length:
        if walks.used[0] + length > walks.place.shape[0]:
            return
        walks.at[group] = walks.used[0]
        walks.used[0] += length
    at, half = walks.at[group], board.walk.shape[0] // 2
    for i in range(length):
        walks.place[at + i], walks.kind[at + i] = board.walk[i], board.walk[half + i]
    walks.length[group] = length
    walks.status[group] = CROSSED if crossed else SIMPLE


@lean
def find_walks(ground, board, wanted, starts, most_work, walks):
    """For each group look for closed walks of the wanted kind through its edges in `starts`.

    After a first walk a few more edges are tried for a shorter one; `most_work` bounds the edges looked at over all
    groups.
    """
    mark = 0
    for group in range(starts.tries.shape[0]):
        better, first = 16, starts.at[group]
        for edge in range(first, min(starts.at[group + 1], first + starts.tries[group])):
            if walks.used[1] > most_work or better == 0:
                break
            # A walk that passes a node twice proves as much, but is no cycle that a reader expects: go on for a simple
            # one, and then for at most 16 more edges for one that is shorter still.
            found = walks.status[group]
            better -= 1 if found == SIMPLE else 0
            deepest = walks.length[group] - 1 if found == SIMPLE else np.int64(2**40)
            if deepest < 2:
                break
            mark += 1
            source, kind = starts.source[edge], starts.kind[edge]
            # Where no rw edge may follow, a walk only goes deeper from here on: what lies below the edge's source does
            # not lead back to it. Else each search that finds nothing would flood all that is later.
            last = wanted.most_rw == (1 if kind == RW else 0)
            floor = ground.depth[source] if last else np.int64(BOTTOMLESS)
            trip = Trip(group, source, starts.target[edge], kind, mark, deepest, floor)
            code = _search(ground, board, wanted, trip, walks.used)
            if code < 0:
                continue
            length, crossed = _trace(ground, board, trip, code)
            if found == MISSED or not crossed:
                _keep(walks, board, group, length, crossed)

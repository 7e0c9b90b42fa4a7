"""Shortest closed walks of a given class through given edges, breadth first over (node, what the walk has used so far).

What a walk has used is a small state: how many rw edges (0, 1, more), whether the last one was rw, whether two came one
after the other, and whether an edge of the extra kind (process, real time) was among them. Real-time edges are not
drawn: from a node they lead to all nodes invoked after its completion, which in order of invocation are a suffix, so
each state remembers how much of its suffix has been visited and the search stays linear.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.columns.codes import Codes, Ids, Int, Ints
from checkers.compiled import lean
from checkers.transactions.graph.edges import FREE, PROCESS, REALTIME, RW

STATES: Final = 24

MISSED: Final = 0
SIMPLE: Final = 1
CROSSED: Final = 2
"""What came of a group: no walk, a walk that is one cycle, a walk that passes a node twice and so is several."""


class Ground(NamedTuple):
    """Nodes at places, in groups, which are strong components; inside a group in order of invocation. Never written."""

    group_at: Ints  # group g has the places group_at[g]:group_at[g + 1]
    node: Ids  # by place who is there, -1: a helper
    complete: Ints  # by place the event of its completion, NEVER where real time leads nowhere from it
    offsets: Ints  # the edges from a place are offsets[place]:offsets[place + 1]; all stay inside its group
    target: Ids  # by edge the place that it leads to
    kind: Codes  # by edge WW … FREE
    late_at: Ints  # real time leads, in group g, to the places late[late_at[g]:late_at[g + 1]]
    late: Ids  # those places, inside a group in order of invocation
    late_invoke: Ints  # the events of their invocations
    depth: Ints  # by place; no edge but rw leads to a place of less depth
    late_end: Ints  # by place: what late[late_end[place]:] invokes leads back to it by way of rw edges only


class Wanted(NamedTuple):
    """What a closed walk must be like."""

    least_rw: int  # rw edges at least, 0 to 2
    most_rw: int  # rw edges at most; 2: any number
    adjacent: int  # REFUSED, ALLOWED or REQUIRED: one rw edge right behind another, around the walk's end too
    extra: int  # ALLOWED or REQUIRED: an edge of process or real time
    realtime: int  # 1 if real time may be used


BOTTOMLESS: Final = 2**62
"""As a greatest depth: no place lies too deep."""

REFUSED: Final = 0
ALLOWED: Final = 1
REQUIRED: Final = 2


class Walks(NamedTuple):
    """What was found, by group: the walk is `place[at[g]:at[g] + length[g]]`."""

    status: Codes  # by group MISSED, SIMPLE or CROSSED
    at: Ints  # by group where its walk begins, if it is not MISSED
    length: Ints  # by group how many edges its walk has
    place: Ids  # the places of all walks, from the source of the edge that each was looked for through
    kind: Codes  # the kind of the edge that leaves each place; the last one leads back to the first
    used: Ints  # used[0]: how much of `place` is taken; used[1]: edges looked at over all groups, the work done


class Starts(NamedTuple):
    """Edges that closed walks are to pass, in the order in which they are tried."""

    at: Ints  # those of group g are at[g]:at[g + 1]
    source: Ids  # the place that each leads from
    target: Ids  # the place that it leads to, in the same group
    kind: Codes
    tries: Ints  # by group how many of them are tried at most


class Trip(NamedTuple):
    """One search for a walk through one edge."""

    group: Int
    source: Int  # the edge, by places
    target: Int
    kind: Int
    mark: Int  # the stamp of what this search visits; each search has a higher one than the last
    deepest: Int  # edges that the walk may have
    floor: Int  # the greatest `Ground.depth` of a place that it may pass


class Board(NamedTuple):
    """Scratch of one search. A *code* stands for a place in the group and the state of a walk that ends there: place
    * STATES + state."""

    stamp: Ids  # by code the trip that visited it last; each trip visits a code once
    before: Ids  # by code, of this trip: the code before it on the walk, -1 at the target of the trip's edge
    by: Codes  # by code, of this trip: the kind of the edge from there
    queue: Ids  # codes visited, in order of their distance
    visited: Ints  # by state: `late[visited[state]:]` were reached by real time in this state, down from the end
    mark: Ints  # by node the trip whose walk passed it last
    walk: Ids  # the walk in hand: places in its first half, kinds of edges in its second


@lean
def _step(state: Int, kind: Int, wanted: Wanted) -> Int:
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
def _closes(state: Int, first_kind: Int, wanted: Wanted) -> bool:
    last, count = (state >> 2) & 1, state >> 3
    if count < wanted.least_rw or (wanted.extra == REQUIRED and not state & 1):
        return False
    joint = last == 1 and first_kind == RW
    if wanted.adjacent == REFUSED:
        return not joint
    return wanted.adjacent != REQUIRED or joint or (state >> 1) & 1 == 1


@lean
def _visit(board: Board, place: Int, state: Int, before: Int, kind: Int, mark: Int, tail: Int) -> Int:
    code = place * STATES + state
    if board.stamp[code] == mark:
        return tail
    board.stamp[code], board.before[code], board.by[code] = mark, before, kind
    board.queue[tail] = code
    return tail + 1


@lean
def _expand_late(ground: Ground, board: Board, wanted: Wanted, trip: Trip, code: Int, tail: Int) -> Int:
    """Follow real time from a place: visit what of the suffix its state has not visited yet."""
    base, state = ground.group_at[trip.group], _step(code % STATES, REALTIME, wanted)
    # late[low:] are invoked after the place completed; of these late[last:] were visited in this state before.
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
def _search(ground: Ground, board: Board, wanted: Wanted, trip: Trip, used: Ints) -> Int:
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
def _trace(ground: Ground, board: Board, trip: Trip, code: Int) -> tuple[int, bool]:
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
def _keep(walks: Walks, board: Board, group: Int, length: Int, crossed: bool) -> None:
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
def find_walks(ground: Ground, board: Board, wanted: Wanted, starts: Starts, most_work: Int, walks: Walks) -> None:
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

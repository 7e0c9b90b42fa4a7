"""Queues and bags decided without search, by what can go wrong in them.

A complete history of a first-in-first-out queue with unique elements is linearizable unless (Henzinger, Sezgin and
Vafeiadis, CONCUR 2013) an element is taken out that is not in, or twice; an element overtakes one that was put in
before it; or a look finds nothing while something was in throughout. Of a bag the same holds without overtaking, and
elements may repeat: what of one element must be in at each moment comes from one sweep over its events (`_sweep`).
Everything else compares neighbours in sorted order, so it costs n log n and no width matters.

Operations of unknown outcome end at infinity. An enqueue of unknown outcome counts only if its element comes out;
dequeues of unknown outcome (takes) go to the elements that must be gone first, for of elements that nobody returned
only the deadline matters. Queues in which elements repeat, and takes together with looks that find nothing, are left to
the search unless this much refutes them: a queue is a bag, and what is left of it without some elements is a queue.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from checkers.columns.codes import NEVER, Bools, Codes, Ids, Ints
from checkers.compiled import kernel, lean
from checkers.linearizability.driver import INVALID, UNDECIDED, VALID
from checkers.linearizability.objects.object_columns import DEQUEUE, ENQUEUE, FIFO, IS_EMPTY, TAKE, ObjectOps

MISSING, OVERTAKEN, STUCK_IN, COVERED = range(4)
"""What is wrong: what came out was not in; a later element came out before an earlier one; more must have been taken by
dequeues of unknown outcome than there are; a look found nothing at no such moment."""


class _Elements(NamedTuple):
    """Unique elements and such as nobody returned: their object, the rows of enqueue and dequeue (-1), and the times at
    which these begin and end; `known` if no dequeue of unknown outcome can have taken them."""

    key: Ints
    put: Ints
    get: Ints
    put_from: Ints
    put_to: Ints
    get_from: Ints
    get_to: Ints
    known: Bools


class _Inside(NamedTuple):
    """Times at which something of one element was in whatever the order: element, begin and end with the object's span,
    by begin."""

    element: Ints
    begin: Ints
    end: Ints


class _Queues(NamedTuple):
    """All objects: per row its object; of objects whether elements repeat and whether takes may have taken some; the
    elements, the rows of takes and empty looks and of dequeues of what was not in, what was in, and a span of time that
    tells objects apart."""

    key: Ints
    repeated: Bools
    guessed: Bools
    elements: _Elements
    takes: Ints
    looks: Ints
    missing: Ints
    inside: _Inside
    span: int


@lean
def _first_to_end(waiting, count, complete):
    """The place of the waiting operation that completes first."""
    best = 0
    for place in range(1, count):
        if complete[waiting[place]] < complete[waiting[best]]:
            best = place
    return best


class _ElementEvents(NamedTuple):
    """The events of each element, in order: the element, the row that completes at `time` or else begins."""

    element: Ids
    row: Ints
    time: Ints


@kernel
def _sweep(events, kind, complete, puts, missing, out):
    """Sweep over the events of each element.

    Dequeues take effect as early and enqueues as late as can be, so at every moment as little as can be is in: what is
    in goes to open dequeues at once, whichever of them completes first (equal operations can be exchanged); an enqueue
    takes effect when it completes, or when a dequeue completes that got nothing: then the open one that completes
    first. Writes the intervals in which something is in to `out`, an _Inside, marks dequeues that complete with nothing
    to take in `missing`, and returns how many intervals there are. `puts` is room for open enqueues.
    """
    element, row, time = events.element, events.row, events.time
    # Of the element at hand: `puts[:open_puts]` are enqueues that began and took no effect yet; `open_gets` dequeues
    # are open, of which `served` have taken a copy (which ones does not matter); `inside` copies are in. A copy is in
    # only if no open dequeue could have it: inside > 0 implies served == open_gets.
    found, inside, open_puts, open_gets, served = 0, 0, 0, 0, 0
    for at in range(element.shape[0]):
        if at > 0 and element[at] != element[at - 1]:
            out.end[found] = NEVER  # what was left of the element before stays in for ever
            found += inside > 0
            inside, open_puts, open_gets, served = 0, 0, 0, 0
        this, was = row[at], inside
        if time[at] != complete[this]:
            if kind[this] == ENQUEUE:  # as late as can be: not yet
                puts[open_puts] = this
                open_puts += 1
            else:  # as early as can be: at once, if a copy is in
                open_gets += 1
                served += inside > 0
                inside -= inside > 0
        else:
            gone = this  # the enqueue that takes effect now, if it did not before: an enqueue that completes has to
            if kind[this] != ENQUEUE:
                open_gets -= 1
                if served > 0:  # a copy was taken by one of the open dequeues: let it be this one
                    served -= 1
                    gone = np.int64(-1)
                elif open_puts > 0:  # an enqueue must have taken effect for it; the others have longer to wait
                    gone = puts[_first_to_end(puts, open_puts, complete)]
                else:
                    missing[this] = True
            for place in range(open_puts):
                if puts[place] == gone:
                    open_puts -= 1
                    puts[place] = puts[open_puts]
                    if gone == this and open_gets > served:  # into an open dequeue at once, so it never was in
                        served += 1
                    elif gone == this:
                        inside += 1
                    break  # an enqueue that took effect for a completing dequeue went straight into that one
        if was == 0 and inside > 0:
            out.begin[found], out.element[found] = time[at], element[at]
        if was > 0 and inside == 0:
            out.end[found] = time[at]
            found += 1
    if inside > 0:
        out.end[found] = NEVER
        found += 1
    return found


def _swept(ops: ObjectOps, key: Ints, last: int) -> tuple[Ints, _Inside]:
    """The dequeues of what is not in, and when something of each element is in; NEVER is the event `last`."""
    rows = np.flatnonzero(np.isin(ops.kind, (ENQUEUE, DEQUEUE)))
    count, done = len(rows), rows[ops.complete[rows] != NEVER]
    row = np.concatenate((rows, done))
    time = np.concatenate((ops.invoke[rows], ops.complete[done]))
    order = np.lexsort((time, ops.value[row]))
    row, time = row[order], time[order]
    puts, begin, end, of = (np.empty(count + 1, np.int64) for _ in range(4))
    missing = np.zeros(len(ops.kind), np.bool_)
    events = _ElementEvents(ops.value[row], row, time)
    found = _sweep(events, ops.kind, ops.complete, puts, missing, _Inside(of, begin, end))
    key_of = np.zeros(int(ops.value.max(initial=0)) + 1, np.int64)
    key_of[ops.value[rows]] = key[rows]
    first = key_of[of[:found]] * (last + 1)
    begin, end = first + begin[:found], first + np.minimum(end[:found], last)
    order = np.argsort(begin)
    return np.flatnonzero(missing), _Inside(of[:found][order], begin[order], end[order])


def _queues(ops: ObjectOps) -> _Queues:
    count = len(ops.offsets) - 1
    key = np.repeat(np.arange(count), np.diff(ops.offsets))
    puts, gets, takes, looks = (np.flatnonzero(ops.kind == kind) for kind in (ENQUEUE, DEQUEUE, TAKE, IS_EMPTY))
    ids = int(ops.value.max(initial=-1)) + 1
    put_count, get_count = (np.bincount(ops.value[rows], minlength=ids) for rows in (puts, gets))
    get_of, once = np.full(ids, -1), (put_count == 1) & (get_count == 1)
    get_of[ops.value[gets]] = gets
    repeated, has_takes, guessed = (np.zeros(count, np.bool_) for _ in range(3))
    repeated[key[gets[~once[ops.value[gets]]]]] = True
    has_takes[key[takes]] = True
    loose = has_takes[key[puts]] & (put_count > get_count)[ops.value[puts]]
    guessed[key[puts[loose]]] = True
    chosen = puts[once[ops.value[puts]] | (get_count[ops.value[puts]] == 0)]
    get = get_of[ops.value[chosen]]
    last = int(max(ops.invoke.max(initial=0), ops.complete[ops.complete != NEVER].max(initial=0))) + 1
    begin, end, out = ops.invoke, np.minimum(ops.complete, last), get >= 0
    get_from, get_to = np.where(out, begin[get], last), np.where(out, end[get], last)
    known = out | ~has_takes[key[chosen]]
    elements = _Elements(key[chosen], chosen, get, begin[chosen], end[chosen], get_from, get_to, known)
    missing, inside = _swept(ops, key, last)
    surely = np.ones(ids, np.bool_)
    surely[ops.value[puts[loose]]] = False
    inside = _Inside(*(column[surely[inside.element]] for column in inside))
    return _Queues(key, repeated, guessed, elements, takes, looks, missing, inside, last + 1)


def _chosen(elements: _Elements, rows: Bools) -> _Elements:
    return _Elements(*[column[rows] for column in list[Any](elements)])


def _overtaken(queues: _Queues) -> tuple[Ints, Ints]:
    """Pairs of elements (places in `elements`): the second came out before the first, which had been put in before.

    x is overtaken by y if x's enqueue completed before y's began, and y's dequeue completed before x's began (Henzinger
    et al., violation VFifo). For y only the x that comes out last matters, of those put in before it.
    """
    one, span = queues.elements, queues.span
    # `out[i]` is when the last of the first i + 1 elements, in order of `put_to`, begins to come out. The object's span
    # of time goes before each time, so that a running maximum and a sorted search never look past an object's own.
    first, second = np.flatnonzero(one.known), np.flatnonzero(one.get >= 0)
    first = first[np.lexsort((one.put_to[first], one.key[first]))]
    out = np.maximum.accumulate(one.key[first] * span + one.get_from[first]) if len(first) else first
    before = np.searchsorted(one.key[first] * span + one.put_to[first], one.key[second] * span + one.put_from[second])
    latest = np.where(before > 0, out[np.maximum(before, 1) - 1] if len(first) else 0, -1)
    second = second[late := latest > one.key[second] * span + one.get_to[second]]
    reached = np.searchsorted(out, latest[late])
    return first[reached], second


def _deadlines(ops: ObjectOps, queues: _Queues, waiting: _Elements) -> Ints:
    """By when each must be gone: what was put in after it comes out by then, or a look finds nothing; else NEVER."""
    one, span = queues.elements, queues.span
    after = np.flatnonzero(one.get >= 0) if ops.model == FIFO else np.empty(0, np.int64)
    begin = np.concatenate((one.key[after] * span + one.put_from[after], _times(queues, queues.looks, ops.invoke)))
    end = np.concatenate((one.key[after] * span + one.get_to[after], _times(queues, queues.looks, ops.complete)))
    order = np.argsort(begin)
    begin, end = begin[order], end[order]
    # `earliest[i]` is the first end of all that begins from place i on.
    earliest = np.append(np.minimum.accumulate(end[::-1])[::-1], NEVER) if len(end) else np.array([NEVER])
    found: Ints = earliest[np.searchsorted(begin, waiting.key * span + waiting.put_to)]
    return np.where(found < (waiting.key + 1) * span, found, NEVER)


def _times(queues: _Queues, rows: Ints, event: Ints) -> Ints:
    return queues.key[rows] * queues.span + event[rows]


def _too_few_takes(ops: ObjectOps, queues: _Queues) -> tuple[Ints, Ints]:
    """The objects with too few takes for what must be gone, and by when the first of them is one short."""
    waiting = _chosen(queues.elements, ~queues.elements.known)
    ends = np.sort(_deadlines(ops, queues, waiting))
    ends = ends[ends != NEVER]
    key = ends // queues.span
    # Hall's condition for deadlines: at the i-th of an object's deadlines, i of its takes must have begun.
    needed = np.arange(1, len(ends) + 1) - np.searchsorted(key, key)
    begun = np.sort(_times(queues, queues.takes, ops.invoke))
    there = np.searchsorted(begun, ends) - np.searchsorted(begun, key * queues.span)
    short = np.flatnonzero(there < needed)
    keys, first = np.unique(key[short], return_index=True)
    return keys, ends[short[first]]


def _covered(ops: ObjectOps, queues: _Queues) -> tuple[Ints, Ints, Ints]:
    """The looks that find nothing at no such moment, and from where to where `inside` has what was there meanwhile."""
    begin, end = queues.inside.begin, queues.inside.end
    if not len(begin):
        return begin, begin, begin
    # Intervals that meet make one stretch in which something is always in; `fresh` are where stretches begin. A look is
    # wrong if it lies within one stretch, whichever elements those are.
    reach = np.maximum.accumulate(end)
    fresh = np.flatnonzero(np.concatenate(([True], begin[1:] > reach[:-1])))
    stops = np.append(fresh[1:], len(begin))
    part = np.searchsorted(fresh, np.searchsorted(begin, _times(queues, queues.looks, ops.invoke)) - 1, "right") - 1
    looks, part = queues.looks[part >= 0], part[part >= 0]
    bad = reach[stops[part] - 1] > _times(queues, looks, ops.complete)
    return looks[bad], fresh[part[bad]], stops[part[bad]]


def judge_queues(ops: ObjectOps) -> tuple[Codes, Ints]:
    """VALID, INVALID or UNDECIDED for every object of queues or bags, and by which event it is refuted, else NEVER."""
    queues = _queues(ops)
    one, count = queues.elements, len(ops.offsets) - 1
    when, seen_empty = np.full(count, NEVER), np.zeros(count, np.bool_)
    np.minimum.at(when, queues.key[queues.missing], ops.complete[queues.missing])
    if ops.model == FIFO:
        later = _overtaken(queues)[1]
        np.minimum.at(when, one.key[later], one.get_to[later])
    short, ends = _too_few_takes(ops, queues)
    np.minimum.at(when, short, ends - short * queues.span)
    looks = _covered(ops, queues)[0]
    np.minimum.at(when, queues.key[looks], ops.complete[looks])
    seen_empty[queues.key[queues.looks]] = True
    decided = ~(queues.guessed & seen_empty)
    if ops.model == FIFO:
        decided &= ~queues.repeated
    return np.where(when != NEVER, INVALID, np.where(decided, VALID, UNDECIDED)).astype(np.uint8), when


class Wrong(NamedTuple):
    """What is wrong with one object: the pattern, and rows that by themselves can't be linearized, the most telling
    first: for MISSING the dequeue and what there was of its element by then; for OVERTAKEN both enqueues, the dequeue
    of the second element and, if there was one, of the first; for COVERED the look and what was in meanwhile."""

    pattern: int
    rows: tuple[int, ...]


def what_is_wrong(ops: ObjectOps) -> Wrong | None:
    """The pattern that refutes the only object of `ops`, if one does."""
    queues = _queues(ops)
    if len(queues.missing):
        first = int(queues.missing[np.argmin(ops.complete[queues.missing])])
        same = np.flatnonzero(_of_element(ops, int(ops.value[first])) & (ops.invoke < ops.complete[first]))
        return Wrong(MISSING, (first, *(int(row) for row in same if row != first)))
    one = queues.elements
    if ops.model == FIFO and len((pairs := _overtaken(queues))[0]):
        at = int(np.argmin(one.get_to[pairs[1]]))
        x, y = int(pairs[0][at]), int(pairs[1][at])
        gets = (one.get[y], one.get[x]) if one.get[x] >= 0 else (one.get[y],)
        return Wrong(OVERTAKEN, tuple(int(row) for row in (one.put[x], one.put[y], *gets)))
    short, ends = _too_few_takes(ops, queues)
    if len(short):
        return Wrong(STUCK_IN, _short_of_takes(ops, queues, int(ends[0])))
    looks, first_in, last_in = _covered(ops, queues)
    if not len(looks):
        return None
    return Wrong(COVERED, _cover(ops, queues, int(looks[0]), int(first_in[0]), int(last_in[0])))


def _of_element(ops: ObjectOps, value: int) -> Bools:
    return np.isin(ops.kind, (ENQUEUE, DEQUEUE)) & (ops.value == value)


def _short_of_takes(ops: ObjectOps, queues: _Queues, end: int) -> tuple[int, ...]:
    """What had to be gone by then, what shows that it had to be, and the takes that may have done it."""
    one = queues.elements
    waiting = _chosen(one, ~one.known)
    due = waiting.put[_deadlines(ops, queues, waiting) <= end]
    shown = np.flatnonzero((one.get >= 0) & (one.get_to <= end)) if ops.model == FIFO else np.empty(0, np.int64)
    looks = queues.looks[ops.complete[queues.looks] <= end]
    takes = queues.takes[ops.invoke[queues.takes] < end]
    return tuple(int(row) for row in (*due, *one.get[shown], *one.put[shown], *looks, *takes))


def _cover(ops: ObjectOps, queues: _Queues, look: int, first: int, stop: int) -> tuple[int, ...]:
    """The look and all of the fewest elements that fill its time."""
    inside = _Inside(*(column[first:stop] for column in queues.inside))
    time, end = ops.invoke[look], ops.complete[look]
    chosen = list[int]()
    while time < end:
        best = int(np.argmax(np.where(inside.begin < time, inside.end, -1)))
        chosen.append(int(inside.element[best]))
        time = inside.end[best]
    same = np.isin(ops.kind, (ENQUEUE, DEQUEUE)) & np.isin(ops.value, chosen) & (ops.invoke < end)
    return (look, *(int(row) for row in np.flatnonzero(same)))

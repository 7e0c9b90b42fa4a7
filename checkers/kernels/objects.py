"""What objects do: one step of a lock, queue, bag, set, string or row of registers, for the search in `explore`.

A state is a number: of an interned word (`states`) for queues (the elements, first to last), bags (sorted), sets
(sorted) and rows of registers (a letter each); 0 or 1 for a lock; for strings a node of the trie of all prefixes of
what was ever read, node 0 standing for every other string: nobody ever sees one of those.

Steps know what the history says later and refuse what it rules out, so that hopeless orders are not followed:
- what is enqueued behind an element that is dequeued only after the newcomer must have left, or before such a newcomer
  that is still to come;
- a dequeue of nobody knows what taking an element that known dequeues need;
- adding an element, never removed, that a later read does not show. Adding one that all later reads show is *eager*:
  it is done at once, for nothing is lost by it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.kernels.columns import NEVER
from checkers.kernels.compiled import lean, lean_inline
from checkers.kernels.states import intern, letter, spell, with_last, without_first

MUTEX, FIFO, BAG, SET, STRING, ROW = range(6)
"""Kinds of objects."""

ACQUIRE, RELEASE, ENQUEUE, DEQUEUE, TAKE, IS_EMPTY, ADD, REMOVE, MEMBERS, PUT, APPEND, GET, TXN, LOOK, REFUSED = range(
    15
)
"""Kinds of operations. TAKE is a dequeue of nobody knows what; LOOK a transaction of reads only; REFUSED a transaction
whose compare-and-set found another value."""

OBSERVERS: Final = (IS_EMPTY, MEMBERS, GET, LOOK, REFUSED)

R, W, C = range(3)
"""What a transaction does to a register: its items are (register, one of these, value, expected)."""

ITEM: Final = 4

IMPOSSIBLE: Final = -1
"""Instead of a state: the operation can't be next."""

UNSEEN: Final = 0
"""The node of all strings that are no prefix of a read one."""

FADED: Final = 1
"""The letter of whatever nobody looks at any more in a register."""

Ints = npt.NDArray[np.int64]
Letters = npt.NDArray[np.int32]


class ObjectOps(NamedTuple):
    """Operations of many objects of the kind `model`; object k owns the rows `offsets[k]:offsets[k + 1]`, in order of
    `invoke`. `value` is the element, node or piece; `items[first:last]` the members read or what a transaction does.

    `order` lists each object's rows by completion (NEVER for unknown ones); `width[k]` is the size of its first word.
    By element: `early`, the first invocation of a dequeue that may return it (for sets: 1 if it is ever removed);
    `late`, the event by which it must have been dequeued (for sets: the last invocation of a read without it);
    `barrier`, the last invocation of an enqueue of what must have been dequeued before it can be, or of a look that
    finds nothing by then. By node: `late`, when the last read of a string that begins so completes; `edge_piece` and
    `edge_target` in `edge_first[n]:edge_first[n + 1]`, where appending leads. By row, for strings: `next_put`, the
    first invocation of a put after this completes, and `next_get`, the first completion of a get that begins after. For
    rows of registers a letter is a value of one register (0 nil, 1 whatever nobody looks at any more): `late` and
    `early` are the last invocations of what needs it and of what writes it, `barrier` the first completion of what
    needs it if only one transaction writes it, `gone` the last completion of what depends on it. Rows of an object that
    are `alike` do the same.
    """

    model: int
    offsets: Ints
    kind: npt.NDArray[np.uint8]
    value: Letters
    first: Ints
    last: Ints
    items: Letters
    invoke: Ints
    complete: Ints
    order: Ints
    width: Ints
    early: Ints
    late: Ints
    barrier: Ints
    edge_first: Ints
    edge_piece: Letters
    edge_target: Letters
    next_put: Ints
    next_get: Ints
    gone: Ints
    alike: Ints


def plainly(ops: ObjectOps) -> ObjectOps:
    """The same operations for a search that knows nothing of what comes later, so that it gets stuck where the objects
    themselves do."""
    size, nothing = len(ops.late), np.full(len(ops.kind), -1)
    never, one = np.full(size, NEVER), np.ones(size, np.int64)
    late = np.full(size, -1) if ops.model == ROW else never
    return ops._replace(
        late=late,
        early=never if ops.model == ROW else one,
        barrier=never if ops.model == ROW else -one,
        gone=never,
        next_put=nothing,
        next_get=nothing,
    )


def longest_word(ops: ObjectOps) -> int:
    """How long words may become."""
    if ops.model == ROW:
        return int(ops.width.max(initial=0))
    grows = np.isin(ops.kind, (ENQUEUE, ADD))
    return int(np.diff(np.concatenate(([0], np.cumsum(grows)))[ops.offsets]).max(initial=0))


@lean_inline
def is_observer(kind):
    """Whether operations of this kind change nothing."""
    return kind in OBSERVERS


@lean_inline
def may_change_nothing(ops, row):
    """Whether there are states in which this is possible and leaves them as they are."""
    return ops.model in (SET, STRING, ROW) or is_observer(ops.kind[row])


@lean
def _fade(ops, size, store, event):
    """Let the row of registers in the buffer forget the values that nobody looks at any more."""
    for register in range(size):
        if ops.gone[store.buffer[register]] < event:
            store.buffer[register] = FADED
    return intern(store, size)


@lean
def faded(ops, state, store, event):
    """The state without what nobody looks at any more: a string, or values in a row of registers; or NO_ROOM."""
    if ops.model == STRING:
        return np.int32(UNSEEN) if ops.late[state] < event else np.int32(state)
    if ops.model != ROW:
        return np.int32(state)
    spell(store, state, 0, store.size[state], 0)
    return _fade(ops, store.size[state], store, event)


@lean_inline
def _only_writes(ops, row, register):
    """Whether a transaction writes a register without looking at it."""
    written = False
    for item in range(ops.first[row], ops.last[row], ITEM):
        if ops.items[item] == register:
            if ops.items[item + 1] != W and not written:
                return False
            written = True
    return written


@lean
def hides(ops, row, other):
    """Whether nobody can tell if `other` took effect just before `row`, which replaces all that it changes and does not
    depend on it."""
    if is_observer(ops.kind[other]):
        return False
    if ops.model == STRING:
        return ops.kind[row] == PUT
    if ops.model == SET:
        return not is_observer(ops.kind[row]) and ops.value[row] == ops.value[other]
    if ops.model != ROW:
        return False
    for item in range(ops.first[other], ops.last[other], ITEM):
        if ops.items[item + 1] != W or not _only_writes(ops, row, ops.items[item]):
            return False
    return True


@lean
def first_state(ops, key, store):
    """An object's state before everything; the store must be empty."""
    if ops.model == MUTEX:
        return np.int32(0)
    if ops.model == STRING:
        return np.int32(ops.width[key])
    for register in range(ops.width[key]):
        store.buffer[register] = 0
    return intern(store, ops.width[key])


@lean_inline
def _enqueue(ops, element, state, store):
    for place in range(store.size[state]):
        if ops.late[element] < ops.early[letter(store, state, place)]:
            return np.int32(IMPOSSIBLE)
    return with_last(store, state, element)


@lean_inline
def _place_of(store, state, element):
    """Where in a sorted word an element is or belongs."""
    low, high = 0, store.size[state]
    while low < high:
        middle = (low + high) // 2
        if letter(store, state, middle) < element:
            low = middle + 1
        else:
            high = middle
    return low


@lean_inline
def _inserted(store, state, place, element):
    size = store.size[state]
    spell(store, state, 0, place, 0)
    store.buffer[place] = element
    spell(store, state, place, size, place + 1)
    return intern(store, size + 1)


@lean_inline
def _deleted(store, state, place):
    size = store.size[state]
    spell(store, state, 0, place, 0)
    spell(store, state, place + 1, size, place)
    return intern(store, size - 1)


@lean_inline
def holds(store, state, element):
    """Whether a sorted word has an element."""
    place = _place_of(store, state, element)
    return place < store.size[state] and letter(store, state, place) == element


@lean_inline
def is_claimed(ops, element):
    """Whether known dequeues return all there is of an element, so that no other takes it: with one copy fewer the last
    of them would find none."""
    return ops.late[element] != NEVER


@lean
def _queue_step(ops, row, state, store):
    kind, element, size = ops.kind[row], ops.value[row], store.size[state]
    if kind == IS_EMPTY:
        return state if size == 0 else np.int32(IMPOSSIBLE)
    if ops.model == FIFO:
        if kind == ENQUEUE:
            return _enqueue(ops, element, state, store)
        if size == 0 or (kind == DEQUEUE and letter(store, state, 0) != element):
            return np.int32(IMPOSSIBLE)
        if kind == TAKE and is_claimed(ops, letter(store, state, 0)):
            return np.int32(IMPOSSIBLE)
        return without_first(store, state)
    if kind == ENQUEUE:
        return _inserted(store, state, _place_of(store, state, element), element)
    if kind == DEQUEUE:
        if not holds(store, state, element):
            return np.int32(IMPOSSIBLE)
        return _deleted(store, state, _place_of(store, state, element))
    return np.int32(IMPOSSIBLE) if size == 0 or is_claimed(ops, letter(store, state, 0)) else _deleted(store, state, 0)


@lean
def _set_step(ops, row, state, store):
    kind, element = ops.kind[row], ops.value[row]
    if kind == MEMBERS:
        if store.size[state] != ops.last[row] - ops.first[row]:
            return np.int32(IMPOSSIBLE)
        for place in range(store.size[state]):
            if letter(store, state, place) != ops.items[ops.first[row] + place]:
                return np.int32(IMPOSSIBLE)
        return state
    there = holds(store, state, element)
    if there == (kind == ADD):
        return state
    place = _place_of(store, state, element)
    return _inserted(store, state, place, element) if kind == ADD else _deleted(store, state, place)


@lean
def _string_step(ops, row, state, event):
    kind, value = ops.kind[row], ops.value[row]
    if kind == GET:
        return state if state == value else np.int32(IMPOSSIBLE)
    node = np.int32(UNSEEN)
    if kind == PUT:
        node = value
    else:
        for edge in range(ops.edge_first[state], ops.edge_first[state + 1]):
            if ops.edge_piece[edge] == value:
                node = ops.edge_target[edge]
                break
    return node if ops.late[node] >= event else np.int32(UNSEEN)


@lean_inline
def needs(ops, row, register):
    """The letter that a transaction has to find in a register, or -1."""
    for item in range(ops.first[row], ops.last[row], ITEM):
        if ops.items[item] == register:
            action = ops.items[item + 1]
            return ops.items[item + 2] if action == R else ops.items[item + 3] if action == C else np.int32(-1)
    return np.int32(-1)


@lean_inline
def makes(ops, row, register):
    """The letter that a transaction leaves in a register it writes, or -1."""
    made = np.int32(-1)
    for item in range(ops.first[row], ops.last[row], ITEM):
        if ops.items[item] == register and ops.items[item + 1] != R:
            made = ops.items[item + 2]
    return made


@lean
def _row_step(ops, row, state, store, event):
    size, refused = store.size[state], ops.kind[row] == REFUSED
    spell(store, state, 0, size, 0)
    for item in range(ops.first[row], ops.last[row], ITEM):
        register, action = ops.items[item], ops.items[item + 1]
        value, expected = ops.items[item + 2], ops.items[item + 3]
        wanted = value if action == R else expected
        if action != W and store.buffer[register] != wanted:
            return state if refused else np.int32(IMPOSSIBLE)
        if action != R:
            store.buffer[register] = value
    return np.int32(IMPOSSIBLE) if refused else _fade(ops, size, store, event)


@lean
def step(ops, row, state, store, event):
    """The state after an operation, IMPOSSIBLE or NO_ROOM; `event` is the time."""
    if ops.model == MUTEX:
        wanted = 0 if ops.kind[row] == ACQUIRE else 1
        return np.int32(1 - state) if state == wanted else np.int32(IMPOSSIBLE)
    if ops.model == STRING:
        return _string_step(ops, row, state, event)
    if ops.model == SET:
        return _set_step(ops, row, state, store)
    if ops.model == ROW:
        return _row_step(ops, row, state, store, event)
    return _queue_step(ops, row, state, store)


@lean_inline
def _has_letter(store, state, element):
    found = False
    for place in range(store.size[state]):
        found |= letter(store, state, place) == element
    return found


@lean_inline
def is_useful(ops, row, target, state, store, seen_empty):
    """Whether linearizing an open operation before `target` can help it or an owed observer; else it may as well come
    later. Elements go into a queue before others, or before the target takes out what is not there yet; into a bag only
    what the target takes out. They go out where that is to be seen empty (`seen_empty`), the first one first, or from a
    queue that holds what the target takes out.

    Enqueues and dequeues of a queue that is not empty commute, so in a right order all that neither the target nor an
    owed look depends on can be moved behind the target, where the search takes it up again: a dequeue in front of an
    enqueue changes no answer unless the queue was empty or a look comes between; what is enqueued in front of a dequeue
    of something that is in stands behind that in the queue. In a bag all commutes but an element's own in and out.
    """
    if (ops.model != BAG and ops.model != FIFO) or row == target:
        return True
    goal = ops.value[target]
    if ops.kind[row] == ENQUEUE:
        if ops.model == BAG:
            return ops.kind[target] == DEQUEUE and goal == ops.value[row]
        return ops.kind[target] == ENQUEUE or (ops.kind[target] == DEQUEUE and not _has_letter(store, state, goal))
    if ops.model == FIFO:
        return seen_empty or (ops.kind[target] == DEQUEUE and _has_letter(store, state, goal))
    if not seen_empty or store.size[state] == 0:
        return False
    return ops.kind[row] == TAKE or letter(store, state, 0) == ops.value[row]


@lean_inline
def lacks(ops, row, element):
    """Whether a read of a set does not show an element."""
    low, high = ops.first[row], ops.last[row]
    while low < high:
        middle = (low + high) // 2
        if ops.items[middle] < element:
            low = middle + 1
        else:
            high = middle
    return low == ops.last[row] or ops.items[low] != element


@lean_inline
def is_plain_add(ops, row):
    """Whether this adds an element that nobody removes: it is done eagerly or not at all."""
    return ops.kind[row] == ADD and ops.early[ops.value[row]] == 0

"""What objects do: one step of a lock, queue, bag, set, string or row of registers, for the search in `object_search`.

A state is a number: of an interned word (`word_store`) for queues (the elements, first to last), bags (sorted), sets
(sorted) and rows of registers (a symbol each); 0 or 1 for a plain lock, `LockColumns` for others; for strings a node of
the trie of all prefixes of what was ever read, node 0 standing for every other string: nobody ever sees one of those.

Steps know what the history says later and refuse what it rules out, so that hopeless orders are not followed:
- what is enqueued behind an element that is dequeued only after the newcomer must have left, or before such a newcomer
  that is still to come;
- a dequeue of nobody knows what taking an element that known dequeues need;
- adding an element, never removed, that a later read does not show. Adding one that all later reads show is *eager*:
  it is done at once, for nothing is lost by it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from checkers.columns.codes import NEVER
from checkers.compiled import lean, lean_inline
from checkers.linearizability.objects.object_columns import (
    ACQUIRE,
    ADD,
    BAG,
    DEQUEUE,
    ENQUEUE,
    FADED,
    FENCED,
    FIFO,
    GET,
    IS_EMPTY,
    ITEM,
    LOCK,
    MEMBERS,
    MUTEX,
    OBSERVERS,
    PERMITS,
    PUT,
    REENTRANT,
    REFUSED,
    ROW,
    SET,
    STRING,
    TAKE,
    UNSEEN,
    C,
    R,
    W,
)
from checkers.linearizability.objects.word_store import intern, spell, symbol, with_last, without_first

IMPOSSIBLE: Final = -1
"""Instead of a state: the operation can't come next."""


@lean_inline
def is_observer(kind):
    """Whether operations of this kind change nothing."""
    return kind in OBSERVERS


@lean_inline
def may_change_nothing(ops, row):
    """Whether there are states in which this is possible and leaves them as they are."""
    return ops.model in (SET, STRING, ROW) or is_observer(ops.kind[row])


@lean
def _fade(rows, size, store, event):
    """Let the row of registers in the buffer forget the values that nobody looks at any more."""
    if rows is None:
        return np.int32(IMPOSSIBLE)
    for register in range(size):
        if rows.gone[store.buffer[register]] < event:
            store.buffer[register] = FADED
    return intern(store, size)


@lean
def faded(ops, state, store, event):
    """The state without values that nobody looks at any more in a row of registers; or NO_ROOM."""
    if ops.model != ROW:
        return np.int32(state)
    spell(store, state, 0, store.size[state], 0)
    return _fade(ops.rows, store.size[state], store, event)


@lean_inline
def _only_writes(rows, row, register):
    """Whether a transaction writes a register without looking at it."""
    written = False
    for item in range(rows.first[row], rows.last[row], ITEM):
        if rows.items[item] == register:
            if rows.items[item + 1] != W and not written:
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
    return ops.model == ROW and _row_hides(ops.rows, row, other)


@lean
def _row_hides(rows, row, other):
    if rows is None:
        return False
    for item in range(rows.first[other], rows.last[other], ITEM):
        if rows.items[item + 1] != W or not _only_writes(rows, row, rows.items[item]):
            return False
    return True


@lean
def first_state(ops, key, store):
    """An object's state before everything; the store must be empty."""
    if ops.model in (MUTEX, LOCK):
        return np.int32(0)
    if ops.model == STRING:
        return _root(ops.strings, key)
    # Nothing is in a queue, bag or set; every register of a row holds nil.
    width = _width(ops.rows, key)
    for register in range(width):
        store.buffer[register] = 0
    return intern(store, width)


@lean_inline
def _root(strings, key):
    if strings is None:
        return np.int32(UNSEEN)
    return np.int32(strings.root[key])


@lean_inline
def _width(rows, key):
    if rows is None:
        return np.int64(0)
    return rows.width[key]


@lean_inline
def _enqueue(queues, element, state, store):
    for place in range(store.size[state]):
        # What is in front of the newcomer leaves first.
        if queues.out_by[element] < queues.first_out[symbol(store, state, place)]:
            return np.int32(IMPOSSIBLE)
    return with_last(store, state, element)


@lean_inline
def _place_of(store, state, element):
    """Where in a sorted word an element is or belongs."""
    low, high = 0, store.size[state]
    while low < high:
        middle = (low + high) // 2
        if symbol(store, state, middle) < element:
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
    return place < store.size[state] and symbol(store, state, place) == element


@lean_inline
def is_claimed(queues, element):
    """Whether known dequeues return all there is of an element, so that no other takes it: with one copy fewer the last
    of them would find none."""
    return queues.out_by[element] != NEVER


@lean
def _queue_step(queues, ops, row, state, store):
    if queues is None:
        return np.int32(IMPOSSIBLE)
    kind, element, size = ops.kind[row], ops.value[row], store.size[state]
    if kind == IS_EMPTY:
        return state if size == 0 else np.int32(IMPOSSIBLE)
    if ops.model == FIFO:
        if kind == ENQUEUE:
            return _enqueue(queues, element, state, store)
        if size == 0 or (kind == DEQUEUE and symbol(store, state, 0) != element):
            return np.int32(IMPOSSIBLE)
        if kind == TAKE and is_claimed(queues, symbol(store, state, 0)):
            return np.int32(IMPOSSIBLE)
        return without_first(store, state)
    if kind == ENQUEUE:
        return _inserted(store, state, _place_of(store, state, element), element)
    if kind == DEQUEUE:
        if not holds(store, state, element):
            return np.int32(IMPOSSIBLE)
        return _deleted(store, state, _place_of(store, state, element))
    # A take from a bag can wait until a look is to find nothing. All that is claimed is out by then, and of the rest it
    # does not matter which goes first.
    if size == 0 or is_claimed(queues, symbol(store, state, 0)):
        return np.int32(IMPOSSIBLE)
    return _deleted(store, state, 0)


@lean
def _set_step(sets, ops, row, state, store):
    if sets is None:
        return np.int32(IMPOSSIBLE)
    kind, element = ops.kind[row], ops.value[row]
    if kind == MEMBERS:
        if store.size[state] != sets.last[row] - sets.first[row]:
            return np.int32(IMPOSSIBLE)
        for place in range(store.size[state]):
            if symbol(store, state, place) != sets.members[sets.first[row] + place]:
                return np.int32(IMPOSSIBLE)
        return state
    there = holds(store, state, element)
    if there == (kind == ADD):
        return state
    place = _place_of(store, state, element)
    return _inserted(store, state, place, element) if kind == ADD else _deleted(store, state, place)


@lean
def _string_step(strings, ops, row, state):
    if strings is None:
        return np.int32(IMPOSSIBLE)
    kind, value = ops.kind[row], ops.value[row]
    if kind == GET:
        return state if state == value else np.int32(IMPOSSIBLE)
    node = np.int32(UNSEEN)
    if kind == PUT:
        node = value
    else:
        for edge in range(strings.edge_first[state], strings.edge_first[state + 1]):
            if strings.edge_piece[edge] == value:
                node = strings.edge_target[edge]
                break
    return node


@lean_inline
def needs(rows, row, register):
    """The symbol that a transaction has to find in a register, or -1."""
    for item in range(rows.first[row], rows.last[row], ITEM):
        if rows.items[item] == register:
            action = rows.items[item + 1]
            return rows.items[item + 2] if action == R else rows.items[item + 3] if action == C else np.int32(-1)
    return np.int32(-1)


@lean_inline
def makes(rows, row, register):
    """The symbol that a transaction leaves in a register it writes, or -1."""
    made = np.int32(-1)
    for item in range(rows.first[row], rows.last[row], ITEM):
        if rows.items[item] == register and rows.items[item + 1] != R:
            made = rows.items[item + 2]
    return made


@lean
def _row_step(rows, ops, row, state, store, event):
    if rows is None:
        return np.int32(IMPOSSIBLE)
    size, refused = store.size[state], ops.kind[row] == REFUSED
    spell(store, state, 0, size, 0)
    for item in range(rows.first[row], rows.last[row], ITEM):
        register, action = rows.items[item], rows.items[item + 1]
        value, expected = rows.items[item + 2], rows.items[item + 3]
        wanted = value if action == R else expected
        # What a refused transaction did before it met another value is undone.
        if action != W and store.buffer[register] != wanted:
            return state if refused else np.int32(IMPOSSIBLE)
        if action != R:
            store.buffer[register] = value
    return np.int32(IMPOSSIBLE) if refused else _fade(rows, size, store, event)


@lean
def _lock_step(locks, ops, row, state):
    if locks is None:
        return np.int32(IMPOSSIBLE)
    owner, counted = state % locks.owners, state // locks.owners
    count, token = counted % (locks.most + 1), counted // (locks.most + 1)
    acquires, mine, amount = ops.kind[row] == ACQUIRE, locks.owner[row], locks.amount[row]
    if locks.rule != PERMITS:
        again = locks.rule == REENTRANT and owner == mine
        if (acquires and count > 0 and not again) or (not acquires and owner != mine):
            return np.int32(IMPOSSIBLE)
        if acquires and locks.rule == FENCED:
            # A token that is not known is the next one: none leaves more room for those to come.
            given = locks.fence[row] if locks.fence[row] > 0 else token + 1
            if given <= token:
                return np.int32(IMPOSSIBLE)
            token = given
    count += amount if acquires else -amount
    if count < 0 or count > locks.most:
        return np.int32(IMPOSSIBLE)
    owner = mine if count > 0 else 0
    return np.int32((token * (locks.most + 1) + count) * locks.owners + owner)


@lean
def step(ops, row, state, store, event):
    """The state after an operation, IMPOSSIBLE or NO_ROOM; `event` is the time."""
    if ops.model == MUTEX:
        wanted = 0 if ops.kind[row] == ACQUIRE else 1
        return np.int32(1 - state) if state == wanted else np.int32(IMPOSSIBLE)
    if ops.model == LOCK:
        return _lock_step(ops.locks, ops, row, state)
    if ops.model == STRING:
        return _string_step(ops.strings, ops, row, state)
    if ops.model == SET:
        return _set_step(ops.sets, ops, row, state, store)
    if ops.model == ROW:
        return _row_step(ops.rows, ops, row, state, store, event)
    return _queue_step(ops.queues, ops, row, state, store)


@lean_inline
def _has_letter(store, state, element):
    found = False
    for place in range(store.size[state]):
        found |= symbol(store, state, place) == element
    return found


@lean_inline
def is_useful(queues, ops, row, target, state, store, seen_empty):
    """Whether linearizing an open operation before `target` can help it or an owed observer; else it may as well come
    later. Elements go into a queue before others, or before the target takes out what is not there yet; into a bag only
    what the target takes out. They go out where that is to be seen empty (`seen_empty`), the first one first, or from a
    queue that holds what the target takes out.

    Enqueues and dequeues of a queue that is not empty commute, so in a right order all that neither the target nor an
    owed look depends on can be moved behind the target, where the search takes it up again: a dequeue in front of an
    enqueue changes no answer unless the queue was empty or a look comes between; what is enqueued in front of a dequeue
    of something that is in stands behind that in the queue. In a bag all commutes but an element's own in and out.
    """
    if queues is None:
        return True
    if row == target:
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
    return ops.kind[row] == TAKE or symbol(store, state, 0) == ops.value[row]


@lean_inline
def lacks(sets, row, element):
    """Whether a read of a set does not show an element."""
    low, high = sets.first[row], sets.last[row]
    while low < high:
        middle = (low + high) // 2
        if sets.members[middle] < element:
            low = middle + 1
        else:
            high = middle
    return low == sets.last[row] or sets.members[low] != element


@lean_inline
def is_plain_add(ops, row):
    """Whether this adds an element that nobody removes: it is done eagerly or not at all."""
    return ops.kind[row] == ADD and _is_never_removed(ops.sets, ops.value[row])


@lean_inline
def _is_never_removed(sets, element):
    if sets is None:
        return False
    return sets.removed[element] == 0

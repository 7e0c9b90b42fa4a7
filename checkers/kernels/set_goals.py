"""Sets on the way from read to read: the search for sets moves from the members there are to those that a read shows.

Changes matter only by what reads show. Take a right order up to the completion of the target, and in it the owed reads.
Before the first of them elements that it shows as they are need no change: the open changes of such an element can come
behind the target, for they commute with changes of other elements, agree with the reads in between as these agree
without them, and all complete later; so they are left for then. Of an element that it shows otherwise some open change
goes before it, and the one that completes first does: the others may have taken effect, unseen, right before that one,
and as they stay available (`forgive`) what a later order does with any of them it can do with one that stays longer.
What is left is to go from read to read, the nearest first, and then to the target itself if that is a change.
"""

from __future__ import annotations

import numpy as np

from checkers.kernels.compiled import lean
from checkers.kernels.foresight import forgive
from checkers.kernels.frontier import has_bit, unset_bit
from checkers.kernels.objects import ADD, IMPOSSIBLE, MEMBERS, REMOVE, is_plain_add, step
from checkers.kernels.states import letter

FAR = 1 << 40
"""Instead of a distance: nothing to go to."""


@lean
def _change(ops, element, kind, window):
    """The slot of the available change of that kind to an element that completes first, or -1."""
    best = -1
    for slot in range(window.top[0]):
        row = window.row[slot]
        if row < 0 or ops.kind[row] != kind or ops.value[row] != element or not has_bit(window.available, 0, slot):
            continue
        if best < 0 or ops.complete[row] < ops.complete[window.row[best]]:
            best = slot
    return best


@lean
def _difference(ops, goal, state, store, places):
    """The next element that a state and a read disagree on, from `places` in both on: the element and the kind of
    change that mends it, or (-1, -1)."""
    size, last = store.size[state], ops.last[goal]
    while places[0] < size or places[1] < last:
        if places[1] >= last or (places[0] < size and letter(store, state, places[0]) < ops.items[places[1]]):
            places[0] += 1
            return letter(store, state, places[0] - 1), REMOVE
        if places[0] >= size or letter(store, state, places[0]) > ops.items[places[1]]:
            places[1] += 1
            return ops.items[places[1] - 1], ADD
        places[0] += 1
        places[1] += 1
    return np.int32(-1), -1


@lean
def distances(ops, place, state, window, store, configs, places):
    """Write into `window.far` how many elements each owed read shows otherwise; FAR where nothing is to be gone to."""
    for slot in range(window.top[0]):
        row = window.row[slot]
        window.far[slot] = FAR
        if row < 0 or ops.kind[row] != MEMBERS or not has_bit(configs.owed, place, slot):
            continue
        places[0], places[1], window.far[slot] = 0, ops.first[row], 0
        while _difference(ops, row, state, store, places)[1] >= 0:
            window.far[slot] += 1


@lean
def farthest(window):
    """The slot of the farthest read, which is then no more to be gone to, or -1."""
    best = -1
    for slot in range(window.top[0]):
        if window.far[slot] < FAR and (best < 0 or window.far[slot] > window.far[best]):
            best = slot
    if best >= 0:
        window.far[best] = FAR
    return best


@lean
def reach(ops, goal, state, window, store, event, places):
    """Change the set in the configuration in work to what a read shows. Returns the state, IMPOSSIBLE or NO_ROOM."""
    places[0], places[1] = 0, ops.first[goal]
    now = state
    while now >= 0:
        element, kind = _difference(ops, goal, state, store, places)
        if kind < 0:
            return now
        slot = _change(ops, element, kind, window)
        if slot < 0 or is_plain_add(ops, window.row[slot]):
            return np.int32(IMPOSSIBLE)
        now = step(ops, window.row[slot], now, store, event)
        forgive(ops, window.row[slot], window)
        unset_bit(window.available, 0, slot)
        unset_bit(window.owed, 0, slot)
    return now

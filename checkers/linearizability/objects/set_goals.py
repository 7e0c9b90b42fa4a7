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

from typing import Final, NamedTuple

import numpy as np

from checkers.columns.codes import Ints
from checkers.compiled import lean, make_record
from checkers.linearizability.configurations import has_bit, unset_bit
from checkers.linearizability.objects.object_columns import ADD, MEMBERS, REMOVE
from checkers.linearizability.objects.object_pruning import forgive
from checkers.linearizability.objects.object_steps import IMPOSSIBLE, is_plain_add, step
from checkers.linearizability.objects.word_store import symbol

FAR: Final = 1 << 40
"""Instead of a distance: nothing to go to."""


class Goals(NamedTuple):
    """Scratch of one extension of one configuration of a set."""

    distance: Ints  # by slot: elements on which an owed read and the state differ; FAR: no goal (more)
    walk: np.record  # how far a state and a read, both sorted, are compared, by the fields of WALK


WALK: Final = (
    "in_state",  # the next place in the word of a state
    "in_read",  # the next place in `members`, among those of a read
)


def make_goals(slots: int) -> Goals:
    """Scratch for searches with `slots` slots."""
    return Goals(np.zeros(slots, np.int64), make_record(WALK))


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
def _difference(ops, goal, state, store, walk):
    """The next element that a state and a read disagree on, from where `walk` is in both: the element and the kind of
    change that mends it, or (-1, -1)."""
    size, last = store.size[state], ops.sets.last[goal]
    # Both are sorted, and what was walked past is equal or told: the smaller of the next two is in one only.
    while walk.in_state < size or walk.in_read < last:
        if walk.in_read >= last or (
            walk.in_state < size and symbol(store, state, walk.in_state) < ops.sets.members[walk.in_read]
        ):
            walk.in_state += 1
            return symbol(store, state, walk.in_state - 1), REMOVE
        if walk.in_state >= size or symbol(store, state, walk.in_state) > ops.sets.members[walk.in_read]:
            walk.in_read += 1
            return ops.sets.members[walk.in_read - 1], ADD
        walk.in_state += 1
        walk.in_read += 1
    return np.int32(-1), -1


@lean
def distances(search, place, state):
    """Write into `goals` how many elements each owed read shows otherwise; FAR where nothing is to be gone to."""
    ops, window, walk, distance = search.ops, search.window, search.goals.walk, search.goals.distance
    for slot in range(window.top[0]):
        row = window.row[slot]
        distance[slot] = FAR
        if row < 0 or ops.kind[row] != MEMBERS or not has_bit(search.visited.owed, place, slot):
            continue
        walk.in_state, walk.in_read, distance[slot] = 0, ops.sets.first[row], 0
        while _difference(ops, row, state, search.store, walk)[1] >= 0:
            distance[slot] += 1


@lean
def farthest(window, goals):
    """The slot of the farthest read, which is then no more to be gone to, or -1."""
    best = -1
    for slot in range(window.top[0]):
        if goals.distance[slot] < FAR and (best < 0 or goals.distance[slot] > goals.distance[best]):
            best = slot
    if best >= 0:
        goals.distance[best] = FAR
    return best


@lean
def reach(search, goal, state, event):
    """Change the set in the configuration in work to what a read shows. Returns the state, IMPOSSIBLE or NO_ROOM."""
    ops, window, store, walk = search.ops, search.window, search.store, search.goals.walk
    walk.in_state, walk.in_read = 0, ops.sets.first[goal]
    now = state
    # Before each turn `now` agrees with the read in all elements that the walk is past, and with `state` in the others.
    while now >= 0:
        element, kind = _difference(ops, goal, state, store, walk)
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

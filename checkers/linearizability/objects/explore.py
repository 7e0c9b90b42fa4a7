"""Linearizability of any object by search (Wing and Gong 1993, Lowe's just-in-time form): the skeleton for all models.

As in `registers.search`, which knows more about registers, the events of an object are taken in order while a set of
undominated configurations (`frontier`) says all that may be true, and an operation is linearized no earlier than some
completion needs it. Here `models.step` says what an operation does. What keeps the sets small, and exact:
- what changes nothing, and what costs nothing, is linearized as soon as the state allows (`_settle`);
- of equal open operations the one that completes first goes first (they can be exchanged);
- where nothing is open the set is the set of possible states with what is still pending.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.columns.codes import NEVER
from checkers.compiled import lean, lean_inline
from checkers.linearizability.checkpoints import Checkpoints
from checkers.linearizability.cursor import NO_ROOM, OUT_OF_WORK, enough
from checkers.linearizability.events import EventSteps, over_keys
from checkers.linearizability.frontier import SET_FULL, ConfigSet, add, clear, has_bit, lowest, set_bit, unset_bit
from checkers.linearizability.objects.foresight import (
    blocked,
    forgive,
    is_awaited,
    is_fatal,
    is_free,
    is_lost,
    is_premature,
    is_wasted,
    owes_empty,
)
from checkers.linearizability.objects.kinds import SET, STRING, UNSEEN, ObjectOps
from checkers.linearizability.objects.models import (
    IMPOSSIBLE,
    faded,
    first_state,
    is_observer,
    is_plain_add,
    is_useful,
    may_change_nothing,
    step,
)
from checkers.linearizability.objects.set_goals import Goals, distances, farthest, reach
from checkers.linearizability.objects.states import WordStore, empty
from checkers.linearizability.window import Window, close_slot, enter, free_slot, vacate

DEEPER = 64
"""A beam follows so many times its width of configurations on the way to one completion,"""
NEARER = 2
"""and so many once it has found a way."""


class ObjectSearch(NamedTuple):
    """One search: what is judged, how far it is (`cursor.CURSOR`), what is open there, the states, the configurations.

    `frontier` has those after all events so far. While an operation, the target, completes `visited` gets those in
    which it is still to be linearized, or may yet be, and `after` those in which it is, which become the frontier;
    `stack` are the places in `visited` that are still to be extended. `goals` is scratch for sets.
    """

    ops: ObjectOps
    cursor: np.record
    window: Window
    store: WordStore
    frontier: ConfigSet
    visited: ConfigSet
    after: ConfigSet
    stack: npt.NDArray[np.int32]
    checkpoints: Checkpoints
    goals: Goals


@lean
def _begin_key(search):
    """Nothing open, the object as it is before everything."""
    window, frontier = search.window, search.frontier
    vacate(window)
    empty(search.store)
    clear(frontier)
    add(frontier, first_state(search.ops, search.cursor.key, search.store), window.available, window.owed, 0)


@lean
def _invoke(search, row):
    """An operation begins: in every configuration it may, and if it completes it must, be linearized."""
    ops, window, frontier = search.ops, search.window, search.frontier
    slot = free_slot(window)
    enter(ops, row, slot, window)
    for place in range(frontier.tally.used):
        if not is_observer(ops.kind[row]):
            set_bit(frontier.available, place, slot)
        if ops.complete[row] != NEVER:
            set_bit(frontier.owed, place, slot)


@lean_inline
def _as_awaited(search, target, state, owed, place):
    """The state, or UNSEEN for a string that is not awaited; `owed` has in row `place` what is owed."""
    ops = search.ops
    if ops.model != STRING or is_awaited(ops.strings, ops, target, state, search.window, owed, place):
        return np.int32(state)
    return np.int32(UNSEEN)


@lean_inline
def _take_free(search, target, slot, state, event):
    """Linearize the operation in a slot in the configuration in work, if that is free. Returns the state then, NO_ROOM,
    or IMPOSSIBLE if it is not."""
    ops, window, store = search.ops, search.window, search.store
    row = window.row[slot]
    if has_bit(window.available, 0, slot) and is_plain_add(ops, row) and is_free(ops.sets, ops, row, window, event):
        unset_bit(window.available, 0, slot)
        unset_bit(window.owed, 0, slot)
        return step(ops, row, state, store, event)
    if not (has_bit(window.owed, 0, slot) and may_change_nothing(ops, row)):
        return np.int32(IMPOSSIBLE)
    seen = step(ops, row, state, store, event)
    if seen >= 0 and _as_awaited(search, target, seen, window.owed, 0) == state:
        unset_bit(window.owed, 0, slot)
        return np.int32(state)
    return np.int32(NO_ROOM) if seen == NO_ROOM else np.int32(IMPOSSIBLE)


@lean
def _settle(search, target, state, event):
    """Linearize all that is free in the configuration in work. Returns its state, IMPOSSIBLE or NO_ROOM."""
    ops, window = search.ops, search.window
    state = faded(ops, state, search.store, event)
    # Each round takes something out of `available` or `owed`, and what it does may let more through: until none does.
    again = state >= 0
    while again:
        again = False
        state = _as_awaited(search, target, state, window.owed, 0)
        for word in range(window.owed.shape[1]):
            left = window.owed[0, word]
            if ops.model == SET:
                left |= window.available[0, word]
            while left != 0:
                slot, left = 64 * word + lowest(left), left & (left - np.uint64(1))
                new = _take_free(search, target, slot, state, event)
                if new == NO_ROOM:
                    return new
                if new >= 0:
                    state, again = new, True
    lost = state >= 0 and is_lost(ops.strings, ops, target, state, window)
    return np.int32(IMPOSSIBLE) if lost else state


@lean_inline
def _load(configs, place, window):
    for word in range(window.owed.shape[1]):
        window.available[0, word] = configs.available[place, word]
        window.owed[0, word] = configs.owed[place, word]


@lean
def _put(search, target, owing, state, event):
    """Settle the configuration in work and add it where it belongs: to `after` if the target, owed before if `owing`,
    is so no more, to `visited` while the target can still take effect. Returns the work done, SET_FULL or NO_ROOM."""
    window = search.window
    state = _settle(search, target, state, event)
    if state == NO_ROOM:
        return np.int64(NO_ROOM)
    work, held = np.int64(1), has_bit(window.available, 0, target)
    settled = not has_bit(window.owed, 0, target)
    if state < 0:
        return work
    if held or not settled:
        cost = add(search.visited, state, window.available, window.owed, 0)
        if cost < 0:
            return np.int64(SET_FULL)
        work += cost
    # If it was owed no more before, the configuration that this one came of is in `after`, and this one can wait.
    if owing and settled:
        unset_bit(window.available, 0, target)
        cost = add(search.after, state, window.available, window.owed, 0)
        if cost < 0:
            return np.int64(SET_FULL)
        work += cost
    return work


@lean
def _expand(search, target, place, event):
    """Extend one configuration by every open operation. Returns the work done, SET_FULL or NO_ROOM."""
    ops, window, store, visited = search.ops, search.window, search.store, search.visited
    if ops.model == SET:
        return _expand_set(ops.sets, search, target, place, event)
    work, seen_empty = np.int64(1), owes_empty(ops.queues, ops, place, window, visited)
    owing = has_bit(visited.owed, place, target)
    for slot in range(window.top[0]):
        # What was added meanwhile may dominate the very configuration at hand: then that one does it all.
        state = visited.state[place]
        if state < 0:
            break
        if not has_bit(visited.available, place, slot) or blocked(visited, place, slot, window):
            continue
        row = window.row[slot]
        if is_plain_add(ops, row):
            continue
        if not is_useful(ops.queues, ops, row, window.row[target], state, store, seen_empty):
            continue
        if is_premature(ops.queues, ops, row, place, window, visited, event):
            continue
        if is_fatal(ops.rows, search, row, place, event):
            continue
        new = step(ops, row, state, store, event)
        work += 1
        if new == NO_ROOM:
            return np.int64(NO_ROOM)
        if new < 0:
            continue
        new = _as_awaited(search, target, new, visited.owed, place)
        if slot != target and is_wasted(ops.strings, new):
            continue
        _load(visited, place, window)
        # What leaves the state as it was and hides nothing can as well come later.
        if not forgive(ops, row, window) and new == state:
            continue
        unset_bit(window.available, 0, slot)
        unset_bit(window.owed, 0, slot)
        cost = _put(search, target, owing or slot == target, new, event)
        if cost < 0:
            return cost
        work += cost
    return work


@lean
def _expand_set(sets, search, target, place, event):
    """Extend a configuration of a set to what each owed read shows, the nearest last, which is gone on from first; and
    by the target. Returns the work done, SET_FULL or NO_ROOM."""
    if sets is None:
        return np.int64(1)
    ops, window, visited = search.ops, search.window, search.visited
    work, state = np.int64(1), visited.state[place]
    owing, row = has_bit(visited.owed, place, target), window.row[target]
    if has_bit(visited.available, place, target) and not is_plain_add(ops, row):
        _load(visited, place, window)
        new = step(ops, row, state, search.store, event)
        if new == NO_ROOM:
            return np.int64(NO_ROOM)
        # If it neither changed anything nor had anything forgiven, the configuration would be the same again.
        if forgive(ops, row, window) or new != state:
            unset_bit(window.available, 0, target)
            unset_bit(window.owed, 0, target)
            cost = _put(search, target, True, new, event)
            if cost < 0:
                return cost
            work += cost
    # What an owed read shows is a goal. The farthest is put first, so that the nearest lies on top and is gone on from
    # first; a configuration that was dropped meanwhile (its state is negative) is not extended any more.
    distances(search, place, state)
    slot = farthest(window, search.goals)
    while slot >= 0 and visited.state[place] >= 0:
        _load(visited, place, window)
        new = reach(search, window.row[slot], state, event)
        if new == NO_ROOM:
            return np.int64(NO_ROOM)
        if new >= 0:
            cost = _put(search, target, owing, new, event)
            if cost < 0:
                return cost
            work += cost
        work += 1
        slot = farthest(window, search.goals)
    return work


@lean
def _complete(search, target, budget, event):
    """An operation ends: `after` becomes the configurations in which it is linearized, found depth first, for the way
    may be long. Returns the work done, SET_FULL, OUT_OF_WORK or NO_ROOM."""
    frontier, visited, after, stack = search.frontier, search.visited, search.after, search.stack
    clear(visited)
    clear(after)
    work, beam, place = np.int64(1), search.cursor.beam, 0
    for place in range(frontier.tally.used):
        if frontier.state[place] >= 0:
            _load(frontier, place, search.window)
            cost = _put(search, target, True, frontier.state[place], event)
            if cost < 0:
                return cost
            work += cost
    top = 0
    for place in range(visited.tally.used):
        stack[top] = place
        top += 1
    # Every configuration of `visited` that is not on the stack was extended, so at its end all were.
    while top > 0:
        most = DEEPER if after.tally.live == 0 else NEARER
        if beam > 0 and (after.tally.live >= enough(beam) or visited.tally.used >= most * beam):
            search.cursor.dropped = 1
            break
        top -= 1
        place, before = stack[top], visited.tally.used
        if visited.state[place] < 0:
            continue
        cost = _expand(search, target, place, event)
        if cost < 0:
            return cost
        work += cost
        if work > budget:
            return np.int64(OUT_OF_WORK)
        for fresh in range(before, visited.tally.used):
            stack[top] = fresh
            top += 1
    return work


@lean_inline
def _window(search):
    return search.window


@lean
def _close(search, slot, event):
    close_slot(slot, search.window)


@lean
def _reopen(search, level):
    window, checkpoints = search.window, search.checkpoints
    vacate(window)
    for slot in range(window.row.shape[0]):
        if checkpoints.row[level, slot] >= 0:
            enter(search.ops, checkpoints.row[level, slot], slot, window)


explore_keys = over_keys(__name__, EventSteps(_window, _begin_key, _invoke, _complete, _close, _reopen))
"""The search of objects; see `over_keys`."""

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
from checkers.linearizability.checkpoints import Checkpoints, backtrack, checkpoint, forget
from checkers.linearizability.cursor import (
    DONE,
    NO_ROOM,
    OUT_OF_WORK,
    PAUSED,
    SET_FULL,
    begins_before,
    completing,
    enough,
    enter_key,
    followed,
    next_key,
    outcome,
    relax,
    wider,
)
from checkers.linearizability.frontier import (
    ConfigSet,
    add,
    adopt,
    clear,
    has_bit,
    is_linearized,
    set_bit,
    unset_bit,
)
from checkers.linearizability.objects.foresight import (
    blocked,
    forgive,
    is_fatal,
    is_free,
    is_lost,
    is_premature,
    owes_empty,
)
from checkers.linearizability.objects.kinds import SET, ObjectOps
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
"""A beam follows so many times its width of configurations on the way to one completion."""


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
    enter_key(search.ops, search.cursor)
    vacate(window)
    empty(search.store)
    clear(frontier)
    add(frontier, first_state(search.ops, search.cursor.key, search.store), window.available, window.owed, 0)
    forget(search.checkpoints)


@lean
def _invoke(ops, row, window, frontier):
    """An operation begins: in every configuration it may, and if it completes it must, be linearized."""
    slot = free_slot(window)
    enter(ops, row, slot, window)
    for place in range(frontier.tally.used):
        if not is_observer(ops.kind[row]):
            set_bit(frontier.available, place, slot)
        if ops.complete[row] != NEVER:
            set_bit(frontier.owed, place, slot)


@lean
def _settle(ops, target, state, window, store, event):
    """Linearize all that is free in the configuration in work. Returns its state, IMPOSSIBLE or NO_ROOM."""
    state = faded(ops, state, store, event)
    # Each round takes something out of `available` or `owed`, and what it does may let more through: until none does.
    again = state >= 0
    while again:
        again = False
        for slot in range(window.top[0]):
            row = window.row[slot]
            if row < 0:
                continue
            if has_bit(window.available, 0, slot) and is_plain_add(ops, row) and is_free(ops, row, window, event):
                state = step(ops, row, state, store, event)
                if state == NO_ROOM:
                    return state
                unset_bit(window.available, 0, slot)
                unset_bit(window.owed, 0, slot)
                again = True
            elif has_bit(window.owed, 0, slot) and may_change_nothing(ops, row):
                seen = step(ops, row, state, store, event)
                if seen == NO_ROOM:
                    return seen
                if seen == state:
                    unset_bit(window.owed, 0, slot)
                    again = True
    return np.int32(IMPOSSIBLE) if state >= 0 and is_lost(ops, target, state, window) else state


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
    state = _settle(search.ops, target, state, window, search.store, event)
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
        return _expand_set(search, target, place, event)
    work, seen_empty = np.int64(1), owes_empty(ops, place, window, visited)
    owing = has_bit(visited.owed, place, target)
    for slot in range(window.top[0]):
        # What was added meanwhile may dominate the very configuration at hand: then that one does it all.
        state = visited.state[place]
        if state < 0:
            break
        if not has_bit(visited.available, place, slot) or blocked(visited, place, slot, window):
            continue
        row = window.row[slot]
        if is_plain_add(ops, row) or not is_useful(ops, row, window.row[target], state, store, seen_empty):
            continue
        if is_premature(ops, row, place, window, visited, event):
            continue
        if is_fatal(search, row, place, event):
            continue
        new = step(ops, row, state, store, event)
        work += 1
        if new == NO_ROOM:
            return np.int64(NO_ROOM)
        if new < 0:
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
def _expand_set(search, target, place, event):
    """Extend a configuration of a set to what each owed read shows, the nearest last, which is gone on from first; and
    by the target. Returns the work done, SET_FULL or NO_ROOM."""
    ops, window, visited = search.ops, search.window, search.visited
    work, state = np.int64(1), visited.state[place]
    owing, row = has_bit(visited.owed, place, target), window.row[target]
    if has_bit(visited.available, place, target) and not is_plain_add(ops, row):
        _load(visited, place, window)
        new = step(ops, row, state, search.store, event)
        if new == NO_ROOM:
            return np.int64(NO_ROOM)
        if forgive(ops, row, window) or new != state:
            unset_bit(window.available, 0, target)
            unset_bit(window.owed, 0, target)
            cost = _put(search, target, True, new, event)
            if cost < 0:
                return cost
            work += cost
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
        if beam > 0 and (after.tally.live >= enough(beam) or visited.tally.used >= DEEPER * beam):
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


@lean
def explore_key(search, budget):
    """Search on from the cursor to the end of its key, a refutation or the end of the budget.

    Returns (DONE, stuck row or -1), or (PAUSED, FULL or STORE_FULL, -1): then the same call goes on where it was.
    """
    ops, cursor, window, frontier = search.ops, search.cursor, search.window, search.frontier
    if cursor.fresh == 1:
        _begin_key(search)
    work = np.int64(0)
    # All before `next_complete` are linearized in every configuration of the frontier; what has begun is open.
    row = completing(ops, cursor)
    while row >= 0:
        event = ops.complete[row]
        while begins_before(ops, cursor, event):
            _invoke(ops, cursor.next_invoke, window, frontier)
            cursor.next_invoke += 1
        slot = window.slot_of[row]
        if not is_linearized(frontier, slot):
            cost = _complete(search, slot, budget - work, event)
            if cost < 0:
                return outcome(cost), np.int64(-1)
            work += cost
            cursor.work += cost
            if search.after.tally.live == 0:
                return DONE, row
            cursor.dropped |= adopt(frontier, search.after, followed(cursor.beam))
        close_slot(slot, window)
        cursor.next_complete += 1
        relax(cursor)
        checkpoint(search.checkpoints, cursor, window, frontier)
        row = completing(ops, cursor)
    return DONE, np.int64(-1)


@lean
def _try_again(search):
    """After a beam that found no way: a wider one from a checkpoint, or if it follows everything from the start."""
    window, checkpoints = search.window, search.checkpoints
    level = backtrack(checkpoints, search.cursor, search.frontier, wider(search.cursor.beam))
    if level < 0:
        return
    vacate(window)
    for slot in range(window.row.shape[0]):
        if checkpoints.row[level, slot] >= 0:
            enter(search.ops, checkpoints.row[level, slot], slot, window)


@lean
def explore_keys(search, budget, stuck):
    """Search key after key from the cursor; `stuck[k]` becomes the row that refutes key k, or -1. Returns DONE when all
    keys are through, else why it stopped at the cursor's key."""
    cursor, keys = search.cursor, search.ops.offsets.shape[0] - 1
    spent = cursor.work
    while cursor.key < keys:
        answer, row = explore_key(search, budget - (cursor.work - spent))
        if answer != DONE:
            return answer
        # Nothing is left, but not all was followed: that refutes nothing.
        if row >= 0 and cursor.dropped == 1:
            _try_again(search)
            continue
        stuck[cursor.key] = row
        next_key(cursor)
        if cursor.work - spent >= budget:
            return PAUSED
    return DONE

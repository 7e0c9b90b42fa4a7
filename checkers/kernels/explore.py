"""Linearizability of any object by search (Wing and Gong 1993, Lowe's just-in-time form): the skeleton for all models.

As in `search`, which knows more about registers, the events of an object are taken in order while a set of undominated
configurations (`frontier`) says all that may be true, and an operation is linearized no earlier than some completion
needs it. Here `objects.step` says what an operation does. What keeps the sets small, and exact:
- what changes nothing, and what costs nothing, is linearized as soon as the state allows (`_settle`);
- of equal open operations the one that completes first goes first (they can be exchanged);
- where nothing is open the set is the set of possible states with what is still pending.
"""

from __future__ import annotations

import numpy as np

from checkers.kernels.columns import NEVER
from checkers.kernels.compiled import lean, lean_inline
from checkers.kernels.foresight import (
    blocked,
    forgive,
    is_fatal,
    is_free,
    is_lost,
    is_premature,
    owes_empty,
)
from checkers.kernels.frontier import add, adopt, clear, has_bit, set_bit, unset_bit
from checkers.kernels.marks import (
    BEAM,
    DROPPED,
    FRESH,
    KEY,
    NEXT_COMPLETE,
    NEXT_INVOKE,
    WORK,
    forget,
    go_back,
    mark,
)
from checkers.kernels.objects import (
    IMPOSSIBLE,
    SET,
    faded,
    first_state,
    is_observer,
    is_plain_add,
    is_useful,
    may_change_nothing,
    step,
)
from checkers.kernels.search import DONE, FULL, PAUSED, enough, is_choosy, next_key, relax, wider
from checkers.kernels.set_goals import distances, farthest, reach
from checkers.kernels.states import NO_ROOM, empty
from checkers.kernels.window import close_slot, enter, free_slot, vacate

STORE_FULL = 3

OUT_OF_WORK = -2

DEEPER = 64
"""A beam follows so many times its width of configurations on the way to one completion."""


@lean
def _begin_key(ops, key, window, frontier, store):
    vacate(window)
    empty(store)
    clear(frontier)
    add(frontier, first_state(ops, key, store), window.available, window.owed, 0)


@lean
def _invoke(ops, row, window, frontier):
    """An operation begins: in every configuration it may, and if it completes it must, be linearized."""
    slot = free_slot(window)
    enter(ops, row, slot, window)
    for place in range(frontier.meta[0]):
        if not is_observer(ops.kind[row]):
            set_bit(frontier.available, place, slot)
        if ops.complete[row] != NEVER:
            set_bit(frontier.owed, place, slot)


@lean
def _settle(ops, target, state, window, store, event):
    """Linearize all that is free in the configuration in work. Returns its state, IMPOSSIBLE or NO_ROOM."""
    state = faded(ops, state, store, event)
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
def _put(ops, target, owing, state, window, store, visited, after, event):
    """Settle the configuration in work and add it where it belongs: to `after` if the target, owed before if `owing`,
    is so no more, to `visited` while the target can still take effect. Returns the work done, -1 or NO_ROOM."""
    state = _settle(ops, target, state, window, store, event)
    if state == NO_ROOM:
        return np.int64(NO_ROOM)
    work, held = np.int64(1), has_bit(window.available, 0, target)
    settled = not has_bit(window.owed, 0, target)
    if state < 0:
        return work
    if held or not settled:
        cost = add(visited, state, window.available, window.owed, 0)
        if cost < 0:
            return np.int64(-1)
        work += cost
    if owing and settled:
        unset_bit(window.available, 0, target)
        cost = add(after, state, window.available, window.owed, 0)
        if cost < 0:
            return np.int64(-1)
        work += cost
    return work


@lean
def _expand(ops, target, place, window, store, visited, after, event):
    """Extend one configuration by every open operation. Returns the work done, -1 if a set is full, or NO_ROOM."""
    if ops.model == SET:
        return _expand_set(ops, target, place, window, store, visited, after, event)
    work, seen_empty = np.int64(1), owes_empty(ops, place, window, visited)
    owing = has_bit(visited.owed, place, target)
    for slot in range(window.top[0]):
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
        if is_fatal(ops, row, state, place, window, visited, store, event):
            continue
        new = step(ops, row, state, store, event)
        work += 1
        if new == NO_ROOM:
            return np.int64(NO_ROOM)
        if new < 0:
            continue
        _load(visited, place, window)
        if not forgive(ops, row, window) and new == state:
            continue
        unset_bit(window.available, 0, slot)
        unset_bit(window.owed, 0, slot)
        cost = _put(ops, target, owing or slot == target, new, window, store, visited, after, event)
        if cost < 0:
            return cost
        work += cost
    return work


@lean
def _expand_set(ops, target, place, window, store, visited, after, event):
    """Extend a configuration of a set to what each owed read shows, the nearest last, which is gone on from first; and
    by the target. Returns the work done, -1 if a set is full, or NO_ROOM."""
    work, state = np.int64(1), visited.state[place]
    owing, row = has_bit(visited.owed, place, target), window.row[target]
    if has_bit(visited.available, place, target) and not is_plain_add(ops, row):
        _load(visited, place, window)
        new = step(ops, row, state, store, event)
        if new == NO_ROOM:
            return np.int64(NO_ROOM)
        if forgive(ops, row, window) or new != state:
            unset_bit(window.available, 0, target)
            unset_bit(window.owed, 0, target)
            cost = _put(ops, target, True, new, window, store, visited, after, event)
            if cost < 0:
                return cost
            work += cost
    distances(ops, place, state, window, store, visited, window.places)
    slot = farthest(window)
    while slot >= 0 and visited.state[place] >= 0:
        _load(visited, place, window)
        new = reach(ops, window.row[slot], state, window, store, event, window.places)
        if new == NO_ROOM:
            return np.int64(NO_ROOM)
        if new >= 0:
            cost = _put(ops, target, owing, new, window, store, visited, after, event)
            if cost < 0:
                return cost
            work += cost
        work += 1
        slot = farthest(window)
    return work


@lean
def _is_done(target, frontier):
    """Whether the operation is linearized in every configuration."""
    for place in range(frontier.meta[0]):
        held = has_bit(frontier.owed, place, target) or has_bit(frontier.available, place, target)
        if frontier.state[place] >= 0 and held:
            return False
    return True


@lean
def _complete(ops, at, target, window, store, frontier, visited, after, stack, budget, event):
    """An operation ends: `after` becomes the configurations in which it is linearized, found depth first, for the way
    may be long. Returns the work done, -1 when a set is full, OUT_OF_WORK or NO_ROOM."""
    clear(visited)
    clear(after)
    work, beam, place = np.int64(1), at[BEAM], 0
    for place in range(frontier.meta[0]):
        if frontier.state[place] >= 0:
            _load(frontier, place, window)
            cost = _put(ops, target, True, frontier.state[place], window, store, visited, after, event)
            if cost < 0:
                return cost
            work += cost
    top = 0
    for place in range(visited.meta[0]):
        stack[top] = place
        top += 1
    while top > 0:
        if beam > 0 and (after.meta[1] >= enough(beam) or visited.meta[0] >= DEEPER * beam):
            at[DROPPED] = 1
            break
        top -= 1
        place, before = stack[top], visited.meta[0]
        if visited.state[place] < 0:
            continue
        cost = _expand(ops, target, place, window, store, visited, after, event)
        if cost < 0:
            return cost
        work += cost
        if work > budget:
            return np.int64(OUT_OF_WORK)
        for fresh in range(before, visited.meta[0]):
            stack[top] = fresh
            top += 1
    return work


@lean
def explore_key(ops, at, window, store, frontier, visited, after, stack, marks, budget):
    """Search on from the cursor `at` to the end of its key, a refutation or the end of the budget.

    Returns (DONE, stuck row or -1), or (PAUSED, FULL or STORE_FULL, -1): then the same call goes on where it was.
    """
    key = at[KEY]
    stop = ops.offsets[key + 1]
    if at[FRESH] == 1:
        _begin_key(ops, key, window, frontier, store)
        at[NEXT_INVOKE] = ops.offsets[key]
        at[NEXT_COMPLETE] = ops.offsets[key]
        at[FRESH], at[DROPPED] = 0, 0
        forget(marks)
    work = np.int64(0)
    while at[NEXT_COMPLETE] < stop and ops.complete[ops.order[at[NEXT_COMPLETE]]] != NEVER:
        row = ops.order[at[NEXT_COMPLETE]]
        event = ops.complete[row]
        while at[NEXT_INVOKE] < stop and ops.invoke[at[NEXT_INVOKE]] < event:
            _invoke(ops, at[NEXT_INVOKE], window, frontier)
            at[NEXT_INVOKE] += 1
        slot = window.slot_of[row]
        if not _is_done(slot, frontier):
            cost = _complete(ops, at, slot, window, store, frontier, visited, after, stack, budget - work, event)
            if cost < 0:
                return (STORE_FULL if cost == NO_ROOM else PAUSED if cost == OUT_OF_WORK else FULL), np.int64(-1)
            work += cost
            at[WORK] += cost
            if after.meta[1] == 0:
                return DONE, row
            at[DROPPED] |= adopt(frontier, after, at[BEAM] if is_choosy(at[BEAM]) else 0)
        close_slot(slot, window)
        at[NEXT_COMPLETE] += 1
        relax(at)
        mark(marks, at, window, frontier)
    return DONE, np.int64(-1)


@lean
def _try_again(ops, at, window, frontier, marks):
    """After a beam that found no way: a wider one from a mark, or, if it follows everything, from the beginning."""
    level = go_back(marks, at, frontier, wider(at[BEAM]))
    if level < 0:
        return
    vacate(window)
    for slot in range(window.row.shape[0]):
        if marks.row[level, slot] >= 0:
            enter(ops, marks.row[level, slot], slot, window)


@lean
def explore_keys(ops, at, window, store, frontier, visited, after, stack, marks, budget, stuck):
    """Search key after key from the cursor; `stuck[k]` becomes the row that refutes key k, or -1. Returns DONE when all
    keys are through, else why it stopped at the key `at[KEY]`."""
    keys = ops.offsets.shape[0] - 1
    spent = at[WORK]
    while at[KEY] < keys:
        left = budget - (at[WORK] - spent)
        answer, row = explore_key(ops, at, window, store, frontier, visited, after, stack, marks, left)
        if answer != DONE:
            return answer
        if row >= 0 and at[DROPPED] == 1:
            _try_again(ops, at, window, frontier, marks)
            continue
        stuck[at[KEY]] = row
        next_key(at)
        if at[WORK] - spent >= budget:
            return PAUSED
    return DONE

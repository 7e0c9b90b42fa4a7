"""Linearizability of any object by search (Wing and Gong 1993, Lowe's just-in-time form): the skeleton for all models.

As in `search`, which knows more about registers, the events of an object are taken in order while a set of undominated
configurations (`frontier`) says all that may be true, and an operation is linearized no earlier than some completion
needs it. Here `objects.step` says what an operation does. What keeps the sets small, and exact:
- what changes nothing, and what costs nothing, is linearized as soon as the state allows (`_settle`);
- of equal open operations the one that completes first goes first (they can be exchanged);
- where nothing is open the set is the set of possible states with what is still pending.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.kernels.columns import NEVER
from checkers.kernels.compiled import lean, lean_inline
from checkers.kernels.frontier import add, adopt, clear, has_bit, set_bit, unset_bit
from checkers.kernels.objects import (
    ENQUEUE,
    FIFO,
    GET,
    IMPOSSIBLE,
    IS_EMPTY,
    ITEM,
    MEMBERS,
    PUT,
    REMOVE,
    ROW,
    SET,
    STRING,
    UNSEEN,
    R,
    faded,
    first_state,
    hides,
    is_observer,
    is_plain_add,
    is_useful,
    lacks,
    makes,
    may_change_nothing,
    needs,
    step,
)
from checkers.kernels.search import (
    BEAM,
    DONE,
    DROPPED,
    FIRST_BEAM,
    FRESH,
    FULL,
    KEY,
    NEXT_COMPLETE,
    NEXT_INVOKE,
    PAUSED,
    SPREAD,
    WIDER,
    WIDEST_BEAM,
    WORK,
)
from checkers.kernels.states import NO_ROOM, empty, letter

STORE_FULL = 3

OUT_OF_WORK = -2

DEEPER = 64
"""A beam follows so many times its width of configurations on the way to one completion."""


class Window(NamedTuple):
    """The open operations by slot: `row` is -1 for a free one, `rivals[s]` are the slots with an equal operation that
    completes earlier; `available` and `owed` have one row, the configuration in work."""

    row: npt.NDArray[np.int64]
    rivals: npt.NDArray[np.uint64]
    available: npt.NDArray[np.uint64]
    owed: npt.NDArray[np.uint64]
    slot_of: npt.NDArray[np.int32]
    top: npt.NDArray[np.int64]


def make_window(slots: int, rows: int) -> Window:
    """Room for `slots` operations open at once (a multiple of 64) and `rows` rows in all."""
    words = slots // 64
    available, owed = (np.zeros((1, words), np.uint64) for _ in range(2))
    rivals, slot_of = np.zeros((slots, words), np.uint64), np.full(rows, -1, np.int32)
    return Window(np.full(slots, -1), rivals, available, owed, slot_of, np.zeros(1, np.int64))


@lean
def _begin_key(ops, key, window, frontier, store):
    window.row[:] = -1
    window.rivals[:] = 0
    window.available[:] = 0
    window.owed[:] = 0
    window.top[0] = 0
    empty(store)
    clear(frontier)
    add(frontier, first_state(ops, key, store), window.available, window.owed, 0)


@lean_inline
def _equal(ops, one, other):
    same = ops.kind[one] == ops.kind[other] and ops.value[one] == ops.value[other]
    size = ops.last[one] - ops.first[one]
    if not same or size != ops.last[other] - ops.first[other]:
        return False
    for i in range(size):
        same &= ops.items[ops.first[one] + i] == ops.items[ops.first[other] + i]
    return same


@lean
def _open_slot(ops, row, window):
    slot = 0
    while window.row[slot] >= 0:
        slot += 1
    window.row[slot] = row
    window.slot_of[row] = slot
    window.top[0] = max(window.top[0], slot + 1)
    for other in range(window.top[0]):
        twin = window.row[other]
        if other == slot or twin < 0 or not _equal(ops, row, twin):
            continue
        if ops.complete[twin] < ops.complete[row] or (ops.complete[twin] == ops.complete[row] and twin < row):
            set_bit(window.rivals, slot, other)
        else:
            set_bit(window.rivals, other, slot)
    return slot


@lean
def _close_slot(slot, window):
    window.slot_of[window.row[slot]] = -1
    window.row[slot] = -1
    window.rivals[slot, :] = 0
    for other in range(window.top[0]):
        unset_bit(window.rivals, other, slot)
    while window.top[0] > 0 and window.row[window.top[0] - 1] < 0:
        window.top[0] -= 1


@lean
def _invoke(ops, row, window, frontier):
    """An operation begins: in every configuration it may, and if it completes it must, be linearized."""
    slot = _open_slot(ops, row, window)
    for place in range(frontier.meta[0]):
        if not is_observer(ops.kind[row]):
            set_bit(frontier.available, place, slot)
        if ops.complete[row] != NEVER:
            set_bit(frontier.owed, place, slot)


@lean_inline
def _is_free(ops, row, window, event):
    """Whether adding an element costs nothing now: every read that is still to come shows it."""
    element = ops.value[row]
    if ops.late[element] > event:
        return False
    for slot in range(window.top[0]):
        other = window.row[slot]
        if other >= 0 and ops.kind[other] == MEMBERS and has_bit(window.owed, 0, slot) and lacks(ops, other, element):
            return False
    return True


@lean_inline
def _is_lost(ops, target, state, window):
    """Whether a string that nobody ever sees is still to be seen before anything can replace it."""
    if ops.model != STRING or state != UNSEEN:
        return False
    last = window.row[target]
    begun = ops.next_put[last]
    seen = ops.next_get[last] < begun
    for slot in range(window.top[0]):
        row = window.row[slot]
        if row >= 0 and ops.kind[row] == PUT and has_bit(window.available, 0, slot):
            return False
        seen |= row >= 0 and ops.kind[row] == GET and has_bit(window.owed, 0, slot) and ops.complete[row] < begun
    return seen


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
            if has_bit(window.available, 0, slot) and is_plain_add(ops, row) and _is_free(ops, row, window, event):
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
    return np.int32(IMPOSSIBLE) if state >= 0 and _is_lost(ops, target, state, window) else state


@lean_inline
def _load(configs, place, window):
    for word in range(window.owed.shape[1]):
        window.available[0, word] = configs.available[place, word]
        window.owed[0, word] = configs.owed[place, word]


@lean_inline
def _blocked(configs, place, slot, window):
    """Whether an equal operation that completes earlier has to go first: not one that need not be done any more before
    one that must, for it may have been done when the other had not begun."""
    owed, blocked = has_bit(configs.owed, place, slot), np.uint64(0)
    for word in range(window.owed.shape[1]):
        rivals = configs.available[place, word] & window.rivals[slot, word]
        blocked |= rivals & configs.owed[place, word] if owed else rivals
    return blocked != 0


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


@lean_inline
def _owes_empty(ops, place, window, configs):
    """Whether a bag is still to be seen empty by an open operation."""
    for slot in range(window.top[0]):
        row = window.row[slot]
        if row >= 0 and ops.kind[row] == IS_EMPTY and has_bit(configs.owed, place, slot):
            return True
    return False


@lean_inline
def _is_premature(ops, row, place, window, configs, event):
    """Whether something must be enqueued before this, because it is dequeued before this can be."""
    if ops.model != FIFO or ops.kind[row] != ENQUEUE:
        return False
    element = ops.value[row]
    if ops.barrier[element] > event:
        return True
    for slot in range(window.top[0]):
        other = window.row[slot]
        if other < 0:
            continue
        last = ops.complete[other] if ops.kind[other] == IS_EMPTY else ops.late[ops.value[other]]
        pending = ops.kind[other] == ENQUEUE and has_bit(configs.available, place, slot)
        pending |= ops.kind[other] == IS_EMPTY and has_bit(configs.owed, place, slot)
        if pending and last < ops.early[element]:
            return True
    return False


@lean_inline
def _is_kept(ops, row, register, old, place, window, configs, event):
    """Whether a register's value is still needed by others and nothing can bring it back."""
    if old == 0 or ops.early[old] > event:
        return False
    needed = ops.late[old] > event
    for slot in range(window.top[0]):
        other = window.row[slot]
        if other < 0 or other == row:
            continue
        if has_bit(configs.available, place, slot) and makes(ops, other, register) == old:
            return False
        needed |= has_bit(configs.owed, place, slot) and needs(ops, other, register) == old
    return needed


@lean_inline
def _is_before_its_time(ops, row, register, new, place, window, configs):
    """Whether another value, that only an open transaction writes, has to be there before this one is last needed."""
    if ops.barrier[new] == NEVER:
        return False
    for slot in range(window.top[0]):
        other = window.row[slot]
        if other < 0 or other == row or not has_bit(configs.available, place, slot):
            continue
        made = makes(ops, other, register)
        if made < 0 or made == new:
            continue
        last = ops.barrier[made]
        if has_bit(configs.owed, place, slot):
            last = min(last, ops.complete[other])
        if last < ops.late[new]:
            return True
    return False


@lean_inline
def _is_fatal(ops, row, state, place, window, configs, store, event):
    """Whether a transaction replaces what is still needed, or writes what will be replaced before it is."""
    if ops.model != ROW:
        return False
    for item in range(ops.first[row], ops.last[row], ITEM):
        register, new = ops.items[item], ops.items[item + 2]
        if ops.items[item + 1] == R or makes(ops, row, register) != new:
            continue
        old = letter(store, state, register)
        if old != new and _is_kept(ops, row, register, old, place, window, configs, event):
            return True
        if _is_before_its_time(ops, row, register, new, place, window, configs):
            return True
    return False


@lean_inline
def _is_wanted(ops, row, target, place, window, configs):
    """Whether what this does to a set is shown by a read that is still owed; else it may as well come later, for it
    commutes with all but its own element's operations, and those hide it."""
    if ops.model != SET or row == window.row[target]:
        return True
    for slot in range(window.top[0]):
        other = window.row[slot]
        if other < 0 or ops.kind[other] != MEMBERS or not has_bit(configs.owed, place, slot):
            continue
        if lacks(ops, other, ops.value[row]) == (ops.kind[row] == REMOVE):
            return True
    return False


@lean_inline
def _forgive(ops, row, window):
    """What would have been unseen just before this operation need not be done any more; it may still be. Returns
    whether there was any."""
    forgiven = False
    for slot in range(window.top[0]):
        other = window.row[slot]
        if other >= 0 and other != row and has_bit(window.owed, 0, slot) and hides(ops, row, other):
            unset_bit(window.owed, 0, slot)
            forgiven = True
    return forgiven


@lean
def _expand(ops, target, place, window, store, visited, after, event):
    """Extend one configuration by every open operation. Returns the work done, -1 if a set is full, or NO_ROOM."""
    work, seen_empty = np.int64(1), _owes_empty(ops, place, window, visited)
    owing = has_bit(visited.owed, place, target)
    for slot in range(window.top[0]):
        state = visited.state[place]
        if state < 0:
            break
        if not has_bit(visited.available, place, slot) or _blocked(visited, place, slot, window):
            continue
        row = window.row[slot]
        if is_plain_add(ops, row) or not is_useful(ops, row, window.row[target], state, store, seen_empty):
            continue
        if _is_premature(ops, row, place, window, visited, event):
            continue
        wanted = _is_wanted(ops, row, target, place, window, visited)
        if _is_fatal(ops, row, state, place, window, visited, store, event):
            continue
        new = step(ops, row, state, store, event)
        work += 1
        if new == NO_ROOM:
            return np.int64(NO_ROOM)
        if new < 0:
            continue
        _load(visited, place, window)
        if not _forgive(ops, row, window) and (new == state or not wanted):
            continue
        unset_bit(window.available, 0, slot)
        unset_bit(window.owed, 0, slot)
        cost = _put(ops, target, owing or slot == target, new, window, store, visited, after, event)
        if cost < 0:
            return cost
        work += cost
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
        if beam > 0 and (after.meta[1] >= SPREAD * beam or visited.meta[0] >= DEEPER * beam):
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
def explore_key(ops, at, window, store, frontier, visited, after, stack, budget):
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
            at[DROPPED] |= adopt(frontier, after, at[BEAM])
        _close_slot(slot, window)
        at[NEXT_COMPLETE] += 1
    return DONE, np.int64(-1)


@lean
def explore_keys(ops, at, window, store, frontier, visited, after, stack, budget, stuck):
    """Search key after key from the cursor; `stuck[k]` becomes the row that refutes key k, or -1. Returns DONE when all
    keys are through, else why it stopped at the key `at[KEY]`."""
    keys = ops.offsets.shape[0] - 1
    spent = at[WORK]
    while at[KEY] < keys:
        answer, row = explore_key(ops, at, window, store, frontier, visited, after, stack, budget - (at[WORK] - spent))
        if answer != DONE:
            return answer
        at[FRESH] = 1
        if row >= 0 and at[DROPPED] == 1:
            at[BEAM] = at[BEAM] * WIDER if at[BEAM] < WIDEST_BEAM else 0
            continue
        stuck[at[KEY]] = row
        at[KEY] += 1
        at[BEAM] = FIRST_BEAM
        if at[WORK] - spent >= budget:
            return PAUSED
    return DONE

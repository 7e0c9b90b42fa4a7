"""Linearizability of one register by search (Wing and Gong 1993, Lowe's just-in-time form), for values that repeat.

Events of a key are taken in order while a set of configurations (see `frontier`) says all that may be true. An
operation is linearized no earlier than some completion needs it: when x completes, every configuration is extended by
sequences of open operations until x is linearized, and what cannot is dropped; an empty set refutes the history. Where
nothing is open the set is the set of possible states. What keeps the sets small, and exact:
- a read is linearized as soon as the state is right, for it changes nothing;
- when a write is linearized, every open write may have been, just before it, unseen: it is owed no more but may still
  be used. So it need not be tried both ways;
- of equal open operations the one that completes first goes first (they can be exchanged);
- an intermediate write is tried only if it satisfies an owed read or enables a compare-and-set;
- an indeterminate write is forgotten once nobody is left who could see its value.

Where the sets grow all the same, a *beam* comes first: only so many configurations are followed. What is left at the
end of a key is a witness that it is valid, however much was dropped; where nothing is left the search is taken up again
a while before (`marks`), and ever longer before, with another beam (`wider`). Only a search from the beginning that
dropped nothing refutes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.kernels.columns import CAS, FAILED_CAS, NEVER, READ, WRITE
from checkers.kernels.compiled import lean, lean_inline
from checkers.kernels.frontier import add, adopt, clear, has_bit, set_bit, unset_bit
from checkers.kernels.marks import (
    BEAM,
    DROPPED,
    FRESH,
    KEY,
    NEXT_COMPLETE,
    NEXT_INVOKE,
    REACHED,
    TRIES,
    WORK,
    forget,
    go_back,
    mark,
)
from checkers.kernels.window import Window, close_slot, enter, free_slot, make_window, vacate

FIRST_BEAM: Final = 16
WIDER: Final = 8
SPREAD: Final = 4
"""So many times its width of configurations a choosy beam chooses from."""
WIDEST_BEAM: Final = 1 << 16
"""Past this the whole set is followed."""
PAST: Final = 64
"""So many completions past the farthest place a wider beam goes on."""

DONE: Final = 0
PAUSED: Final = 1
FULL: Final = 2

Ints = npt.NDArray[np.int64]


@lean_inline
def is_choosy(beam):
    """Whether a beam takes those of the configurations found that leave most open, not the first ones: odd ones do. The
    first ones take the fewest steps; where operations of unknown outcome stay open these use them up."""
    return beam & 1 == 1


@lean_inline
def enough(beam):
    """How many configurations a beam looks for."""
    return SPREAD * beam if is_choosy(beam) else beam


@lean_inline
def wider(beam):
    """The beam to try after one that found no way: the choosy one of its width, then wider ones; in the end all."""
    if not is_choosy(beam):
        return beam + 1
    return (beam - 1) * WIDER if beam < WIDEST_BEAM else 0


@lean_inline
def relax(at):
    """The first beam does again where others led past the place that it did not pass."""
    if at[TRIES] > 0 and at[BEAM] > 0 and at[NEXT_COMPLETE] > at[REACHED] + PAST:
        at[BEAM], at[TRIES] = FIRST_BEAM, 0


@lean_inline
def next_key(at):
    """The next key begins."""
    at[KEY] += 1
    at[FRESH], at[BEAM], at[REACHED], at[TRIES] = 1, FIRST_BEAM, -1, 0


class SearchOps(NamedTuple):
    """Operations of many keys: as RegisterColumns, with values numbered within their key (0 is nil, `values[k]` many).

    `order` lists each key's rows by completion; `last_use` is the event after which an indeterminate row is useless;
    rows of a key that are `alike` do the same.
    """

    offsets: Ints
    kind: npt.NDArray[np.uint8]
    value: npt.NDArray[np.int32]
    expected: npt.NDArray[np.int32]
    invoke: Ints
    complete: Ints
    order: Ints
    values: Ints
    last_use: Ints
    alike: Ints


class Open(NamedTuple):
    """The open operations, and masks of slots by what they do.

    `reads[v]`, `refusals[v]`, `cas_from[v]` are the reads of v, failed compare-and-sets of v, compare-and-sets from v;
    `totals` has all writes and all refusals in its rows.
    """

    window: Window
    reads: npt.NDArray[np.uint64]
    refusals: npt.NDArray[np.uint64]
    cas_from: npt.NDArray[np.uint64]
    totals: npt.NDArray[np.uint64]


WRITES: Final = 0
REFUSALS: Final = 1


def make_open(slots: int, values: int, rows: int) -> Open:
    """Room for `slots` operations open at once (a multiple of 64), `values` values a key and `rows` rows in all."""
    words = slots // 64
    reads, refusals, cas_from = (np.zeros((values, words), np.uint64) for _ in range(3))
    return Open(make_window(slots, rows), reads, refusals, cas_from, np.zeros((2, words), np.uint64))


@lean
def _clear_slots(ops, key, opened):
    """Nothing is open."""
    vacate(opened.window)
    opened.totals[:] = 0
    for value in range(ops.values[key]):
        opened.reads[value, :] = 0
        opened.refusals[value, :] = 0
        opened.cas_from[value, :] = 0


@lean
def _begin_key(ops, key, opened, frontier):
    """Nothing open, the register unset."""
    _clear_slots(ops, key, opened)
    clear(frontier)
    add(frontier, np.int32(0), opened.window.available, opened.window.owed, 0)


@lean
def _fill_slot(ops, row, slot, opened):
    """Put the operation into a slot and enter it in the masks."""
    enter(ops, row, slot, opened.window)
    kind = ops.kind[row]
    if kind == READ:
        set_bit(opened.reads, ops.value[row], slot)
    elif kind == WRITE:
        set_bit(opened.totals, WRITES, slot)
    elif kind == CAS:
        set_bit(opened.cas_from, ops.expected[row], slot)
    elif kind == FAILED_CAS:
        set_bit(opened.totals, REFUSALS, slot)
        set_bit(opened.refusals, ops.expected[row], slot)


@lean
def _close_slot(ops, slot, opened):
    row = opened.window.row[slot]
    kind = ops.kind[row]
    if kind == READ:
        unset_bit(opened.reads, ops.value[row], slot)
    elif kind == WRITE:
        unset_bit(opened.totals, WRITES, slot)
    elif kind == CAS:
        unset_bit(opened.cas_from, ops.expected[row], slot)
    elif kind == FAILED_CAS:
        unset_bit(opened.totals, REFUSALS, slot)
        unset_bit(opened.refusals, ops.expected[row], slot)
    close_slot(slot, opened.window)


@lean
def _invoke(ops, row, opened, frontier):
    """An operation begins: it becomes available or owed in every configuration, a read whose value is there is done."""
    slot, kind = free_slot(opened.window), ops.kind[row]
    _fill_slot(ops, row, slot, opened)
    for place in range(frontier.meta[0]):
        state = frontier.state[place]
        if state < 0:
            continue
        if kind in (WRITE, CAS):
            set_bit(frontier.available, place, slot)
        done = (kind == READ and state == ops.value[row]) or (kind == FAILED_CAS and state != ops.expected[row])
        if ops.complete[row] != NEVER and not done:
            set_bit(frontier.owed, place, slot)


@lean
def _drop_useless(ops, event, opened, frontier):
    """Forget indeterminate operations that nobody can see any more."""
    for slot in range(opened.window.top[0]):
        row = opened.window.row[slot]
        if row < 0 or ops.complete[row] != NEVER or ops.last_use[row] > event:
            continue
        for place in range(frontier.meta[0]):
            unset_bit(frontier.available, place, slot)
        _close_slot(ops, slot, opened)


@lean_inline
def _apply(ops, slot, source, place, opened):
    """Linearize an open write or compare-and-set; leaves its masks in `opened`. Returns (state, whether the state gave
    something that another write would not: a read done, a compare-and-set enabled)."""
    row = opened.window.row[slot]
    state = ops.value[row]
    useful = ops.kind[row] == CAS
    for word in range(source.available.shape[1]):
        opened.window.available[0, word] = source.available[place, word]
        left = source.owed[place, word]
        if ops.kind[row] == WRITE:
            left &= ~opened.totals[WRITES, word]
        done = opened.reads[state, word] | (opened.totals[REFUSALS, word] & ~opened.refusals[state, word])
        useful |= (left & done) != 0 or (source.available[place, word] & opened.cas_from[state, word]) != 0
        opened.window.owed[0, word] = left & ~done
    unset_bit(opened.window.available, 0, slot)
    unset_bit(opened.window.owed, 0, slot)
    return state, useful


@lean_inline
def _keep(configs, state, target, opened):
    """Add to the next frontier, in which the completing operation is no longer available."""
    held = has_bit(opened.window.available, 0, target)
    unset_bit(opened.window.available, 0, target)
    cost = add(configs, state, opened.window.available, opened.window.owed, 0)
    if held:
        set_bit(opened.window.available, 0, target)
    return cost


@lean_inline
def _expand(ops, target, place, opened, visited, after):
    """Extend one configuration by every open operation. Returns the work done, or -1 if a set is full."""
    work = 1
    owing = has_bit(visited.owed, place, target)
    for slot in range(opened.window.top[0]):
        if visited.state[place] < 0:
            break
        if not has_bit(visited.available, place, slot):
            continue
        row = opened.window.row[slot]
        work += 1
        if ops.kind[row] == CAS and ops.expected[row] != visited.state[place]:
            continue
        blocked = False
        for word in range(visited.available.shape[1]):
            blocked |= (visited.available[place, word] & opened.window.rivals[slot, word]) != 0
        if blocked:
            continue
        state, useful = _apply(ops, slot, visited, place, opened)
        settled = not has_bit(opened.window.owed, 0, target)
        if slot == target or (owing and settled):
            cost = _keep(after, state, target, opened)
            if cost < 0:
                return -1
            work += cost
        if useful and (not settled or has_bit(opened.window.available, 0, target)):
            cost = add(visited, state, opened.window.available, opened.window.owed, 0)
            if cost < 0:
                return -1
            work += cost
    return work


@lean
def _is_done(target, frontier):
    """Whether the operation is linearized in every configuration."""
    for place in range(frontier.meta[0]):
        if frontier.state[place] >= 0 and (
            has_bit(frontier.owed, place, target) or has_bit(frontier.available, place, target)
        ):
            return False
    return True


@lean
def _complete(ops, target, opened, frontier, visited, after, budget, at):
    """An operation ends: `after` becomes the configurations in which it is linearized. Returns the work done, -1 when a
    set is full, -2 past the budget."""
    clear(visited)
    clear(after)
    work, beam = 1, at[BEAM]
    for place in range(frontier.meta[0]):
        if frontier.state[place] < 0:
            continue
        for word in range(frontier.available.shape[1]):
            opened.window.available[0, word] = frontier.available[place, word]
            opened.window.owed[0, word] = frontier.owed[place, word]
        settled = not has_bit(frontier.owed, place, target)
        if settled:
            work += _keep(after, frontier.state[place], target, opened)
        if not settled or has_bit(frontier.available, place, target):
            work += add(visited, frontier.state[place], frontier.available, frontier.owed, place)
    place = 0
    while place < visited.meta[0]:
        if beam > 0 and (after.meta[1] >= enough(beam) or visited.meta[0] >= WIDER * beam):
            at[DROPPED] = 1
            break
        if visited.state[place] >= 0:
            cost = _expand(ops, target, place, opened, visited, after)
            if cost < 0:
                return -1
            work += cost
            if work > budget:
                return -2
        place += 1
    return work


@lean
def search_key(ops, at, opened, frontier, visited, after, marks, budget):
    """Search on from the cursor `at` to the end of its key, a refutation or the end of the budget.

    Returns (DONE, stuck row or -1), (PAUSED, -1) or (FULL, -1); after the last two the same call goes on where it was.
    """
    key = at[KEY]
    stop = ops.offsets[key + 1]
    if at[FRESH] == 1:
        _begin_key(ops, key, opened, frontier)
        at[NEXT_INVOKE] = ops.offsets[key]
        at[NEXT_COMPLETE] = ops.offsets[key]
        at[FRESH], at[DROPPED] = 0, 0
        forget(marks)
    work = 0
    while at[NEXT_COMPLETE] < stop and ops.complete[ops.order[at[NEXT_COMPLETE]]] != NEVER:
        row = ops.order[at[NEXT_COMPLETE]]
        event = ops.complete[row]
        while at[NEXT_INVOKE] < stop and ops.invoke[at[NEXT_INVOKE]] < event:
            if ops.complete[at[NEXT_INVOKE]] != NEVER or ops.last_use[at[NEXT_INVOKE]] > ops.invoke[at[NEXT_INVOKE]]:
                _invoke(ops, at[NEXT_INVOKE], opened, frontier)
            at[NEXT_INVOKE] += 1
        slot = opened.window.slot_of[row]
        if not _is_done(slot, frontier):
            cost = _complete(ops, slot, opened, frontier, visited, after, budget - work, at)
            if cost < 0:
                return (FULL if cost == -1 else PAUSED), np.int64(-1)
            work += cost
            at[WORK] += cost
            if after.meta[1] == 0:
                return DONE, row
            at[DROPPED] |= adopt(frontier, after, at[BEAM] if is_choosy(at[BEAM]) else 0)
        _close_slot(ops, slot, opened)
        _drop_useless(ops, event, opened, frontier)
        at[NEXT_COMPLETE] += 1
        relax(at)
        mark(marks, at, opened.window, frontier)
    return DONE, np.int64(-1)


@lean
def _try_again(ops, at, opened, frontier, marks):
    """After a beam that found no way: a wider one from a mark, or, if it follows everything, from the beginning."""
    level = go_back(marks, at, frontier, wider(at[BEAM]))
    if level < 0:
        return
    _clear_slots(ops, at[KEY], opened)
    for slot in range(opened.window.row.shape[0]):
        if marks.row[level, slot] >= 0:
            _fill_slot(ops, marks.row[level, slot], slot, opened)


@lean
def search_keys(ops, at, opened, frontier, visited, after, marks, budget, stuck):
    """Search key after key from the cursor; `stuck[k]` becomes the row that refutes key k, or -1. Returns DONE when all
    keys are through, else PAUSED or FULL at the key `at[0]`."""
    keys = ops.offsets.shape[0] - 1
    spent = at[WORK]
    while at[KEY] < keys:
        answer, row = search_key(ops, at, opened, frontier, visited, after, marks, budget - (at[WORK] - spent))
        if answer != DONE:
            return answer
        if row >= 0 and at[DROPPED] == 1:
            _try_again(ops, at, opened, frontier, marks)
            continue
        stuck[at[KEY]] = row
        next_key(at)
        if at[WORK] - spent >= budget:
            return PAUSED
    return DONE

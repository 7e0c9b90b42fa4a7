"""The loop of a search over the events of many keys, whichever kind of object it searches (Wing and Gong 1993, Lowe
2017): where it is, how wide its beam is, and where it goes back to.

A search takes the completions of a key in order while a set of configurations (`configurations`) says all that may be
true. Where the sets grow a *beam* comes first: only some configurations are followed. What is left at the end of a
key is a witness that it is valid, however much was dropped; where nothing is left the search is taken up again from a
checkpoint, each time from twice as long before, with another beam (`wider`). Only a search from the beginning that
dropped nothing refutes.

A checkpoint is the cursor, the open operations by slot, and the configurations followed. Checkpoints are kept at
distances that double: of those at multiples of `EVERY` completions the last odd one, the last odd multiple of two of
them, and so on.

Kinds differ in what they do at an event (`EventSteps`). numba compiles a function for those that it names; so the loop
is made once for each kind, of its steps, and belongs to the module that these are in.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from checkers.columns.codes import NEVER, Ids, Ints, Words
from checkers.compiled import lean, lean_in, lean_inline, make_record
from checkers.linearizability.configurations import adopt, close_slot, enter, is_linearized, vacate

DONE: Final = 0
"""How a call of the search ends: its key is through, or its keys are."""
PAUSED: Final = 1
"""How a call of the search ends: its budget of work is spent."""
FULL: Final = 2
"""How a call of the search ends: a set of configurations is full."""
STORE_FULL: Final = 3
"""How a call of the search ends: there is no room for another state."""

OUT_OF_WORK: Final = -2
"""Instead of the work done: the budget is spent."""
NO_ROOM: Final = -3
"""Instead of the work done, or of a state: the store of states is full."""

FIRST_BEAM: Final = 16
WIDER: Final = 8
SPREAD: Final = 4
"""A choosy beam chooses from this many times its width of configurations."""
WIDEST_BEAM: Final = 1 << 16
"""Past this the whole set is followed."""
PAST: Final = 64
"""Completions for which a wider beam goes on past the farthest place where a beam was stuck."""

CURSOR: Final = (
    "key",  # the key at hand
    "next_invoke",  # the row that begins next
    "next_complete",  # the place in `order` of the row that completes next
    "fresh",  # 1 while the key is still to begin
    "work",  # done so far, over all keys, in configurations compared
    "beam",  # its width; 0: everything is followed
    "dropped",  # 1 once anything was left out, so that an empty set says nothing
    "reached",  # the farthest place at which a beam of this key was stuck, or -1
    "tries",  # how often one was
)


def make_cursor(beam: int) -> np.record:
    """At the first key, which is still to begin; its fields are those of CURSOR."""
    cursor = make_record(CURSOR)
    cursor.fresh, cursor.beam, cursor.reached = 1, beam, -1
    return cursor


@lean_inline
def enter_key(ops, cursor):
    """Begin the key at hand: nothing of it has happened."""
    cursor.next_invoke = ops.offsets[cursor.key]
    cursor.next_complete = ops.offsets[cursor.key]
    cursor.fresh, cursor.dropped = 0, 0


@lean_inline
def next_key(cursor):
    """Turn from the key at hand, which is through, to the next one, which is to begin."""
    cursor.key += 1
    cursor.fresh, cursor.beam, cursor.reached, cursor.tries = 1, FIRST_BEAM, -1, 0


@lean_inline
def completing(ops, cursor):
    """The row that completes next in the key at hand, or -1: those of unknown outcome come last and need not."""
    if cursor.next_complete >= ops.offsets[cursor.key + 1]:
        return np.int64(-1)
    row = ops.order[cursor.next_complete]
    return row if ops.complete[row] != NEVER else np.int64(-1)


@lean_inline
def begins_before(ops, cursor, event):
    """Whether the row that begins next in the key at hand does so before an event."""
    row = cursor.next_invoke
    return row < ops.offsets[cursor.key + 1] and ops.invoke[row] < event


@lean_inline
def outcome(cost):
    """How a call ends in which a completion could not be dealt with."""
    return STORE_FULL if cost == NO_ROOM else PAUSED if cost == OUT_OF_WORK else FULL


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
def followed(beam):
    """How many of the configurations found a beam goes on with; 0: with all."""
    return beam if is_choosy(beam) else 0


@lean_inline
def wider(beam):
    """The beam to try after one that found no way: the choosy one of its width, then wider ones; in the end all."""
    if not is_choosy(beam):
        return beam + 1
    return (beam - 1) * WIDER if beam < WIDEST_BEAM else 0


@lean_inline
def relax(cursor):
    """The first beam does again where others led past the place that it did not pass."""
    if cursor.tries > 0 and cursor.beam > 0 and cursor.next_complete > cursor.reached + PAST:
        cursor.beam, cursor.tries = FIRST_BEAM, 0


EVERY: Final = 16
LEVELS: Final = 16
KEPT: Final = 256
"""Configurations that a checkpoint holds at most; where more are followed none is made."""

FARTHEST: Final = 6
"""How often, at most, the way back doubles from one try to the next."""

_UNUSED: Final = -1


class Checkpoints(NamedTuple):
    """By level one checkpoint of the key at hand: its completions are an odd multiple of 2**level * EVERY."""

    next_invoke: Ints  # the cursor's
    next_complete: Ints  # the cursor's; -1: the level has no checkpoint
    dropped: Ints  # the cursor's
    row: Ints  # by level and slot what was open there, as in `Window.row`
    size: Ints  # how many configurations were followed, KEPT at most
    state: Ids  # by level and place, as in `ConfigSet.state`
    available: Words  # by level and place, as in `ConfigSet.available`
    owed: Words  # by level and place, as in `ConfigSet.owed`


def make_checkpoints(slots: int) -> Checkpoints:
    """No checkpoints yet, of searches with `slots` slots (a multiple of 64)."""
    next_invoke, dropped, size = (np.zeros(LEVELS, np.int64) for _ in range(3))
    next_complete, row = np.full(LEVELS, _UNUSED), np.full((LEVELS, slots), -1)
    state = np.full((LEVELS, KEPT), -1, np.int32)
    available, owed = (np.zeros((LEVELS, KEPT, slots // 64), np.uint64) for _ in range(2))
    return Checkpoints(next_invoke, next_complete, dropped, row, size, state, available, owed)


@lean
def forget(checkpoints):
    """Drop all checkpoints, for another key begins."""
    checkpoints.next_complete[:] = _UNUSED


@lean
def checkpoint(checkpoints, cursor, window, frontier):
    """Note where the search is, at every multiple of EVERY completions."""
    if cursor.next_complete % EVERY != 0 or cursor.beam == 0 or frontier.tally.used > KEPT:
        return
    # The level is how often two divides the number of this multiple of EVERY: a level's checkpoints lie twice as far
    # apart as those of the level below, and a new one takes the place of its last.
    level, number = 0, cursor.next_complete // EVERY
    while level < LEVELS - 1 and number & 1 == 0:
        level, number = level + 1, number >> 1
    checkpoints.next_invoke[level] = cursor.next_invoke
    checkpoints.next_complete[level] = cursor.next_complete
    checkpoints.dropped[level] = cursor.dropped
    for slot in range(checkpoints.row.shape[1]):
        checkpoints.row[level, slot] = window.row[slot]
    checkpoints.size[level] = frontier.tally.used
    for place in range(frontier.tally.used):
        checkpoints.state[level, place] = frontier.state[place]
        for word in range(frontier.owed.shape[1]):
            checkpoints.available[level, place, word] = frontier.available[place, word]
            checkpoints.owed[level, place, word] = frontier.owed[place, word]


@lean
def backtrack(checkpoints, cursor, frontier, beam):
    """After a beam that found no way, try another (0: all is followed, from the beginning) from a checkpoint. Returns
    its level, for the operations in `checkpoints.row[level]` are to be opened again, or -1 for the beginning."""
    level = _target(checkpoints, cursor)
    cursor.beam = beam
    if beam == 0 or level < 0:
        cursor.fresh = 1
        return -1
    _recall(checkpoints, level, cursor, frontier)
    return level


@lean
def _target(checkpoints, cursor):
    """The level of the checkpoint from which a beam that is stuck should be tried again, or -1 for the beginning; later
    ones are forgotten."""
    cursor.reached = max(cursor.reached, cursor.next_complete)
    cursor.tries += 1
    # What has to be done otherwise may lie long before the place where that shows: each try goes back twice as far.
    most = cursor.next_complete - (EVERY << min(cursor.tries - 1, FARTHEST))
    best = -1
    reached = checkpoints.next_complete
    for level in range(LEVELS):
        if reached[level] > most:
            reached[level] = _UNUSED
        elif reached[level] >= 0 and (best < 0 or reached[level] > reached[best]):
            best = level
    return best


@lean
def _recall(checkpoints, level, cursor, frontier):
    """Put cursor and configurations back to a checkpoint."""
    cursor.next_invoke = checkpoints.next_invoke[level]
    cursor.next_complete = checkpoints.next_complete[level]
    cursor.dropped = checkpoints.dropped[level]
    for place in range(checkpoints.size[level]):
        frontier.state[place] = checkpoints.state[level, place]
        for word in range(frontier.owed.shape[1]):
            frontier.available[place, word] = checkpoints.available[level, place, word]
            frontier.owed[place, word] = checkpoints.owed[level, place, word]
    frontier.tally.used = checkpoints.size[level]
    frontier.tally.live = checkpoints.size[level]


class EventSteps(NamedTuple):
    """What a kind of search does, as kernels. A search has `ops`, `search_loop`, `frontier`, `after` and `checkpoints`.

    `window(search)` are its open operations; `begin_key(search)` makes the frontier of a key to which nothing has
    happened; `invoke(search, row)` is an operation that begins; `complete(search, slot, budget, event)` one that ends:
    `after` becomes the configurations in which it is linearized, and the work done is returned, SET_FULL, OUT_OF_WORK
    or NO_ROOM; `close(search, slot, event)` takes it out of the window; `reopen(search, level)` makes those of a
    checkpoint the open ones.
    """

    window: Any
    begin_key: Any
    invoke: Any
    complete: Any
    close: Any
    reopen: Any


@lean_inline
def window_of(search):
    """`EventSteps.window` of searches whose open operations are `search.window`."""
    return search.window


@lean
def close_in_window(search, slot, event):
    """`EventSteps.close` of those of which a slot is all that an open operation takes."""
    close_slot(slot, search.window)


@lean
def reopen_in_window(search, level):
    """`EventSteps.reopen` of the same."""
    window, checkpoints = search.window, search.checkpoints
    vacate(window)
    for slot in range(window.row.shape[0]):
        if checkpoints.row[level, slot] >= 0:
            enter(search.ops, checkpoints.row[level, slot], slot, window)


def over_keys(module: str, steps: EventSteps) -> Any:
    """A kernel `search_keys(search, budget, stuck)` of a module's steps.

    It searches key after key from the cursor; `stuck[k]` becomes the row that refutes key k, or -1. Returns DONE when
    all keys are through, else why it stopped at the cursor's key: then the same call goes on where it was.
    """
    search_key, reopen = _over_events(module, steps), steps.reopen

    @lean_in(module)
    def search_keys(search, budget, stuck):
        cursor, keys = search.cursor, search.ops.offsets.shape[0] - 1
        spent = cursor.work
        while cursor.key < keys:
            answer, row = search_key(search, budget - (cursor.work - spent))
            if answer != DONE:
                return answer
            # Nothing is left, but not all was followed: that refutes nothing. A wider beam tries again, from a
            # checkpoint, or if it follows everything from the start.
            if row >= 0 and cursor.dropped == 1:
                level = backtrack(search.checkpoints, cursor, search.frontier, wider(cursor.beam))
                if level >= 0:
                    reopen(search, level)
                continue
            stuck[cursor.key] = row
            next_key(cursor)
            if cursor.work - spent >= budget:
                return PAUSED
        return DONE

    return search_keys


def _over_events(module: str, steps: EventSteps) -> Any:
    """A kernel `search_key(search, budget)`: search on from the cursor to the end of its key, a refutation or the end
    of the budget. Returns (DONE, stuck row or -1), or (PAUSED, FULL or STORE_FULL, -1)."""
    window_of, begin_key, invoke, complete, close, _ = steps

    @lean_in(module)
    def search_key(search, budget):
        ops, cursor, window, frontier = search.ops, search.cursor, window_of(search), search.frontier
        if cursor.fresh == 1:
            enter_key(ops, cursor)
            begin_key(search)
            forget(search.checkpoints)
        work = np.int64(0)
        # All before `next_complete` are linearized in every configuration of the frontier; what has begun is open.
        row = completing(ops, cursor)
        while row >= 0:
            event = ops.complete[row]
            while begins_before(ops, cursor, event):
                invoke(search, cursor.next_invoke)
                cursor.next_invoke += 1
            slot = window.slot_of[row]
            if not is_linearized(frontier, slot):
                cost = complete(search, slot, budget - work, event)
                if cost < 0:
                    return outcome(cost), np.int64(-1)
                work += cost
                cursor.work += cost
                if search.after.tally.live == 0:
                    return DONE, row
                cursor.dropped |= adopt(frontier, search.after, followed(cursor.beam))
            close(search, slot, event)
            cursor.next_complete += 1
            relax(cursor)
            checkpoint(search.checkpoints, cursor, window, frontier)
            row = completing(ops, cursor)
        return DONE, np.int64(-1)

    return search_key

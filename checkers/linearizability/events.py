"""The loop of a search over the events of many keys, whichever kind of object it searches.

Kinds differ in what they do at an event (`EventSteps`). numba compiles a function for those that it names; so the loop
is made once for each kind, of its steps, and belongs to the module that these are in.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from checkers.compiled import lean_in
from checkers.linearizability.checkpoints import backtrack, checkpoint, forget
from checkers.linearizability.cursor import (
    DONE,
    PAUSED,
    begins_before,
    completing,
    enter_key,
    followed,
    next_key,
    outcome,
    relax,
    wider,
)
from checkers.linearizability.frontier import adopt, is_linearized


class EventSteps(NamedTuple):
    """What a kind of search does, as kernels. A search has `ops`, `cursor`, `frontier`, `after` and `checkpoints`.

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

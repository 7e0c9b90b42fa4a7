"""Linearizability by search where a table says what operations do: (state, call) → the states that it may lead to.

States and calls are numbers. The table is filled as the search goes: pairs that it lacks are noted, and where a
completion can't be dealt with without them the search stops for room (`NO_ROOM`); whoever drives it answers all that
were noted, and the completion is begun again. Nothing is known of what steps do, so that, unlike in `object_search`, no
order is left out but those that differ by equal calls (`blocked`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from checkers.columns.codes import NEVER, Ids, Ints
from checkers.compiled import lean, lean_inline, make_record
from checkers.linearizability.configurations import (
    SET_FULL,
    ConfigSet,
    Window,
    add,
    clear,
    enter,
    free_slot,
    has_bit,
    load,
    make_config_set,
    make_window,
    set_bit,
    unset_bit,
    vacate,
)
from checkers.linearizability.driver import FIRST_CONFIGURATIONS, most_open, slots_for, with_larger_sets
from checkers.linearizability.objects.object_pruning import blocked
from checkers.linearizability.search_loop import (
    FULL,
    NO_ROOM,
    OUT_OF_WORK,
    Checkpoints,
    EventSteps,
    close_in_window,
    enough,
    make_checkpoints,
    make_cursor,
    over_keys,
    reopen_in_window,
    window_of,
)


class TableOps(NamedTuple):
    """Operations of many keys; key k owns the rows `offsets[k]:offsets[k + 1]`, in order of `invoke`. By row: `alike`,
    the number of what is called; `complete`, NEVER where it is unknown. `order` lists each key's rows by completion."""

    offsets: Ints
    alike: Ints
    invoke: Ints
    complete: Ints
    order: Ints


class Transitions(NamedTuple):
    """What is known of steps. Entry e is about the pair `pair[e]` = state * calls + call, and leads to
    `targets[first[e]:first[e] + size[e]]`; entries from `tally.answered` on are still to be answered."""

    slot: Ints  # open addressing: an entry, -1: free; four times as long as there may be entries
    pair: Ints
    first: Ints
    size: Ints
    targets: Ids
    tally: np.record  # of TALLY


TALLY: Final = (
    "calls",  # how many different calls there are
    "entries",  # how many pairs were asked for
    "answered",  # how many of them are answered: 0 <= answered <= entries
    "targets",  # how much of `targets` they take
)


def make_transitions(calls: int, room: int = 1 << 12) -> Transitions:
    """Nothing is known yet; room for that many entries (a power of two)."""
    tally = make_record(TALLY)
    tally.calls = max(1, calls)
    pair, first, size = (np.zeros(room, np.int64) for _ in range(3))
    return Transitions(np.full(4 * room, -1), pair, first, size, np.zeros(room, np.int32), tally)


@lean_inline
def _entry(table, state, call):
    """The entry of a pair, which is noted if it is new; or NO_ROOM."""
    pair = state * table.tally.calls + call
    mask = table.slot.shape[0] - 1
    place = (pair ^ (pair >> 17)) * 40503 & mask
    while table.slot[place] >= 0:
        if table.pair[table.slot[place]] == pair:
            return table.slot[place]
        place = (place + 1) & mask
    entry = table.tally.entries
    if entry >= table.pair.shape[0]:
        return np.int64(NO_ROOM)
    table.pair[entry] = pair
    table.slot[place] = entry
    table.tally.entries += 1
    return entry


@lean
def _replaced(old, new):
    """Enter all pairs of one table into another, which has more room."""
    for entry in range(old.tally.entries):
        pair = old.pair[entry]
        _entry(new, pair // old.tally.calls, pair % old.tally.calls)


def grown(old: Transitions) -> Transitions:
    """A copy with room for twice as many entries."""
    new = make_transitions(int(old.tally.calls), 2 * len(old.pair))
    _replaced(old, new)
    new.first[: len(old.first)], new.size[: len(old.size)] = old.first, old.size
    new.tally.answered, new.tally.targets = old.tally.answered, old.tally.targets
    return new._replace(targets=old.targets)


class TableSearch(NamedTuple):
    """One search over many keys; as `ObjectSearch`, which says what the fields are."""

    ops: TableOps
    cursor: np.record
    window: Window
    table: Transitions
    start: Ints  # by key its first state
    frontier: ConfigSet
    visited: ConfigSet
    after: ConfigSet
    checkpoints: Checkpoints


@lean
def _begin_key(search):
    window, frontier = search.window, search.frontier
    vacate(window)
    clear(frontier)
    add(frontier, np.int32(search.start[search.cursor.key]), window.available, window.owed, 0)


@lean
def _invoke(search, row):
    """An operation begins: in every configuration it may, and if it completes it must, be linearized."""
    ops, window, frontier = search.ops, search.window, search.frontier
    slot = free_slot(window)
    enter(ops, row, slot, window)
    for place in range(frontier.tally.used):
        set_bit(frontier.available, place, slot)
        if ops.complete[row] != NEVER:
            set_bit(frontier.owed, place, slot)


@lean
def _linearize(search, place, slot, into):
    """Add to a set what a configuration of `visited` becomes once the operation in a slot takes effect. Returns the
    work done, SET_FULL, NO_ROOM, or 0 if the table does not know yet."""
    window, table, visited = search.window, search.table, search.visited
    state, work = visited.state[place], np.int64(1)
    entry = _entry(table, np.int64(state), search.ops.alike[window.row[slot]])
    if entry < 0:
        return np.int64(NO_ROOM)
    if entry >= table.tally.answered:
        return np.int64(0)
    # What has to be done is done even where it changes nothing; what need not is not.
    owed = has_bit(visited.owed, place, slot)
    for at in range(table.first[entry], table.first[entry] + table.size[entry]):
        if table.targets[at] == state and not owed:
            continue
        load(visited, place, window)
        unset_bit(window.available, 0, slot)
        unset_bit(window.owed, 0, slot)
        cost = add(into, table.targets[at], window.available, window.owed, 0)
        if cost < 0:
            return np.int64(SET_FULL)
        work += cost
        if visited.state[place] < 0:  # what was added does all that this one could
            break
    return work


@lean
def _expand(search, target, place):
    """Extend one configuration, by the target last. Returns (work done, SET_FULL or NO_ROOM; 1 if the table lacks
    something)."""
    window, visited, work, lacking = search.window, search.visited, np.int64(1), 0
    for slot in range(window.top[0]):
        if visited.state[place] < 0:
            break
        if slot == target or not has_bit(visited.available, place, slot) or blocked(visited, place, slot, window):
            continue
        cost = _linearize(search, place, slot, visited)
        if cost < 0:
            return cost, lacking
        lacking |= cost == 0
        work += cost
    return work, lacking


@lean
def _complete(search, target, budget, event):
    """An operation ends: `after` becomes the configurations in which it is linearized. Returns the work done, SET_FULL,
    OUT_OF_WORK or NO_ROOM."""
    frontier, visited, after = search.frontier, search.visited, search.after
    clear(visited)
    clear(after)
    work, beam, unanswered, lacking = np.int64(1), search.cursor.beam, 0, 0
    for place in range(frontier.tally.used):
        if frontier.state[place] < 0:
            continue
        into = visited if has_bit(frontier.owed, place, target) else after
        cost = add(into, frontier.state[place], frontier.available, frontier.owed, place)
        if cost < 0:
            return np.int64(SET_FULL)
        work += cost
    # visited[:done] were tried with the target, visited[:extended] with everything else too.
    done, extended = 0, 0
    while True:
        while done < visited.tally.used:
            if visited.state[done] >= 0:
                cost = _linearize(search, done, target, after)
                if cost < 0:
                    return cost
                unanswered |= cost == 0
                work += cost
            done += 1
        if extended >= visited.tally.used:
            break
        # A beam ends early, and then an empty `after` refutes nothing.
        if beam > 0 and after.tally.live > 0 and (after.tally.live >= enough(beam) or visited.tally.used >= beam):
            search.cursor.dropped = 1
            return work
        if unanswered:  # what else may be done is not asked for yet
            break
        if visited.state[extended] >= 0:
            cost, lacks = _expand(search, target, extended)
            if cost < 0:
                return cost
            lacking |= lacks
            work += cost
        extended += 1
        if work > budget:
            return np.int64(OUT_OF_WORK)
    return np.int64(NO_ROOM) if unanswered or lacking else work


_STEPS: Final = EventSteps(window_of, _begin_key, _invoke, _complete, close_in_window, reopen_in_window)

search_keys = over_keys(__name__, _STEPS)
"""The search by a table; see `over_keys`."""


@dataclass(slots=True)
class TableRun:
    """A search by a table; see `driver.SearchRun`. `answers` are the states that a pair of numbers leads to, all below
    2**31; what it raises ends the search."""

    search: TableSearch
    answers: Callable[[int, int], list[int]]
    first_work: int = 2_000_000

    @property
    def cursor(self) -> Any:
        return self.search.cursor

    def go_on(self, work: int, stuck: Ints) -> int:
        return int(search_keys(self.search, work, stuck))

    def make_room(self, answer: int, memory_bytes: int) -> bool:
        """Answer what was asked for; after FULL make the sets larger."""
        search = self.search
        if answer == FULL:
            larger = with_larger_sets(search, memory_bytes)
            self.search = larger or search
            return larger is not None
        table = search.table
        if table.tally.entries == len(table.pair):
            if 128 * len(table.pair) > memory_bytes:
                return False
            table = grown(table)
        self.search = search._replace(table=self._answered(table))
        return True

    def _answered(self, table: Transitions) -> Transitions:
        tally, targets = table.tally, table.targets
        for entry in range(int(tally.answered), int(tally.entries)):
            found = self.answers(*divmod(int(table.pair[entry]), int(tally.calls)))
            begin, end = int(tally.targets), int(tally.targets) + len(found)
            if end > len(targets):
                targets = np.concatenate((targets, np.zeros(max(len(targets), end), np.int32)))
            targets[begin:end] = found
            table.first[entry], table.size[entry], tally.targets = begin, len(found), end
        tally.answered = tally.entries
        return table._replace(targets=targets)


def begin(
    ops: TableOps, start: Ints, table: Transitions, answers: Callable[[int, int], list[int]], beam: int
) -> TableRun:
    """A search that is to begin; a beam of 0 follows everything."""
    slots = slots_for(int(most_open(ops).max(initial=0)))
    frontier, visited, after = (make_config_set(FIRST_CONFIGURATIONS, slots // 64) for _ in range(3))
    window, checkpoints = make_window(slots, len(ops.invoke)), make_checkpoints(slots)
    search = TableSearch(ops, make_cursor(beam), window, table, start, frontier, visited, after, checkpoints)
    return TableRun(search, answers)

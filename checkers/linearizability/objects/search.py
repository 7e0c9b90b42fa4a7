"""Runs the search for objects over all keys, within budgets of time and memory, and says where it got stuck."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from checkers.columns.codes import NEVER, Ints
from checkers.linearizability.checkpoints import LEVELS, make_checkpoints
from checkers.linearizability.cursor import FIRST_BEAM, FULL, make_cursor
from checkers.linearizability.driver import (
    FIRST_CONFIGURATIONS,
    Budget,
    SearchAnswers,
    drive,
    grown_sets,
    narrow,
    slots_for,
    told,
    widths,
    with_wide,
)
from checkers.linearizability.frontier import ConfigSet, make_config_set
from checkers.linearizability.objects.built import only
from checkers.linearizability.objects.explore import ObjectSearch, explore_keys
from checkers.linearizability.objects.kinds import MUTEX, OBSERVERS, STRING, ObjectOps, longest_word
from checkers.linearizability.objects.set_goals import make_goals
from checkers.linearizability.objects.states import kept, make_store, word_at
from checkers.linearizability.window import Window, make_window

_CHANGES: Final = 2

_FIRST_WORDS: Final = 1 << 12


def most_open(ops: ObjectOps) -> Ints:
    """The most operations open at once in each object."""
    sizes = np.diff(ops.offsets)
    return widths(len(sizes), np.repeat(np.arange(len(sizes)), sizes), ops.invoke, ops.complete)


@dataclass(slots=True)
class ObjectRun:
    """A search over objects; see `driver.SearchRun`. `last_room` is where it was when the store was last full."""

    search: ObjectSearch
    first_work: int = 2_000_000
    last_room: int = -1

    @property
    def cursor(self) -> Any:
        return self.search.cursor

    def go_on(self, work: int, stuck: Ints) -> int:
        return int(explore_keys(self.search, work, stuck))

    def make_room(self, answer: int, memory_bytes: int) -> bool:
        """Sets of configurations take up to three quarters of the bytes, states the rest."""
        if answer == FULL:
            return self._grow_sets(memory_bytes * 3 // 4)
        return self._forget_states(memory_bytes // 4)

    def _grow_sets(self, memory_bytes: int) -> bool:
        search = self.search
        sets = grown_sets((search.frontier, search.visited, search.after), memory_bytes)
        if sets is None:
            return False
        stack = np.empty(len(sets[0].state), np.int32)
        self.search = search._replace(frontier=sets[0], visited=sets[1], after=sets[2], stack=stack)
        return True

    def _forget_states(self, memory_bytes: int) -> bool:
        """Keep only the states of frontier and checkpoints, with more room if these are many or nothing was done since
        the last time."""
        frontier, checkpoints, store = self.search.frontier, self.search.checkpoints, self.search.store
        levels = [level for level in range(LEVELS) if checkpoints.next_complete[level] >= 0]
        states = [frontier.state[: frontier.tally.used]]
        states += [checkpoints.state[level, : checkpoints.size[level]] for level in levels]
        words = sorted({int(state) for one in states for state in one if state >= 0})
        refilled = self.last_room == int(self.cursor.next_complete)
        room = len(store.start) * (4 if 4 * len(words) > len(store.start) or refilled else 1)
        if room * 32 + len(store.pool) * 8 > memory_bytes:
            return False
        store, numbers = kept(store, words, room)
        self.search = self.search._replace(store=store)
        for one in states:
            one[:] = [numbers[int(state)] if state >= 0 else -1 for state in one]
        self.last_room = int(self.cursor.next_complete)
        return True


def _start(ops: ObjectOps, beam: int) -> ObjectRun:
    slots, plain = slots_for(int(most_open(ops).max(initial=0))), ops.model in (MUTEX, STRING)
    frontier, visited, after = (make_config_set(FIRST_CONFIGURATIONS, slots // 64) for _ in range(3))
    search = ObjectSearch(
        ops,
        make_cursor(beam),
        make_window(slots, len(ops.kind)),
        make_store(2 if plain else _FIRST_WORDS, 0 if plain else longest_word(ops)),
        frontier,
        visited,
        after,
        np.empty(FIRST_CONFIGURATIONS, np.int32),
        make_checkpoints(slots),
        make_goals(slots),
    )
    return ObjectRun(search)


def search_objects(ops: ObjectOps, budget: Budget) -> SearchAnswers:
    """Judge every object by search; exact within the budget. Rows are those of `ops`."""
    width = most_open(ops)
    searched = narrow(width)
    if not searched.all():
        some, rows = only(ops, np.flatnonzero(searched))
        found = search_objects(some, budget)
        found.stuck[found.stuck >= 0] = rows[found.stuck[found.stuck >= 0]]
        return with_wide(found, searched, width, "object")
    keys = len(ops.offsets) - 1
    stuck = np.full(keys, -1)
    return told(stuck, ops.order, drive(_start(ops, FIRST_BEAM), keys, budget, stuck))


@dataclass(frozen=True, slots=True)
class StuckAt:
    """Where one refuted object's search ends: the row that can't be next, the rows open with it, those that completed
    since the last moment when nothing was open, the last changes to complete before it, and the configurations: state
    (a word, or a number in a tuple) and which open rows have taken effect in it."""

    row: int
    open_rows: tuple[int, ...]
    before: tuple[int, ...]
    changes: tuple[int, ...]
    states: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    count: int


def explain_object(ops: ObjectOps, budget: Budget, most: int) -> StuckAt | None:
    """Search the only object of `ops`, a refuted one, again, and tell up to `most` configurations; None past the
    budget."""
    run, stuck = _start(ops, 0), np.full(1, -1)
    if drive(run, 1, budget, stuck).why is not None or stuck[0] < 0:
        return None
    row, window = int(stuck[0]), run.search.window
    opened = [int(r) for r in window.row[: window.top[0]] if r >= 0 and r != row]
    before, changes = _before(ops, row, opened), _last_changes(ops, row)
    return StuckAt(row, tuple(sorted(opened)), before, changes, *_configurations(run.search, most))


def _last_changes(ops: ObjectOps, stuck: int) -> tuple[int, ...]:
    """The last operations that change anything to complete before one, the latest first."""
    past = [int(row) for row in ops.order if ops.complete[row] < ops.complete[stuck]]
    return tuple([row for row in past[::-1] if ops.kind[row] not in OBSERVERS][:_CHANGES])


def _configurations(search: ObjectSearch, most: int) -> tuple[tuple[tuple[tuple[int, ...], tuple[int, ...]], ...], int]:
    frontier = search.frontier
    live = [place for place in range(int(frontier.tally.used)) if frontier.state[place] >= 0]
    plain = search.ops.model in (MUTEX, STRING)
    found = []
    for place in live[:most]:
        state = int(frontier.state[place])
        word = (state,) if plain else word_at(search.store, state)
        found.append((word, tuple(sorted(_done(search.window, frontier, place)))))
    return tuple(found), len(live)


def _done(window: Window, frontier: ConfigSet, place: int) -> list[int]:
    rows = []
    for slot in range(int(window.top[0])):
        pending = (frontier.available[place, slot >> 6] | frontier.owed[place, slot >> 6]) >> np.uint64(slot & 63)
        if window.row[slot] >= 0 and not int(pending) & 1:
            rows.append(int(window.row[slot]))
    return rows


def _before(ops: ObjectOps, stuck: int, opened: list[int]) -> tuple[int, ...]:
    """What completed after the window began: since the last moment at which nothing but unknown operations was open."""
    end = int(ops.complete[stuck])
    begin = min([int(ops.invoke[stuck]), *(int(ops.invoke[r]) for r in opened if ops.complete[r] != NEVER)])
    past = np.flatnonzero(ops.complete < end)
    for row in past[np.argsort(-ops.complete[past])].tolist():
        if ops.complete[row] < begin:
            break
        begin = min(begin, int(ops.invoke[row]))
    return tuple(int(row) for row in past if ops.complete[row] > begin)

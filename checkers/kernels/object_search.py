"""Runs the search for objects over all keys, within budgets of time and memory, and says where it got stuck."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from checkers.kernels.columns import NEVER, Ints
from checkers.kernels.explore import STORE_FULL, explore_keys
from checkers.kernels.frontier import ConfigSet, grown, make_config_set
from checkers.kernels.linear import Budget, SearchAnswers
from checkers.kernels.marks import (
    BEAM,
    CURSOR,
    FRESH,
    KEY,
    LEVELS,
    NEXT_COMPLETE,
    REACHED,
    Marks,
    make_marks,
)
from checkers.kernels.objects import MUTEX, OBSERVERS, STRING, ObjectOps, longest_word
from checkers.kernels.search import DONE, FIRST_BEAM, FULL, PAUSED
from checkers.kernels.states import Store, kept, make_store, word_at
from checkers.kernels.window import Window, make_window
from checkers.kernels.zones import INVALID, UNDECIDED, VALID

_SLICE: Final = 2_000_000
"""Work between two looks at the clock, in configurations compared."""

_MOST_WORK: Final = 1 << 40

_MOST_SLOTS: Final = 4096

_CHANGES: Final = 2

_FIRST_WORDS: Final = 1 << 12


def most_open(ops: ObjectOps) -> int:
    """The most operations open at once in any object."""
    keys = np.repeat(np.arange(len(ops.offsets) - 1), np.diff(ops.offsets))
    events = np.concatenate((ops.invoke, ops.complete))
    steps = np.repeat(np.array([1, -1]), len(ops.invoke))
    order = np.lexsort((-steps, events, np.concatenate((keys, keys))))
    return int(np.cumsum(steps[order]).max(initial=0))


@dataclass(slots=True)
class _Run:
    """The moving parts of one search: the cursor, the open operations, the states, the three sets and the marks."""

    ops: ObjectOps
    at: Ints
    window: Window
    store: Store
    sets: list[ConfigSet]
    stack: npt.NDArray[np.int32]
    marks: Marks
    slots: int

    def grow_sets(self, budget: Budget) -> bool:
        """Room for four times as many configurations; False if that takes more than three quarters of the budget."""
        capacity = 4 * len(self.sets[0].state)
        if capacity * 3 * (16 * (self.slots // 64) + 8) > budget.memory_bytes * 3 // 4:
            return False
        self.sets = [grown(one, capacity) for one in self.sets]
        self.stack = np.empty(capacity, np.int32)
        return True

    def make_room(self, budget: Budget) -> bool:
        """Keep only the states of frontier and marks, with more room if these are many; False past the budget."""
        frontier = self.sets[0]
        used = frontier.state[: frontier.meta[0]]
        marked = [self.marks.state[level, : self.marks.size[level]] for level in range(LEVELS)]
        kept_states = [used, *[one for level, one in enumerate(marked) if self.marks.cursor[level, 1] >= 0]]
        words = sorted({int(state) for one in kept_states for state in one if state >= 0})
        room = len(self.store.start) * (4 if 4 * len(words) > len(self.store.start) or self._refilled() else 1)
        if room * 32 + len(self.store.pool) * 8 > budget.memory_bytes // 4:
            return False
        self.store, numbers = kept(self.store, words, room)
        for one in kept_states:
            one[:] = [numbers[int(state)] if state >= 0 else -1 for state in one]
        self._last_room = int(self.at[NEXT_COMPLETE])
        return True

    def _refilled(self) -> bool:
        return self._last_room == int(self.at[NEXT_COMPLETE])

    _last_room: int = -1


def _start(ops: ObjectOps, beam: int) -> _Run:
    slots = max(64, -(-most_open(ops) // 64) * 64)
    sets = [make_config_set(1024, slots // 64) for _ in range(3)]
    at = np.zeros(CURSOR, np.int64)
    at[FRESH], at[BEAM], at[REACHED] = 1, beam, -1
    plain = ops.model in (MUTEX, STRING)
    store = make_store(2 if plain else _FIRST_WORDS, 0 if plain else longest_word(ops))
    window, stack = make_window(slots, len(ops.kind)), np.empty(1024, np.int32)
    return _Run(ops, at, window, store, sets, stack, make_marks(slots), slots)


def _relieved(run: _Run, answer: int, budget: Budget, deadline: float) -> str | None:
    """Make room after a stop; the reason why the search has to end here, if so."""
    if answer == FULL and not run.grow_sets(budget):
        return f"the search needs more than its {budget.memory_bytes / 2**20:.0f} MiB of configurations"
    if answer == STORE_FULL and not run.make_room(budget):
        return f"the search needs more than its {budget.memory_bytes / 2**20:.0f} MiB of states"
    if time.perf_counter() > deadline:
        return f"the search took longer than its {budget.time_s:g} s"
    return None


def _more(work: int, answer: int) -> int:
    """Twice the work before the next look at the clock, if it was too little for one completion."""
    return min(2 * work, _MOST_WORK) if answer == PAUSED else work


def search_objects(ops: ObjectOps, budget: Budget) -> SearchAnswers:
    """Judge every object by search; exact within the budget. Rows are those of `ops`."""
    keys = len(ops.offsets) - 1
    if most_open(ops) > _MOST_SLOTS:
        many = f"{most_open(ops)} operations on one object are open at once, and the search takes {_MOST_SLOTS}"
        return SearchAnswers(np.full(keys, UNDECIDED, np.uint8), np.full(keys, -1), many)
    run, stuck = _start(ops, FIRST_BEAM), np.full(keys, -1)
    deadline, work = np.inf, _SLICE
    why, answer = None, FULL
    while why is None:
        answer = explore_keys(ops, run.at, run.window, run.store, *run.sets, run.stack, run.marks, work, stuck)
        if answer == DONE:
            break
        deadline = min(deadline, time.perf_counter() + budget.time_s)
        why = _relieved(run, answer, budget, deadline)
        work = _more(work, answer)
    answers = np.where(stuck >= 0, np.uint8(INVALID), np.uint8(VALID))
    if why is not None:
        answers[run.at[KEY] :] = UNDECIDED
        stuck[run.at[KEY]] = ops.order[min(int(run.at[NEXT_COMPLETE]), len(ops.order) - 1)]
    return SearchAnswers(answers, stuck, why)


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
    run = _start(ops, 0)
    deadline, work, answer, stuck = time.perf_counter() + budget.time_s, _SLICE, FULL, np.full(1, -1)
    while answer != DONE:
        answer = explore_keys(ops, run.at, run.window, run.store, *run.sets, run.stack, run.marks, work, stuck)
        if answer != DONE and _relieved(run, answer, budget, deadline) is not None:
            return None
        work = _more(work, answer)
    row = int(stuck[0])
    if row < 0:
        return None
    opened = [int(r) for r in run.window.row[: run.window.top[0]] if r >= 0 and r != row]
    before, changes = _before(ops, row, opened), _last_changes(ops, row)
    return StuckAt(row, tuple(sorted(opened)), before, changes, *_configurations(run, most))


def _last_changes(ops: ObjectOps, stuck: int) -> tuple[int, ...]:
    """The last operations that change anything to complete before one, the latest first."""
    past = [int(row) for row in ops.order if ops.complete[row] < ops.complete[stuck]]
    return tuple([row for row in past[::-1] if ops.kind[row] not in OBSERVERS][:_CHANGES])


def _configurations(run: _Run, most: int) -> tuple[tuple[tuple[tuple[int, ...], tuple[int, ...]], ...], int]:
    frontier = run.sets[0]
    live = [place for place in range(int(frontier.meta[0])) if frontier.state[place] >= 0]
    plain = run.ops.model in (MUTEX, STRING)
    found = []
    for place in live[:most]:
        state = int(frontier.state[place])
        word = (state,) if plain else word_at(run.store, state)
        found.append((word, tuple(sorted(_done(run.window, frontier, place)))))
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

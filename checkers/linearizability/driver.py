"""Runs a search over all keys within budgets of time and memory, whichever kind of object it searches.

A search gives its kernels some work at a time, and looks at the clock and for room between two stretches of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from checkers.columns.codes import Bools, Codes, Ints
from checkers.linearizability.configurations import grown
from checkers.linearizability.search_loop import DONE, PAUSED, STORE_FULL, next_key

VALID: Final = 0
INVALID: Final = 1
UNDECIDED: Final = 2

MOST_SLOTS: Final = 4096
"""A key with more operations open at once is not searched."""

FIRST_CONFIGURATIONS: Final = 1024
"""Room in a set at first."""

_MOST_WORK: Final = 1 << 40

_GRACE: Final = 0.25
"""So much of the time again have the keys behind one that took it all, each with a short stretch."""

_SHORT: Final = 16
"""A short stretch is a first one divided by so much."""

_SHARE: Final = 64
"""What any search may have at once of its memory is divided by so much."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a search may cost: seconds in all, and bytes of configurations."""

    time_s: float = 60.0
    memory_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class SearchAnswers:
    """`answers[k]` is VALID, INVALID or UNDECIDED (out of budget); `stuck[k]` is the row of the given columns whose
    completion refutes key k, or where the search was when it stopped; `why` says which budget ran out first."""

    answers: Codes
    stuck: Ints
    why: str | None = None


class SearchRun(Protocol):
    """A search on its way. `first_work` is what it does, in configurations compared, until it first looks at the
    clock."""

    first_work: int

    @property
    def cursor(self) -> Any:
        """Where it is: a record of `search_loop.CURSOR`."""

    def go_on(self, work: int, stuck: Ints) -> int:
        """Do so much work; DONE, or why it ended before (`search_loop`). `stuck[k]` becomes the row that refutes key
        k."""

    def make_room(self, answer: int, memory_bytes: int) -> bool:
        """After FULL or STORE_FULL: make room for more in `memory_bytes`; False if it takes more."""


@dataclass(frozen=True, slots=True)
class Driven:
    """How a search of all keys ended: by key that is left undecided the place in `order` where its search was, or -1 if
    it never began; and which budget was the first to run out, if one did."""

    left: Mapping[int, int]
    why: str | None


class _Turn:
    """A search's turn to take more than `_SHARE` of its memory: of the searches that threads of this process do at
    once, one has it, to its end. Of the others each has a share, so that all together take little more than one."""

    _taken: Final = threading.Lock()

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes, self._mine, self.waited_s = memory_bytes, False, 0.0

    def make_room(self, run: SearchRun, answer: int) -> bool:
        """See `SearchRun`; waits for the turn where it takes one, and the seconds count for nobody."""
        if run.make_room(answer, self._memory_bytes // _SHARE):
            return True
        if not self._mine:
            began = time.perf_counter()
            self._mine = self._taken.acquire()
            self.waited_s += time.perf_counter() - began
        return run.make_room(answer, self._memory_bytes)

    def end(self) -> None:
        """Leave it to another."""
        if self._mine:
            self._taken.release()


def drive(run: SearchRun, keys: int, budget: Budget, stuck: Ints) -> Driven:
    """Search all keys; one that takes too much is left, and those behind it are searched all the same: what is refuted
    there stays refuted. Time counts from the first stop on, when all is compiled."""
    turn = _Turn(budget.memory_bytes)
    try:
        return _driven(run, keys, budget, stuck, turn)
    finally:
        turn.end()


def _driven(run: SearchRun, keys: int, budget: Budget, stuck: Ints, turn: _Turn) -> Driven:
    cursor, left, why = run.cursor, dict[int, int](), None
    deadline, end, work = np.inf, np.inf, run.first_work
    while (answer := run.go_on(work, stuck)) != DONE:
        now = time.perf_counter() - turn.waited_s
        deadline = min(deadline, now + budget.time_s)
        late = now > deadline
        if late:
            end = min(end, now + _GRACE * budget.time_s)
            why = why or f"the search took longer than its {budget.time_s:g} s"
        if answer == PAUSED:  # perhaps one completion took it all, and has to be begun again: with more
            work = run.first_work // _SHORT if late else min(2 * work, _MOST_WORK)
            given_up = late and not cursor.fresh
        else:
            given_up = not turn.make_room(run, answer)
            what = "states" if answer == STORE_FULL else "configurations"
            if given_up:
                why = why or f"the search needs more than its {budget.memory_bytes / 2**20:.0f} MiB of {what}"
        if given_up:
            left[int(cursor.key)] = int(cursor.next_complete)
            next_key.py_func(cursor)
        if now > end:
            left |= dict.fromkeys(range(int(cursor.key), keys), -1)
            break
    return Driven(left, why)


def answers_of(stuck: Ints, order: Ints, driven: Driven) -> SearchAnswers:
    """The answers for each key; `stuck` also gets the rows where searches were that are left."""
    answers = np.where(stuck >= 0, np.uint8(INVALID), np.uint8(VALID))
    for key, place in driven.left.items():
        answers[key] = UNDECIDED
        if place >= 0:
            stuck[key] = order[min(place, len(order) - 1)]
    return SearchAnswers(answers, stuck, driven.why)


def widths(keys: int, key: Ints, begin: Ints, end: Ints) -> Ints:
    """The most operations open at once in each of `keys` keys; operations have a key, a first and a last event."""
    events, steps = np.concatenate((begin, end)), np.repeat(np.array([1, -1]), len(begin))
    of = np.concatenate((key, key))
    order = np.lexsort((-steps, events, of))
    most = np.zeros(keys, np.int64)
    # Whatever begins in a key ends in it, so that each key's sums begin with 0.
    np.maximum.at(most, of[order], np.cumsum(steps[order]))
    return most


def most_open(ops: Any) -> Ints:
    """The most operations open at once in each key of columns that have `offsets`, `invoke` and `complete`."""
    sizes = np.diff(ops.offsets)
    return widths(len(sizes), np.repeat(np.arange(len(sizes)), sizes), ops.invoke, ops.complete)


def narrow(most: Ints) -> Bools:
    """The keys that can be searched, by the most operations that each has open at once."""
    return most <= MOST_SLOTS


def with_wide(found: SearchAnswers, searched: Bools, most: Ints, what: str) -> SearchAnswers:
    """The answers for all keys, where only some were searched (`narrow`): the others are undecided."""
    answers, stuck = np.full(len(most), UNDECIDED, np.uint8), np.full(len(most), -1)
    answers[searched], stuck[searched] = found.answers, found.stuck
    many = f"{most.max()} operations on one {what} are open at once, and the search takes {MOST_SLOTS}"
    return SearchAnswers(answers, stuck, found.why or many)


def slots_for(most_open: int) -> int:
    """Slots for `most_open` operations open at once: whole words of 64."""
    return max(64, -(-most_open // 64) * 64)


def with_larger_sets(search: Any, memory_bytes: int) -> Any:
    """A search with room for four times as many configurations in its sets, or None if that takes more bytes."""
    sets = (search.frontier, search.visited, search.after)
    capacity, words = 4 * len(sets[0].state), sets[0].owed.shape[1]
    if capacity * len(sets) * (16 * words + 8) > memory_bytes:
        return None
    frontier, visited, after = (grown(one, capacity) for one in sets)
    return search._replace(frontier=frontier, visited=visited, after=after)

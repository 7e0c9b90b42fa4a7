"""Runs the register search over the keys that need it, within budgets of time and memory."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from checkers.kernels.columns import Ints, RegisterColumns
from checkers.kernels.frontier import ConfigSet, grown, make_config_set
from checkers.kernels.marks import BEAM, CURSOR, FRESH, KEY, NEXT_COMPLETE, REACHED, Marks, make_marks
from checkers.kernels.prepare import Prepared, prepare
from checkers.kernels.search import DONE, FIRST_BEAM, FULL, Open, make_open, search_keys
from checkers.kernels.zones import INVALID, UNDECIDED, VALID

_SLICE: Final = 20_000_000
"""Work between two looks at the clock, in configurations compared."""

_MOST_SLOTS: Final = 4096


@dataclass(frozen=True, slots=True)
class Budget:
    """What a search may cost: seconds in all, and bytes of configurations."""

    time_s: float = 60.0
    memory_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class SearchAnswers:
    """`answers[k]` is VALID, INVALID or UNDECIDED (out of budget); `stuck[k]` is the row of the given columns whose
    completion refutes key k, or where the search was when it stopped; `why` says which budget ran out."""

    answers: npt.NDArray[np.uint8]
    stuck: Ints
    why: str | None = None


@dataclass(slots=True)
class _Run:
    """The moving parts of one search: the cursor, the open operations, the three sets and the marks."""

    at: Ints
    opened: Open
    sets: list[ConfigSet]
    marks: Marks

    def grow(self, most: int) -> bool:
        """Double the sets' room; False if that would take more than `most` configurations."""
        capacity = 4 * len(self.sets[0].state)
        if capacity > most:
            return False
        self.sets = [grown(one, capacity) for one in self.sets]
        return True


def _start(prepared: Prepared, beam: int) -> _Run:
    slots = max(64, -(-prepared.slots // 64) * 64)
    sets = [make_config_set(1024, slots // 64) for _ in range(3)]
    opened = make_open(slots, int(prepared.ops.values.max(initial=1)), len(prepared.ops.kind))
    at = np.zeros(CURSOR, np.int64)
    at[FRESH], at[BEAM], at[REACHED] = 1, beam, -1
    return _Run(at, opened, sets, make_marks(slots))


def _most_configurations(prepared: Prepared, budget: Budget) -> int:
    words = max(1, -(-prepared.slots // 64))
    return budget.memory_bytes // (3 * (16 * words + 8))


def judge_search(columns: RegisterColumns, budget: Budget) -> SearchAnswers:
    """Judge every key by search; exact within the budget."""
    return search_prepared(prepare(columns), budget)


def search_prepared(prepared: Prepared, budget: Budget) -> SearchAnswers:
    """The same for columns made ready."""
    keys = len(prepared.ops.offsets) - 1
    if prepared.slots > _MOST_SLOTS:
        many = f"{prepared.slots} operations on one key are open at once, and the search takes {_MOST_SLOTS}"
        return SearchAnswers(np.full(keys, UNDECIDED, np.uint8), np.full(keys, -1), many)
    run, stuck = _start(prepared, FIRST_BEAM), np.full(keys, -1)
    deadline, work = time.perf_counter() + budget.time_s, _SLICE
    why: str | None = None
    while why is None:
        answer = search_keys(prepared.ops, run.at, run.opened, *run.sets, run.marks, work, stuck)
        if answer == DONE:
            break
        if answer == FULL:
            if not run.grow(_most_configurations(prepared, budget)):
                why = f"the search needs more than its {budget.memory_bytes / 2**20:.0f} MiB of configurations"
        elif time.perf_counter() > deadline:
            why = f"the search took longer than its {budget.time_s:g} s"
        else:
            work *= 2
    return _answers(prepared, run, stuck, why)


def _answers(prepared: Prepared, run: _Run, stuck: Ints, why: str | None) -> SearchAnswers:
    answers = np.where(stuck >= 0, np.uint8(INVALID), np.uint8(VALID))
    rows = np.where(stuck >= 0, prepared.rows[np.maximum(stuck, 0)], -1) if len(prepared.rows) else stuck
    if why is not None:
        answers[run.at[KEY] :] = UNDECIDED
        place = min(int(run.at[NEXT_COMPLETE]), len(prepared.rows) - 1)
        rows[run.at[KEY]] = prepared.rows[prepared.ops.order[place]]
    return SearchAnswers(answers, rows, why)


@dataclass(frozen=True, slots=True)
class Stuck:
    """Why one key is refuted: the row that cannot be linearized, the rows open with it, the values the register could
    hold just before (nil is NIL), and how many configurations there were."""

    row: int
    open_rows: tuple[int, ...]
    values: tuple[int, ...]
    configurations: int


def explain_stuck(columns: RegisterColumns, budget: Budget) -> Stuck | None:
    """Search one refuted key again and say where it is stuck; None if the budget does not suffice."""
    prepared = prepare(columns)
    run = _start(prepared, 0)
    deadline, work, answer, found = time.perf_counter() + budget.time_s, _SLICE, FULL, np.full(1, -1)
    while answer != DONE:
        answer = search_keys(prepared.ops, run.at, run.opened, *run.sets, run.marks, work, found)
        if answer == FULL and not run.grow(_most_configurations(prepared, budget)):
            return None
        if answer != DONE and time.perf_counter() > deadline:
            return None
        work *= 2
    row, frontier = int(found[0]), run.sets[0]
    states = frontier.state[: frontier.meta[0]]
    held = sorted({int(prepared.value_of[state]) for state in states if state >= 0})
    others = [int(prepared.rows[r]) for r in run.opened.window.row[: run.opened.window.top[0]] if r >= 0 and r != row]
    return Stuck(int(prepared.rows[row]), tuple(sorted(others)), tuple(held), int(frontier.meta[1]))

"""Runs the register search over the keys that need it, and says where it got stuck."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from checkers.columns.codes import Ints, RegisterColumns
from checkers.linearizability.checkpoints import make_checkpoints
from checkers.linearizability.cursor import FIRST_BEAM, make_cursor
from checkers.linearizability.driver import (
    FIRST_CONFIGURATIONS,
    Budget,
    SearchAnswers,
    drive,
    grown_sets,
    narrow,
    slots_for,
    told,
    with_wide,
)
from checkers.linearizability.frontier import make_config_set
from checkers.linearizability.registers.prepare import Prepared, prepare, prepared_part
from checkers.linearizability.registers.search import RegisterSearch, make_open, search_keys


@dataclass(slots=True)
class RegisterRun:
    """A search over registers; see `driver.SearchRun`."""

    search: RegisterSearch
    first_work: int = 20_000_000

    @property
    def cursor(self) -> Any:
        return self.search.cursor

    def go_on(self, work: int, stuck: Ints) -> int:
        return int(search_keys(self.search, work, stuck))

    def make_room(self, answer: int, memory_bytes: int) -> bool:
        """Its states are values, so only sets of configurations are ever full."""
        search = self.search
        sets = grown_sets((search.frontier, search.visited, search.after), memory_bytes)
        if sets is None:
            return False
        self.search = search._replace(frontier=sets[0], visited=sets[1], after=sets[2])
        return True


def _start(prepared: Prepared, beam: int) -> RegisterRun:
    ops, slots = prepared.ops, slots_for(int(prepared.slots.max(initial=0)))
    frontier, visited, after = (make_config_set(FIRST_CONFIGURATIONS, slots // 64) for _ in range(3))
    opened = make_open(slots, int(ops.values.max(initial=1)), len(ops.kind))
    search = RegisterSearch(ops, make_cursor(beam), opened, frontier, visited, after, make_checkpoints(slots))
    return RegisterRun(search)


def judge_search(columns: RegisterColumns, budget: Budget) -> SearchAnswers:
    """Judge every key by search; exact within the budget."""
    return search_prepared(prepare(columns), budget)


def search_prepared(prepared: Prepared, budget: Budget) -> SearchAnswers:
    """The same for columns made ready."""
    searched = narrow(prepared.slots)
    if not searched.all():
        found = search_prepared(prepared_part(prepared, np.flatnonzero(searched)), budget)
        return with_wide(found, searched, prepared.slots, "key")
    keys = len(prepared.ops.offsets) - 1
    stuck = np.full(keys, -1)
    found = told(stuck, prepared.ops.order, drive(_start(prepared, FIRST_BEAM), keys, budget, stuck))
    found.stuck[stuck >= 0] = prepared.rows[stuck[stuck >= 0]]
    return found


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
    run, found = _start(prepared, 0), np.full(1, -1)
    if drive(run, 1, budget, found).why is not None:
        return None
    row, frontier, window = int(found[0]), run.search.frontier, run.search.opened.window
    states = frontier.state[: frontier.tally.used]
    held = sorted({int(prepared.value_of[state]) for state in states if state >= 0})
    others = [int(prepared.rows[r]) for r in window.row[: window.top[0]] if r >= 0 and r != row]
    return Stuck(int(prepared.rows[row]), tuple(sorted(others)), tuple(held), int(frontier.tally.live))

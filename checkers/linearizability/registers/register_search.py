"""Linearizability of one register by search (Wing and Gong 1993, Lowe's just-in-time form), for values that repeat.

Events of a key are taken in order while a set of configurations (see `configurations`) says all that may be true. An
operation is linearized no earlier than some completion needs it: when x completes, every configuration is extended by
sequences of open operations until x is linearized, and what cannot is dropped; an empty set refutes the history. Where
nothing is open the set is the set of possible states. What keeps the sets small, and exact:
- a read is linearized as soon as the state is right, for it changes nothing;
- when a write is linearized, every open write may have been, just before it, unseen: it is owed no more but may still
  be used. So it need not be tried both ways;
- of equal open operations the one that completes first goes first (they can be exchanged);
- an intermediate write is tried only if it satisfies an owed read or enables a compare-and-set;
- an indeterminate write is forgotten once nobody is left who could see its value.

Where the sets grow all the same, a beam comes first (`search_loop`). The search runs over the keys that need it, within
budgets (`driver`), and says where it got stuck.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from checkers.columns.codes import CAS, FAILED_CAS, NEVER, READ, WRITE, Int, Ints, RegisterColumns, Words
from checkers.compiled import lean, lean_inline
from checkers.linearizability.configurations import (
    SET_FULL,
    ConfigSet,
    Window,
    add,
    clear,
    close_slot,
    enter,
    flip_bit,
    free_slot,
    has_bit,
    make_config_set,
    make_window,
    set_bit,
    unset_bit,
    vacate,
)
from checkers.linearizability.driver import (
    FIRST_CONFIGURATIONS,
    Budget,
    SearchAnswers,
    answers_of,
    drive,
    narrow,
    slots_for,
    with_larger_sets,
    with_wide,
)
from checkers.linearizability.registers.prepared_registers import Prepared, SearchOps, prepare, prepared_part
from checkers.linearizability.search_loop import (
    FIRST_BEAM,
    OUT_OF_WORK,
    WIDER,
    Checkpoints,
    EventSteps,
    enough,
    make_checkpoints,
    make_cursor,
    over_keys,
)


class Open(NamedTuple):
    """The open operations, and masks of slots by what they do. Each mask has just the slots that are taken in
    `window`; of operations of unknown outcome only those that somebody may still see."""

    window: Window
    reads: Words  # by value the reads of it
    refusals: Words  # by value the compare-and-sets from it that failed on a mismatch
    cas_from: Words  # by value the compare-and-sets from it
    writes: Words  # one row: all writes
    all_refusals: Words  # one row: all compare-and-sets that failed on a mismatch


class RegisterSearch(NamedTuple):
    """One search over many registers; the operation that completes at the event at hand is the *target*. A state is
    the number of the value that the register holds."""

    ops: SearchOps  # what is judged; never written
    cursor: np.record  # where the search is, by the fields of `search_loop.CURSOR`
    opened: Open  # what has begun and not completed before the event at hand, and the configuration in work
    frontier: ConfigSet  # all that may be true after the events so far: in none is a completed operation owed
    visited: ConfigSet  # of the target: configurations in which it is still to be linearized, or may yet be
    after: ConfigSet  # of the target: configurations in which it is linearized; they become the frontier
    checkpoints: Checkpoints  # where the search was a while ago, of the key at hand


def make_open(slots: int, values: int, rows: int) -> Open:
    """Room for `slots` operations open at once (a multiple of 64), `values` values a key and `rows` rows in all."""
    words = slots // 64
    reads, refusals, cas_from = (np.zeros((values, words), np.uint64) for _ in range(3))
    writes, all_refusals = (np.zeros((1, words), np.uint64) for _ in range(2))
    return Open(make_window(slots, rows), reads, refusals, cas_from, writes, all_refusals)


@lean
def _clear_slots(ops: SearchOps, key: Int, opened: Open) -> None:
    """Make nothing open, of a key."""
    vacate(opened.window)
    opened.writes[:] = 0
    opened.all_refusals[:] = 0
    for value in range(ops.values[key]):
        opened.reads[value, :] = 0
        opened.refusals[value, :] = 0
        opened.cas_from[value, :] = 0


@lean
def _begin_key(search: RegisterSearch) -> None:
    """Make nothing open, and the register unset."""
    _clear_slots(search.ops, search.cursor.key, search.opened)
    clear(search.frontier)
    add(search.frontier, np.int32(0), search.opened.window.available, search.opened.window.owed, 0)


@lean
def _flip_masks(ops: SearchOps, row: Int, slot: Int, opened: Open) -> None:
    """Put an operation's slot into the masks of what it does, or take it out again."""
    kind = ops.kind[row]
    if kind == READ:
        flip_bit(opened.reads, ops.value[row], slot)
    elif kind == WRITE:
        flip_bit(opened.writes, 0, slot)
    elif kind == CAS:
        flip_bit(opened.cas_from, ops.expected[row], slot)
    elif kind == FAILED_CAS:
        flip_bit(opened.all_refusals, 0, slot)
        flip_bit(opened.refusals, ops.expected[row], slot)


@lean
def _fill_slot(ops: SearchOps, row: Int, slot: Int, opened: Open) -> None:
    """Put an operation into a slot that is free."""
    enter(ops, row, slot, opened.window)
    _flip_masks(ops, row, slot, opened)


@lean
def _close_slot(ops: SearchOps, slot: Int, opened: Open) -> None:
    """Free the slot of an operation that is over, or that nobody can see any more."""
    _flip_masks(ops, opened.window.row[slot], slot, opened)
    close_slot(slot, opened.window)


@lean
def _invoke(search: RegisterSearch, row: Int) -> None:
    """An operation begins: it becomes available or owed in every configuration, a read whose value is there is done."""
    ops, opened, frontier = search.ops, search.opened, search.frontier
    # Its outcome is unknown and nothing that completes later finds its value, so it need not have taken effect.
    if ops.complete[row] == NEVER and ops.last_use[row] <= ops.invoke[row]:
        return
    slot, kind = free_slot(opened.window), ops.kind[row]
    _fill_slot(ops, row, slot, opened)
    for place in range(frontier.tally.used):
        state = frontier.state[place]
        if state < 0:
            continue
        if kind in (WRITE, CAS):
            set_bit(frontier.available, place, slot)
        done = (kind == READ and state == ops.value[row]) or (kind == FAILED_CAS and state != ops.expected[row])
        if ops.complete[row] != NEVER and not done:
            set_bit(frontier.owed, place, slot)


@lean
def _drop_useless(ops: SearchOps, event: Int, opened: Open, frontier: ConfigSet) -> None:
    """Forget indeterminate operations that nobody can see any more."""
    for slot in range(opened.window.top[0]):
        row = opened.window.row[slot]
        # After its last use nothing that completes finds its value, so it need not take effect any more.
        if row < 0 or ops.complete[row] != NEVER or ops.last_use[row] > event:
            continue
        for place in range(frontier.tally.used):
            unset_bit(frontier.available, place, slot)
        _close_slot(ops, slot, opened)


@lean_inline
def _apply(ops: SearchOps, slot: Int, source: ConfigSet, place: Int, opened: Open) -> tuple[Int, bool]:
    """Linearize an open write or compare-and-set; leaves its masks in `opened`. Returns (state, whether the state gave
    something that another write would not: a read done, a compare-and-set enabled)."""
    row = opened.window.row[slot]
    state = ops.value[row]
    useful = ops.kind[row] == CAS
    for word in range(source.available.shape[1]):
        opened.window.available[0, word] = source.available[place, word]
        left = source.owed[place, word]
        # Every open write may have been just before this one, unseen.
        if ops.kind[row] == WRITE:
            left &= ~opened.writes[0, word]
        done = opened.reads[state, word] | (opened.all_refusals[0, word] & ~opened.refusals[state, word])
        useful |= (left & done) != 0 or (source.available[place, word] & opened.cas_from[state, word]) != 0
        opened.window.owed[0, word] = left & ~done
    unset_bit(opened.window.available, 0, slot)
    unset_bit(opened.window.owed, 0, slot)
    return state, useful


@lean_inline
def _keep(configs: ConfigSet, state: Int, target: Int, opened: Open) -> int:
    """Add to the next frontier, in which the completing operation is no longer available."""
    held = has_bit(opened.window.available, 0, target)
    unset_bit(opened.window.available, 0, target)
    cost = add(configs, state, opened.window.available, opened.window.owed, 0)
    if held:
        set_bit(opened.window.available, 0, target)
    return cost


@lean_inline
def _expand(ops: SearchOps, target: Int, place: Int, opened: Open, visited: ConfigSet, after: ConfigSet) -> int:
    """Extend one configuration by every open operation. Returns the work done, or SET_FULL."""
    work = 1
    owing = has_bit(visited.owed, place, target)
    # Before each turn: what the slots below `slot` lead to is in `visited` or `after`, or is dominated by what is.
    for slot in range(opened.window.top[0]):
        # What was added meanwhile may dominate the very configuration at hand: then that one does it all.
        if visited.state[place] < 0:
            break
        if not has_bit(visited.available, place, slot):
            continue
        row = opened.window.row[slot]
        work += 1
        if ops.kind[row] == CAS and ops.expected[row] != visited.state[place]:
            continue
        # Of equal operations the one that completes first goes first.
        blocked = False
        for word in range(visited.available.shape[1]):
            blocked |= (visited.available[place, word] & opened.window.rivals[slot, word]) != 0
        if blocked:
            continue
        state, useful = _apply(ops, slot, visited, place, opened)
        settled = not has_bit(opened.window.owed, 0, target)
        # The target has taken effect: itself, as a read of what was written, or unseen just before that.
        if slot == target or (owing and settled):
            cost = _keep(after, state, target, opened)
            if cost < 0:
                return SET_FULL
            work += cost
        # The target may be still to come. A write that nothing sees and that enables nothing may come later as well.
        if useful and (not settled or has_bit(opened.window.available, 0, target)):
            cost = add(visited, state, opened.window.available, opened.window.owed, 0)
            if cost < 0:
                return SET_FULL
            work += cost
    return work


@lean
def _complete(search: RegisterSearch, target: Int, budget: Int, event: Int) -> int:
    """An operation ends: `after` becomes the configurations in which it is linearized. Returns the work done, SET_FULL
    or OUT_OF_WORK."""
    opened, frontier, visited, after = search.opened, search.frontier, search.visited, search.after
    clear(visited)
    clear(after)
    work, beam = 1, search.cursor.beam
    # Each configuration of the frontier goes to `after` if the target need not be linearized any more, and to `visited`
    # while it must or may be.
    for place in range(frontier.tally.used):
        if frontier.state[place] < 0:
            continue
        for word in range(frontier.available.shape[1]):
            opened.window.available[0, word] = frontier.available[place, word]
            opened.window.owed[0, word] = frontier.owed[place, word]
        # What need not be linearized any more may have been, unseen; while it is available it may be still.
        settled = not has_bit(frontier.owed, place, target)
        if settled:
            work += _keep(after, frontier.state[place], target, opened)
        if not settled or has_bit(frontier.available, place, target):
            work += add(visited, frontier.state[place], frontier.available, frontier.owed, place)
    # Breadth first: `visited[:place]` are extended, and what that gave stands behind them. A beam ends early, and then
    # an empty `after` refutes nothing.
    place = 0
    while place < visited.tally.used:
        if beam > 0 and (after.tally.live >= enough(beam) or visited.tally.used >= WIDER * beam):
            search.cursor.dropped = 1
            break
        if visited.state[place] >= 0:
            cost = _expand(search.ops, target, place, opened, visited, after)
            if cost < 0:
                return SET_FULL
            work += cost
            if work > budget:
                return OUT_OF_WORK
        place += 1
    return work


@lean_inline
def _window(search: RegisterSearch) -> Window:
    return search.opened.window


@lean
def _close(search: RegisterSearch, slot: Int, event: Int) -> None:
    _close_slot(search.ops, slot, search.opened)
    _drop_useless(search.ops, event, search.opened, search.frontier)


@lean
def _reopen(search: RegisterSearch, level: Int) -> None:
    rows = search.checkpoints.row
    _clear_slots(search.ops, search.cursor.key, search.opened)
    for slot in range(rows.shape[1]):
        if rows[level, slot] >= 0:
            _fill_slot(search.ops, rows[level, slot], slot, search.opened)


search_keys = over_keys(__name__, EventSteps(_window, _begin_key, _invoke, _complete, _close, _reopen))
"""The search of registers; see `over_keys`."""


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
        """Give the sets of configurations more room: states are values, so nothing else is ever full."""
        larger = with_larger_sets(self.search, memory_bytes)
        self.search = larger or self.search
        return larger is not None


def _start(prepared: Prepared, beam: int) -> RegisterRun:
    ops, slots = prepared.ops, slots_for(int(prepared.slots.max(initial=0)))
    frontier, visited, after = (make_config_set(FIRST_CONFIGURATIONS, slots // 64) for _ in range(3))
    opened = make_open(slots, int(ops.values.max(initial=1)), len(ops.kind))
    search = RegisterSearch(ops, make_cursor(beam), opened, frontier, visited, after, make_checkpoints(slots))
    return RegisterRun(search)


def search_prepared(prepared: Prepared, budget: Budget) -> SearchAnswers:
    """Judge every key of columns made ready by search; exact within the budget."""
    searched = narrow(prepared.slots)
    if not searched.all():
        found = search_prepared(prepared_part(prepared, np.flatnonzero(searched)), budget)
        return with_wide(found, searched, prepared.slots, "key")
    keys = len(prepared.ops.offsets) - 1
    stuck = np.full(keys, -1)
    found = answers_of(stuck, prepared.ops.order, drive(_start(prepared, FIRST_BEAM), keys, budget, stuck))
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

"""Linearizability of any object by search (Wing and Gong 1993, Lowe's just-in-time form): the skeleton for all models.

`search_plainly` says in plain lines what the compiled search does, and a test compares the two. As in
`register_search`, which knows more about registers, the events of an object are taken in order while a set of
undominated configurations (`configurations`) says all that may be true, and an operation is linearized no earlier than
some completion needs it. Here `object_steps.step` says what an operation does. What keeps the sets small, and exact:
- what changes nothing, and what costs nothing, is linearized as soon as the state allows (`_settle`);
- of equal open operations the one that completes first goes first (they can be exchanged);
- where nothing is open the set is the set of possible states with what is still pending.

The search runs over all keys within budgets of time and memory (`driver`), and says where it got stuck.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from checkers.columns.codes import NEVER, Ids, Ints
from checkers.compiled import lean, lean_inline
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
    lowest,
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
    most_open,
    narrow,
    slots_for,
    with_larger_sets,
    with_wide,
)
from checkers.linearizability.objects.object_columns import (
    LOCK,
    MUTEX,
    OBSERVERS,
    SET,
    STRING,
    UNSEEN,
    ObjectOps,
    longest_word,
    only,
)
from checkers.linearizability.objects.object_pruning import (
    blocked,
    forgive,
    is_awaited,
    is_fatal,
    is_free,
    is_lost,
    is_premature,
    is_wasted,
    owes_empty,
)
from checkers.linearizability.objects.object_steps import (
    IMPOSSIBLE,
    faded,
    first_state,
    is_observer,
    is_plain_add,
    is_useful,
    may_change_nothing,
    step,
)
from checkers.linearizability.objects.set_goals import Goals, distances, farthest, make_goals, reach
from checkers.linearizability.objects.word_store import WordStore, empty, kept, make_store, word_at
from checkers.linearizability.search_loop import (
    FIRST_BEAM,
    FULL,
    LEVELS,
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

DEEPER: Final = 64
"""How many times its width of configurations a beam follows on the way to one completion."""
NEARER: Final = 2
"""How many times its width of configurations a beam follows once it has found a way to the completion."""

Call = TypeVar("Call")
State = TypeVar("State", bound=Hashable)


def search_plainly(
    calls: Sequence[tuple[Call, int, int]], start: State, steps: Callable[[State, Call], Iterable[State]]
) -> bool:
    """Whether calls on one object (what is called, invocation, completion or NEVER) are linearizable.

    `steps(state, call)` are the states that a call may lead to, none where it can't come next.
    """
    invoked = sorted(range(len(calls)), key=lambda call: calls[call][1])
    completed = sorted((call for call in invoked if calls[call][2] != NEVER), key=lambda call: calls[call][2])
    # A configuration is a state and the calls that are pending in it: have begun and not taken effect. The frontier
    # are all that are possible after the completions so far; what has completed is pending in none of them.
    frontier, begun = {(start, frozenset[int]())}, 0
    for target in completed:
        while begun < len(calls) and calls[invoked[begun]][1] < calls[target][2]:
            frontier = {(state, pending | {invoked[begun]}) for state, pending in frontier}
            begun += 1
        # Just in time (Lowe 2017): calls take effect, in every order, until the target has; what comes behind it can
        # as well wait for the next completion. No configuration is extended twice.
        after, visited, stack = set[tuple[State, frozenset[int]]](), set(frontier), list(frontier)
        while stack:
            state, pending = stack.pop()
            if target not in pending:
                after.add((state, pending))
                continue
            for call in pending:
                extended = {(new, pending - {call}) for new in steps(state, calls[call][0])} - visited
                visited |= extended
                stack += extended
        if not after:
            return False
        frontier = after
    return True


class ObjectSearch(NamedTuple):
    """One search over many objects; the operation that completes at the event at hand is the *target*."""

    ops: ObjectOps  # what is judged; never written
    cursor: np.record  # where the search is, by the fields of `search_loop.CURSOR`
    window: Window  # what has begun and not completed before the event at hand, and the configuration in work
    store: WordStore  # the states by number, if they are words (no locks, no strings); of the object at hand
    frontier: ConfigSet  # all that may be true after the events so far: in none is a completed operation pending
    visited: ConfigSet  # of the target: configurations in which it is still to be linearized, or may yet be
    after: ConfigSet  # of the target: configurations in which it is linearized; they become the frontier
    stack: Ids  # places of `visited` that are still to be extended, each at most once; as long as it
    checkpoints: Checkpoints  # where the search was a while ago, of the object at hand
    goals: Goals  # scratch for sets


@lean
def _begin_key(search):
    """Make nothing open, and the object what it is before everything."""
    window, frontier = search.window, search.frontier
    vacate(window)
    empty(search.store)
    clear(frontier)
    add(frontier, first_state(search.ops, search.cursor.key, search.store), window.available, window.owed, 0)


@lean
def _invoke(search, row):
    """An operation begins: in every configuration it may, and if it completes it must, be linearized."""
    ops, window, frontier = search.ops, search.window, search.frontier
    slot = free_slot(window)
    enter(ops, row, slot, window)
    for place in range(frontier.tally.used):
        if not is_observer(ops.kind[row]):
            set_bit(frontier.available, place, slot)
        if ops.complete[row] != NEVER:
            set_bit(frontier.owed, place, slot)


@lean_inline
def _as_awaited(search, target, state, owed, place):
    """The state, or UNSEEN for a string that is not awaited; `owed` has in row `place` what is owed."""
    ops = search.ops
    if ops.model != STRING or is_awaited(ops.strings, ops, target, state, search.window, owed, place):
        return np.int32(state)
    return np.int32(UNSEEN)


@lean_inline
def _take_free(search, target, slot, state, event):
    """Linearize the operation in a slot in the configuration in work, if that is free. Returns the state then, NO_ROOM,
    or IMPOSSIBLE if it is not."""
    ops, window, store = search.ops, search.window, search.store
    row = window.row[slot]
    if has_bit(window.available, 0, slot) and is_plain_add(ops, row) and is_free(ops.sets, ops, row, window, event):
        unset_bit(window.available, 0, slot)
        unset_bit(window.owed, 0, slot)
        return step(ops, row, state, store, event)
    if not (has_bit(window.owed, 0, slot) and may_change_nothing(ops, row)):
        return np.int32(IMPOSSIBLE)
    seen = step(ops, row, state, store, event)
    if seen >= 0 and _as_awaited(search, target, seen, window.owed, 0) == state:
        unset_bit(window.owed, 0, slot)
        return np.int32(state)
    return np.int32(NO_ROOM) if seen == NO_ROOM else np.int32(IMPOSSIBLE)


@lean
def _settle(search, target, state, event):
    """Linearize all that is free in the configuration in work. Returns its state, IMPOSSIBLE or NO_ROOM."""
    ops, window = search.ops, search.window
    state = faded(ops, state, search.store, event)
    # Each round takes something out of `available` or `owed`, and what it does may let more through: until none does.
    again = state >= 0
    while again:
        again = False
        state = _as_awaited(search, target, state, window.owed, 0)
        for word in range(window.owed.shape[1]):
            left = window.owed[0, word]
            if ops.model == SET:
                left |= window.available[0, word]
            while left != 0:
                slot, left = 64 * word + lowest(left), left & (left - np.uint64(1))
                new = _take_free(search, target, slot, state, event)
                if new == NO_ROOM:
                    return new
                if new >= 0:
                    state, again = new, True
    lost = state >= 0 and is_lost(ops.strings, ops, target, state, window)
    return np.int32(IMPOSSIBLE) if lost else state


@lean
def _put(search, target, owing, state, event):
    """Settle the configuration in work and add it where it belongs: to `after` if the target, owed before if `owing`,
    is so no more, to `visited` while the target can still take effect. Returns the work done, SET_FULL or NO_ROOM."""
    window = search.window
    state = _settle(search, target, state, event)
    if state == NO_ROOM:
        return np.int64(NO_ROOM)
    work, held = np.int64(1), has_bit(window.available, 0, target)
    settled = not has_bit(window.owed, 0, target)
    if state < 0:
        return work
    if held or not settled:
        cost = add(search.visited, state, window.available, window.owed, 0)
        if cost < 0:
            return np.int64(SET_FULL)
        work += cost
    # If it was owed no more before, the configuration that this one came of is in `after`, and this one can wait.
    if owing and settled:
        unset_bit(window.available, 0, target)
        cost = add(search.after, state, window.available, window.owed, 0)
        if cost < 0:
            return np.int64(SET_FULL)
        work += cost
    return work


@lean
def _expand(search, target, place, event):
    """Extend one configuration by every open operation. Returns the work done, SET_FULL or NO_ROOM."""
    ops, window, store, visited = search.ops, search.window, search.store, search.visited
    if ops.model == SET:
        return _expand_set(ops.sets, search, target, place, event)
    work, seen_empty = np.int64(1), owes_empty(ops.queues, ops, place, window, visited)
    owing = has_bit(visited.owed, place, target)
    # Before each turn: whatever a slot below `slot` leads to is in `visited` or `after`, or left out by a rule of
    # `object_pruning` for something that is or will be there.
    for slot in range(window.top[0]):
        # What was added meanwhile may dominate the very configuration at hand: then that one does it all.
        state = visited.state[place]
        if state < 0:
            break
        if not has_bit(visited.available, place, slot) or blocked(visited, place, slot, window):
            continue
        row = window.row[slot]
        # It is linearized when it is free (`_settle`), or not at all.
        if is_plain_add(ops, row):
            continue
        # Four rules, cheapest first: it may as well come later; it must not come yet; nothing comes of it.
        if not is_useful(ops.queues, ops, row, window.row[target], state, store, seen_empty):
            continue
        if is_premature(ops.queues, ops, row, place, window, visited, event):
            continue
        if is_fatal(ops.rows, search, row, place, event):
            continue
        new = step(ops, row, state, store, event)
        work += 1
        if new == NO_ROOM:
            return np.int64(NO_ROOM)
        if new < 0:
            continue
        new = _as_awaited(search, target, new, visited.owed, place)
        if slot != target and is_wasted(ops.strings, new):
            continue
        load(visited, place, window)
        # What leaves the state as it was and hides nothing can as well come later.
        if not forgive(ops, row, window) and new == state:
            continue
        unset_bit(window.available, 0, slot)
        unset_bit(window.owed, 0, slot)
        cost = _put(search, target, owing or slot == target, new, event)
        if cost < 0:
            return cost
        work += cost
    return work


@lean
def _expand_set(sets, search, target, place, event):
    """Extend a configuration of a set to what each owed read shows, the nearest last, which is gone on from first; and
    by the target. Returns the work done, SET_FULL or NO_ROOM."""
    if sets is None:
        return np.int64(1)
    ops, window, visited = search.ops, search.window, search.visited
    work, state = np.int64(1), visited.state[place]
    owing, row = has_bit(visited.owed, place, target), window.row[target]
    if has_bit(visited.available, place, target) and not is_plain_add(ops, row):
        load(visited, place, window)
        new = step(ops, row, state, search.store, event)
        if new == NO_ROOM:
            return np.int64(NO_ROOM)
        # If it neither changed anything nor had anything forgiven, the configuration would be the same again.
        if forgive(ops, row, window) or new != state:
            unset_bit(window.available, 0, target)
            unset_bit(window.owed, 0, target)
            cost = _put(search, target, True, new, event)
            if cost < 0:
                return cost
            work += cost
    # What an owed read shows is a goal. The farthest is put first, so that the nearest lies on top and is gone on from
    # first; a configuration that was dropped meanwhile (its state is negative) is not extended any more.
    distances(search, place, state)
    slot = farthest(window, search.goals)
    while slot >= 0 and visited.state[place] >= 0:
        load(visited, place, window)
        new = reach(search, window.row[slot], state, event)
        if new == NO_ROOM:
            return np.int64(NO_ROOM)
        if new >= 0:
            cost = _put(search, target, owing, new, event)
            if cost < 0:
                return cost
            work += cost
        work += 1
        slot = farthest(window, search.goals)
    return work


@lean
def _complete(search, target, budget, event):
    """An operation ends: `after` becomes the configurations in which it is linearized, found depth first, for the way
    may be long. Returns the work done, SET_FULL, OUT_OF_WORK or NO_ROOM."""
    frontier, visited, after, stack = search.frontier, search.visited, search.after, search.stack
    clear(visited)
    clear(after)
    work, beam, place = np.int64(1), search.cursor.beam, 0
    # Each configuration of the frontier goes where it belongs: to `after` if the target has taken effect in it.
    for place in range(frontier.tally.used):
        if frontier.state[place] >= 0:
            load(frontier, place, search.window)
            cost = _put(search, target, True, frontier.state[place], event)
            if cost < 0:
                return cost
            work += cost
    top = 0
    for place in range(visited.tally.used):
        stack[top] = place
        top += 1
    # Every configuration of `visited` that is not on the stack was extended, so at its end all were.
    while top > 0:
        # A beam ends early, and then an empty `after` refutes nothing.
        most = DEEPER if after.tally.live == 0 else NEARER
        if beam > 0 and (after.tally.live >= enough(beam) or visited.tally.used >= most * beam):
            search.cursor.dropped = 1
            break
        top -= 1
        place, before = stack[top], visited.tally.used
        if visited.state[place] < 0:
            continue
        cost = _expand(search, target, place, event)
        if cost < 0:
            return cost
        work += cost
        if work > budget:
            return np.int64(OUT_OF_WORK)
        for fresh in range(before, visited.tally.used):
            stack[top] = fresh
            top += 1
    return work


_STEPS: Final = EventSteps(window_of, _begin_key, _invoke, _complete, close_in_window, reopen_in_window)

search_keys = over_keys(__name__, _STEPS)
"""The search of objects; see `over_keys`."""


_CHANGES: Final = 2

_FIRST_WORDS: Final = 1 << 12


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
        return int(search_keys(self.search, work, stuck))

    def make_room(self, answer: int, memory_bytes: int) -> bool:
        """Sets of configurations take up to three quarters of the bytes, states the rest."""
        if answer == FULL:
            return self._grow_sets(memory_bytes * 3 // 4)
        return self._forget_states(memory_bytes // 4)

    def _grow_sets(self, memory_bytes: int) -> bool:
        larger = with_larger_sets(self.search, memory_bytes)
        if larger is None:
            return False
        self.search = larger._replace(stack=np.empty(len(larger.frontier.state), np.int32))
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
    slots, plain = slots_for(int(most_open(ops).max(initial=0))), ops.model in (MUTEX, LOCK, STRING)
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
    return answers_of(stuck, ops.order, drive(_start(ops, FIRST_BEAM), keys, budget, stuck))


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
    plain = search.ops.model in (MUTEX, LOCK, STRING)
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

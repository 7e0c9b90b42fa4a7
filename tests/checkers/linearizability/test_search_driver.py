"""The driver of both searches: work, room and time; and the records and columns that kernels are handed."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, NamedTuple

import numpy as np
import pytest
from register_histories import Row, columns, hard_rows, joined

from checkers.columns.codes import NEVER, NIL, READ, WRITE, Ints
from checkers.linearizability.configurations import ConfigSet, add, make_config_set
from checkers.linearizability.driver import (
    INVALID,
    UNDECIDED,
    VALID,
    Budget,
    Driven,
    SearchAnswers,
    answers_of,
    drive,
    most_open,
    with_larger_sets,
)
from checkers.linearizability.objects.object_columns import (
    ABSENT,
    ADD,
    MEMBERS,
    SET,
    ObjectOps,
    SetColumns,
    only,
    plainly,
    without,
)
from checkers.linearizability.objects.object_search import search_objects
from checkers.linearizability.search_loop import CURSOR, DONE, FULL, PAUSED, STORE_FULL, make_cursor
from tests.support.kernels_alone import judge_search


@dataclass
class Scripted:
    """A search that ends its stretches as it is told, and notes the work that each was given."""

    outcomes: list[int]
    room: bool = True
    first_work: int = 10
    given: list[int] = field(default_factory=list)
    cursor: Any = field(default_factory=lambda: make_cursor(16))

    def go_on(self, work: int, stuck: Ints) -> int:
        self.given.append(work)
        return self.outcomes.pop(0)

    def make_room(self, answer: int, memory_bytes: int) -> bool:
        return self.room


def test_work_doubles_where_it_was_too_little_and_not_where_room_was() -> None:
    run = Scripted([PAUSED, FULL, PAUSED, STORE_FULL, DONE])
    assert drive(run, 1, Budget(), np.full(1, -1)) == Driven({}, None)
    assert run.given == [10, 20, 20, 40, 40]


@pytest.mark.parametrize(("outcome", "what"), [(FULL, "configurations"), (STORE_FULL, "states")])
def test_a_search_without_room_says_of_what(outcome: int, what: str) -> None:
    run = Scripted([outcome, DONE], room=False)
    run.cursor.fresh = 0
    driven = drive(run, 1, Budget(memory_bytes=1 << 20), np.full(1, -1))
    assert driven == Driven({0: 0}, f"the search needs more than its 1 MiB of {what}")


def test_a_search_past_its_time_ends_and_leaves_the_keys_behind_it_undecided() -> None:
    run = Scripted([PAUSED] * 3)
    run.cursor.key, run.cursor.fresh, run.cursor.next_complete = 2, 0, 1
    driven = drive(run, 4, Budget(time_s=0.0), np.full(4, -1))
    assert driven == Driven({2: 1, 3: -1}, "the search took longer than its 0 s")
    found = answers_of(np.array([-1, 7, -1, -1]), np.arange(10, 20), driven)
    assert found.answers.tolist() == [VALID, INVALID, UNDECIDED, UNDECIDED]
    assert found.stuck.tolist() == [-1, 7, 11, -1]


HARD = hard_rows(40)
"""More configurations than anybody has room for."""

UNREAD: list[Row] = [(WRITE, 1, NIL, 0, 1), (READ, NIL, NIL, 2, 3)]
SEEN: list[Row] = [(WRITE, 1, NIL, 0, 1), (READ, 1, NIL, 2, 3)]


def behind_hard_ones(budget: Budget) -> SearchAnswers:
    return judge_search(joined([columns(rows) for rows in (HARD, UNREAD, SEEN, HARD, UNREAD)]), budget)


def test_what_is_refuted_behind_a_key_that_takes_too_much_memory_is_refuted() -> None:
    found = behind_hard_ones(Budget(memory_bytes=1 << 20))
    assert found.answers.tolist() == [UNDECIDED, INVALID, VALID, UNDECIDED, INVALID]
    assert int(found.stuck[1]) == len(HARD) + 1 and found.why is not None and "MiB" in found.why


def test_what_is_refuted_behind_a_key_that_takes_all_the_time_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = chain([0.0], count(2.0, 0.01))
    monkeypatch.setattr("checkers.linearizability.driver.time.perf_counter", lambda: next(looks))
    found = behind_hard_ones(Budget(time_s=1.0))
    assert found.answers.tolist() == [UNDECIDED, INVALID, VALID, UNDECIDED, INVALID]
    assert found.why == "the search took longer than its 1 s"


def test_what_is_refuted_beside_a_key_with_too_much_open_at_once_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkers.linearizability.driver.MOST_SLOTS", 20)
    found = judge_search(joined([columns(rows) for rows in (UNREAD, HARD, SEEN, UNREAD)]), Budget())
    assert found.answers.tolist() == [INVALID, UNDECIDED, VALID, INVALID]
    assert (int(found.stuck[0]), int(found.stuck[3])) == (1, len(UNREAD) + len(HARD) + len(SEEN) + 1)
    assert found.why is not None and "open at once" in found.why


def test_of_objects_too(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = two_sets()
    assert most_open(sets).tolist() == [1, 1]
    wide = sets._replace(invoke=np.array([0, 1, 0, 2]), complete=np.array([2, 3, 1, 3]))
    monkeypatch.setattr("checkers.linearizability.driver.MOST_SLOTS", 1)
    assert most_open(wide).tolist() == [2, 1]
    found = search_objects(wide, Budget())
    assert found.answers.tolist() == [UNDECIDED, VALID] and found.why is not None


def test_a_cursor_begins_at_the_first_key() -> None:
    cursor = make_cursor(16)
    values = {name: int(getattr(cursor, name)) for name in CURSOR}
    assert values == dict.fromkeys(CURSOR, 0) | {"fresh": 1, "beam": 16, "reached": -1}


class Sets(NamedTuple):
    frontier: ConfigSet
    visited: ConfigSet
    after: ConfigSet


def test_sets_with_more_room_hold_what_they_held() -> None:
    search = Sets(*(make_config_set(4, 1) for _ in range(3)))
    masks = np.ones((1, 1), np.uint64)
    assert add(search.frontier, 5, masks, masks, 0) > 0
    search.frontier.tally.epoch = 9
    more = with_larger_sets(search, 1 << 20)
    assert [len(each.state) for each in more] == [16, 16, 16]
    tally = more.frontier.tally
    assert (int(more.frontier.state[0]), tally.used, tally.live, tally.epoch) == (5, 1, 1, 9)
    assert with_larger_sets(search, 100) is None


def two_sets() -> ObjectOps:
    """Of the first set an add of 0 and a read of it, of the second an add of 1 and a read of it."""
    kind, value = np.array([ADD, MEMBERS] * 2, np.uint8), np.array([0, 0, 1, 0], np.int32)
    invoke = np.array([0, 2, 0, 2])
    first, last = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2])
    columns = SetColumns(first, last, np.array([0, 1], np.int32), np.zeros(2, np.int64), np.full(2, -1))
    alike = np.array([0, 1, 2, 1])
    return ObjectOps(SET, np.array([0, 2, 4]), kind, value, invoke, invoke + 1, np.arange(4), alike, sets=columns)


def members(ops: ObjectOps) -> list[list[int]]:
    return [ops.sets.members[a:b].tolist() for a, b in zip(ops.sets.first, ops.sets.last, strict=True)]


def test_some_of_the_objects_keep_the_columns_of_their_rows() -> None:
    ops, rows = only(two_sets(), np.array([1]))
    assert rows.tolist() == [2, 3] and ops.offsets.tolist() == [0, 2] and ops.order.tolist() == [0, 1]
    assert members(ops) == [[], [1]] and ops.value.tolist() == [1, 0]
    left = without(two_sets(), np.array([True, False, False, False]))
    assert left.offsets.tolist() == [0, 1, 3] and members(left) == [[0], [], [1]]


def test_what_comes_later_is_unknown_to_a_plain_search() -> None:
    ops = plainly(two_sets())
    assert ops.sets.removed.tolist() == [1, 1] and ops.sets.last_lacking.tolist() == [NEVER, NEVER]
    assert members(ops) == members(two_sets())
    assert ops.queues is ops.strings is ops.rows is ABSENT

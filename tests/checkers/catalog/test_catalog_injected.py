"""What a catalog must never do, injected into long histories with many changes of unknown outcome: found every time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import pytest
from naive_catalog import linearizable
from test_catalog_search import PLENTY, aged, small

import checkers.catalog.search as searching
from checkers.catalog.calls import ALTER, CREATE, DELETE, LIST, LOCATIONS, RENAME, SCHEMA, Call, TableSeen
from checkers.catalog.judge import judged
from checkers.catalog.search import LINEARIZABLE, STUCK, Limits, search
from checkers.columns.codes import NEVER
from checkers.made.catalog import CatalogShape, catalog_calls, corrupted

WORK = 400_000
A, B = 900_001, 900_002
"""Ids that no table of the long histories has."""


class Injection:
    """Calls one after the other, behind all others, about names that no other call is about."""

    def __init__(self, calls: Sequence[Call]) -> None:
        ends = [call.order for call in calls] + [call.complete for call in calls if call.complete != NEVER]
        self.calls, self._event = list(calls), max(ends, default=0) + 2

    def add(self, kind: int, name: int = 50, new: int = 0, id: int | None = None, **more: object) -> None:
        order, self._event = self._event, self._event + 2
        call = Call(order, order, order + 1, kind, name, new, id, **more)  # type: ignore[arg-type]
        self.calls.append(call)

    def sees(self, *seen: TableSeen, kind: int = SCHEMA) -> None:
        self.add(kind, seen=seen)


def vanishes_and_comes_back(injection: Injection) -> None:
    injection.add(CREATE, id=A)
    injection.sees(TableSeen(50, False, A, 0))
    injection.sees(TableSeen(50, True))
    injection.sees(TableSeen(50, False, A, 0))


def renamed_and_seen_under_both_names(injection: Injection) -> None:
    injection.add(CREATE, id=A)
    injection.add(RENAME, new=51, id=A)
    injection.sees(TableSeen(51, False, A, 1))
    injection.sees(TableSeen(50, False, A, 1))


def version_goes_down(injection: Injection) -> None:
    injection.add(CREATE, id=A)
    injection.add(ALTER, id=A)
    injection.sees(TableSeen(50, False, A, 1))
    injection.sees(TableSeen(50, False, A, 0))


def retried_creation_makes_two(injection: Injection) -> None:
    injection.add(CREATE, id=A)
    injection.add(DELETE, id=A)
    injection.sees(TableSeen(50, False, B, 0))


def deleted_table_is_located(injection: Injection) -> None:
    injection.add(CREATE, id=A)
    injection.add(DELETE, id=A)
    injection.sees(TableSeen(50, False, A), kind=LOCATIONS)


def name_is_free_and_taken(injection: Injection) -> None:
    """Nothing that any single rule forbids: only that no order has both."""
    injection.add(CREATE, id=A)
    injection.sees(TableSeen(50, True), kind=ALTER)
    injection.sees(TableSeen(50, False), kind=CREATE)


INJECTIONS: dict[str, tuple[Callable[[Injection], None], set[str]]] = {
    "vanishes": (vanishes_and_comes_back, {"no-order"}),
    "both-names": (renamed_and_seen_under_both_names, {"no-order"}),
    "version-down": (version_goes_down, {"version-went-back", "version-without-alter"}),
    "two-tables": (retried_creation_makes_two, {"phantom-table", "no-order"}),
    "deleted-located": (deleted_table_is_located, {"deleted-table-seen"}),
    "free-and-taken": (name_is_free_and_taken, {"no-order"}),
}


@cache
def valid_calls(length: int, unknown: float) -> list[Call]:
    """A long history in which nothing is wrong."""
    calls = catalog_calls(CatalogShape(length, 8, 4, unknown), 3)
    assert judged(calls, 8, PLENTY, WORK).counts == {}
    return calls


@pytest.mark.parametrize(
    ("name", "length", "unknown"),
    [(name, 300, 0.0) for name in INJECTIONS]
    + [(name, 200, 0.1) for name in INJECTIONS]
    + [pytest.param("free-and-taken", 300, 0.1, marks=pytest.mark.campaign)],
)
def test_what_is_injected_into_a_long_history_is_found(name: str, length: int, unknown: float) -> None:
    """Where much is in doubt, all has been tried before it is said that no order is left: the last takes long."""
    injection = Injection(valid_calls(length, unknown))
    make, allowed = INJECTIONS[name]
    make(injection)
    part = judged(injection.calls, 8, PLENTY, WORK)
    assert part.counts and set(part.counts) <= allowed and part.reasons == ()


def test_a_list_that_shows_one_table_twice_is_wrong_by_itself() -> None:
    injection = Injection([])
    injection.add(CREATE, id=A)
    injection.add(LIST, total=True, seen=(TableSeen(50, False, A, 0), TableSeen(51, False, A, 0)))
    assert "table-twice" in judged(injection.calls, 8, PLENTY, WORK).counts


@pytest.mark.parametrize("deleted", [False, True])
def test_two_creations_answered_with_one_table_are_wrong_by_themselves(deleted: bool) -> None:
    """No order is asked for: the search takes an id for free wherever its table is gone or stands elsewhere."""
    injection = Injection([])
    injection.add(CREATE, id=A)
    if deleted:
        injection.add(DELETE, id=A)
    injection.add(CREATE, name=51, id=A)
    assert "table-twice" in judged(injection.calls, 8, PLENTY, WORK).counts


def test_a_long_history_with_a_tenth_of_doubt_is_decided() -> None:
    calls = catalog_calls(CatalogShape(500, 10, 5, 0.1), 2)
    assert search(calls, WORK).word == LINEARIZABLE


def test_going_back_and_cutting_at_lists_say_what_trying_every_order_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """With limits so narrow that almost every history has the search go back, and be cut off at its lists."""
    levels = (Limits(1, 1, 1), Limits(1, 2, 2), Limits(2, 3, 8), searching.LEVELS[-1])
    start = searching.START
    narrow = {
        "LEVELS": levels,
        "RETREATS": ((1, 1), (2, 1), (3, 2), (start, 1), (start, 2), (start, 3)),
        "PIN_AFTER": 0,
        "CHECKPOINT": 1,
        "PAST": 1,
    }
    for name, value in narrow.items():
        monkeypatch.setattr(searching, name, value)
    cuts = []
    cut_off = searching._Search._cut_off

    def noted(self: searching._Search, stuck: Call) -> bool:
        cuts.append(cut_off(self, stuck))
        return cuts[-1]

    monkeypatch.setattr(searching._Search, "_cut_off", noted)
    for seed in (*range(80), 1_323, 1_568, 1_977, 3_169, 4_128, 4_407, 4_506, 103_397, 103_923, 105_312):
        calls = small(seed)
        for i, given in enumerate([calls, corrupted(calls, 3 * seed), corrupted(calls, 3 * seed + 1)] if calls else []):
            for history in (given, aged(given, 7 * seed + i)):
                assert search(history, PLENTY).word == (LINEARIZABLE if linearizable(history) else STUCK), seed
    assert True in cuts and cuts.count(False) >= 5

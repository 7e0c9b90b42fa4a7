"""The search and the contradictions against a reference that tries every order, on small histories by the thousand."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from naive_catalog import linearizable

from checkers.catalog.calls import CREATE, DELETE, LIST, SCHEMA, Call, TableSeen
from checkers.catalog.judge import judged
from checkers.catalog.refute import refutations
from checkers.catalog.search import LINEARIZABLE, STUCK, UNDECIDED, parts, search
from checkers.columns.codes import NEVER
from checkers.made.catalog import CatalogShape, catalog_calls, corrupted

PLENTY = 1 << 40


def small(seed: int) -> list[Call]:
    entropy = Random(seed)
    shape = CatalogShape(
        calls=entropy.randrange(3, 12),
        clients=entropy.randrange(1, 6),
        names=entropy.randrange(1, 4),
        unknown=entropy.choice((0.0, 0.2, 0.5, 0.8)),
        tells=entropy.random() < 0.5,
        refusals=entropy.random() < 0.7,
    )
    return catalog_calls(shape, seed)


def aged(calls: list[Call], seed: int) -> list[Call]:
    """The same history, in which half of what is seen is asked for so late that it is old."""
    entropy, spans = Random(seed), []
    end = max(event for call in calls for event in (call.order, call.complete) if event != NEVER)
    for call in calls:
        begin, over = float(call.order), float(call.complete)
        if not call.changes and entropy.random() < 0.5:
            begin = entropy.uniform(call.order, end + 1)
            over = max(over, entropy.uniform(begin, end + 2))
        spans.append((begin, over))
    times = sorted({time for span in spans for time in span if time < NEVER})

    def event(time: float) -> int:
        return bisect_right(times, time) - 1

    late = []
    for call, (begin, over) in zip(calls, spans, strict=True):
        complete = NEVER if call.complete == NEVER else event(over)
        late.append(replace(call, order=event(begin), since=event(float(call.order)), complete=complete))
    return sorted(late, key=lambda call: call.order)


@pytest.mark.parametrize("block", range(4))
def test_the_search_says_what_trying_every_order_says(block: int) -> None:
    words: Counter[str] = Counter()
    for seed in range(block * 500, block * 500 + 500):
        calls = small(seed)
        histories = [calls, *(corrupted(calls, 3 * seed + i) for i in range(2))] if calls else []
        for i, history in enumerate(histories):
            expected = linearizable(history)
            assert expected or i > 0, f"a history that is linearizable by construction: {seed}"
            answer = search(history, PLENTY)
            assert answer.word == (LINEARIZABLE if expected else STUCK), (seed, i)
            words[answer.word] += 1
            if i == seed % 3:
                old = aged(history, seed)
                assert search(old, PLENTY).word == (LINEARIZABLE if linearizable(old) else STUCK), (seed, i)
    assert min(words.values()) > 200


def test_names_that_nothing_links_are_searched_apart() -> None:
    """As trying every order of all calls says, for which nothing falls apart."""
    words: Counter[str] = Counter()
    split = 0
    for seed in range(800):
        calls = [call for call in small(seed) if not call.total]
        for history in (calls, [call for call in corrupted(calls, seed) if not call.total] if calls else []):
            asked = [call for call in history if call.changes or call.seen]
            pieces = list(parts(asked))
            assert sorted(call.order for piece, _ in pieces for call in piece) == sorted(call.order for call in asked)
            split += len(pieces) > 1
            answer = search(history, PLENTY)
            assert answer.word == (LINEARIZABLE if linearizable(history) else STUCK), seed
            words[answer.word] += 1
    assert split > 200 and min(words.values()) > 100


def test_an_id_links_the_names_that_answers_tell_it_of() -> None:
    """Each name by itself is as it should be: nobody knows the id that the creation of either gave its table."""
    made = [Call(order, order, NEVER, CREATE, name) for name, order in ((0, 0), (1, 1))]
    shown = [
        Call(2 + 2 * name, 2 + 2 * name, 3 + 2 * name, SCHEMA, seen=(TableSeen(name, False, 7, 0),)) for name in (0, 1)
    ]
    assert len(list(parts([*made, shown[0]]))) == 2 and len(list(parts([*made, *shown]))) == 1
    assert search([*made, shown[0]], PLENTY).word == LINEARIZABLE
    assert search([*made, *shown], PLENTY).word == STUCK


def test_a_part_that_is_stuck_is_told_though_another_is_undecided() -> None:
    hard = catalog_calls(CatalogShape(calls=60, clients=8, names=3, unknown=0.6), 5)
    hard = [call for call in hard if not call.total]
    wrong = Call(999, 999, 1000, SCHEMA, seen=(TableSeen(50, False, 7, 0),))
    assert search(hard, 20).word == UNDECIDED
    for calls in ([wrong, *hard], [*hard, wrong]):
        answer = search(calls, 20)
        assert answer.word == STUCK and answer.names == (50,)


@pytest.mark.parametrize("block", range(2))
def test_contradictions_are_found_in_no_history_that_has_an_order(block: int) -> None:
    found: Counter[str] = Counter()
    for seed in range(block * 1000, block * 1000 + 1000):
        calls = small(seed)
        for i in range(3 if calls else 0):
            history = corrupted(calls, 3 * seed + i)
            names = [finding.anomaly for finding in refutations(history, PLENTY)]
            assert not (names and linearizable(history)), (seed, i, names)
            found.update(names)
    assert {"lost-table", "phantom-table", "flickering-table", "version-went-back", "version-without-alter"} <= set(
        found
    )


@pytest.mark.parametrize("seed", range(6))
def test_long_histories_have_an_order_and_one_wrong_answer_leaves_none(seed: int) -> None:
    calls = catalog_calls(CatalogShape(600, 6, 4, 0.04), seed)
    part = judged(calls, 8, PLENTY, 400_000)
    assert part.counts == {} and part.reasons == ()
    lists = [i for i, call in enumerate(calls) if call.total and len(call.seen) > 1]
    place = lists[len(lists) // 2]
    seen = calls[place].seen
    other = seen[0].id + 1000 if seen[0].id is not None else 0
    wrong = [*calls[:place], _with_seen(calls[place], (TableSeen(seen[0].name, False, other, 0), *seen[1:]))]
    assert judged([*wrong, *calls[place + 1 :]], 8, PLENTY, 400_000).counts


def _with_seen(call: Call, seen: tuple[TableSeen, ...]) -> Call:
    return Call(call.order, call.since, call.complete, call.kind, total=True, seen=seen)


def test_where_the_work_is_used_up_nothing_is_claimed() -> None:
    calls = catalog_calls(CatalogShape(200, 6, 4, 0.1), 1)
    assert search(calls, 20).word == UNDECIDED
    assert judged(calls, 8, PLENTY, 20).reasons


def test_a_table_that_nobody_acknowledged_keeps_the_id_that_was_seen() -> None:
    """Made under an id that a list shows, deleted, and seen again under that id: no order."""
    made = Call(0, 0, NEVER, CREATE, 1)
    again = Call(1, 1, NEVER, CREATE, 1)
    shown = Call(2, 2, 3, LIST, total=True, seen=(TableSeen(1, False, 7, 0),))
    gone = Call(4, 4, 5, DELETE, 1, id=7)
    back = Call(6, 6, 7, LIST, total=True, seen=(TableSeen(1, False, 7, 0),))
    other = Call(6, 6, 7, LIST, total=True, seen=(TableSeen(1, False, 8, 0),))
    assert search([made, again, shown, gone, back], PLENTY).word == STUCK
    assert search([made, again, shown, gone, other], PLENTY).word == LINEARIZABLE


def test_an_answer_that_may_be_old_shows_what_was_there_within_its_bound() -> None:
    made = Call(0, 0, 1, CREATE, 1, id=7)
    gone = Call(2, 2, 3, DELETE, 1, id=7)
    seen = (TableSeen(1, False, 7, 0),)
    for since, word in ((1, LINEARIZABLE), (2, LINEARIZABLE), (3, STUCK)):
        assert search([made, gone, Call(8, since, 9, LIST, total=True, seen=seen)], PLENTY).word == word


def test_a_table_that_was_seen_and_one_that_was_not_are_no_two_ways_to_the_same_end() -> None:
    """One of two creations of unknown outcome made what was deleted, and the other one what both answers show."""
    made, again = Call(0, 0, NEVER, CREATE, 1), Call(1, 1, NEVER, CREATE, 1)
    early = Call(2, 2, 10, SCHEMA, seen=(TableSeen(1, False, 7),))
    gone = Call(3, 3, 5, DELETE, 1)
    late = Call(6, 6, 8, SCHEMA, seen=(TableSeen(1, False, 7),))
    assert search([made, again, early, gone, late], PLENTY).word == LINEARIZABLE
    assert search([made, early, gone, late], PLENTY).word == STUCK

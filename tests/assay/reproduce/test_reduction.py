"""Delta debugging: nothing can be left out of what it keeps, and it asks no more than is known of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.reproduce.reduction import OutOfTime, Trials, ddmin, reduced


def asked(count: int, breaks: Callable[[frozenset[int]], bool]) -> tuple[list[int], int]:
    """What ddmin keeps of a number of items, and how often it asked; items have to stay in their order."""
    questions = 0

    def question(items: Sequence[int]) -> bool:
        nonlocal questions
        questions += 1
        assert list(items) == sorted(set(items))
        return breaks(frozenset(items))

    return ddmin(range(count), question), questions


def assert_minimal(count: int, breaks: Callable[[frozenset[int]], bool]) -> int:
    kept, questions = asked(count, breaks)
    assert breaks(frozenset(kept))
    assert not any(breaks(frozenset(kept) - {item}) for item in kept if len(kept) > 1)
    assert questions <= count * count + 3 * count
    return questions


@given(st.integers(1, 60), st.lists(st.sets(st.integers(0, 59), min_size=1, max_size=8), min_size=1, max_size=4))
def test_monotone_predicates_are_reduced_to_one_of_their_causes(count: int, causes: list[set[int]]) -> None:
    """It breaks if all of some items are there."""
    within = [frozenset(item % count for item in cause) for cause in causes]
    assert_minimal(count, lambda items: any(cause <= items for cause in within))
    kept, _ = asked(count, lambda items: any(cause <= items for cause in within))
    assert frozenset(kept) in within


@given(st.integers(1, 24), st.integers(0, 2**32), st.floats(0.05, 0.95))
def test_what_is_kept_is_one_minimal_whatever_breaks(count: int, seed: int, share: float) -> None:
    """Whether a set breaks is drawn for each; all together do, none does not."""

    def breaks(items: frozenset[int]) -> bool:
        if len(items) in (0, count):
            return bool(items)
        return Random(f"{seed} {sorted(items)}").random() < share

    assert_minimal(count, breaks)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 100, 1_000, 4_097])
def test_one_cause_takes_two_questions_a_halving(count: int) -> None:
    for cause in {0, count // 2, count - 1}:
        assert assert_minimal(count, lambda items, cause=cause: cause in items) <= 2 * math.log2(count) + 2


def test_all_items_needed_take_no_more_than_the_bound() -> None:
    assert assert_minimal(64, lambda items: len(items) == 64) <= 64 * 64 + 3 * 64


def half_of(text: str, breaks: Callable[[str], bool]) -> str:
    while len(text) > 1 and breaks(text[len(text) // 2 :]):
        text = text[len(text) // 2 :]
    return text


def letters_of(text: str, breaks: Callable[[str], bool]) -> str:
    return "".join(ddmin(text, lambda letters: breaks("".join(letters))))


def test_passes_go_on_until_none_helps_and_nothing_is_asked_twice() -> None:
    judged: list[str] = []

    def breaks(text: str) -> bool:
        judged.append(text)
        return "a" in text and "b" in text

    trials = Trials(breaks, lambda text: text, 60.0)
    assert sorted(reduced("xxaxxxbxxxxx", [half_of, letters_of], trials)) == ["a", "b"]
    assert len(judged) == len(set(judged)) == trials.asked
    assert trials.best == "ab"


def test_the_best_so_far_is_there_whenever_it_ends() -> None:
    def breaks(text: str) -> bool:
        if len(text) < 6:
            raise KeyboardInterrupt
        return "a" in text

    trials = Trials(breaks, lambda text: text, 60.0)
    with pytest.raises(KeyboardInterrupt):
        reduced("xxxxxxxxxxxxa", [letters_of], trials)
    assert trials.best == "xxxxxxa"
    spent = Trials(lambda text: True, lambda text: text, 0.0)
    with pytest.raises(OutOfTime):
        reduced("ab", [letters_of], spent)
    assert spent.best is None

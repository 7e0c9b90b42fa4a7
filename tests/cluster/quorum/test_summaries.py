"""Q4: summaries of sets of ids tell how sets differ, exactly or not at all, whatever the sketch's size."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from cluster.quorum.ids import MutationId
from cluster.quorum.summaries import ALL_IDS, Difference, SetHash, Summary, difference, more_detail, summarize

IDS = st.builds(MutationId, time=st.integers(1, 400), node=st.sampled_from(["t1", "t2.9f3a0b1c", "t3"]))
SETS = st.sets(IDS, max_size=30)
DETAILS = st.sampled_from([0, 1, 2, 3, 4, 7, 16, 60, ALL_IDS])


def true_difference(one: set[MutationId], other: set[MutationId], bound: int) -> Difference:
    return Difference(
        tuple(sorted(each for each in one - other if each.time >= bound)),
        tuple(sorted(each for each in other - one if each.time >= bound)),
    )


@given(SETS, SETS, SETS, st.integers(0, 400), DETAILS)
def test_a_difference_is_the_true_one_or_none_and_equal_means_equal(
    common: set[MutationId], one: set[MutationId], other: set[MutationId], bound: int, detail: int
) -> None:
    one, other = common | one, common | other
    mine, others = summarize(one, bound, detail), summarize(other, bound, detail)
    truth = true_difference(one, other, bound)
    assert mine.detail == others.detail == detail
    assert mine.agrees(others) == (truth == Difference((), ()))
    found = difference(mine, others)
    assert found in (None, truth)
    if detail == ALL_IDS:
        assert found == truth


@given(SETS, SETS, st.integers(0, 400))
def test_asking_for_more_and_more_always_ends_with_the_true_difference(
    one: set[MutationId], other: set[MutationId], first: int
) -> None:
    detail = more_detail(0, max(len(one), len(other)), first)
    for _ in range(10):
        found = difference(summarize(one, 0, detail), summarize(other, 0, detail))
        if found is not None:
            break
        detail = more_detail(detail, max(len(one), len(other)), first)
    assert found == true_difference(one, other, 0)


def test_small_differences_of_large_sets_are_told_by_small_sketches() -> None:
    """A sketch of twice as many cells as there are differences tells them nearly always."""
    entropy = random.Random(1)
    told = 0
    for _ in range(20):
        common = {MutationId(entropy.getrandbits(60), "t1") for _ in range(2_000)}
        mine = common | {MutationId(entropy.getrandbits(60), "t2") for _ in range(20)}
        others = common | {MutationId(entropy.getrandbits(60), "t3") for _ in range(20)}
        found = difference(summarize(mine, 0, 80), summarize(others, 0, 80))
        assert found in (None, true_difference(mine, others, 0))
        told += found is not None
    assert told >= 18


@given(st.lists(IDS, unique=True, max_size=20), st.sets(st.integers(0, 19)))
def test_a_set_hash_that_grows_and_shrinks_is_that_of_what_is_left(ids: list[MutationId], gone: set[int]) -> None:
    growing = SetHash()
    for each in ids:
        growing.add(each)
    left = [each for at, each in enumerate(ids) if at not in gone]
    for at, each in enumerate(ids):
        if at in gone:
            growing.remove([each])
    assert growing.summary(0) == summarize(left, 0)


def test_what_a_weak_comparison_and_an_overflow_taken_for_nothing_miss() -> None:
    one = {MutationId(time, "t1") for time in range(1, 41)}
    other = {MutationId(time, "t2") for time in range(1, 41)}
    plain = summarize(one, 0), summarize(other, 0)
    assert not plain[0].agrees(plain[1]) and plain[0].agrees(plain[1], weak=True)
    tiny = summarize(one, 0, 3), summarize(other, 0, 3)
    assert difference(*tiny) is None
    assert difference(*tiny, overflow_is_equal=True) == Difference((), ())


def test_summaries_of_unequal_detail_tell_nothing() -> None:
    ids = [MutationId(1, "t1")]
    assert difference(summarize(ids, 0, 4), summarize(ids, 0, 8)) is None
    assert difference(summarize(ids, 0), Summary(0, 0, b"")) is None

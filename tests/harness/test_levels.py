"""Q1's rule, which operations always share a replica, against all sets of replicas of small topologies."""

from itertools import chain, combinations, product

import pytest

from harness.errors import UserError
from harness.levels import LEVELS, binds, data_centre_of, demand, quorum, read_replication, replication_text

TOPOLOGIES = [
    dict(zip("abc", factors, strict=False)) for count in (1, 2, 3) for factors in product((1, 2, 3), repeat=count)
]
TOPOLOGIES += [{"a": 5}, {"a": 4, "b": 1}]


def enough(answered, level, here, factors):
    """Whether a set of (data centre, number) replicas satisfies a level, by what the level says in words."""
    total = sum(factors.values())
    local = sum(name == here for name, _ in answered)
    return {
        "ONE": len(answered) >= 1,
        "TWO": len(answered) >= 2,
        "THREE": len(answered) >= 3,
        "QUORUM": 2 * len(answered) > total,
        "ALL": len(answered) == total,
        "LOCAL_ONE": local >= 1,
        "LOCAL_QUORUM": 2 * local > factors.get(here, 0),
        "EACH_QUORUM": all(2 * sum(n == name for n, _ in answered) > size for name, size in factors.items()),
    }[level]


def every_set_meets(one, other, factors):
    """The answer sets of the one against those of the other, all of them."""
    replicas = [(name, number) for name, size in factors.items() for number in range(size)]
    sets = list(chain.from_iterable(combinations(replicas, size) for size in range(len(replicas) + 1)))
    left = [set(chosen) for chosen in sets if enough(chosen, *one, factors)]
    right = [set(chosen) for chosen in sets if enough(chosen, *other, factors)]
    return all(mine & theirs for mine in left for theirs in right)


def places(factors):
    """Levels with their data centres, those that the topology can satisfy."""
    for level in LEVELS:
        if {"TWO": 2, "THREE": 3}.get(level, 1) > sum(factors.values()):
            continue
        yield from ((level, name) for name in (factors if level.startswith("LOCAL") else (None,)))


@pytest.mark.parametrize("factors", [f for f in TOPOLOGIES if sum(f.values()) <= 6], ids=replication_text)
def test_the_rule_is_what_all_sets_of_replicas_say(factors):
    levels = list(places(factors))
    for one, other in product(levels, levels):
        assert binds(one, other, factors) == every_set_meets(one, other, factors), (one, other)


def test_the_rule_as_the_design_says_it_in_words():
    one, two = {"a": 3}, {"a": 3, "b": 3}
    assert binds(("QUORUM", None), ("QUORUM", None), two)
    assert all(binds(("ALL", None), (level, "a"), two) for level in LEVELS)
    assert not any(binds(("ONE", None), (level, "a"), two) for level in LEVELS if level != "ALL")
    assert binds(("LOCAL_QUORUM", "a"), ("LOCAL_QUORUM", "a"), two)
    assert not binds(("LOCAL_QUORUM", "a"), ("LOCAL_QUORUM", "b"), two)
    assert binds(("EACH_QUORUM", None), ("LOCAL_QUORUM", "b"), two)
    assert not binds(("QUORUM", None), ("LOCAL_QUORUM", "a"), two)
    assert binds(("QUORUM", None), ("LOCAL_QUORUM", "a"), one)
    assert binds(("TWO", None), ("TWO", None), one)
    assert not binds(("TWO", None), ("TWO", None), two)


def test_replication_reads_back_and_a_majority_is_the_smallest():
    assert [quorum(n) for n in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]
    for factors in TOPOLOGIES:
        assert read_replication(replication_text(factors)) == factors


@pytest.mark.parametrize("text", ["", "a", "a:", ":3", "a:0", "a:-1", "a:x", "a:1,a:2", "a:1,"])
def test_replication_that_is_none_is_refused_in_a_sentence(text):
    with pytest.raises(UserError, match="is no replication"):
        read_replication(text)


@pytest.mark.parametrize(
    ("level", "here", "says"),
    [("MOST", None, "no consistency level"), ("THREE", None, "only 2"), ("LOCAL_ONE", "z", "none is in"),
     ("LOCAL_QUORUM", None, "no data centre")],
)  # fmt: skip
def test_levels_that_can_not_be_are_refused_in_a_sentence(level, here, says):
    with pytest.raises(UserError, match=says):
        demand(level, here, {"a": 1, "b": 1})


@pytest.mark.parametrize("factors", [f for f in TOPOLOGIES if sum(f.values()) <= 5], ids=replication_text)
def test_answers_are_enough_when_the_level_in_words_says_so(factors):
    replicas = [(name, number) for name, size in factors.items() for number in range(size)]
    sets = list(chain.from_iterable(combinations(replicas, size) for size in range(len(replicas) + 1)))
    for level, here in places(factors):
        wanted = demand(level, here, factors)
        for chosen in sets:
            assert wanted.met_by([name for name, _ in chosen]) == enough(chosen, level, here, factors)
        assert wanted.total == min(len(chosen) for chosen in sets if enough(chosen, level, here, factors))


def test_a_zone_names_its_data_centre():
    assert [data_centre_of(zone) for zone in ("z1", "dc2/z3", "")] == ["dc1", "dc2", "dc1"]

"""Consistency levels (Q1): what they ask for, and which of them always meet, against brute force."""

from __future__ import annotations

from itertools import combinations

import pytest

from harness.levels import Level, LevelError, always_meet, data_centre_of, parse_level, required

TOPOLOGIES = (
    {"dc1": 1},
    {"dc1": 2},
    {"dc1": 3},
    {"dc1": 5},
    {"dc1": 1, "dc2": 1},
    {"dc1": 3, "dc2": 1},
    {"dc1": 2, "dc2": 2},
    {"dc1": 3, "dc2": 3},
    {"dc1": 2, "dc2": 1, "dc3": 1},
)


def enough(level: Level, factors: dict[str, int], local: str) -> list[frozenset[tuple[str, int]]] | None:
    """Every set of replicas that satisfies a level; None where none does."""
    try:
        wanted = required(level, factors, local)
    except LevelError:
        return None
    replicas = [(name, i) for name, count in factors.items() for i in range(count)]
    sets = [frozenset(each) for size in range(len(replicas) + 1) for each in combinations(replicas, size)]
    found = [each for each in sets if wanted.met_by([name for name, _ in sorted(each)])]
    assert min(map(len, found)) == wanted.total
    return found


@pytest.mark.parametrize("factors", TOPOLOGIES, ids=str)
def test_levels_always_meet_iff_no_two_of_their_sets_are_disjoint(factors: dict[str, int]) -> None:
    places = [(level, local) for level in Level for local in factors]
    for i, (level, local) in enumerate(places):
        mine = enough(level, factors, local)
        for other, elsewhere in places[i:]:
            theirs = enough(other, factors, elsewhere)
            if mine is None or theirs is None:
                continue
            smallest = [each for each in mine if len(each) == min(map(len, mine))]
            meet = all(a & b for a in smallest for b in theirs)
            rule = always_meet(required(level, factors, local), required(other, factors, elsewhere), factors)
            assert rule == meet, (level, local, other, elsewhere)


def test_what_a_level_asks_of_two_data_centres_of_three() -> None:
    factors = {"dc1": 3, "dc2": 3}
    total = {level: required(level, factors, "dc2").total for level in Level}
    assert total == {
        Level.ONE: 1,
        Level.TWO: 2,
        Level.THREE: 3,
        Level.QUORUM: 4,
        Level.ALL: 6,
        Level.LOCAL_ONE: 1,
        Level.LOCAL_QUORUM: 2,
        Level.EACH_QUORUM: 4,
    }
    assert required(Level.LOCAL_QUORUM, factors, "dc2").each == (("dc2", 2),)
    assert not always_meet(
        required(Level.QUORUM, factors, "dc1"), required(Level.LOCAL_QUORUM, factors, "dc1"), factors
    )
    assert always_meet(
        required(Level.EACH_QUORUM, factors, "dc1"), required(Level.LOCAL_QUORUM, factors, "dc2"), factors
    )


@pytest.mark.parametrize(
    ("level", "factors", "local"),
    [
        (Level.TWO, {"dc1": 1}, "dc1"),
        (Level.THREE, {"dc1": 1, "dc2": 1}, "dc1"),
        (Level.LOCAL_ONE, {"dc1": 3}, "dc2"),
        (Level.LOCAL_QUORUM, {"dc1": 3, "dc2": 0}, "dc2"),
        (Level.ALL, {}, "dc1"),
        (Level.EACH_QUORUM, {}, "dc1"),
    ],
)
def test_a_level_that_the_replica_set_cannot_satisfy_is_refused(
    level: Level, factors: dict[str, int], local: str
) -> None:
    with pytest.raises(LevelError):
        required(level, factors, local)


def test_names_of_levels_and_zones() -> None:
    assert parse_level("EACH_QUORUM") is Level.EACH_QUORUM
    with pytest.raises(LevelError, match="'SOME'"):
        parse_level("SOME")
    assert [data_centre_of(zone) for zone in ("z1", "dc2/z3", "")] == ["dc1", "dc2", "dc1"]

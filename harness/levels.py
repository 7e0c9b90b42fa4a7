"""Consistency levels: how many replicas of which data centres each asks for, and which two levels always meet (Q1).

The cluster's coordinators and the judges of its histories read the same rules here. After Cassandra's documentation of
its consistency levels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Level(StrEnum):
    """How much of a replica set an operation waits for; `local` is the coordinator's data centre."""

    ONE = "ONE"
    TWO = "TWO"
    THREE = "THREE"
    QUORUM = "QUORUM"
    ALL = "ALL"
    LOCAL_ONE = "LOCAL_ONE"
    LOCAL_QUORUM = "LOCAL_QUORUM"
    EACH_QUORUM = "EACH_QUORUM"


Factors: TypeAlias = Mapping[str, int]
"""How many replicas each data centre has."""

ONLY_DATA_CENTRE = "dc1"

_FIXED = {Level.ONE: 1, Level.TWO: 2, Level.THREE: 3}


class LevelError(ValueError):
    """The level does not exist, or this replica set can't satisfy it; the message says which."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a level asks for: `anywhere` replicas wherever they are, or (where that is 0) so many in `each` place."""

    anywhere: int
    each: tuple[tuple[str, int], ...] = ()

    @property
    def total(self) -> int:
        """The size of the smallest set of replicas that is enough."""
        return self.anywhere or sum(count for _, count in self.each)

    def met_by(self, data_centres: Iterable[str]) -> bool:
        """Whether replicas in these data centres, one entry each, are enough."""
        found = list(data_centres)
        return len(found) >= self.anywhere and all(found.count(name) >= count for name, count in self.each)


def parse_level(name: str) -> Level:
    """The level of this name; raises LevelError."""
    try:
        return Level(name)
    except ValueError:
        known = ", ".join(Level)
        raise LevelError(f"there is no consistency level {name!r}; known are {known}") from None


def majority(count: int) -> int:
    """More than half of so many."""
    return count // 2 + 1


def required(level: Level, factors: Factors, local: str) -> Requirement:
    """What a level asks of a replica set, from a coordinator in the data centre `local`.

    Raises LevelError where the whole replica set would not be enough.
    """
    present = {name: count for name, count in factors.items() if count}
    if level in (Level.LOCAL_ONE, Level.LOCAL_QUORUM):
        replicas = present.get(local, 0)
        wanted = Requirement(0, ((local, majority(replicas) if level == Level.LOCAL_QUORUM else 1),))
        return _satisfiable(level, wanted, replicas)
    total = sum(present.values())
    if level == Level.EACH_QUORUM:
        return _satisfiable(level, Requirement(0, tuple((name, majority(n)) for name, n in present.items())), total)
    if level == Level.ALL:
        return _satisfiable(level, Requirement(max(total, 1)), total)
    return _satisfiable(level, Requirement(_FIXED.get(level) or majority(total)), total)


def _satisfiable(level: Level, wanted: Requirement, replicas: int) -> Requirement:
    if not 0 < wanted.total <= replicas:
        raise LevelError(f"{level} asks for {wanted.total or 1} replicas, and {replicas} can count")
    return wanted


def always_meet(first: Requirement, second: Requirement, factors: Factors) -> bool:
    """Whether every set of replicas that is enough for one shares a replica with every set enough for the other.

    Sets that don't meet are disjoint, so both fit into the replica set side by side: data centre by data centre where
    both say how many they need in each; a number wherever they are fits into what the other one's smallest set leaves.
    """
    if first.each and second.each:
        needs = dict(second.each)
        return any(count + needs.get(name, 0) > factors.get(name, 0) for name, count in first.each if name in needs)
    return first.total + second.total > sum(factors.values())


def data_centre_of(zone: str) -> str:
    """The data centre that a zone belongs to: its label names it before a slash (`dc2/z1`), or there is only one."""
    name, slash, _ = zone.partition("/")
    return name if slash else ONLY_DATA_CENTRE

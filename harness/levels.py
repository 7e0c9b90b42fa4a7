"""Consistency levels: which replicas an operation waits for, and which two operations always have one in common (Q1).

A level asks for a number of replicas anywhere, or in certain data centres. Whether every set of replicas that
satisfies one level meets every set that satisfies another is computed from these numbers. Two disjoint sets exist if
and only if in each data centre there is room for what both ask for there, and in what is left of all data centres
together for what they ask for anywhere: replicas of a data centre differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from harness.errors import UserError

LEVELS: Final = ("ONE", "TWO", "THREE", "LOCAL_ONE", "QUORUM", "LOCAL_QUORUM", "EACH_QUORUM", "ALL")
"""The consistency levels, as `mode` of an operation names them."""

BY_DATA_CENTRE: Final = ("LOCAL_ONE", "LOCAL_QUORUM", "EACH_QUORUM")
"""Levels that ask for replicas in certain data centres."""

_ANYWHERE: Final = {"ONE": 1, "TWO": 2, "THREE": 3}


@dataclass(frozen=True, slots=True)
class Demand:
    """How many replicas must answer: `anywhere` and, apart from these, in each data centre."""

    anywhere: int
    in_each: Mapping[str, int]

    @property
    def total(self) -> int:
        """The size of the smallest set of replicas that is enough."""
        return self.anywhere + sum(self.in_each.values())

    def met_by(self, data_centres: Iterable[str]) -> bool:
        """Whether replicas in these data centres, each named once for each replica, are enough."""
        found = list(data_centres)
        return len(found) >= self.total and all(found.count(name) >= wanted for name, wanted in self.in_each.items())


def quorum(replicas: int) -> int:
    """The smallest majority."""
    return replicas // 2 + 1


def read_replication(text: str) -> dict[str, int]:
    """`dc1:3,dc2:2` as replication factors by data centre; raises UserError."""
    factors: dict[str, int] = {}
    for part in text.split(","):
        name, colon, number = part.strip().rpartition(":")
        if not colon or not name or not number.isdecimal() or int(number) < 1 or name in factors:
            raise UserError(f"{text!r} is no replication: it reads like dc1:3,dc2:3, each data centre once.")
        factors[name] = int(number)
    return factors


def replication_text(factors: Mapping[str, int]) -> str:
    """Replication factors as text, data centres in order of their names."""
    return ",".join(f"{name}:{factors[name]}" for name in sorted(factors))


def demand(level: str, data_centre: str | None, factors: Mapping[str, int]) -> Demand:
    """What a level asks for of replicas by `factors`, coordinated in a data centre (None: the only one).

    Raises UserError for an unknown level, for a local one without a known data centre, and for one that these
    replication factors can't satisfy.
    """
    total = sum(factors.values())
    wanted: Demand
    if level in _ANYWHERE:
        wanted = Demand(_ANYWHERE[level], {})
    elif level == "QUORUM":
        wanted = Demand(quorum(total), {})
    elif level == "ALL":
        wanted = Demand(total, {})
    elif level == "EACH_QUORUM":
        wanted = Demand(0, {name: quorum(factor) for name, factor in factors.items()})
    elif level in ("LOCAL_ONE", "LOCAL_QUORUM"):
        here = _local(level, data_centre, factors)
        wanted = Demand(0, {here: 1 if level == "LOCAL_ONE" else quorum(factors[here])})
    else:
        raise UserError(f"There is no consistency level {level!r}; the levels are {', '.join(LEVELS)}.")
    if wanted.anywhere > total:
        raise UserError(f"The level {level} asks for {wanted.anywhere} replicas, of which there are only {total}.")
    return wanted


def _local(level: str, data_centre: str | None, factors: Mapping[str, int]) -> str:
    if data_centre is None and len(factors) == 1:
        return next(iter(factors))
    if data_centre is None or data_centre not in factors:
        where = "no data centre is stated" if data_centre is None else f"none is in data centre {data_centre}"
        raise UserError(f"The level {level} asks for local replicas of {replication_text(factors)}, but {where}.")
    return data_centre


def always_meet(one: Demand, other: Demand, factors: Mapping[str, int]) -> bool:
    """Whether every set of replicas that satisfies one demand has a replica in common with every set that satisfies
    the other; see the module."""
    left = 0
    for name, factor in factors.items():
        room = factor - one.in_each.get(name, 0) - other.in_each.get(name, 0)
        if room < 0:
            return True
        left += room
    return one.anywhere + other.anywhere > left


def binds(
    one: tuple[str, str | None],
    other: tuple[str, str | None],
    factors: Mapping[str, int],
) -> bool:
    """Whether what was done at the first (level, data centre) must be seen at the second: Q1's rule. Raises UserError
    as `demand` does."""
    return always_meet(demand(*one, factors), demand(*other, factors), factors)


ONLY_DATA_CENTRE: Final = "dc1"


def data_centre_of(zone: str) -> str:
    """The data centre that a zone belongs to: its label names it before a slash (`dc2/z1`), or there is only one."""
    name, slash, _ = zone.partition("/")
    return name if slash else ONLY_DATA_CENTRE

"""What ranges of time tell each other of a counter: sums before each range, and reads that begin in one and end in
another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeAlias

from checkers.findings import Finding, Findings, Key, earliest, merged
from checkers.jepsen.numbers import json_able

BELOW: Final = "below-bounds"
ABOVE: Final = "above-bounds"

_ROWS_PER_RANGE: Final = 1 << 20
"""Operations in a range of time, which has two events of each."""

_MOST_RANGES: Final = 1 << 12
"""Ranges of longer histories are longer, so that what tasks are told of them stays small."""

MOST_TOLD: Final = 1 << 14
"""Sums of so many counters and ranges are told to every task; more counters than that are work for many tasks each by
itself."""


_MOST_COUNTERS: Final = 1_000
"""So many counters are split by time; of more each is judged by itself, and nobody is told of sums."""


class Sums(NamedTuple):
    """What adds and decrements come to over a stretch of time, exactly: of all that began and of all that were
    acknowledged there; `latest` is the last acknowledgement there and the invocation it belongs to (-1: none)."""

    begun_rise: int = 0
    begun_fall: int = 0
    done_rise: int = 0
    done_fall: int = 0
    latest: tuple[int, int] = (-1, -1)

    def with_later(self, other: Sums) -> Sums:
        """Both stretches."""
        return Sums(
            self.begun_rise + other.begun_rise,
            self.begun_fall + other.begun_fall,
            self.done_rise + other.done_rise,
            self.done_fall + other.done_fall,
            max(self.latest, other.latest),
        )


Totals: TypeAlias = Mapping[tuple[Key, int], Sums]
"""By counter and range: the sums within it, or before it."""


def range_width(operations: int) -> int:
    """Events in a range of a history with so many operations."""
    return 2 * max(_ROWS_PER_RANGE, -(-operations // _MOST_RANGES))


def summed(told: list[Totals | None]) -> Totals | None:
    """The sums of several parts of a history; None if tasks can't be told of so many."""
    total: dict[tuple[Key, int], Sums] = {}
    for part in told:
        if part is None:
            return None
        for place, sums in part.items():
            total[place] = total[place].with_later(sums) if place in total else sums
    counters = len({key for key, _ in total})
    return total if len(total) <= MOST_TOLD and counters <= _MOST_COUNTERS else None


def before_each(totals: Totals) -> dict[tuple[Key, int], Sums]:
    """What came before each range in which a counter has anything."""
    ranges: dict[Key, list[int]] = {}
    for key, number in sorted(totals):
        ranges.setdefault(key, []).append(number)
    found: dict[tuple[Key, int], Sums] = {}
    for key, numbers in ranges.items():
        sums = accumulate((totals[key, number] for number in numbers), Sums.with_later, initial=Sums())
        found |= {(key, number): before for number, before in zip(numbers, sums, strict=False)}
    return found


class Half(NamedTuple):
    """A read at the moment it began, or else at which it ended: what had risen and fallen by then of adds that were
    acknowledged, or else of those that had begun; `latest` is the last acknowledged add, if the read begins here."""

    key: Key
    invoke: int
    value: int
    begins: bool
    rise: int
    fall: int
    latest: int = -1


@dataclass(frozen=True, slots=True)
class CounterPart:
    """What was found, and halves of reads whose others are elsewhere."""

    part: Findings
    halves: tuple[Half, ...] = ()


def united(parts: Iterable[CounterPart], explain: int) -> CounterPart:
    """All parts as one; halves that meet are judged."""
    every = list(parts)
    waiting: dict[tuple[Key, int, int, bool], list[Half]] = {}
    met: list[Findings] = []
    for half in (half for part in every for half in part.halves):
        others = waiting.get((half.key, half.invoke, half.value, not half.begins))
        if others:
            other = others.pop()
            met.append(_judged(*((half, other) if half.begins else (other, half))))
        else:
            waiting.setdefault((half.key, half.invoke, half.value, half.begins), []).append(half)
    left = tuple(half for halves in waiting.values() for half in halves)
    return CounterPart(merged([*(part.part for part in every), *met], explain), left)


def _judged(begin: Half, end: Half) -> Findings:
    low, high = begin.rise + end.fall, begin.fall + end.rise
    name = BELOW if begin.value < low else ABOVE if begin.value > high else None
    if name is None:
        return Findings()
    found = found_of(name, begin.key, begin.invoke, begin.latest, (begin.value, low, high))
    return Findings(counts={name: 1}, kept=earliest([found], 1))


def found_of(name: str, key: Key, invoke: int, latest: int, numbers: tuple[Any, Any, Any]) -> Finding:
    """A read of a counter that is out of its bounds; `numbers` are its value, the lower and the upper one."""
    facts = {what: json_able(int(number)) for what, number in zip(("value", "low", "high"), numbers, strict=True)}
    return Finding(name, invoke, key, (invoke, latest) if latest >= 0 else (invoke,), facts)

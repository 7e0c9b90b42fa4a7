"""What kernels hand back: counts of anomalies and, for the first few, which operations show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from heapq import nsmallest
from typing import Any, Final, NamedTuple

import msgspec

from harness.errors import UserError


class Key(NamedTuple):
    """An object's address."""

    table: int = 0
    partition: int = 0
    row: int = 0
    column: int = 0

    @classmethod
    def of(cls, parts: Iterable[int]) -> Key:
        """The four parts, which may be of numpy."""
        return cls(*map(int, parts))


NO_KEY: Final = Key()
"""The only object of a history, or none in particular."""

PRESENCE: Final = -1
"""In place of a column: the row itself, which is there or not."""

_MOST_KEPT: Final = 8
"""Reasons, and unsupported operations, that are kept."""


class Finding(msgspec.Struct, frozen=True):
    """One anomaly to be explained. `ops` are invocation indices in the order the anomaly's class prescribes (-1: none);
    `order` is that of the operation that shows it; `facts` are further JSON-able details."""

    anomaly: str
    order: int
    key: Key
    ops: tuple[int, ...]
    facts: dict[str, Any] = {}


class Findings(msgspec.Struct, frozen=True):
    """What one or more kernel calls found. Verdicts go by `counts`, `undecided`, `reasons` and `unsupported`, of which
    merging never leaves none.

    `ops` operations and `keys` keys were judged; `counts` are anomalies by class and `kept` those to be explained;
    `undecided` keys could not be decided, for `reasons`; `searched` keys took a search; `unsupported` are operations
    that the model does not know (invocation indices), with what is wrong with each; of further numbers, `figures` add
    up, and of `lowest` and `highest` the extreme is kept.
    """

    ops: int = 0
    keys: int = 0
    counts: dict[str, int] = {}
    kept: tuple[Finding, ...] = ()
    undecided: int = 0
    reasons: tuple[str, ...] = ()
    searched: int = 0
    unsupported: tuple[tuple[int, str], ...] = ()
    figures: dict[str, int] = {}
    lowest: dict[str, int] = {}
    highest: dict[str, int] = {}


def refuse_unsupported(found: Findings, path: object, model: str) -> None:
    """Raise UserError if the history has operations that the model does not know."""
    if found.unsupported:
        event, problem = found.unsupported[0]
        raise UserError(f"{path}, event {event}: {problem}, so the model {model} can't judge it.")


def earliest(findings: Iterable[Finding], explain: int) -> tuple[Finding, ...]:
    """The first `explain` findings of each class, by the operation that shows them."""
    by_class: dict[str, list[Finding]] = {}
    for finding in findings:
        by_class.setdefault(finding.anomaly, []).append(finding)
    return tuple(
        finding
        for name in sorted(by_class)
        for finding in nsmallest(explain, by_class[name], key=lambda f: (f.order, f.key, f.ops))
    )


def counted(found: Iterable[Finding], explain: int, **others: Any) -> Findings:
    """What a kernel found, counted by class, with the `explain` earliest of each; `others` are fields of `Findings`."""
    every = list(found)
    return Findings(counts=dict(Counter(finding.anomaly for finding in every)), kept=earliest(every, explain), **others)


def merged(parts: Iterable[Findings], explain: int) -> Findings:
    """All parts as one, keeping the `explain` earliest anomalies of each class."""
    every = list(parts)
    counts = _summed(part.counts for part in every)
    figures = _summed(part.figures for part in every)
    lowest: dict[str, int] = {}
    highest: dict[str, int] = {}
    for part in every:
        for name, value in part.lowest.items():
            lowest[name] = min(value, lowest.get(name, value))
        for name, value in part.highest.items():
            highest[name] = max(value, highest.get(name, value))
    return Findings(
        ops=sum(part.ops for part in every),
        keys=sum(part.keys for part in every),
        counts={name: counts[name] for name in sorted(counts) if counts[name]},
        kept=earliest((finding for part in every for finding in part.kept), explain),
        undecided=sum(part.undecided for part in every),
        reasons=tuple(sorted({reason for part in every for reason in part.reasons}))[:_MOST_KEPT],
        searched=sum(part.searched for part in every),
        unsupported=tuple(sorted({operation for part in every for operation in part.unsupported})[:_MOST_KEPT]),
        figures={name: figures[name] for name in sorted(figures)},
        lowest=lowest,
        highest=highest,
    )


def _summed(tables: Iterable[dict[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for table in tables:
        for name, count in table.items():
            sums[name] = sums.get(name, 0) + count
    return sums

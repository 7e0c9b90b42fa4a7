"""What the kernels of these checkers hand back, and how parts of a history's answer make one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import nsmallest

from checkers.findings import Finding


@dataclass(frozen=True, slots=True)
class Part:
    """What a kernel found in some of the groups.

    `ops` operations were judged; `counts` are anomalies by class and `kept` the earliest of each; `figures` are summed
    over parts, of `lowest` and `highest` the extreme is kept; `problems` are operations (invocation indices) that the
    model does not know, with what is wrong with them; `doubts` are reasons for an unknown.
    """

    ops: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    kept: tuple[Finding, ...] = ()
    figures: dict[str, int] = field(default_factory=dict)
    lowest: dict[str, int] = field(default_factory=dict)
    highest: dict[str, int] = field(default_factory=dict)
    problems: tuple[tuple[int, str], ...] = ()
    doubts: tuple[str, ...] = ()


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


def merged(parts: Iterable[Part], explain: int) -> Part:
    """All parts as one."""
    every = list(parts)
    counts, figures = _summed(part.counts for part in every), _summed(part.figures for part in every)
    lowest: dict[str, int] = {}
    highest: dict[str, int] = {}
    for part in every:
        for name, value in part.lowest.items():
            lowest[name] = min(value, lowest.get(name, value))
        for name, value in part.highest.items():
            highest[name] = max(value, highest.get(name, value))
    return Part(
        ops=sum(part.ops for part in every),
        counts={name: counts[name] for name in sorted(counts) if counts[name]},
        kept=earliest((finding for part in every for finding in part.kept), explain),
        figures={name: figures[name] for name in sorted(figures)},
        lowest=lowest,
        highest=highest,
        problems=tuple(sorted({problem for part in every for problem in part.problems})[:8]),
        doubts=tuple(sorted({doubt for part in every for doubt in part.doubts})[:8]),
    )


def _summed(tables: Iterable[dict[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for table in tables:
        for name, count in table.items():
            sums[name] = sums.get(name, 0) + count
    return sums

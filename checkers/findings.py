"""What kernels hand back: counts of anomalies and, for the first few, which operations show them."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest
from typing import Any, TypeAlias

import msgspec

Key: TypeAlias = tuple[int, int, int, int]
"""An object's address: (table, partition, row, column)."""


class Finding(msgspec.Struct, frozen=True):
    """One anomaly to be explained. `ops` are invocation indices in the order the anomaly's class prescribes (-1: none);
    `order` is that of the operation that shows it; `facts` are further JSON-able details."""

    anomaly: str
    order: int
    key: Key
    ops: tuple[int, ...]
    facts: dict[str, Any] = {}


class Findings(msgspec.Struct, frozen=True):
    """What one or more kernel calls found (verdicts go by `counts`, `undecided` and `unsupported`, of which merging
    never leaves none): operations and keys judged, anomalies counted by class, those to be
    explained, keys that could not be decided and why, operations the model does not know (invocation indices), and
    further `figures`, which add up."""

    ops: int = 0
    keys: int = 0
    counts: dict[str, int] = {}
    kept: tuple[Finding, ...] = ()
    undecided: int = 0
    reasons: tuple[str, ...] = ()
    searched: int = 0
    unsupported: tuple[int, ...] = ()
    figures: dict[str, int] = {}


def merged(parts: Iterable[Findings], explain: int) -> Findings:
    """All parts as one, keeping the `explain` earliest anomalies of each class."""
    every = list(parts)
    counts: dict[str, int] = {}
    for part in every:
        for name, count in part.counts.items():
            counts[name] = counts.get(name, 0) + count
    kept: list[Finding] = []
    for name in sorted(counts):
        mine = [finding for part in every for finding in part.kept if finding.anomaly == name]
        kept.extend(nsmallest(explain, mine, key=lambda finding: (finding.order, finding.key, finding.ops)))
    return Findings(
        ops=sum(part.ops for part in every),
        keys=sum(part.keys for part in every),
        counts={name: counts[name] for name in sorted(counts)},
        kept=tuple(kept),
        undecided=sum(part.undecided for part in every),
        reasons=tuple(sorted({reason for part in every for reason in part.reasons}))[:8],
        searched=sum(part.searched for part in every),
        unsupported=tuple(sorted({index for part in every for index in part.unsupported})[:8]),
        figures=_summed(part.figures for part in every),
    )


def _summed(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, figure in part.items():
            total[name] = total.get(name, 0) + figure
    return total

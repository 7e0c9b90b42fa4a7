"""What inference and cycle search hand to the verdict: few enough numbers to go anywhere."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from checkers.columns.instances import Instances
from checkers.findings import NO_KEY, Finding, Key
from checkers.transactions.graph.cycles import Cycles
from checkers.transactions.mops import Ints, Txns

OWN: Final = frozenset({"internal", "future-read"})
"""Anomalies that one transaction shows by itself."""

UNWRITTEN: Final = "unwritten"
"""Counted among the anomalies of registers, but none: reads of values that nobody wrote."""


class Found(NamedTuple):
    """Anomalies counted by class and the few to be explained; `orderless` if no two transactions are related at all;
    `figures` are JSON-able details. Unless `whole`, there may be more anomalies than were found."""

    counts: dict[str, int]
    findings: tuple[Finding, ...]
    orderless: bool
    txns: int
    figures: dict[str, Any]
    whole: bool = True


class Inferred(Protocol):
    """What the accesses of a history say, whatever orders transactions besides."""

    def found(self, orders: int, explain: int) -> Found:
        """Anomalies by dependencies and so many orders besides (`judge.orders_of`), some to be explained."""


def instance_findings(
    out: Instances, names: tuple[str, ...], addresses: Ints, txns: Txns, plain_facts: frozenset[str]
) -> tuple[Finding, ...]:
    """The kept instances with invocation indices for transactions; in `plain_facts` classes the second of the four
    numbers is a micro-operation's place."""
    found = []
    for code, name in enumerate(names):
        for order, key, *rows in out.kept[code, : min(int(out.counts[code]), out.kept.shape[1])]:
            facts: dict[str, Any] = {}
            if name in plain_facts:
                facts, rows = {"mop": int(rows[1])}, rows[:1]
            ops = tuple(int(txns.invoke[row]) for row in rows if row >= 0)
            found.append(Finding(name, int(txns.invoke[order]), Key.of(addresses[key]), ops, facts))
    return tuple(sorted(found, key=lambda finding: finding.order))


def cycle_findings(cycles: Cycles, addresses: Ints, txns: Txns) -> tuple[Finding, ...]:
    """The kept cycles with invocation indices for transactions and addresses for keys."""
    found = []
    for name, kept in cycles.kept.items():
        for cycle in kept:
            ops = tuple(int(txns.invoke[txn]) for txn in cycle.txns)
            keys = [list(Key.of(addresses[key])) if key >= 0 else None for key in cycle.keys]
            found.append(Finding(name, min(ops), NO_KEY, ops, {"kinds": list(cycle.kinds), "keys": keys}))
    return tuple(found)


def orderless(edges: int, txns: Txns) -> bool:
    """Whether there is neither a dependency nor a transaction that began after another had completed."""
    if edges or not txns.size:
        return not edges
    done = txns.complete[txns.outcome == 0]
    return not (len(done) and bool((txns.invoke > int(done.min())).any()))


def outcome_counts(txns: Txns) -> dict[str, int]:
    """How many transactions completed, failed and are unknown."""
    ok, info, fail = (int(np.count_nonzero(txns.outcome == code)) for code in range(3))
    return {"ok": ok, "info": info, "fail": fail}

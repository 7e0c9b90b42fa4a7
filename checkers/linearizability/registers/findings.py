"""What the zone kernels found in registers, as findings."""

from __future__ import annotations

from typing import Final

from checkers.columns.instances import Instances
from checkers.columns.projection import KeyedOps
from checkers.findings import Finding, Findings, Key

NO_REGISTER: Final = "not one read, write or compare-and-set of one integer cell"
"""What is wrong with an operation that is none of a register's."""

ZONE_ANOMALIES: Final = (
    "read-of-unwritten",
    "read-before-write",
    "stale-read",
    "overlapping-clusters",
    "lost-update",
    "cas-cycle",
)
"""By the zone kernel's codes; the first three are also found where values repeat."""


def zone_findings(keyed: KeyedOps, out: Instances) -> Findings:
    """The anomalies that a kernel counted and kept in these operations."""
    counts = {name: int(n) for name, n in zip(ZONE_ANOMALIES, out.counts, strict=True) if n}
    found = []
    for code, name in enumerate(ZONE_ANOMALIES):
        for order, key, *rows in out.kept[code, : out.counts[code]]:
            ops = tuple(int(keyed.columns.invoke[row]) if row >= 0 else -1 for row in rows)
            found.append(Finding(name, int(order), Key.of(keyed.addresses[key]), ops))
    return Findings(counts=counts, kept=tuple(found))

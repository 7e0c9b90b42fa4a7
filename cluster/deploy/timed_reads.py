"""Reads that need not be of now, or by the leaseholder, as workloads ask for them and histories tell them (R7).

A read's `mode` says what is asked for; no mode, or any other, asks as the read always did:

| mode | asked for |
|---|---|
| `exact` | the time `requested_ts` |
| `ago` | so long (`bound`, ns) before the clock of the node that is asked first |
| `staleness` | as fresh as can be told without waiting, and no older than `bound` |
| `nearest` | the same, and nobody but the nearest replica is asked |
| `minimum` | as fresh as can be told without waiting, and no earlier than `min_ts` |
| `anywhere` | all that was acknowledged, from any replica |
| `global` | the same, of a table that is closed ahead of time: when it was begun is told as `requested_ts` |

A write of the mode `held` is laid first and committed then, as a transaction would: its intent is open meanwhile.

The completion tells the times as they were fixed. Its `bound` is what is promised of acknowledged writes: a time that a
node fixes by its clock may be earlier than the client's by the maximum offset.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from cluster.client.reading import ReadWish
from cluster.store.hlc import LOGICAL_BITS, physical
from cluster.wire.staleness import HowServed
from harness.history.ops import Op
from harness.ports.api import Clock, node_of

EXACT, AGO, STALENESS, NEAREST, MINIMUM, ANYWHERE = "exact", "ago", "staleness", "nearest", "minimum", "anywhere"
GLOBAL: Final = "global"
HELD: Final = "held"
GLOBAL_WORKLOADS: Final = frozenset({"global-reads"})
"""Workloads whose table is closed ahead of time, so that any replica serves strong reads (R6)."""

TIMED_WORKLOADS: Final = GLOBAL_WORKLOADS | {"follower-reads", "bounded-staleness", "mixed-modes", "strong-anywhere"}


class ClientPlace(NamedTuple):
    """Where a client is, how far clocks may be apart (ns), and whether its table has typed rows."""

    region: str
    max_offset_ns: int
    typed: bool = False


def wish_of(op: Op) -> ReadWish:
    """What the client library is asked for."""
    if op.mode == AGO and op.bound is not None:
        return ReadWish(as_of=-op.bound)
    if op.mode in (STALENESS, NEAREST) and op.bound is not None:
        return ReadWish(max_staleness=op.bound, nearest_only=op.mode == NEAREST)
    if op.mode == MINIMUM and op.min_ts is not None:
        return ReadWish(min_timestamp=op.min_ts)
    if op.mode == ANYWHERE:
        return ReadWish(strong_anywhere=True)
    return ReadWish() if op.mode == GLOBAL else ReadWish(as_of=op.requested_ts)


def completed_at(place: ClientPlace | None, clock: Clock) -> dict[str, Any]:
    """Where the client is, and the latest time that it can be now by any clock within the bounds."""
    if place is None:
        return {}
    latest = physical(clock.wall_ns() + place.max_offset_ns + (1 << LOGICAL_BITS))
    return {"region": place.region, "latest_ts": latest}


def served_as(op: Op, place: ClientPlace | None, served: HowServed, timestamp: int, node: str) -> dict[str, Any]:
    """What the history tells of a read that was served: when, by whom (of several the first), and how."""
    told: dict[str, Any] = {"served_ts": timestamp, "node": node_of(node.split()[0])}
    if place is None:
        return told
    told |= {"route": f"{served.path} by {served.known_by}" if served.known_by else served.path}
    told |= {"closed_ts": served.closed or None, "unblocked_ts": served.resolved or None}
    told |= {"blocked_ns": served.blocked_ns}
    if op.mode == GLOBAL:
        told["requested_ts"] = served.asked or None
    elif op.mode == AGO:
        told["requested_ts"] = timestamp
    elif op.mode in (STALENESS, NEAREST) and op.f != "scan":
        told["min_ts"] = served.asked or None
    if op.bound is not None:
        told["bound"] = op.bound + place.max_offset_ns
    return told

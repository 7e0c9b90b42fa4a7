"""What faults did to clients, and how soon they were served again, from the times of a history (pure).

Each fault's recovery runs from its heal to the first success on every group of keys that share their fate, and to the
moment from which on as much is served as before the fault. It is not known where the next fault came before that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from harness.history.summary import Served, Times
from harness.verdict.faults import Fault
from harness.verdict.leaderships import Leadership

BEFORE_NS = 5_000_000_000
"""The rate before a fault is that of so long."""
WINDOW_NS = 2_000_000_000
"""The rate after it is that of so long."""
STEP_NS = 250_000_000
FULL_SHARE = 0.95


class FaultRecovery(msgspec.Struct, frozen=True):
    """Of one fault: the rate before it, and the seconds from its heal to the first success on every group and to 95 %
    of that rate; None where the next fault, or the end of the load, came first."""

    kind: str
    instance: int
    before_hz: float
    first_s: float | None
    rate_s: float | None


class Hurt(msgspec.Struct, frozen=True):
    """What faults did to clients: `operations` of the load and how many of them `overlapped` a fault; `hit`, the
    observed instances that hit nodes, and how many of these hit one that clients `used`; each fault's recovery.

    `open_s` are the seconds for which operations were open, all added up, `hurt_s` those of them in which a fault was
    in effect: clients whom a fault keeps waiting begin few operations, and spend their time in these. `unmet` are the
    kinds that were in effect only while no operation was open."""

    operations: int
    overlapped: int
    hit: int
    used: int
    recoveries: tuple[FaultRecovery, ...] = ()
    open_s: float = 0.0
    hurt_s: float = 0.0
    unmet: tuple[str, ...] = ()

    @property
    def overlap(self) -> float:
        """The share of operations that overlapped a fault, or of their time; 1 where there were none."""
        shares = [(self.overlapped, self.operations), (self.hurt_s, self.open_s)]
        return max((part / whole for part, whole in shares if whole), default=1.0)


def recoveries(served: Served, faults: Sequence[Fault], groups: int, end_ns: int) -> tuple[FaultRecovery, ...]:
    """The recovery of each fault that was observed and healed before the load ended."""
    order = np.argsort(served.completed_ns[served.ok], kind="stable")
    times, group = served.completed_ns[served.ok][order], served.group[served.ok][order]
    healed = [fault for fault in faults if fault.observed_ns is not None and (fault.healed_ns or end_ns) < end_ns]
    return tuple(_recovery(fault, times, group, groups, _next_ns(fault, faults, end_ns)) for fault in healed)


def _next_ns(fault: Fault, faults: Sequence[Fault], end_ns: int) -> int:
    """When the next fault began to hurt, or the load ended; 0 where another was in effect at the heal."""
    healed_ns = fault.healed_ns or 0
    others = [other for other in faults if other is not fault and other.observed_ns is not None]
    if any(other.requested_ns <= healed_ns < (other.healed_ns or end_ns) for other in others):
        return 0
    return min([other.requested_ns for other in others if other.requested_ns > healed_ns], default=end_ns)


def _recovery(fault: Fault, times: Times, group: Times, groups: int, until_ns: int) -> FaultRecovery:
    healed_ns = fault.healed_ns or 0
    since_ns = max(fault.requested_ns - BEFORE_NS, 0)
    before_hz = _count(times, since_ns, fault.requested_ns) * 1e9 / max(fault.requested_ns - since_ns, 1)
    low, high = np.searchsorted(times, [healed_ns, max(until_ns, healed_ns)])
    after = {int(g): int(t) for t, g in zip(times[low:high][::-1], group[low:high][::-1], strict=True)}
    first_s = (max(after.values()) - healed_ns) / 1e9 if len(after) >= groups else None
    return FaultRecovery(
        fault.kind, fault.instance, round(before_hz, 3), first_s, _rate_s(times, healed_ns, until_ns, before_hz)
    )


def _rate_s(times: Times, healed_ns: int, until_ns: int, before_hz: float) -> float | None:
    if before_hz <= 0:
        return None
    wanted = FULL_SHARE * before_hz * WINDOW_NS / 1e9
    for begin_ns in range(healed_ns, until_ns - WINDOW_NS + 1, STEP_NS):
        if _count(times, begin_ns, begin_ns + WINDOW_NS) >= wanted:
            return (begin_ns - healed_ns) / 1e9
    return None


def _count(times: Times, begin_ns: int, end_ns: int) -> int:
    low, high = np.searchsorted(times, [begin_ns, end_ns])
    return int(high - low)


def overlapping(served: Served, faults: Sequence[Fault], end_ns: int) -> int:
    """How many operations were open at some moment at which a fault was seen in effect."""
    met = np.zeros(len(served.invoked_ns), dtype=bool)
    for fault in faults:
        met |= _open_during(served, fault, end_ns)
    return int(met.sum())


def _open_during(served: Served, fault: Fault, end_ns: int) -> npt.NDArray[np.bool_]:
    met = np.zeros(len(served.invoked_ns), dtype=bool)
    for first_ns, last_ns in fault.seen(end_ns):
        met |= (served.invoked_ns <= last_ns) & (served.completed_ns >= first_ns)
    return met


def unmet_kinds(served: Served, faults: Sequence[Fault], end_ns: int) -> tuple[str, ...]:
    """The kinds of faults that last of which some were seen in effect, but at no moment at which an operation was open:
    after the clients had ended, say. The core of a script is a moment, and may fall between two operations."""
    lasting = [fault for fault in faults if fault.cores is None and fault.observed_ns is not None]
    met = {fault.kind for fault in lasting if _open_during(served, fault, end_ns).any()}
    return tuple(dict.fromkeys(fault.kind for fault in lasting if fault.kind not in met))


def open_seconds(served: Served, faults: Sequence[Fault], end_ns: int) -> tuple[float, float]:
    """The seconds for which operations were open, added up, and those of them in which a fault was seen in effect."""
    hurt_ns, until_ns = 0, 0
    for first_ns, last_ns in sorted(span for fault in faults for span in fault.seen(end_ns)):
        begin_ns = max(first_ns, until_ns)
        within = np.minimum(served.completed_ns, last_ns) - np.maximum(served.invoked_ns, begin_ns)
        hurt_ns += int(np.maximum(within, 0).sum())
        until_ns = max(until_ns, last_ns)
    return float((served.completed_ns - served.invoked_ns).sum()) / 1e9, hurt_ns / 1e9


def used_nodes(answered: Collection[str], leaderships: Sequence[Leadership]) -> frozenset[str]:
    """Nodes that clients used: those that answered them, and those that keep replicas for a leader that did."""
    behind = (each.members for each in leaderships if each.node in answered)
    return frozenset(answered).union(*behind)


def used_instances(faults: Sequence[Fault], serving: Sequence[str], used: Collection[str]) -> tuple[int, int]:
    """Of the observed instances that hit nodes: how many there were, and how many hit one that clients used.

    Those of `serving` are used if `used` has them, others (masters, say) always.
    """
    hit = [fault for fault in faults if fault.observed_ns is not None and fault.targets]
    reached = [fault for fault in hit if any(name in used or name not in serving for name in fault.targets)]
    return len(hit), len(reached)

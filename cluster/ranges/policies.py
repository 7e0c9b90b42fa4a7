"""Closed-timestamp policies (R6): how far behind its clock a leaseholder closes a range, or how far ahead of it. Pure.

A table's policy is text, which masters replicate with its schema and tell its tablets: `lag:MS`; `global`, by which
strong reads are served by every replica, as what they ask for is closed ahead of time; empty for the lag of the knob
`closed_lag_ms`.

How far ahead? A read begun now asks for what is closed up to the maximum offset above its node's clock. What the
leaseholder closes now is there when it has travelled: with a write, for a round trip to a quorum and half of one to the
others; or with the side transport, for half a round trip once a tick is due. So the lead is

    maximum offset + max(1.5 x round trip + overhead, 0.5 x round trip + side-transport interval) + buffer

by the longest of the round trips that this node has measured to the other members. Leases have to last that long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cluster.knobs import Knobs
from cluster.wire.catalog import GLOBAL

_MS = 1_000_000

LAG = "lag:"
MAX_LAG_MS = 3_600_000

_OVERHEAD_NS = 20 * _MS
_BUFFER_NS = 25 * _MS
"""What a write takes beside its messages, and what ticks and clocks take beside theirs. The overhead has a heartbeat of
the group in it too: with that followers hear at the latest that the write is committed."""

_STEP_NS = 20 * _MS
"""Round trips are known in such steps, so that ranges of one policy stay together."""

_NEWEST_COUNTS = 0.25
"""The share of the newest measurement in a smoothed one."""


class InvalidPolicy(ValueError):
    """What is wrong with the text of a policy, in one sentence."""


def lag_ns(policy: str, knobs: Knobs) -> int | None:
    """How far behind the clock a policy closes, ns; None if it closes ahead. Raises InvalidPolicy."""
    if policy in ("", GLOBAL):
        return None if policy else knobs.closed_lag_ms * _MS
    digits = policy.removeprefix(LAG)
    if not policy.startswith(LAG) or not digits.isdecimal() or len(digits) > 9 or int(digits) > MAX_LAG_MS:
        raise InvalidPolicy(f"a policy is {GLOBAL!r}, or {LAG + 'MS'!r} of at most {MAX_LAG_MS} ms, not {policy!r}")
    return int(digits) * _MS


def lead_ns(knobs: Knobs, round_trip_ns: int) -> int:
    """How far ahead of the clock to close, where the longest round trip to another member is this (R6)."""
    by_log = 3 * round_trip_ns // 2 + _OVERHEAD_NS + knobs.raft_heartbeat_ms * _MS
    aside = round_trip_ns // 2 + knobs.side_transport_ms * _MS
    return knobs.max_clock_offset_ms * _MS + max(by_log, aside) + _BUFFER_NS


def needed_ns(knobs: Knobs, round_trip_ns: int) -> int:
    """How long a lease has to last, at least, beyond the clock: until what is closed next can have been told."""
    return lead_ns(knobs, round_trip_ns) + round_trip_ns + knobs.side_transport_ms * _MS


def unmet(policy: str, knobs: Knobs, round_trip_ns: int) -> str | None:
    """Why a policy can't be kept with these knobs, in a sentence; None if it can. Raises InvalidPolicy."""
    if lag_ns(policy, knobs) is not None:
        return None
    if not knobs.side_transport_ms:
        return "what is idle is not closed at all: side_transport_ms is 0"
    needed = needed_ns(knobs, round_trip_ns)
    for name, lasts in (("lease record", knobs.lease_record_ns), ("support", knobs.support_ns)):
        if lasts <= needed:
            lead, trip = lead_ns(knobs, round_trip_ns) // _MS, round_trip_ns // _MS
            why = f"a lead of {lead} ms, a round trip of {trip} ms and an interval of {knobs.side_transport_ms} ms"
            return f"the {name} lasts {lasts // _MS} ms (tablet_lease_ms, support_ms), and has to exceed {why}"
    return None


class RoundTrips:
    """How long the nodes take to answer that share ranges with this one, as its probes have measured it.

    Ranges that depend on it `watch` the members' addresses, and are called when one of these has changed by a step.
    """

    def __init__(self) -> None:
        self._smoothed: dict[str, float] = {}
        self._steps: dict[str, int] = {}
        """By address in steps, rounded up."""
        self._watched: dict[str, tuple[tuple[str, ...], Callable[[], None]]] = {}

    def watch(self, range_id: str, addresses: Iterable[str], on_change: Callable[[], None]) -> None:
        """Call when a round trip to one of these has changed, for this range, instead of what it watched before."""
        self._watched[range_id] = tuple(addresses), on_change

    def unwatch(self, range_id: str) -> None:
        """The range depends on no round trip any more."""
        self._watched.pop(range_id, None)

    def watched(self) -> Iterable[str]:
        """Whose answers are to be timed, whether they are anything else to this node or not."""
        return dict.fromkeys(address for addresses, _ in self._watched.values() for address in addresses)

    def measured(self, address: str, took_ns: int) -> None:
        """An answer took so long. It is a step less only once it is half of one further down: it might come back."""
        before = self._smoothed.get(address, float(took_ns))
        smoothed = self._smoothed[address] = before + (took_ns - before) * _NEWEST_COUNTS
        known, now = self._steps.get(address, 0), -int(-smoothed // _STEP_NS)
        if now > known or smoothed < (known - 1.5) * _STEP_NS:
            self._steps[address] = now
            for addresses, on_change in list(self._watched.values()):
                if address in addresses:
                    on_change()

    def longest(self, addresses: Iterable[str]) -> int | None:
        """The longest round trip to any of these that is known, ns; None where none is."""
        known = [self._steps[address] for address in addresses if address in self._steps]
        return max(known) * _STEP_NS if known else None

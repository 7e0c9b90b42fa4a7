"""The lease record of a range (R2), replicated through its log, and what its holder may do with timestamps.

*Who* may serve is Raft's business, timed on the monotonic clock (`Raft.lease_valid`). The record says *at which
timestamps*: a holder's reads lie below the record's `expiration`, which every write and every renewal moves ahead as
it is applied; the next holder starts above the expiration that it finds in the log. So no write ever lies under a read
that an earlier holder served, whatever the wall clocks do: a clock that jumps ahead takes the timestamps along, one
that jumps back leaves them to count on from the last.
"""

from __future__ import annotations

from collections import deque

import msgspec

from cluster.ranges.timestamp_cache import TimestampCache
from cluster.store.cells import Key, point
from cluster.store.hlc import Hlc


class Lease(msgspec.Struct, frozen=True, array_like=True):
    """`sequence` rises with every acquisition; `term` is the Raft term it was acquired in; the rest is HLC time."""

    holder: str
    sequence: int
    term: int
    start: int
    expiration: int


class AcquireLease(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """First command of a new leader: `start` is its HLC reading; the record may start later (see `acquired`)."""

    holder: str
    term: int
    start: int
    duration_ns: int


class RenewLease(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Moves the expiration ahead where no write does."""

    lease_sequence: int
    timestamp: int
    duration_ns: int


def acquired(old: Lease | None, holder: str, term: int, start: int, last_write: int, duration_ns: int) -> Lease:
    """The lease that follows `old`: it starts above the old one's expiration and above every write so far."""
    begin = max(start, last_write + 1, old.expiration + 1 if old else 0)
    return Lease(holder, old.sequence + 1 if old else 1, term, begin, begin + duration_ns)


def extended(lease: Lease, timestamp: int, duration_ns: int) -> Lease:
    """The lease after a command of its holder at `timestamp`; an expiration never moves back."""
    if timestamp + duration_ns <= lease.expiration:
        return lease
    return msgspec.structs.replace(lease, expiration=timestamp + duration_ns)


class LeaseTimes:
    """The timestamps that the holder of one lease gives out; in memory only, made when its record is applied.

    Reads are served below every write in flight and below the expiration; writes lie above every read of their cell
    and above every earlier write, so that they rise along the log.
    """

    def __init__(self, lease: Lease, hlc: Hlc) -> None:
        hlc.forward(lease.start)
        self.sequence = lease.sequence
        self._hlc = hlc
        self._reads = TimestampCache(low_water=lease.start)
        self._in_flight: deque[int] = deque()
        self._last_write = lease.start

    def write_at(self, key: Key, wall_ns: int) -> int:
        """The timestamp of a write that is proposed now; in flight until `settle` has passed it."""
        timestamp = max(self._hlc.now(wall_ns), self._reads.highest(point(key)) + 1, self._last_write + 1)
        self._hlc.forward(timestamp)
        self._last_write = timestamp
        self._in_flight.append(timestamp)
        return timestamp

    def settle(self, applied_write: int) -> None:
        """Every write up to this timestamp was applied, or will never be."""
        while self._in_flight and self._in_flight[0] <= applied_write:
            self._in_flight.popleft()

    def read_at(self, key: Key, wall_ns: int, lease: Lease) -> int:
        """The timestamp at which a strong read of what is applied is served; recorded in the timestamp cache."""
        timestamp = min(self._hlc.now(wall_ns), lease.expiration - 1)
        if self._in_flight:
            timestamp = min(timestamp, self._in_flight[0] - 1)
        self._reads.record(point(key), timestamp)
        return timestamp

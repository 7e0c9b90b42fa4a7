"""The lease record of a range (R2), replicated through its log: pure arithmetic, decided alike on every replica.

*Who* may serve is Raft's business, timed on the monotonic clock (`Raft.lease_valid`). The record says *at which
timestamps*: reads are served below its `expiration`, which its holder's commands move ahead as they are applied.

- After a loss the next holder waits until the old lease is over on its own clock: a lease never starts in the future,
  so no clock is carried ahead by a fail-over. It writes at or above the old expiration, that is above every read that
  was served and below which anything was closed (`low_water`).
- A holder that gives its lease up says above what it promised nothing (`HandOverLease`): the next one begins at once.
"""

from __future__ import annotations

from collections import deque

import msgspec

from cluster.ranges.timestamp_cache import TimestampCache
from cluster.store.cells import Key, point
from cluster.store.hlc import ClockReading, Timestamp, as_timestamp


class Lease(msgspec.Struct, frozen=True, array_like=True):
    """`sequence` rises with every acquisition; `term` is the Raft term it was acquired in.

    It lasts from `start` to `expiration`, exclusive, on its holder's clock; the spans of a range's leases are disjoint.
    `low_water` is what earlier holders promised: none served a read or closed a timestamp above it. `over` says that
    the holder gave it up: no command under its sequence is applied any more, and `promised` is its own low-water mark.
    """

    holder: str
    sequence: int
    term: int
    start: Timestamp
    expiration: Timestamp
    low_water: Timestamp = Timestamp(0)
    over: bool = False
    promised: Timestamp = Timestamp(0)


class AcquireLease(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """First command of a new leader: `reading` is what its clock shows. Refused while the lease before lasts."""

    holder: str
    term: int
    reading: ClockReading
    duration_ns: int


class RenewLease(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Moves the expiration ahead where no write does."""

    lease_sequence: int
    reading: ClockReading
    duration_ns: int


class HandOverLease(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The holder's last command: it has stopped to serve and to close.

    `reading` is the highest that its clock gave out; `closed` the highest timestamp it closed by either transport;
    `read` the highest it served a read at, its timestamp cache in one number. Both may lie above the reading where
    reads and closed timestamps lead the clock (R6).
    """

    lease_sequence: int
    reading: ClockReading
    closed: Timestamp
    read: Timestamp


def acquired(old: Lease | None, command: AcquireLease) -> Lease | None:
    """The lease that follows `old`; None if that is not over yet on the clock of who asks."""
    start = as_timestamp(command.reading)
    if old is not None and start < old.expiration:
        return None
    expiration = Timestamp(start + command.duration_ns)
    if old is None:
        return Lease(command.holder, 1, command.term, start, expiration)
    promised = old.promised if old.over else Timestamp(old.expiration - 1)
    low_water = max(old.low_water, promised)
    return Lease(command.holder, old.sequence + 1, command.term, start, expiration, low_water)


def extended(lease: Lease, reading: ClockReading, duration_ns: int) -> Lease:
    """The lease after a command that its holder proposed at `reading`; an expiration never moves back."""
    expiration = Timestamp(reading + duration_ns)
    return lease if expiration <= lease.expiration else msgspec.structs.replace(lease, expiration=expiration)


def handed_over(lease: Lease, command: HandOverLease) -> Lease:
    """The lease after its holder's last command: it ends here, and the next may begin above the reading."""
    end = Timestamp(max(lease.start, command.reading) + 1)
    return msgspec.structs.replace(lease, expiration=end, over=True, promised=max(command.read, command.closed))


def binds(lease: Lease | None, sequence: int) -> bool:
    """Whether a command that was evaluated under lease `sequence` may be applied (R2)."""
    return lease is not None and lease.sequence == sequence and not lease.over


class LeaseTimes:
    """The timestamps that the holder of one lease gives out; in memory only, made when its record is applied.

    Reads are served below every write in flight; writes lie above every read of their cell and above every earlier
    write, so that they rise along the log.
    """

    def __init__(self, lease: Lease) -> None:
        self.sequence = lease.sequence
        self._reads = TimestampCache(low_water=lease.low_water)
        self._in_flight: deque[int] = deque()
        self._last_write: int = lease.start

    def write_at(self, key: Key, reading: ClockReading) -> ClockReading:
        """The timestamp of a write that is proposed now; in flight until `settle` has passed it."""
        if reading <= max(self._reads.highest(point(key)), self._last_write):
            raise AssertionError("reads and writes of a holder carry its clock's readings, which rise")
        self._last_write = reading
        self._in_flight.append(reading)
        return reading

    def settle(self, applied_write: int) -> None:
        """Every write up to this timestamp was applied, or will never be."""
        while self._in_flight and self._in_flight[0] <= applied_write:
            self._in_flight.popleft()

    def read_at(self, key: Key, arrived: Timestamp) -> int:
        """The timestamp at which a strong read of what is applied is served; recorded in the timestamp cache."""
        timestamp = min(int(arrived), self._in_flight[0] - 1) if self._in_flight else int(arrived)
        self._reads.record(point(key), timestamp)
        return timestamp

"""The lease record of a range (R2), replicated through its log: pure arithmetic, decided alike on every replica.

*Who* may serve is Raft's business, timed on the monotonic clock (`Raft.lease_valid`). The record says *at which
timestamps*: reads are served below its `expiration`, which its holder's commands move ahead as they are applied.

- After a loss the next holder waits until the old lease is over on its own clock: a lease never starts in the future,
  so no clock is carried ahead by a fail-over. It writes at or above its own start, that is above every read that
  was served and below which anything was closed (`low_water`).
- A holder that gives its lease up says above what it promised nothing (`HandOverLease`): the next one begins at once.
"""

from __future__ import annotations

import msgspec

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
    """First command of a new leader: `reading` is what its clock shows. Refused while the lease before lasts.

    That may be until `until`: so far those who elected the new leader had promised the earlier holder, while the group
    was silent, to let its lease last. A lease that was handed over ends by its record alone.
    """

    holder: str
    term: int
    reading: ClockReading
    duration_ns: int
    until: Timestamp = Timestamp(0)


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


def acquired(old: Lease | None, command: AcquireLease, inherits: bool = True) -> Lease | None:
    """The lease that follows `old`; None if that is not over yet on the clock of who asks.

    It `inherits` the low water of the one before, which may lie above all that this one has promised itself: a holder
    that was never asked for anything knows of nothing that is closed ahead of its clock.
    """
    start = as_timestamp(command.reading)
    if old is not None and start < ended(old, command.until):
        return None
    expiration = Timestamp(start + command.duration_ns)
    if old is None:
        return Lease(command.holder, 1, command.term, start, expiration)
    promised = old.promised if old.over else Timestamp(start - 1)
    low_water = max(old.low_water, promised) if inherits else promised
    return Lease(command.holder, old.sequence + 1, command.term, start, expiration, low_water)


def ended(lease: Lease, until: Timestamp) -> Timestamp:
    """When a lease is over that may have lasted until `until` by promises. What was handed over was told exactly."""
    return lease.expiration if lease.over else max(lease.expiration, until)


def extended(lease: Lease, reading: ClockReading, duration_ns: int) -> Lease:
    """The lease after a command that its holder proposed at `reading`; an expiration never moves back."""
    expiration = Timestamp(reading + duration_ns)
    if expiration <= lease.expiration:
        return lease
    # Each write comes here, and `msgspec.structs.replace` takes six times as long as the constructor.
    return Lease(
        lease.holder,
        lease.sequence,
        lease.term,
        lease.start,
        expiration,
        lease.low_water,
        lease.over,
        lease.promised,
    )


def handed_over(lease: Lease, command: HandOverLease) -> Lease:
    """The lease after its holder's last command: it ends here, and the next may begin above the reading."""
    end = Timestamp(max(lease.start, command.reading) + 1)
    return msgspec.structs.replace(lease, expiration=end, over=True, promised=max(command.read, command.closed))


def binds(lease: Lease | None, sequence: int) -> bool:
    """Whether a command that was evaluated under lease `sequence` may be applied (R2)."""
    return lease is not None and lease.sequence == sequence and not lease.over

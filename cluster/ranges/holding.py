"""Holding the lease of a range (R2): who acquires it and when, when it is renewed, and whether it is held now.

*Who* may serve is Raft's business, timed on the monotonic clock; the record that is replicated here says at which
timestamps its holder may serve, and its sequence tells the commands of one holder from those of the next.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from cluster.group import Group, NotLeader
from cluster.raft.types import Role, SoftState
from cluster.ranges.lease import AcquireLease, Lease, RenewLease
from cluster.store.hlc import Timestamp
from cluster.store.node_clock import NodeClock
from cluster.wire.messages import Fault, encode

_FOR_EVER_S = 1e6
"""A lease command waits as long as its group leads; its fate is read from the state machine."""

_NO_LEASE = encode(Fault("NO_LEASE", "the new leader's lease record is not applied yet", definite=True))


class LeaseState(Protocol):
    """The part of a range's replicated state that holding its lease depends on."""

    lease: Lease | None


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease that this node holds, and what it allows.

    `low_water`: no earlier holder served a read above it, so every write lies above it (the timestamp cache begins
    there). `upper`: the highest timestamp a read may be served at under the record as it is applied now; a later one
    needs a renewal first.
    """

    lease: Lease
    low_water: Timestamp
    upper: Timestamp

    @property
    def sequence(self) -> int:
        """Fixed at evaluation; a command is refused at apply under another."""
        return self.lease.sequence


class Holding:
    """One replica's side of its range's lease. Made once a replica; `attach` it to its group when that is open."""

    def __init__(self, node_id: str, clock: NodeClock, state: LeaseState, duration_ns: int, timeout_s: float) -> None:
        self._node_id, self._clock, self._state = node_id, clock, state
        self._duration_ns, self._timeout_s = duration_ns, timeout_s
        self._group: Group | None = None
        self._acquisition: asyncio.Future[bytes] | None = None
        self._renewal: asyncio.Future[bytes] | None = None

    def attach(self, group: Group) -> None:
        """The replica's group is open; a leader that it has elected meanwhile acquires the lease."""
        self._group = group
        if group.is_leader:
            self._acquire(group)

    def on_leadership(self, state: SoftState) -> None:
        """To be told of every change of role, term or leader."""
        if state.role is Role.LEADER and self._group is not None:
            self._acquire(self._group)

    def held(self) -> HeldLease | None:
        """The lease, if its record says that this replica acquired it in the term that it now leads."""
        group, lease = self._group, self._state.lease
        if group is None or not group.is_leader or lease is None:
            return None
        if lease.holder != self._node_id or lease.term != group.term:
            return None
        return HeldLease(lease, Timestamp(lease.start), Timestamp(lease.expiration - 1))

    def renew_ahead(self, lease: Lease) -> None:
        """Move the expiration ahead, before reads come near it, where no write does."""
        if self._clock.hlc.last > lease.expiration - self._duration_ns // 2:
            self._renew(lease)

    def refusal(self) -> bytes:
        """Why nothing is served here; a leader whose lease command was refused (its disk was full) asks again."""
        group = self._group
        if group is not None and group.is_leader:
            if self._acquisition is None or self._acquisition.done():
                self._acquire(group)
            return _NO_LEASE
        return not_leader(NotLeader(group.leader if group else None))

    def _renew(self, lease: Lease) -> None:
        """One renewal at a time."""
        if self._group is not None and (self._renewal is None or self._renewal.done()):
            command = RenewLease(lease.sequence, self._clock.hlc.last, self._duration_ns)
            self._renewal = self._group.submit(encode(command), self._timeout_s)
            self._renewal.add_done_callback(_look_at)

    def _acquire(self, group: Group) -> None:
        command = AcquireLease(self._node_id, group.term, self._clock.reading(), self._duration_ns)
        self._acquisition = group.submit(encode(command), _FOR_EVER_S)
        self._acquisition.add_done_callback(_look_at)


def not_leader(error: NotLeader) -> bytes:
    """The encoded Fault that says who leads."""
    return encode(Fault("NOT_THE_LEADER", str(error), definite=True, leader=error.leader))


def _look_at(future: asyncio.Future[bytes]) -> None:
    """The outcome of a lease command is read from the state machine; its future only must not complain."""
    if not future.cancelled():
        future.exception()

"""Closed timestamps of one group: what is closed stays closed, and is closed within the lease (R4, R5)."""

from __future__ import annotations

from cluster.invariants.findings import Scope
from cluster.ranges.lease_record import Lease
from cluster.ranges.tablet import WriteBatch

CLOSED_KEPT = "closed-is-kept"
CLOSED_IN_LEASE = "closed-within-the-lease"


class Closing:
    """Fed with closed timestamps as a holder assigns them, and with batches and lease records as replicas apply them.

    A holder assigns nothing under a lease before its record is applied there. So it is enough to keep the latest record
    that anybody has applied, and what was assigned under that one.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._checked = scope.checked
        self._closed: dict[int, int] = {}
        """By life: how far the state of its replica was closed when it was looked at last."""
        self._latest: Lease | None = None
        self._assigned, self._assigner = 0, 0

    def opened(self, life: int) -> None:
        """A replica begins, maybe not the first of this life, with an empty state."""
        self._closed[life] = 0

    def applied(self, life: int, batch: WriteBatch, closed: int) -> None:
        """A batch comes to a state that is `closed` as far: it writes above that, and closes no less."""
        self._checked[CLOSED_KEPT] += 1
        if closed < self._closed[life]:
            self._fell(life, closed)
        if batch.timestamp <= closed and batch.puts:
            self._scope.tell(CLOSED_KEPT, f"a batch writes at {batch.timestamp}, and {closed} is closed", life)
        if batch.closed < closed:
            self._scope.tell(CLOSED_KEPT, f"a batch closes {batch.closed}, and {closed} is closed already", life)
            self._closed[life] = closed
        else:
            self._closed[life] = batch.closed

    def restored(self, life: int, closed: int) -> None:
        """A snapshot has taken the state's place."""
        self._checked[CLOSED_KEPT] += 1
        if closed < self._closed[life]:
            self._fell(life, closed)
        self._closed[life] = closed

    def assigned(self, life: int, sequence: int, closed: int, applied: Lease | None, lasts: int = 0) -> None:
        """Under the lease of this sequence `closed` binds from now on; `applied` is the record as its holder has it,
        and `lasts` how far promises let it last beyond."""
        self._checked[CLOSED_IN_LEASE] += 1
        if applied is not None and applied.sequence == sequence and closed >= max(applied.expiration, lasts):
            message = f"{closed} is closed under lease {sequence}, which ends at {max(applied.expiration, lasts)}"
            self._scope.tell(CLOSED_IN_LEASE, message, life)
        latest = self._latest
        if latest is None or sequence > latest.sequence:
            return
        if sequence < latest.sequence:
            self._compare(sequence, closed, latest, life)
            return
        if closed < self._assigned:
            message = f"{closed} is closed under lease {sequence}, and {self._assigned} was"
            self._scope.tell(CLOSED_KEPT, message, self._assigner, life)
        self._assigned, self._assigner = closed, life

    def recorded(self, life: int, lease: Lease) -> None:
        """A new lease: all that is written under it lies above its low water, so nothing may be closed above that."""
        latest = self._latest
        if latest is None or lease.sequence > latest.sequence:
            if latest is not None:
                self._checked[CLOSED_IN_LEASE] += 1
                self._compare(latest.sequence, self._assigned, lease, self._assigner)
            self._latest, self._assigned, self._assigner = lease, 0, life

    def _compare(self, sequence: int, closed: int, later: Lease, life: int) -> None:
        if closed > later.low_water:
            message = f"{closed} is closed under lease {sequence}, and lease {later.sequence} may write from"
            self._scope.tell(CLOSED_IN_LEASE, f"{message} {later.low_water + 1} on", life)

    def _fell(self, life: int, closed: int) -> None:
        message = f"a state is closed to {closed}, and was to {self._closed[life]}"
        self._scope.tell(CLOSED_KEPT, message, life)

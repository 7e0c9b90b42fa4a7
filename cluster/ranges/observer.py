"""What a replica of a range tells of its leases, its closed timestamps and its batches (G10)."""

from __future__ import annotations

from collections.abc import Iterable

from cluster.groups.observer import GroupObserver
from cluster.ranges.lease_record import Lease
from cluster.ranges.tablet import WriteBatch
from cluster.store.cells import Span


class RangeObserver(GroupObserver):
    """Whom a replica of a range and its Raft group tell."""

    __slots__ = ()

    def lease_recorded(self, group: str, before: Lease | None, lease: Lease) -> None:
        """The record of a new lease was applied; `before` is the one it follows, as it is by then."""

    def lease_extended(self, group: str, sequence: int, until: int) -> None:
        """The holder of the lease of this sequence serves or closes by the promises of the group's members, which let
        it last until then; its record ends before."""

    def timestamp_closed(self, group: str, sequence: int, closed: int, lease: Lease | None) -> None:
        """The holder of the lease of this sequence has assigned a closed timestamp, maybe no higher than the last;
        `lease` is the record that is applied here by now."""

    def batch_applied(self, group: str, batch: WriteBatch, closed: int) -> None:
        """The state, in which everything up to `closed` is closed, is about to carry this batch out."""

    def read_answered(self, group: str, spans: Iterable[Span], timestamp: int) -> None:
        """These spans were read as of this time, by a read or by a change that was not applied, and the answer is about
        to go out."""

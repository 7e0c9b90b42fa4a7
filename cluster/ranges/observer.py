"""What a replica of a range tells of its leases, its closed timestamps, its batches and its answers (G10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from cluster.groups.observer import GroupObserver
from cluster.ranges.lease_record import Lease
from cluster.ranges.requests import Change, Read, ReadAnswer
from cluster.ranges.tablet import HoldBatch, TabletMachine, WriteBatch
from cluster.store.cells import Span
from cluster.wire.messages import RowRequest
from cluster.wire.nouns import RequestId


class QuietRange(Protocol):
    """A range that is closed with others: under which lease, at which write index, until which end of its record, None
    where promises of the members count instead."""

    @property
    def sequence(self) -> int: ...

    @property
    def write_index(self) -> int: ...

    @property
    def end(self) -> int | None: ...


class RangeObserver(GroupObserver):
    """Whom a replica of a range and its Raft group tell."""

    __slots__ = ()

    def lease_recorded(self, group: str, before: Lease | None, lease: Lease) -> None:
        """The record of a new lease was applied; `before` is the one it follows, as it is by then."""

    def lease_extended(self, group: str, sequence: int, until: int) -> None:
        """The holder of the lease of this sequence serves or closes by the promises of the group's members, which let
        it last until then; its record ends before."""

    def timestamp_closed(
        self, group: str, sequence: int, closed: int, lease: Lease | None, request: RequestId | None = None
    ) -> None:
        """The holder of the lease of this sequence has assigned a closed timestamp, maybe no higher than the last, to
        the place in the log that this request's change has from now on; `lease` is the record that is applied here."""

    def ranges_closed(self, closed: int, ranges: Mapping[str, QuietRange]) -> None:
        """The holder of these ranges' leases has closed all of them up to there, and is about to tell."""

    def closed_read_answered(
        self, group: str, read: Read, spans: Sequence[Span], timestamp: int, found: ReadAnswer, state: TabletMachine
    ) -> None:
        """This read of these spans, as of a time that this replica knows to be closed, is about to be answered by this,
        from this state and without any latch."""

    def remote_read_answered(
        self, group: str, read: Read, spans: Sequence[Span], timestamp: int, found: ReadAnswer
    ) -> None:
        """This strong read of these spans is about to be answered by this, as of the time that the leaseholder told."""

    def change_begun(self, group: str, change: Change, spans: Sequence[Span], lowest: int) -> None:
        """The latches of a change are granted, on these spans: it is evaluated from now on, and writes at or above the
        timestamp `lowest`."""

    def change_ended(self, group: str, request: RequestId) -> None:
        """A change that has begun is applied here, or never will be: its latches are about to be given up."""

    def change_answered(self, group: str, request: RequestId, answer: bytes) -> None:
        """A change is about to be answered by this, encoded."""

    def answer_leaves(self, request: RowRequest, answer: bytes) -> None:
        """This answer to a client's request, encoded, leaves now."""

    def read_found(self, group: str, read: Read, spans: Sequence[Span], timestamp: int, found: ReadAnswer) -> None:
        """This read of these spans, as of this time, is about to be answered."""

    def batch_applied(self, group: str, batch: WriteBatch, closed: int) -> None:
        """The state, in which everything up to `closed` is closed, is about to carry this batch out."""

    def hold_applied(self, group: str, hold: HoldBatch, closed: int) -> None:
        """The state, in which everything up to `closed` is closed, is about to carry out a step of what is held."""

    def read_answered(self, group: str, spans: Iterable[Span], timestamp: int) -> None:
        """These spans were read as of this time, by a read or by a change that was not applied, and the answer is about
        to go out."""

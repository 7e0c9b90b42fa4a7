"""Whom node code tells of its decisive events, so that invariants can be checked at every step of a run (G10).

One observer belongs to one life of one node; `run_node` hands it down. Outside the simulator it is `UNOBSERVED`. Node
code never acts on an observer, and an observer never acts on a node.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from cluster.raft.types import (
    Configuration,
    Entry,
    Message,
    NodeId,
    Persist,
    RequestVote,
    RequestVoteReply,
    Role,
    SnapshotMeta,
)

if TYPE_CHECKING:
    from cluster.quorum.ids import MutationId
    from cluster.quorum.slices import Page, Slice
    from cluster.quorum.summaries import Summary
    from cluster.ranges.commands import WriteBatch
    from cluster.ranges.lease import Lease


class Digested(Protocol):
    """A replicated state that knows a digest of itself."""

    @property
    def digest(self) -> int:
        """64 bits of the whole state: equal states have equal digests, however they came about."""


class RaftView(Protocol):
    """What may be asked of a replica's Raft state, now or (of one that is gone) as it last was."""

    @property
    def role(self) -> Role: ...

    @property
    def term(self) -> int: ...

    @property
    def commit_index(self) -> int: ...

    @property
    def configuration(self) -> Configuration:
        """The one in force, committed or not."""

    @property
    def committed_configuration(self) -> Configuration: ...

    @property
    def first_index(self) -> int: ...

    @property
    def last_index(self) -> int: ...

    @property
    def lease_until_ns(self) -> int:
        """Until when, on this node's monotonic clock, it may serve by its lease; 0 without a lease."""

    def entries(self, first: int, last: int) -> tuple[Entry, ...]: ...


class Readings(Protocol):
    """The readings of a node's hybrid clock."""

    @property
    def last(self) -> int:
        """The highest reading given out or taken in, as an HLC timestamp."""


class Observer:
    """What one life of a node tells; `group` names a Raft group. Called in the step in which it happens. This one, of
    whom others are made, tells nobody."""

    __slots__ = ()

    def clock_made(self, hlc: Readings, max_offset_ns: int) -> None:
        """The node's hybrid clock, and how far two clocks may be apart by declaration."""

    def opened(self, group: str, server: NodeId, snapshot: SnapshotMeta | None, entries: Sequence[Entry]) -> None:
        """A replica begins, as this member of the group, with what its disk holds; before anything else of it."""

    def voted(self, group: str, term: int, candidate: NodeId) -> None:
        """A vote leaves this node; a candidate's own vote counts as leaving with its first request for others'."""

    def became_leader(self, group: str, raft: RaftView) -> None:
        """This replica leads its term from now on; its log ends with the entry that begins the term."""

    def configured(self, group: str, raft: RaftView) -> None:
        """Another configuration has come into force at this replica."""

    def durable(self, group: str, batch: Sequence[Persist]) -> None:
        """These have become durable, in this order; before anything that depends on it is sent."""

    def committed(self, group: str, raft: RaftView, entries: Sequence[Entry]) -> None:
        """This replica knows these entries, which follow each other, to be committed; again after a restart."""

    def applied(self, group: str, index: int, state: Digested) -> None:
        """The state machine has carried out the entry at `index`, whatever its kind; `state` is what came of it."""

    def restored(self, group: str, meta: SnapshotMeta, state: Digested) -> None:
        """The state was replaced by a snapshot, at a restart or from the leader."""

    def served_by_lease(self, group: str, raft: RaftView, now_ns: int) -> None:
        """A read is allowed by the lease alone, at this time of the node's monotonic clock."""

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

    def caches_served(self, caches: Mapping[str, object], catalog: Mapping[str, object]) -> None:
        """A leader master answers from these records by id; `catalog` are those that it has applied."""

    def tablet_called(
        self, server: NodeId, request: object, tables: Mapping[str, Any], tablets: Mapping[str, Any]
    ) -> None:
        """A master sends this request to a tablet server; tables and tablets are the records it has applied, by id."""

    def replica_failed(self, group: str, damaged: bool, reason: str) -> None:
        """A replica takes part in nothing from now on: what it has stored is `damaged`, or the program failed on it."""

    def replica_deleted(self, group: str, server: NodeId, for_good: bool) -> None:
        """Nothing is left here of this member of the group but its vote; `for_good`, because the tablet is deleted."""

    def id_made(self, each: MutationId) -> None:
        """This node's coordinator names a mutation so, and has sent it to nobody."""

    def mutation_stored(self, group: str, replicas: Collection[str], each: MutationId, number: int) -> None:
        """A mutation of a logged tablet is durable here, at this place of the log, or was found there at a restart;
        `replicas` are the nodes that hold the tablet."""

    def mutations_set_aside(self, group: str, numbers: Collection[int]) -> None:
        """The mutations of these places of the log are durable elsewhere too."""

    def log_collected(self, group: str, number: int) -> None:
        """The log of a logged tablet keeps nothing here up to this place any more."""

    def snapshot_read(self, group: str, asked: Slice, summary: Summary, page: Page) -> None:
        """What this replica of a logged tablet holds of a slice, and what it has applied, as of one moment."""

    def bound_raised(self, group: str, bound: int) -> None:
        """This replica of a logged tablet knows that all have everything below the bound; also after a restart."""

    def deletion_purged(self, group: str, taken_ns: int, low_bound: int) -> None:
        """This replica of a logged tablet forgets a deletion, which counts as taken then."""


UNOBSERVED = Observer()


def tell_votes(observer: Observer, group: str, messages: Sequence[Message]) -> None:
    """Tell of the votes among messages that leave now."""
    for message in messages:
        if type(message) is RequestVoteReply and message.granted:
            observer.voted(group, message.term, message.target)
        elif type(message) is RequestVote:
            observer.voted(group, message.term, message.source)

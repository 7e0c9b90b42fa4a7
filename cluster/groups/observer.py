"""What a member of a Raft group tells of its decisive events, so that invariants can be checked at every step (G10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cluster.raft.types import (
    Configuration,
    Entry,
    HardState,
    Message,
    NodeId,
    Persist,
    Role,
    SnapshotMeta,
)

NO_STATE = HardState()


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


class GroupObserver:
    """Whom a member of the Raft group `group` tells; this one, of whom others are made, tells nobody."""

    __slots__ = ()

    def opened(
        self,
        group: str,
        server: NodeId,
        snapshot: SnapshotMeta | None,
        entries: Sequence[Entry],
        state: HardState = NO_STATE,
    ) -> None:
        """A replica begins, as this member of the group, with what its disk holds; before anything else of it."""

    def leaving(self, group: str, messages: Sequence[Message]) -> None:
        """These messages leave this node now."""

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

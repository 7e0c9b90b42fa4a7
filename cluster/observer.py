"""Whom node code tells of its decisive events, so that invariants can be checked at every step of a run (G10).

One observer belongs to one life of one node; `run_node` hands it down. Outside the simulator it is `SILENT`. Node code
never acts on an observer, and an observer never acts on a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cluster.raft.types import Entry, SnapshotMeta


class Digested(Protocol):
    """A replicated state that knows a digest of itself."""

    @property
    def digest(self) -> int:
        """64 bits of the whole state: equal states have equal digests, however they came about."""


class Observer(Protocol):
    """What one life of a node tells; `group` names a Raft group. Called in the step in which it happens."""

    def became_leader(self, group: str, term: int) -> None:
        """This replica leads the group in a term."""

    def committed(self, group: str, entries: Sequence[Entry]) -> None:
        """This replica knows these entries, which follow each other, to be committed; again after a restart."""

    def applied(self, group: str, index: int, state: Digested) -> None:
        """The state machine has carried out the entry at `index`, whatever its kind; `state` is what came of it."""

    def restored(self, group: str, meta: SnapshotMeta, state: Digested) -> None:
        """The state was replaced by a snapshot, at a restart or from the leader."""


class Silent:
    """Tells nobody."""

    def became_leader(self, group: str, term: int) -> None:
        """Nothing."""

    def committed(self, group: str, entries: Sequence[Entry]) -> None:
        """Nothing."""

    def applied(self, group: str, index: int, state: Digested) -> None:
        """Nothing."""

    def restored(self, group: str, meta: SnapshotMeta, state: Digested) -> None:
        """Nothing."""


SILENT = Silent()

"""Whom node code tells of its decisive events, so that invariants can be checked at every step of a run (G10).

One observer belongs to one life of one node; `run_node` hands it down. Outside the simulator it is `UNOBSERVED`. Node
code never acts on an observer, and an observer never acts on a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cluster.quorum.observer import QuorumObserver
from cluster.raft.types import NodeId
from cluster.ranges.observer import RangeObserver


class Readings(Protocol):
    """The readings of a node's hybrid clock."""

    @property
    def last(self) -> int:
        """The highest reading given out or taken in, as an HLC timestamp."""


class Observer(RangeObserver, QuorumObserver):
    """What one life of a node tells, in the step in which it happens."""

    __slots__ = ()

    def clock_made(self, hlc: Readings, max_offset_ns: int) -> None:
        """The node's hybrid clock, and how far two clocks may be apart by declaration."""

    def caches_served(
        self, tables: Mapping[str, object], tablets: Mapping[str, object], servers: Mapping[str, object]
    ) -> None:
        """A leader master answers from these records, by their ids."""

    def master_asked(self, request: object) -> None:
        """A master begins to answer this request; the very object comes again with its answer."""

    def master_answers(self, request: object, reply: object) -> None:
        """A master answers this request."""

    def tablet_called(self, server: NodeId, request: object) -> None:
        """A master sends this request to a tablet server."""

    def replica_failed(self, group: str, damaged: bool, reason: str) -> None:
        """A replica takes part in nothing from now on: what it has stored is `damaged`, or the program failed on it."""

    def replica_deleted(self, group: str, server: NodeId, for_good: bool) -> None:
        """Nothing is left here of this member of the group but its vote; `for_good`, because the tablet is deleted."""


UNOBSERVED = Observer()

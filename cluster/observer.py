"""Whom node code tells of its decisive events, so that invariants can be checked at every step of a run (G10).

One observer belongs to one life of one node; `run_node` hands it down. Outside the simulator it is `UNOBSERVED`. Node
code never acts on an observer, and an observer never acts on a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

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


UNOBSERVED = Observer()

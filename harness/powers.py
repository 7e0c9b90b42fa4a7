"""Powers of a database that has leaders or masters, beside those that every database may have (`harness.protocols`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from harness.protocols import NodeStatus


@runtime_checkable
class Supplantable(Protocol):
    """The power of a database with the capability `foreign-cluster`: another cluster's programs can take its nodes'
    places, on their machines and at their addresses."""

    async def supplant(self, nodes: Sequence[str]) -> None:
        """Run the masters of one new cluster in the place of these dead nodes, whose files are kept as they are."""

    async def restore_place(self, node: str) -> None:
        """End the stranger in a node's place and remove its files; the node stays dead. A no-op if there is none."""

    async def stranger_status(self, node: str) -> NodeStatus | None:
        """What the stranger in the node's place says to one of its own cluster; None if it does not answer."""


@runtime_checkable
class MasterMembership(Protocol):
    """The power of a database with the capability `master-membership`: masters join and leave while it serves."""

    async def change_masters(self, add: str | None, remove: str | None, timeout_s: float) -> str | None:
        """Have the server on the node `add` made a master, and the server id `remove` cease to be one.

        None once all of it is committed, else why not, as far as is known; asking again is harmless.
        """


@runtime_checkable
class Transferable(Protocol):
    """The power of a database with the capability `leadership`: leaders hand over to voters of their groups when they
    are asked to."""

    async def transfer_leadership(self, leader: str, group: str, target: str, timeout_s: float) -> str | None:
        """Ask the node `leader`, once, to let the server `target` lead a group; it gives its lease up with that.

        None once `target` leads in a later term, else why it does not, as far as is known.
        """


@runtime_checkable
class FailsOver(Protocol):
    """The power of a database with leaders to say how long its timeouts and leases let a fail-over take."""

    @property
    def failover_s(self) -> float:
        """How long a group may be without a leader that serves after it lost the one that it had."""


@runtime_checkable
class CatchesUp(Protocol):
    """The power of a database that can tell whether it comes nearer to serving, as its replicas catch up."""

    async def await_recovered(self, patience_s: float) -> None:
        """Wait until the whole database serves its clients, `patience_s` since it came nearer to that than ever, and at
        most `harness.run.repair_progress.LONGEST` times that; raises TimeoutError."""


@runtime_checkable
class PartlyWritten(Protocol):
    """The power of a database with groups that clients don't write to, or that come and go while it serves."""

    async def written_groups(self) -> frozenset[str] | None:
        """The groups that clients write to for as long as it serves, the masters' among them if they write to it; None
        where they write to all but that one, or nobody can tell."""

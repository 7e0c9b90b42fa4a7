"""What a replica of a quorum keyspace asks of its local store, and the store of it (Q1, Q3, Q5, Q8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from cluster.quorum.deletions import Deletion
from cluster.quorum.ids import MutationId
from cluster.quorum.keys import KeyBytes
from cluster.quorum.mutation import PartitionMutation
from cluster.quorum.rows import PartitionContents
from cluster.quorum.slices import Page, Slice

Purgeable: TypeAlias = Callable[[KeyBytes, Deletion], bool]
"""Whether a partition's deletion may be forgotten: whoever says so knows that nothing at or below its timestamp will
still be written there. After the grace period for legacy; after it *and* below the last reconciliation for logged (Q8).
"""


def keep_all(_: KeyBytes, __: Deletion) -> bool:
    """No deletion is ever forgotten."""
    return False


@dataclass(slots=True)
class StoreStats:
    """What a store has done since it was opened; bytes are those read from and written to files, the log's aside."""

    read_bytes: int = 0
    written_bytes: int = 0
    reads_from_disk: int = 0
    flushes: int = 0
    compactions: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """Contents of one partition, or of the next span of it, in a scan; all pieces of a partition are of one moment.

    `first` and `last` say where a partition begins and ends.
    """

    partition: KeyBytes
    contents: PartitionContents
    first: bool
    last: bool


class PartitionScan(Protocol):
    """Partitions in the order of their tokens, piece by piece."""

    async def next(self) -> Piece | None:
        """The next piece; None at the end. Raises Quarantined."""

    def close(self) -> None:
        """Give up what was kept for the scan."""


class Arrival(NamedTuple):
    """A mutation that is to be stored, the bytes that it came in, and its id if it has one."""

    mutation: PartitionMutation
    encoded: bytes
    id: MutationId | None = None


class PartitionStore(Protocol):
    """The partitions of one replica. What reads raises Quarantined where what is stored is damaged (G7)."""

    stats: StoreStats

    async def apply_all(self, arrivals: Sequence[Arrival]) -> None:
        """Make mutations durable, then visible, each as a whole, in this order; raises DiskFull.

        After that some of several may have been taken. Whoever is cancelled doesn't know what becomes durable.
        """

    def begin_apply(self, arrivals: Sequence[Arrival]) -> asyncio.Future[None]:
        """`apply_all`, begun in this very turn: the result ends as that would, and is shared by all who wait for it."""

    async def find(self, number: int) -> bytes | None:
        """The mutation at a place of the log, encoded, also where the store keeps it elsewhere by now; None where it is
        kept no more. Raises Quarantined."""

    async def note(self, note: bytes) -> None:
        """Keep these bytes durably beside the mutations, in place of those before; raises DiskFull."""

    @property
    def noted(self) -> bytes | None:
        """The last note that is durable."""

    def release(self) -> None:
        """The owner needs less of the log than before."""

    async def read(self, asked: Slice) -> Page:
        """The slice as it was at one moment: the moment of the call, every mutation of it seen whole or not at all."""

    def scan(self, first: int, last: int) -> PartitionScan:
        """Partitions with tokens from `first` to `last`, both included."""

    async def close(self) -> None:
        """Stop; what was acknowledged is found again."""


class Ledger(Protocol):
    """Who knows mutations by their ids (Q3), and how much of the log it still needs for that."""

    def stored(self, number: int, each: MutationId, partition: KeyBytes) -> None:
        """A mutation became visible just now, or was found at a restart; `number` is its place in the log."""

    def recovered(self, number: int) -> None:
        """All that was found at a restart was told; the log ends with this place."""

    @property
    def needs_from(self) -> int | None:
        """The lowest place that the log must keep; None for none."""

    @property
    def low_bound(self) -> int:
        """Mutations with ids below this time nobody asks for."""

    def needed(self, last: int) -> list[tuple[int, MutationId, KeyBytes]]:
        """The mutations that the log must keep, of places up to `last`, rising."""

    def set_aside(self, numbers: Iterable[int]) -> None:
        """The log need not keep these places any more: the store has their mutations elsewhere."""

    def collected(self, number: int) -> None:
        """The log keeps nothing up to this place any more."""

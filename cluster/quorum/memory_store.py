"""Partitions of one replica in memory, over its journal (`cluster.quorum.partition_store.PartitionStore`)."""

from __future__ import annotations

from cluster.log.view import GroupLog
from cluster.quorum.journal import Journal, JournalFull
from cluster.quorum.keys import KeyBytes, token_of
from cluster.quorum.mutation import PartitionMutation, decode_mutation, encode_mutation
from cluster.quorum.partition_store import PartitionScan, Piece, StoreStats
from cluster.quorum.rows import NOTHING, PartitionContents, merge_contents
from cluster.quorum.slices import Page, Slice, page_of
from harness.ports import DiskFull

_LONG_LOG_BYTES = 1 << 20


class MemoryPartitions:
    """Everything is in the journal and in memory; a long journal is stated anew, whole."""

    def __init__(self) -> None:
        self.stats = StoreStats()
        self._partitions: dict[KeyBytes, PartitionContents] = {}
        self._journal: Journal | None = None
        self._stated_bytes = 0

    @classmethod
    async def open(cls, log: GroupLog) -> MemoryPartitions:
        """Recover what the log holds; raises Quarantined."""
        store = cls()
        journal = Journal(log, lambda _, record: store._take(record))
        await journal.recover(store._take)
        store._journal = journal
        return store

    async def apply(self, mutation: PartitionMutation) -> None:
        """See PartitionStore."""
        journal = self._opened()
        try:
            await journal.put(encode_mutation(mutation))
        except JournalFull as error:
            raise DiskFull from error
        if journal.log_bytes > _LONG_LOG_BYTES + 2 * self._stated_bytes:
            await self.flush()

    async def read(self, asked: Slice) -> Page:
        """See PartitionStore."""
        self.stats.reads += 1
        return page_of(self._partitions.get(asked.partition, NOTHING), asked)

    def scan(self, first: int, last: int) -> PartitionScan:
        """See PartitionStore."""
        found = sorted((token_of(key), key) for key in self._partitions if first <= token_of(key) <= last)
        return _Walk([Piece(key, self._partitions[key], True, True) for _, key in found])

    async def flush(self) -> None:
        """See PartitionStore."""
        parts = [encode_mutation(PartitionMutation(key, contents)) for key, contents in self._partitions.items()]
        self._stated_bytes = sum(map(len, parts))
        journal = self._opened()
        journal.cut(journal.durable, iter(parts))

    async def close(self) -> None:
        """See PartitionStore."""
        self._opened().close()

    def _take(self, record: bytes) -> None:
        mutation = decode_mutation(record)
        held = self._partitions.get(mutation.partition, NOTHING)
        self._partitions[mutation.partition] = merge_contents([held, mutation.contents])

    def _opened(self) -> Journal:
        assert self._journal is not None
        return self._journal


class _Walk:
    """Implements `PartitionScan` over pieces at hand."""

    def __init__(self, pieces: list[Piece]) -> None:
        self._pieces = pieces[::-1]

    async def next(self) -> Piece | None:
        """See PartitionScan."""
        return self._pieces.pop() if self._pieces else None

    def close(self) -> None:
        """See PartitionScan."""
        self._pieces.clear()

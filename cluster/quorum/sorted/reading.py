"""Reads over memtables and files: a slice as it was at one moment, and scans of partitions in the order of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cluster.log.envelope import CorruptLog
from cluster.log.view import Quarantined
from cluster.quorum.keys import ABOVE, LOWEST_KEY, place_of
from cluster.quorum.partition_store import Piece
from cluster.quorum.rows import NOTHING, PartitionContents, join_contents
from cluster.quorum.slices import Page, Slice, cut_to, live_rows, page_of
from cluster.quorum.sorted.blocks import Chunk, Place
from cluster.quorum.sorted.files import FileCursor, SortedFile
from cluster.quorum.sorted.live import LiveFiles
from cluster.quorum.sorted.memtable import MemoryCursor, Memtable
from cluster.quorum.sorted.merging import MergedCursor, Turns
from harness.ports.api import Clock

OnDamage = Callable[[CorruptLog], Quarantined]


class SliceRead:
    """One read of one slice: what is in memory is taken when it is made, and files are kept until it is over.

    So a mutation shows in all of it or in none, whatever is written, flushed and compacted meanwhile.
    """

    def __init__(self, asked: Slice, tables: Sequence[Memtable], files: Sequence[SortedFile], clock: Clock) -> None:
        self._asked, self._clock = asked, clock
        place = place_of(asked.partition)
        self._spans = [(span, self._merged(place, *span, tables, files)) for span in asked.spans if span[0] < span[1]]

    async def page(self) -> Page:
        """The page; raises CorruptLog."""
        asked, live, turns = self._asked, 0, Turns(self._clock)
        pieces: list[PartitionContents] = []
        for span, merged in self._spans:
            while (chunk := await merged.next()) is not None:
                part = Slice(asked.partition, ((span[0], min(span[1], chunk.end)),), None, asked.columns)
                pieces.append(cut_to(chunk.contents, part))
                live += live_rows(pieces[-1])
                await turns.took(chunk)
                if asked.limit is not None and live >= asked.limit:
                    return page_of(join_contents(pieces), asked, chunk.end)
        return page_of(join_contents(pieces) if pieces else NOTHING, asked)

    @staticmethod
    def _merged(
        place: bytes, start: bytes, end: bytes, tables: Sequence[Memtable], files: Sequence[SortedFile]
    ) -> MergedCursor:
        low, high = (place, start), (place, end)
        return MergedCursor(
            [
                *(MemoryCursor(table, low, high) for table in tables),
                *(FileCursor(file, low, high) for file in files),
            ],
            low,
            high,
        )


class TokenScan:
    """A scan of a store (`cluster.quorum.partition_store.PartitionScan`): files are kept until it is closed.

    Mutations that came after it began may show or not, each as a whole.
    """

    def __init__(
        self,
        tables: Sequence[Memtable],
        live: LiveFiles,
        bounds: tuple[Place, Place],
        clock: Clock,
        on_damage: OnDamage,
    ) -> None:
        self._live, self._files, self._turns, self._on_damage = live, live.pin(), Turns(clock), on_damage
        low, high = bounds
        self._merged = MergedCursor(
            [
                *(MemoryCursor(table, low, high) for table in tables),
                *(FileCursor(file, low, high) for file in self._files),
            ],
            low,
            high,
        )
        self._closed = False

    async def next(self) -> Piece | None:
        """The next piece; None at the end. Raises Quarantined."""
        try:
            chunk = await self._merged.next()
        except CorruptLog as error:
            raise self._on_damage(error) from error
        if chunk is None:
            self.close()
            return None
        await self._turns.took(chunk)
        return _piece(chunk)

    def close(self) -> None:
        """Give up what was kept for the scan."""
        if not self._closed:
            self._closed = True
            self._live.unpin(self._files)


def _piece(chunk: Chunk) -> Piece:
    return Piece(chunk.partition, chunk.contents, chunk.start == LOWEST_KEY, chunk.end == ABOVE)

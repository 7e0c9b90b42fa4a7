"""Reads over memtables and files, merged: a slice as of one moment, and scans of partitions in the order of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from cluster.log.envelope import CorruptLog
from cluster.log.view import Quarantined
from cluster.quorum.keys import ABOVE, LOWEST_KEY, KeyBytes, place_of
from cluster.quorum.partition_store import Piece
from cluster.quorum.rows import NOTHING, PartitionContents, clip_contents, join_contents, merge_contents
from cluster.quorum.slices import Page, Slice, cut_to, live_rows, page_of
from cluster.quorum.sorted.blocks import Chunk, Place
from cluster.quorum.sorted.files import FileCursor, SortedFile
from cluster.quorum.sorted.live import LiveFiles
from cluster.quorum.sorted.memtable import MemoryCursor, Memtable
from harness.ports.api import Clock

# ---- several sources as one ----
# Each source gives chunks in order, and they are merged window by window. A window goes from
# where the last one ended to the first end of any source's chunk there, so that every source is known in all of it.
# Only what the next window needs is in memory, whatever a partition's size.


_TURN_ROWS = 512
"""Rows merged in one turn of the event loop: a few milliseconds."""


class Cursor(Protocol):
    """A source of chunks in order; `advance` comes first, and `place` is None behind the last chunk."""

    place: bytes | None
    chunk: Chunk | None

    async def advance(self) -> None:
        """Go to the next chunk; raises CorruptLog."""


class Turns:
    """Lets others run once in a while: what takes long says how far it is."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows = 0

    async def took(self, chunk: Chunk) -> None:
        """A chunk was dealt with."""
        self._rows += 1 + len(chunk.contents.rows) + len(chunk.contents.ranges)
        if self._rows >= _TURN_ROWS:
            self._rows = 0
            await self._clock.sleep(0)


class MergedCursor:
    """Chunks of all sources, merged, from `low` to `high`; their ends depend on the sources, what they say doesn't."""

    def __init__(self, cursors: Sequence[Cursor], low: Place, high: Place) -> None:
        self._cursors, self._low, self._high = tuple(cursors), low, high
        self._spent: tuple[Cursor, ...] = self._cursors
        self._place: bytes | None = None
        self._end: KeyBytes = LOWEST_KEY

    async def next(self) -> Chunk | None:
        """The next window; None at the end. A source is read only when its next chunk is needed."""
        for cursor in self._spent:
            await cursor.advance()
        self._spent = ()
        place = min((cursor.place for cursor in self._cursors if cursor.place is not None), default=None)
        if place is None:
            return None
        start = self._begin(place)
        if (place, start) >= self._high:
            return None
        # Every source that knows of this partition has a chunk that covers `start`, for its chunks leave no gaps: what
        # all of them say up to the first end of a chunk is complete.
        here = [(cursor, cursor.chunk) for cursor in self._cursors if cursor.place == place and cursor.chunk]
        end = min([chunk.end for _, chunk in here])
        contents = merge_contents([clip_contents(chunk.contents, start, end) for _, chunk in here])
        self._spent = tuple([cursor for cursor, chunk in here if chunk.end == end])
        self._place, self._end = place, end
        return Chunk(here[0][1].partition, start, end, contents)

    def _begin(self, place: bytes) -> KeyBytes:
        if place == self._place:
            return self._end
        return self._low[1] if place == self._low[0] else LOWEST_KEY


OnDamage = Callable[[CorruptLog], Quarantined]


def merged(tables: Sequence[Memtable], files: Sequence[SortedFile], low: Place, high: Place) -> MergedCursor:
    """All that memtables and files hold from `low` to `high`."""
    in_memory = [MemoryCursor(table, low, high) for table in tables]
    return MergedCursor([*in_memory, *(FileCursor(file, low, high) for file in files)], low, high)


# ---- slices and scans ----


class SliceRead:
    """One read of one slice: what is in memory is taken when it is made, and files are kept until it is over.

    So a mutation shows in all of it or in none, whatever is written, flushed and compacted meanwhile.
    """

    def __init__(self, asked: Slice, tables: Sequence[Memtable], files: Sequence[SortedFile], clock: Clock) -> None:
        self._asked, self._clock = asked, clock
        place = place_of(asked.partition)
        spans = [span for span in asked.spans if span[0] < span[1]]
        self._spans = [(span, merged(tables, files, (place, span[0]), (place, span[1]))) for span in spans]

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
        self._merged = merged(tables, self._files, low, high)
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

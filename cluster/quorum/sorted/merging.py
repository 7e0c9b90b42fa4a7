"""Reading several sources as one: each gives chunks in order, and they are merged window by window.

A window goes from where the last one ended to the first end of any source's chunk there, so that every source is known
in all of it. Only what the next window needs is in memory, whatever a partition's size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cluster.quorum.keys import LOWEST_KEY, KeyBytes
from cluster.quorum.rows import clip_contents, merge_contents
from cluster.quorum.sorted.blocks import Chunk, Place
from harness.ports.api import Clock

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

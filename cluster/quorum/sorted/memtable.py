"""What was written since the last flush, in memory and sorted. Pure.

Rows are never changed, only replaced, and a partition's keys and rows are two lists side by side: so a slice of both is
a snapshot of the partition that costs a copy of references, however much is written afterwards.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from cluster.quorum.deletions import Deletion, RangeDeletion, add_range, clip_ranges, latest
from cluster.quorum.keys import ABOVE, LOWEST_KEY, KeyBytes, place_of
from cluster.quorum.mutation import PartitionMutation
from cluster.quorum.rows import QuorumRow, canonical, merge_rows, oldest_timestamp
from cluster.quorum.sorted.blocks import Chunk, Place

_CHUNK_ROWS = 256
"""How many rows are handed out at a time: no turn of the event loop is long because of a large partition."""


@dataclass(slots=True)
class _Held:
    """What is held of one partition."""

    partition: KeyBytes
    """The key of this partition."""
    deletion: Deletion | None = None
    """The latest deletion of the whole partition, if there is one."""
    ranges: list[RangeDeletion] = field(default_factory=list)
    """A canonical list; what they cover is left in the rows until it is read."""
    keys: list[KeyBytes] = field(default_factory=list)
    """Keys of rows, rising."""
    rows: list[QuorumRow] = field(default_factory=list)
    """The row of each key, side by side with `keys`."""
    oldest: int | None = None
    """The lowest timestamp that was ever written here."""


class Memtable:
    """Mutations merged; `logged_bytes` is what they took in the log, `last` the number of the last one there."""

    def __init__(self) -> None:
        self._held: dict[bytes, _Held] = {}
        self._places: list[bytes] = []
        self.logged_bytes = 0
        self.last = 0

    def apply(self, number: int, mutation: PartitionMutation, logged_bytes: int) -> None:
        """Merge a mutation in; numbers rise."""
        self.last = number
        self.logged_bytes += logged_bytes
        contents = mutation.contents
        held = self._partition(mutation.partition)
        held.deletion = latest(held.deletion, contents.deletion)
        for each in contents.ranges:
            add_range(held.ranges, each)
        for row in contents.rows:
            at = bisect_left(held.keys, row.key)
            if at < len(held.keys) and held.keys[at] == row.key:
                held.rows[at] = merge_rows(held.rows[at], row)
            else:
                held.keys.insert(at, row.key)
                held.rows.insert(at, row)
        oldest = oldest_timestamp(contents)
        if oldest is not None:
            held.oldest = oldest if held.oldest is None else min(held.oldest, oldest)

    def oldest(self, place: bytes) -> int | None:
        """The lowest timestamp that was written here to the partition at a place."""
        held = self._held.get(place)
        return None if held is None else held.oldest

    def snapshot(self, low: Place, high: Place) -> HeldSnapshot | None:
        """The first partition from `low` on and below `high`, as it is now; the part of it between them."""
        at = bisect_left(self._places, low[0])
        if at == len(self._places) or (self._places[at], LOWEST_KEY) >= high:
            return None
        place = self._places[at]
        held = self._held[place]
        start = low[1] if place == low[0] else LOWEST_KEY
        end = high[1] if place == high[0] else ABOVE
        first, last = bisect_left(held.keys, start), bisect_left(held.keys, end)
        ranges = clip_ranges(held.ranges, start, end)
        return HeldSnapshot(held.partition, place, start, held.deletion, ranges, held.rows[first:last])

    def _partition(self, partition: KeyBytes) -> _Held:
        place = place_of(partition)
        held = self._held.get(place)
        if held is None:
            held = self._held[place] = _Held(partition)
            insort(self._places, place)
        return held


class HeldSnapshot:
    """A partition as it was at one moment, handed out chunk by chunk."""

    def __init__(
        self,
        partition: KeyBytes,
        place: bytes,
        start: KeyBytes,
        deletion: Deletion | None,
        ranges: list[RangeDeletion],
        rows: list[QuorumRow],
    ) -> None:
        self.place = place
        self._partition, self._start, self._deletion = partition, start, deletion
        self._ranges, self._rows = ranges, rows
        self._at = 0
        self._whole = False

    def next(self) -> Chunk | None:
        """The next chunk; together they reach from the start of the snapshot to above all keys."""
        if self._whole:
            return None
        start, first = self._start, self._at
        self._at += _CHUNK_ROWS
        self._whole = self._at >= len(self._rows)
        end = self._start = ABOVE if self._whole else self._rows[self._at].key
        ranges = clip_ranges(self._ranges, start, end)
        return Chunk(self._partition, start, end, canonical(self._deletion, ranges, self._rows[first : self._at]))


class MemoryCursor:
    """Goes through a memtable from `low` to `high` (`cluster.quorum.sorted.reading.Cursor`).

    Each partition is shown as it is when the cursor comes to it, the first as it is when the cursor is made.
    """

    def __init__(self, table: Memtable, low: Place, high: Place) -> None:
        self._table, self._high = table, high
        self._snapshot = table.snapshot(low, high)
        self.place: bytes | None = None
        self.chunk: Chunk | None = None

    async def advance(self) -> None:
        """Go to the next chunk."""
        while self._snapshot is not None:
            self.chunk = self._snapshot.next()
            if self.chunk is not None:
                self.place = self._snapshot.place
                return
            self._snapshot = self._table.snapshot((self._snapshot.place + b"\0", LOWEST_KEY), self._high)
        self.place = self.chunk = None

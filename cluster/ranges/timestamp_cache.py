"""The timestamp cache: how high each cell was read, so that later writes lie above (R3). Pure.

Bounded as CockroachDB's is: two pages, of which the older one is dropped when the younger is full. What it held goes
into the low-water mark, which counts as a read of everything, so that forgetting only ever pushes writes higher.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cluster.store.cells import Key, Span, is_point, overlap

CAPACITY = 10_000


@dataclass(slots=True)
class _Reads:
    """Reads of one partition: of cells, and of ranges."""

    cells: dict[Key, int] = field(default_factory=dict)
    ranges: dict[Span, int] = field(default_factory=dict)


class _Page:
    def __init__(self) -> None:
        self.partitions: dict[int, _Reads] = {}
        self.size = 0
        self.highest = 0

    def record(self, span: Span, timestamp: int) -> None:
        reads = self.partitions.get(span[0][0])
        if reads is None:
            reads = self.partitions[span[0][0]] = _Reads()
        if timestamp > self.highest:
            self.highest = timestamp
        if is_point(span):
            known = reads.cells.get(span[0])
            self.size += known is None
            if known is None or known < timestamp:
                reads.cells[span[0]] = timestamp
        else:
            self.size += span not in reads.ranges
            reads.ranges[span] = max(timestamp, reads.ranges.get(span, 0))

    def over(self, span: Span) -> int:
        reads = self.partitions.get(span[0][0])
        if reads is None:
            return 0
        if not reads.ranges and is_point(span):
            return reads.cells.get(span[0], 0)
        found = [timestamp for other, timestamp in reads.ranges.items() if overlap(span, other)]
        if is_point(span):
            found.append(reads.cells.get(span[0], 0))
        else:
            found.extend(timestamp for key, timestamp in reads.cells.items() if span[0] <= key < span[1])
        return max(found, default=0)


class TimestampCache:
    """Highest timestamps of reads by span; holds at most `capacity` spans."""

    def __init__(self, low_water: int, capacity: int = CAPACITY, flaws: frozenset[str] = frozenset()) -> None:
        self._low_water = low_water
        self._goes_back = "cache-low-water-back" in flaws
        self._page_size = max(1, capacity // 2)
        self._young, self._old = _Page(), _Page()

    def record(self, span: Span, timestamp: int) -> None:
        """A read of everything in `span` was served at `timestamp`."""
        if timestamp <= self._low_water:
            return
        if self._young.size >= self._page_size:
            self._low_water = max(0 if self._goes_back else self._low_water, self._old.highest)
            self._old, self._young = self._young, _Page()
        self._young.record(span, timestamp)

    def highest(self, span: Span) -> int:
        """No read of any key in `span` was served above this."""
        young = self._young.over(span)
        old = self._old.over(span) if self._old.size else 0
        return max(self._low_water, young, old)

    def summary(self) -> int:
        """No read of anything was served above this: what a successor needs to know (G3)."""
        return max(self._low_water, self._young.highest, self._old.highest)

"""Versions of cells by HLC timestamp, and the cache of reads that later writes must stay above (R3). Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from typing import TypeAlias

from cluster.store.digest import MASK, fingerprint

Key: TypeAlias = tuple[int, int, int]
"""(partition, row, column)."""

Version: TypeAlias = tuple[int, int | None]
"""(timestamp, value); None is a deleted value."""

StoreRows: TypeAlias = list[tuple[Key, list[Version]]]

LATEST = (1 << 63) - 1


class BelowThreshold(Exception):
    """A read at a time whose versions may have been collected."""


class MvccStore:
    """Cells with their versions, oldest first; per cell, timestamps rise.

    Versions that a newer one had replaced `retention_ns` before the latest write are collected; reads below
    `threshold` are refused then. `digest` is of the versions (G10).
    """

    def __init__(self, retention_ns: int) -> None:
        self._retention_ns = retention_ns
        self._cells: dict[Key, tuple[list[int], list[int | None]]] = {}
        self.threshold = 0
        self.digest = 0

    def write(self, key: Key, timestamp: int, value: int | None) -> None:
        """Add a version; raises ValueError unless it is the cell's newest."""
        cell = self._cells.setdefault(key, ([], []))
        times, values = cell
        if times and timestamp <= times[-1]:
            raise ValueError(f"version {timestamp} of {key} is not above {times[-1]}")
        times.append(timestamp)
        values.append(value)
        self.digest = self.digest + fingerprint((key, timestamp, value)) & MASK
        self._collect(key, times, values, timestamp - self._retention_ns)

    def read(self, key: Key, as_of: int = LATEST) -> Version | None:
        """The version in force at `as_of` (inclusive), or None; raises BelowThreshold."""
        if as_of < self.threshold:
            raise BelowThreshold(f"versions below {self.threshold} are collected")
        cell = self._cells.get(key)
        if cell is None:
            return None
        times, values = cell
        at = len(times) if as_of >= times[-1] else bisect_right(times, as_of)
        return (times[at - 1], values[at - 1]) if at else None

    def rows(self) -> StoreRows:
        """Everything, in key order, for a snapshot."""
        return [(key, list(zip(*self._cells[key], strict=True))) for key in sorted(self._cells)]

    @classmethod
    def from_rows(cls, rows: StoreRows, retention_ns: int, threshold: int) -> MvccStore:
        """The store that `rows` was taken of."""
        store = cls(retention_ns)
        store.threshold = threshold
        for key, versions in rows:
            store._cells[key] = ([time for time, _ in versions], [value for _, value in versions])
            store.digest = store.digest + sum(fingerprint((key, *version)) for version in versions) & MASK
        return store

    def _collect(self, key: Key, times: list[int], values: list[int | None], below: int) -> None:
        """Drop versions that were already replaced at `below`; the one in force there stays."""
        if len(times) < 2 or times[1] > below:
            return
        dropped = bisect_right(times, below) - 1
        gone = zip(times[:dropped], values[:dropped], strict=True)
        self.digest = self.digest - sum(fingerprint((key, *version)) for version in gone) & MASK
        del times[:dropped], values[:dropped]
        self.threshold = max(self.threshold, below)


class TimestampCache:
    """The highest timestamp each cell was read at; a write must lie above it.

    Holds the most recently read cells; what falls out raises the low-water mark, which counts as a read of everything.
    """

    def __init__(self, low_water: int, capacity: int = 10_000) -> None:
        self._low_water = low_water
        self._capacity = capacity
        self._reads: OrderedDict[Key, int] = OrderedDict()

    def record(self, key: Key, timestamp: int) -> None:
        """A read of `key` was served at `timestamp`."""
        if timestamp <= self._low_water:
            return
        if timestamp > self._reads.get(key, 0):
            self._reads[key] = timestamp
        self._reads.move_to_end(key)
        if len(self._reads) > self._capacity:
            _, oldest = self._reads.popitem(last=False)
            self._low_water = max(self._low_water, oldest)

    def highest(self, key: Key) -> int:
        """No read of `key` was served above this."""
        return max(self._reads.get(key, 0), self._low_water)

"""Versions of cells by HLC timestamp (R3). Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import NamedTuple, TypeAlias

from cluster.store.cells import Key, Span, Value
from cluster.store.digest import MASK, fingerprint


class Version(NamedTuple):
    """A value and the timestamp it was written at; None is a deleted value."""

    timestamp: int
    value: Value


StoreRows: TypeAlias = list[tuple[Key, list[tuple[int, Value]]]]

LATEST = (1 << 63) - 1


class BelowThreshold(Exception):
    """A read at a time whose versions may have been collected."""


class NotNewest(Exception):
    """A write at or below what its cell holds already: latches or the evaluation that chose its timestamp are wrong."""


class MvccStore:
    """Cells with their versions, oldest first. Writes to *one* cell rise; writes to several come in any order.

    Versions are collected up to the `threshold`, which its owner moves; below it reads are refused, and so are writes,
    as nothing may be written under reads that found what was in force there. `digest` is of the versions (G10).
    """

    def __init__(self) -> None:
        self._cells: dict[Key, tuple[list[int], list[Value]]] = {}
        self._keys: dict[int, list[Key]] = {}
        self.threshold = 0
        self.digest = 0

    def write(self, key: Key, timestamp: int, value: Value) -> None:
        """Add a version; raises NotNewest unless it is the cell's newest and above the threshold."""
        if timestamp <= self.threshold:
            raise NotNewest(f"version {timestamp} of {key} is not above the threshold {self.threshold}")
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = ([], [])
            insort(self._keys.setdefault(key[0], []), key)
        times, values = cell
        if times and timestamp <= times[-1]:
            raise NotNewest(f"version {timestamp} of {key} is not above {times[-1]}")
        times.append(timestamp)
        values.append(value)
        self.digest = self.digest + fingerprint((key, timestamp, value)) & MASK
        if len(times) > 1 and times[1] <= self.threshold:
            self._collect(key, times, values)

    def read(self, key: Key, as_of: int = LATEST) -> Version | None:
        """The version in force at `as_of` (inclusive), or None; raises BelowThreshold."""
        self._check(as_of)
        return self._version(key, as_of)

    def scan(self, span: Span, as_of: int = LATEST) -> list[tuple[Key, Version]]:
        """The cells of a span with the versions in force at `as_of`, in key order, deleted ones left out.

        Raises BelowThreshold.
        """
        self._check(as_of)
        found = ((key, self._version(key, as_of)) for key in self._within(span))
        return [(key, version) for key, version in found if version is not None and version.value is not None]

    def newest(self, span: Span) -> int:
        """The timestamp of the newest version of any cell in the span; 0 if there is none."""
        cell = self._cells.get(span[0])
        if cell is not None and span[1] == (*span[0][:2], span[0][2] + 1):
            return cell[0][-1]
        return max((self._cells[key][0][-1] for key in self._within(span)), default=0)

    def raise_threshold(self, threshold: int) -> None:
        """Let versions go that were replaced at `threshold` already; each cell's are dropped when it is written."""
        self.threshold = max(self.threshold, threshold)

    def rows(self) -> StoreRows:
        """Everything, in key order, for a snapshot."""
        return [(key, list(zip(*self._cells[key], strict=True))) for key in sorted(self._cells)]

    @classmethod
    def from_rows(cls, rows: StoreRows, threshold: int) -> MvccStore:
        """The store that `rows` was taken of."""
        store = cls()
        store.threshold = threshold
        for key, versions in rows:
            store._cells[key] = ([time for time, _ in versions], [value for _, value in versions])
            store._keys.setdefault(key[0], []).append(key)
            store.digest = store.digest + sum(fingerprint((key, *version)) for version in versions) & MASK
        return store

    def _check(self, as_of: int) -> None:
        if as_of < self.threshold:
            raise BelowThreshold(f"versions below {self.threshold} are collected")

    def _version(self, key: Key, as_of: int) -> Version | None:
        cell = self._cells.get(key)
        if cell is None:
            return None
        times, values = cell
        at = len(times) if as_of >= times[-1] else bisect_right(times, as_of)
        return Version(times[at - 1], values[at - 1]) if at else None

    def _within(self, span: Span) -> list[Key]:
        keys = self._keys.get(span[0][0], [])
        return keys[bisect_left(keys, span[0]) : bisect_left(keys, span[1])]

    def _collect(self, key: Key, times: list[int], values: list[Value]) -> None:
        """Drop versions that were already replaced at the threshold; the one in force there stays."""
        dropped = bisect_right(times, self.threshold) - 1
        gone = zip(times[:dropped], values[:dropped], strict=True)
        self.digest = self.digest - sum(fingerprint((key, *version)) for version in gone) & MASK
        del times[:dropped], values[:dropped]

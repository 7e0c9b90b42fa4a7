"""When versions were written by the clock of who wrote them, where that is earlier than they say (R9, G6). Pure.

A version above its writer's clock (pushed there, or of a table that leads) was not there yet at its timestamp, and a
reader whose uncertainty reaches that far asks for the clock time. Any other version was: its timestamp stands for the
clock time, and nothing is kept, as in CockroachDB, whose values omit a local timestamp that is not below their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from cluster.store.cells import Key
from cluster.store.digest import fingerprint

LocalTimeRow: TypeAlias = tuple[Key, int, int]
"""A cell, the timestamp of one of its versions, and the earlier clock time at which that was written."""

_ROW_BYTES = 40


class FrozenLocalTimes:
    """The times as they were at one time; made by `LocalTimes.freeze`."""

    def __init__(self, times: dict[tuple[Key, int], int]) -> None:
        self._times = times

    def rows(self) -> Iterator[tuple[LocalTimeRow, int]]:
        """Rows and about their sizes."""
        for (key, timestamp), written_at in self._times.items():
            yield (key, timestamp, written_at), _ROW_BYTES


class LocalTimes:
    """Clock times of writing by version. What changes it returns the fingerprints of what came or went, added up."""

    def __init__(self) -> None:
        self._times: dict[tuple[Key, int], int] = {}

    def note(self, key: Key, timestamp: int, written_at: int) -> int:
        """The version was written at this earlier clock time."""
        self._times[key, timestamp] = written_at
        return _print(key, timestamp, written_at)

    def of(self, key: Key, timestamp: int) -> int:
        """The clock time at which a version was written, or its timestamp where that is no later."""
        return self._times.get((key, timestamp), timestamp)

    def forget(self, key: Key, timestamps: Iterable[int]) -> int:
        """These versions are collected."""
        if not self._times:
            return 0
        gone = [(each, self._times.pop((key, each))) for each in timestamps if (key, each) in self._times]
        return sum(_print(key, timestamp, written_at) for timestamp, written_at in gone)

    def freeze(self) -> FrozenLocalTimes:
        """Everything as it is now."""
        return FrozenLocalTimes(self._times.copy())


def _print(key: Key, timestamp: int, written_at: int) -> int:
    """One more part than a version has: the two never look alike."""
    return fingerprint((key, timestamp, None, written_at))

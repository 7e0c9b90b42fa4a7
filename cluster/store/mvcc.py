"""Versions of cells by HLC timestamp (R3), with local times and intents beside them, and frozen views (G5). Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from cluster.store.cells import MASK, Key, Span, Value, fingerprint, point, value_bytes
from cluster.store.intents import Intent, IntentRow, Intents, OpenIntent

LocalTimeRow: TypeAlias = tuple[Key, int, int]
"""A cell, the timestamp of one of its versions, and the earlier clock time at which that was written."""

_TIME_BYTES = 40
"""About what a row of local times takes."""


class LocalTimes:
    """Clock times of writing by version (R9, G6).

    What changes it returns the fingerprints of what came or went, added up.

    A version above its writer's clock (pushed there, or of a table that leads) was not there yet at its timestamp, and
    a reader whose uncertainty reaches that far asks for the clock time. Any other version was: its timestamp stands for
    the clock time, and nothing is kept, as in CockroachDB, whose values omit a local timestamp that is not below their
    own.
    """

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
        """Forget the clock times of versions that were collected, and return what that changes of the digest."""
        if not self._times:
            return 0
        gone = [(each, self._times.pop((key, each))) for each in timestamps if (key, each) in self._times]
        return sum(_print(key, timestamp, written_at) for timestamp, written_at in gone)

    def freeze(self) -> Iterator[tuple[LocalTimeRow, int]]:
        """All of them as they are now, with about their sizes."""
        return (((*version, written_at), _TIME_BYTES) for version, written_at in self._times.copy().items())


def _print(key: Key, timestamp: int, written_at: int) -> int:
    """One more part than a version has: the two never look alike."""
    return fingerprint((key, timestamp, None, written_at))


class Version(NamedTuple):
    """A value and the timestamp it was written at; None is a deleted value."""

    timestamp: int
    value: Value


StoreRow: TypeAlias = tuple[Key, list[tuple[int, Value]]]
"""A cell and some of its versions, oldest first; rows that follow each other may go on with one cell."""

LATEST = (1 << 63) - 1

_ROW_BYTES, _VERSION_BYTES = 24, 12
"""About what a row and a version take beside the value."""

_NO_KEYS: tuple[int, list[Key]] = (-1, [])


class BelowThreshold(Exception):
    """A read at a time whose versions may have been collected."""


class NotNewest(Exception):
    """A write at or below what its cell holds already: latches or the evaluation that chose its timestamp are wrong."""


class _Cell(NamedTuple):
    """`epoch` is the one in which the lists were made: those of an earlier one are shared with a frozen view."""

    epoch: int
    times: list[int]
    values: list[Value]


class FrozenCells:
    """The cells as they were at one time, whatever is written since; made by `MvccStore.freeze`."""

    def __init__(
        self,
        cells: dict[Key, _Cell],
        keys: dict[int, tuple[int, list[Key]]],
        local_times: Iterator[tuple[LocalTimeRow, int]],
        intents: Iterator[tuple[IntentRow, int]],
    ) -> None:
        self._cells, self._keys = cells, keys
        self.local_times, self.intents = local_times, intents

    def rows(self, row_bytes: int) -> Iterator[tuple[StoreRow, int]]:
        """Rows and about their sizes, in key order within a partition; one above `row_bytes` holds one version."""
        for _, keys in self._keys.values():
            for key in keys:
                yield from _rows_of(key, self._cells[key], row_bytes)


def _rows_of(key: Key, cell: _Cell, row_bytes: int) -> Iterator[tuple[StoreRow, int]]:
    versions: list[tuple[int, Value]] = []
    size = _ROW_BYTES
    for version in zip(cell.times, cell.values, strict=True):
        more = _VERSION_BYTES + value_bytes(version[1])
        if versions and size + more > row_bytes:
            yield (key, versions), size
            versions, size = [], _ROW_BYTES
        versions.append(version)
        size += more
    if versions:
        yield (key, versions), size


class MvccStore:
    """Cells with their versions, oldest first. Writes to *one* cell rise; writes to several come in any order.

    Versions are collected up to the `threshold`, which its owner moves; below it reads are refused, and so are writes,
    as nothing may be written under reads that found what was in force there. `digest` is of the versions, their local
    times and the intents (G10).

    A frozen view shares cells and lists of keys with the store. Each freeze begins an epoch, and what was made in an
    earlier one is copied before it is changed: so freezing copies two maps of references and nothing else.
    `intents` are changed by `lay` and `resolve` alone.
    """

    def __init__(self) -> None:
        self._epoch = 0
        self._cells: dict[Key, _Cell] = {}
        self._keys: dict[int, tuple[int, list[Key]]] = {}
        self._local_times = LocalTimes()
        self.intents = Intents()
        self.threshold = 0
        self.digest = 0

    def write(self, key: Key, timestamp: int, value: Value, written_at: int = LATEST, resolved: bool = False) -> None:
        """Add a version, written at this time of its writer's clock.

        Raises NotNewest unless it is the cell's newest and above the threshold, and OpenIntent where an intent is open.
        What an intent was `resolved` to may lie below the threshold.
        """
        if timestamp <= self.threshold and not resolved:
            raise NotNewest(f"version {timestamp} of {key} is not above the threshold {self.threshold}")
        if self.intents.by_key:
            self.intents.check(point(key), LATEST)
        cell = self._cells.get(key)
        if cell is None or cell.epoch != self._epoch:
            cell = self._own_cell(key)
        _, times, values = cell
        if times and timestamp <= times[-1]:
            raise NotNewest(f"version {timestamp} of {key} is not above {times[-1]}")
        times.append(timestamp)
        values.append(value)
        self.digest = self.digest + fingerprint((key, timestamp, value)) & MASK
        if written_at < timestamp:
            self.digest = self.digest + self._local_times.note(key, timestamp, written_at) & MASK
        if len(times) > 1 and times[1] <= self.threshold:
            self._collect(key, times, values)

    def freeze(self) -> FrozenCells:
        """Everything as it is now; later changes don't show in it."""
        self._epoch += 1
        return FrozenCells(self._cells.copy(), self._keys.copy(), self._local_times.freeze(), self.intents.freeze())

    def restore(self, row: StoreRow) -> None:
        """Take a row of a frozen view in, in the order in which the view gave them."""
        key, versions = row
        _, times, values = self._own_cell(key)
        for time, value in versions:
            times.append(time)
            values.append(value)
            self.digest = self.digest + fingerprint((key, time, value)) & MASK

    def restore_local_time(self, row: LocalTimeRow) -> None:
        """Take in when a version was written."""
        self.digest = self.digest + self._local_times.note(*row) & MASK

    def restore_intent(self, row: IntentRow) -> None:
        """Take an intent in."""
        self.intents.put(*row)
        self.digest = self.digest + fingerprint(row) & MASK

    # ---- intents (R9) ----

    def check_intents(self, spans: Iterable[Span], as_of: int = LATEST) -> None:
        """Raise OpenIntent if an intent at or below `as_of` is open in these spans."""
        if self.intents.by_key:
            for span in spans:
                self.intents.check(span, as_of)

    def lay(self, key: Key, intent: Intent) -> None:
        """Lay a transaction's intent, in place of one of its own.

        Raises OpenIntent where another's is open, and NotNewest unless it is above the versions and the threshold.
        """
        before = self.intents.by_key.get(key)
        if before is not None and before.transaction != intent.transaction:
            raise OpenIntent(key, before, LATEST)
        below = max(self.threshold, self.newest(point(key)))
        if intent.timestamp <= below:
            raise NotNewest(f"intent {intent.timestamp} of {key} is not above {below}")
        replaced = 0 if before is None else fingerprint((key, before))
        self.intents.put(key, intent)
        self.digest = self.digest + fingerprint((key, intent)) - replaced & MASK

    def resolve(self, key: Key, transaction: str, committed: int | None) -> bool:
        """The transaction has committed at this timestamp, or aborted (None): its intent becomes a version, or goes.

        False, and nothing done, where it has no intent: it was resolved before. Raises NotNewest for a commit below the
        intent. The version may lie below the threshold by now: nobody has read past the intent.
        """
        intent = self.intents.by_key.get(key)
        if intent is None or intent.transaction != transaction:
            return False
        if committed is not None and committed < intent.timestamp:
            raise NotNewest(f"{transaction} commits at {committed}, and {key} has its intent at {intent.timestamp}")
        self.intents.take(key)
        self.digest = self.digest - fingerprint((key, intent)) & MASK
        if committed is not None:
            self.write(key, committed, intent.value, intent.written_at, resolved=True)
        return True

    # ---- reads ----

    def read(self, key: Key, as_of: int = LATEST) -> Version | None:
        """The version in force at `as_of` (inclusive), or None; raises BelowThreshold, OpenIntent."""
        self._check(as_of)
        if self.intents.by_key:
            self.intents.check(point(key), as_of)
        return self._version(key, as_of)

    def scan(self, span: Span, as_of: int = LATEST) -> list[tuple[Key, Version]]:
        """The cells of a span with the versions in force at `as_of`, in key order, deleted ones left out.

        Raises BelowThreshold, OpenIntent.
        """
        self._check(as_of)
        self.check_intents((span,), as_of)
        found = ((key, self._version(key, as_of)) for key in self._within(span))
        return [(key, version) for key, version in found if version is not None and version.value is not None]

    def written_at(self, key: Key, timestamp: int) -> int:
        """The time of its writer's clock at which a version was written, or its timestamp where that is no later."""
        return self._local_times.of(key, timestamp)

    def newest(self, span: Span) -> int:
        """The timestamp of the newest version of any cell in the span; 0 if there is none."""
        cell = self._cells.get(span[0])
        if cell is not None and span[1] == (*span[0][:2], span[0][2] + 1):
            return cell.times[-1]
        return max((self._cells[key].times[-1] for key in self._within(span)), default=0)

    def newest_by(self, span: Span, limit: int) -> int:
        """The timestamp of the newest version of any cell in the span that is not above `limit`; 0 if there is none."""
        found = (self._version(key, limit) for key in self._within(span))
        return max((version.timestamp for version in found if version is not None), default=0)

    def raise_threshold(self, threshold: int) -> None:
        """Let versions go that were replaced at `threshold` already; each cell's are dropped when it is written."""
        if threshold > self.threshold:
            self.threshold = threshold

    def shed(self, count: int) -> None:
        """Let `count` cells go for good, as nobody reads this any more: to let a large store go at once takes long."""
        for _ in range(min(count, len(self._cells))):
            self._cells.popitem()

    def _check(self, as_of: int) -> None:
        if as_of < self.threshold:
            raise BelowThreshold(f"versions below {self.threshold} are collected")

    def _version(self, key: Key, as_of: int) -> Version | None:
        cell = self._cells.get(key)
        if cell is None:
            return None
        _, times, values = cell
        at = len(times) if as_of >= times[-1] else bisect_right(times, as_of)
        return Version(times[at - 1], values[at - 1]) if at else None

    def _within(self, span: Span) -> list[Key]:
        keys = self._keys.get(span[0][0], _NO_KEYS)[1]
        return keys[bisect_left(keys, span[0]) : bisect_left(keys, span[1])]

    def _own_cell(self, key: Key) -> _Cell:
        """The cell, to be changed: made if there is none, copied if a frozen view may hold it."""
        cell = self._cells.get(key)
        if cell is not None and cell.epoch == self._epoch:
            return cell
        if cell is None:
            self._insert(key)
            own = _Cell(self._epoch, [], [])
        else:
            own = _Cell(self._epoch, cell.times.copy(), cell.values.copy())
        self._cells[key] = own
        return own

    def _insert(self, key: Key) -> None:
        epoch, keys = self._keys.get(key[0], _NO_KEYS)
        if epoch != self._epoch:
            keys = keys.copy()
            self._keys[key[0]] = (self._epoch, keys)
        if keys and key < keys[-1]:
            insort(keys, key)
        else:
            keys.append(key)

    def _collect(self, key: Key, times: list[int], values: list[Value]) -> None:
        """Drop versions that were already replaced at the threshold; the one in force there stays."""
        # Invariant: times rise, so the last one at or below the threshold is what a read there finds.
        dropped = bisect_right(times, self.threshold) - 1
        gone = zip(times[:dropped], values[:dropped], strict=True)
        prints = sum(fingerprint((key, *version)) for version in gone) + self._local_times.forget(key, times[:dropped])
        self.digest = self.digest - prints & MASK
        del times[:dropped], values[:dropped]

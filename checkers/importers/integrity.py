"""Whether a saved history is whole: its checksums, its parts, and one total order of events, each used once.

Any number of pieces can be looked at apart from each other. A piece has some row groups, whose events must be in order,
and a range of the sealed bytes of all parts. What is left to be compared is small: by part the checksums of ranges,
which combine, and its first and last operation; and by range of events, flags that say which of these a piece has used.
The order of events (`EventOrder`) is checked of every history, whatever it came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from checkers.columns.batches import bucket_batch
from checkers.compiled import kernel
from checkers.source import Source
from harness.errors import UserError
from harness.history.address import Place, one_line, opened
from harness.history.saved import HistoryReader, Manifest
from harness.history.seal import checksum_of, joined

SCHEMA: Final = "bucket int, piece int, data binary"

STATED: Final = -1
"""Bucket of what pieces tell of the parts that they touch."""

REFUSED: Final = -2
"""Bucket of the sentences for which a history is refused, behind the event that each is about."""

JUDGED: Final = -3
"""Bucket of the number of operations that were looked at."""

_EVENTS: Final = 1 << 22
"""Events in a bucket."""


class _Sum(msgspec.Struct, frozen=True, array_like=True):
    """The checksum of a range of a part's sealed bytes."""

    part: int
    begin: int
    end: int
    crc: int


class _Span(msgspec.Struct, frozen=True, array_like=True):
    """Operations of a part: how many, the first and the last."""

    part: int
    rows: int
    first: int
    last: int


class _StatedSums(msgspec.Struct, frozen=True, array_like=True):
    sums: tuple[_Sum, ...]
    spans: tuple[_Span, ...]


def verify_here(source: Source) -> None:
    """Raise UserError unless a saved history is whole, looked at by this process."""
    assert source.saved is not None
    stated, seen = _looked_at(source.saved, 0, 1)
    del seen
    _require_whole(source.saved, [stated])


@dataclass(frozen=True, slots=True)
class PieceVerifier:
    """Picklable: turns piece numbers into what they tell, and which events they use by bucket of events."""

    reader: HistoryReader
    pieces: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in (number for batch in batches for number in batch.column(0).to_pylist()):
            stated, seen = _looked_at(self.reader, piece, self.pieces)
            yield bucket_batch([(STATED, piece, msgspec.msgpack.encode(stated))])
            yield bucket_batch([(bucket, piece, data) for bucket, data in _by_bucket(seen)])


@dataclass(frozen=True, slots=True)
class BucketVerifier:
    """Picklable: compares whole buckets, from rows sorted by bucket."""

    reader: HistoryReader

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in zip(*batch.to_pydict().values(), strict=True))
        for bucket, group in groupby(rows, key=lambda row: row[0]):
            if bucket == STATED:
                stated = [msgspec.msgpack.decode(data, type=_StatedSums) for _, _, data in group]
                count = _require_whole(self.reader, stated)
                yield bucket_batch([(JUDGED, 0, str(count).encode())])
            else:
                twice = _used_twice(data for _, _, data in group)
                if twice >= 0:
                    raise twice_used(self.reader.place, bucket * _EVENTS + twice)


def _looked_at(reader: HistoryReader, piece: int, pieces: int) -> tuple[_StatedSums, SeenEvents]:
    """What a piece tells; raises UserError for what it finds wrong by itself."""
    sums = tuple(_sum(reader, *span) for span in _ranges(reader.manifest, piece, pieces))
    groups = reader.groups_of(piece, pieces)
    order = EventOrder(reader.place, reader.rows_of(groups))
    spans = []
    for number, own in reader.parts_of(groups):
        rows, first, last = 0, -1, -1
        for batch in reader.batches(COLUMNS, own):
            order.take(batch)
            if batch.num_rows:
                invoke = batch.column("invoke_index")
                first = first if rows else invoke[0].as_py()
                rows, last = rows + batch.num_rows, invoke[-1].as_py()
        spans.append(_Span(number, rows, first, last))
    return _StatedSums(sums, tuple(spans)), order.seen()


def _ranges(manifest: Manifest, piece: int, pieces: int) -> Iterator[tuple[int, int, int]]:
    """A piece's share of the sealed bytes: part, begin and end."""
    sizes = [part.seal.sealed if part.seal.at >= 0 else 0 for part in manifest.parts]
    total, before = sum(sizes), 0
    low, high = total * piece // pieces, total * (piece + 1) // pieces
    for number, size in enumerate(sizes):
        begin, end = max(low - before, 0), min(high - before, size)
        if begin < end:
            yield number, begin, end
        before += size


def _sum(reader: HistoryReader, number: int, begin: int, end: int) -> _Sum:
    part = reader.manifest.parts[number]
    place = reader.place_of_part(part)
    try:
        with opened(place) as file:
            if file.size() != part.seal.size:
                raise UserError(f"{place} is damaged: it has {file.size()} bytes, not {part.seal.size}.")
            found = _Sum(number, begin, end, checksum_of(file, part.seal, begin, end))
            if end - begin == part.seal.sealed and found.crc != part.seal.checksum:
                raise UserError(f"{place} is damaged: its checksum does not match.")
            return found
    except FileNotFoundError as error:
        raise UserError(f"{place} is missing.") from error
    except OSError as error:
        raise UserError(f"{place} can't be read: {one_line(error)}.") from error


def _require_whole(reader: HistoryReader, stated: list[_StatedSums]) -> int:
    """How many operations the pieces looked at; raises UserError unless these are all of all parts, in order."""
    sums = sorted((each for one in stated for each in one.sums), key=lambda each: (each.part, each.begin))
    spans = sorted((each for one in stated for each in one.spans), key=lambda each: (each.part, each.first))
    last, rows = -1, 0
    for number, part in enumerate(reader.manifest.parts):
        place = reader.place_of_part(part)
        if part.seal.at >= 0 and _joined([each for each in sums if each.part == number]) != (
            part.seal.sealed,
            part.seal.checksum,
        ):
            raise UserError(f"{place} is damaged: its checksum does not match.")
        mine = [each for each in spans if each.part == number and each.rows]
        count = sum(each.rows for each in mine)
        if count != part.rows or (part.file and count and (mine[0].first, mine[-1].last) != (part.first, part.last)):
            raise UserError(f"{place} is not the part that the manifest means: its operations are others.")
        for each in mine:
            if each.first <= last:
                raise UserError(sentence(reader.place, each.first, "invocations are not in order"))
            last = each.last
        rows += count
    return rows


def _joined(sums: list[_Sum]) -> tuple[int, int]:
    """How far adjacent ranges reach from the beginning, and their checksum."""
    reached, crc = 0, 0
    for each in sums:
        if each.begin != reached:
            break
        reached, crc = each.end, joined(crc, each.crc, each.end - each.begin)
    return reached, crc


def _by_bucket(seen: SeenEvents) -> Iterator[tuple[int, bytes]]:
    """Flags and far events by bucket: where flags begin within the bucket (-1: these are events), and the bytes."""
    used = np.flatnonzero(seen.flags)
    stop = seen.base + (int(used[-1]) + 1 if len(used) else 0)
    for bucket in range(seen.base // _EVENTS, -(-stop // _EVENTS)):
        begin, end = max(seen.base, bucket * _EVENTS), min(stop, (bucket + 1) * _EVENTS)
        yield bucket, _encoded(begin - bucket * _EVENTS, np.packbits(seen.flags[begin - seen.base : end - seen.base]))
    cuts = np.flatnonzero(np.diff(seen.far // _EVENTS, prepend=-1))
    for events in np.split(seen.far, cuts[1:]) if len(seen.far) else ():
        bucket = int(events[0]) // _EVENTS
        yield bucket, _encoded(-1, (events - bucket * _EVENTS).astype(np.int32))


def _encoded(begin: int, values: Any) -> bytes:
    return msgspec.msgpack.encode((begin, values.tobytes()))


def _used_twice(parts: Iterable[bytes]) -> int:
    """The first event of a bucket that two pieces use, -1 if there is none."""
    flags = np.zeros(_EVENTS + 8, np.bool_)
    for part in parts:
        begin, data = msgspec.msgpack.decode(part, type=tuple[int, bytes])
        if begin >= 0:
            mine = np.unpackbits(np.frombuffer(data, np.uint8)).view(np.bool_)
            place = slice(begin, begin + len(mine))
            mine = mine[: len(flags[place])]
            both = np.flatnonzero(flags[place] & mine)
            if len(both):
                return begin + int(both[0])
            flags[place] |= mine
            continue
        events = np.frombuffer(data, np.int32)
        if flags[events].any():
            return int(events[flags[events]][0])
        flags[events] = True
    return -1


_TYPES: Final = {"ok", "fail", "info"}

COLUMNS: Final = ("invoke_index", "complete_index", "type")


class SeenEvents(NamedTuple):
    """The events of some operations: flags from event `base` on, and those beyond (sorted)."""

    base: int
    flags: np.ndarray
    far: np.ndarray


@kernel
def _mark(events, base, seen):  # type: ignore[no-untyped-def]
    """Mark events as seen; the first that was seen before, or -1. Those beyond `seen` are left to the caller."""
    for event in events:
        if event - base < seen.shape[0]:
            if seen[event - base]:
                return event
            seen[event - base] = True
    return np.int64(-1)


class EventOrder:
    """Takes batches of about `rows` consecutive operations and raises UserError at the first event that can't be."""

    def __init__(self, path: Place, rows: int) -> None:
        self._path = path
        self._last = -1
        self._base = -1
        self._seen = np.zeros(4 * rows + 1024, bool)
        self._far: list[np.ndarray] = []

    def check(self, batches: Iterable[pa.RecordBatch]) -> SeenEvents:
        """Check all batches; which events they have."""
        for batch in batches:
            self.take(batch)
        return self.seen()

    def seen(self) -> SeenEvents:
        """Which events there were."""
        far = np.sort(np.concatenate(self._far)) if self._far else np.empty(0, np.int64)
        twice = far[1:][far[1:] == far[:-1]]
        if len(twice):
            raise twice_used(self._path, int(twice[0]))
        return SeenEvents(max(self._base, 0), self._seen, far)

    def take(self, batch: pa.RecordBatch) -> None:
        """Check the next batch."""
        if self._base < 0 and batch.num_rows:
            self._base = max(0, batch.column("invoke_index")[0].as_py())
        self._check_batch(batch)

    def _check_batch(self, batch: pa.RecordBatch) -> None:
        types = batch.column("type")
        names = types.dictionary if pa.types.is_dictionary(types.type) else types.unique()
        unknown = [str(name) for name in names.to_pylist() if name not in _TYPES]
        if unknown:
            raise UserError(f"{self._path} has operations of type {unknown[0]}; an operation is ok, fail or info.")
        invoke = batch.column("invoke_index").to_numpy(zero_copy_only=False)
        complete_column = batch.column("complete_index")
        done = complete_column.is_valid().to_numpy(zero_copy_only=False)
        complete = complete_column.fill_null(-1).to_numpy(zero_copy_only=False)
        self._check_order(invoke, complete, done)
        ended = pa.compute.not_equal(types, "info").to_numpy(zero_copy_only=False)
        if (ended & ~done).any():
            raise UserError(self._sentence(int(invoke[ended & ~done][0]), "it is ok or fail but has no completion"))
        alone = done & (complete == invoke)
        self._check_unique(invoke)
        self._check_unique(complete[done & ~alone])

    def _check_order(self, invoke: np.ndarray, complete: np.ndarray, done: np.ndarray) -> None:
        if not len(invoke):
            return
        before = np.concatenate(([self._last], invoke[:-1]))
        if (invoke <= before).any():
            raise UserError(self._sentence(int(invoke[invoke <= before][0]), "invocations are not in order"))
        self._last = int(invoke[-1])
        if (done & (complete < invoke)).any():
            raise UserError(self._sentence(int(invoke[done & (complete < invoke)][0]), "it completes before it begins"))

    def _check_unique(self, events: np.ndarray) -> None:
        events = events.view()
        events.flags.writeable = False  # as Arrow's are, so that one kind is compiled
        twice = _mark(events, self._base, self._seen)
        if twice >= 0:
            raise twice_used(self._path, int(twice))
        self._far.append(events[events - self._base >= len(self._seen)])

    def _sentence(self, index: int, reason: str) -> str:
        return sentence(self._path, index, reason)


def sentence(path: Place, index: int, reason: str) -> str:
    """What is said of an event that can't be."""
    return f"{path}, event {index}: {reason}, so this is not a history."


def twice_used(path: Place, index: int) -> UserError:
    """The error about an index that two events have."""
    return UserError(sentence(path, index, "two events have this index"))

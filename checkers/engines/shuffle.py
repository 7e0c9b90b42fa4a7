"""How Spark runs a checker: workers read pieces of the history, split what they say into buckets of whole groups, and
judge bucket by bucket; what was found is put together by workers, so that one small row reaches the driver.

The same readers, kernels and bytes for every model: rows travel as bytes, a few strings a piece and bucket, for these
pass through a shuffle many times faster than millions of rows would. A bucket comes to its kernel whole and in the
history's order, so a group with most of the operations costs no more than others of that size together.
"""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from checkers.engines.exchange import MOST_BUCKETS
from checkers.engines.spark import SparkEngine, mapped, placed
from checkers.findings import Key
from checkers.source import Source, top_level
from checkers.verdict import Undecided
from harness.errors import HarnessError
from harness.history.breadth import Breadth
from harness.history.saved import HistoryReader

T = TypeVar("T")

_ROWS_PER_PIECE: Final = 5 << 19
"""Operations that one task reads, of which it holds fewer; a long history has larger pieces, see `pieces_of`."""

CELL_ROWS: Final = 1 << 9
"""Operations that a piece says to a bucket on average, at least, or there would be more strings than data."""

EXPANDED: Final = 5
"""By how much what is judged takes more room than in a shuffle, unless a model says otherwise: of 10^6 operations 4.1
times (`register`) to 4.8 (`unique-ids`; `bench/task_memory.py`)."""

TOO_LARGE: Final = (
    "What has to be judged in one piece takes {} bytes, and one task takes {} by the session's plan of memory: one "
    "key, or keys that operations link, have so many of the operations, or the model does not split a history."
)

SCHEMA: Final = "bucket bigint, piece bigint, data binary"
STRINGS_PER_PIECE: Final = 1 << 20

_MOST_REASONS: Final = 4
"""Reasons why some was not judged that are told; one is enough to make the verdict unknown."""

FRAGMENTS: Final = 64
"""Parts into which a bucket is split that is too large for a task."""


class Plan(Protocol):
    """Picklable: what is read, how it is split, judged and put together. What is judged and combined is picklable."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The Parquet columns that are read."""

    def split(self, batches: Iterator[pa.RecordBatch], buckets: int) -> Iterator[tuple[int, bytes]]:
        """What batches of the history say, by bucket and in order; equal groups go to equal buckets."""

    def split_again(self, part: bytes) -> Iterator[tuple[int, bytes]]:
        """What a part says by other buckets, as many as `split_again` likes; a single one if there are no groups."""

    def judge(self, parts: list[bytes]) -> Any:
        """What there is to say of a bucket, of which these are all parts in the order of the history."""

    def combine(self, found: list[Any]) -> Any:
        """Several answers as one; may be applied to its own answers again, and to any grouping of them."""


class Sieve(Protocol):
    """Tells the keys of a bucket apart; picklable."""

    def heavy(self, parts: list[bytes], least: int) -> frozenset[Key]:
        """The keys that have at least that many bytes of these parts."""

    def without(self, part: bytes, keys: frozenset[Key]) -> bytes:
        """The part without these keys; no bytes if nothing is left."""


def pieces_of(engine: SparkEngine, rows: int, buckets: int = 1) -> int:
    """In how many pieces a history is read: some for every core, but few enough that buckets get no crumbs."""
    fine = engine.parts(rows, _ROWS_PER_PIECE, 2)
    return max(1, min(fine, max(4 * engine.cores, rows // (buckets * CELL_ROWS))))


def most_bytes(engine: SparkEngine, expanded: int = EXPANDED) -> int:
    """What one task takes, as packed bytes of the shuffle."""
    return engine.task_bytes() // expanded


class Room(NamedTuple):
    """Bytes that an operation, each of its micro-operations and each element of their lists take in a shuffle,
    generously."""

    row: int = 0
    mop: int = 0
    value: int = 0

    def of(self, breadth: Breadth) -> int:
        """All of them together."""
        return sum(each * count for each, count in zip(self, breadth, strict=True))


def planned_buckets(engine: SparkEngine, source: Source, parts: int, room: Room, expanded: int = EXPANDED) -> int:
    """Into how many buckets a history falls: `parts`, or more where a task would not take a bucket that is twice as
    large as the others."""
    by_room = -(-2 * room.of(source.breadth) // max(1, most_bytes(engine, expanded)))
    return min(max(parts, by_room), MOST_BUCKETS)


def most_held(engine: SparkEngine, row_bytes: int) -> int:
    """Rows that a task reads before it splits them, at most, if each takes `row_bytes` until they are split."""
    return engine.task_bytes() // row_bytes


def rows_held(buckets: int, rows: int, most: int) -> int:
    """How many rows are split together: `rows`, or more where buckets would get crumbs, as far as memory allows."""
    return max(rows, min(buckets * CELL_ROWS, most))


def run_plan(
    engine: SparkEngine, source: Source, plan: Plan, buckets: int, *, whole: bool = False, expanded: int = EXPANDED
) -> Any:
    """What the plan finds in the whole history; None if it says nothing at all.

    Groups that are too large for a task are left out, and `engine.skipped` says so: what is found in others holds
    without them, or else the plan is `whole`, and Undecided is raised.
    """
    with engine.reader(source) as reader:
        return _run(engine, source, reader, plan, _Judge(plan, most_bytes(engine, expanded), whole), buckets).found


def run_sieved(
    engine: SparkEngine, source: Source, reader: HistoryReader, plan: Plan, sieve: Sieve, buckets: int
) -> tuple[Any, tuple[Key, ...]]:
    """What the plan finds in the whole history but for keys that are too large for a task, and these."""
    answers = _run(engine, source, reader, plan, _Judge(plan, most_bytes(engine), sieve=sieve), buckets)
    return answers.found, tuple(sorted(answers.oversized))


def _run(
    engine: SparkEngine, source: Source, reader: HistoryReader, plan: Plan, judge: _Judge, buckets: int
) -> TaskAnswer:
    pieces = min(pieces_of(engine, source.rows, buckets), max(1, reader.manifest.groups))
    split = mapped(engine.numbers(pieces, pieces), _SplitPieces(reader, plan, pieces, buckets), SCHEMA)
    return _judged(engine, split, plan, judge, buckets)


def judge_strings(engine: SparkEngine, split: Any, plan: Plan, buckets: int, *, expanded: int = EXPANDED) -> Any:
    """What the plan finds in these strings (SCHEMA); None if it says nothing. See `run_plan`."""
    return _judged(engine, split, plan, _Judge(plan, most_bytes(engine, expanded)), buckets).found


def _judged(engine: SparkEngine, split: Any, plan: Plan, judge: _Judge, buckets: int) -> TaskAnswer:
    return answer(engine, mapped(met(split, buckets), judge, "found binary"), plan.combine, buckets)


def met(rows: Any, parts: int) -> Any:
    """Rows (SCHEMA) of equal buckets together, in order of buckets and pieces: a task holds one bucket at a time."""
    return placed(rows, parts).sortWithinPartitions("bucket", "piece")


def run_batches_on_spark(
    engine: SparkEngine,
    source: Source,
    columns: tuple[str, ...],
    kernel: Callable[[pa.RecordBatch], Any],
    combine: Callable[[list[Any]], Any],
) -> Any:
    """What the kernel says of every batch, put together; None if there are no batches."""
    with engine.reader(source) as reader:
        pieces = min(pieces_of(engine, source.rows), max(1, reader.manifest.groups))
        stage = _Batches(reader, columns, kernel, combine, pieces)
        return answer(engine, mapped(engine.numbers(pieces, pieces), stage, "found binary"), combine, pieces).found


def answer(engine: SparkEngine, frame: Any, combine: Callable[[list[Any]], Any], parts: int) -> TaskAnswer:
    """What the `packed` answers of all partitions come to."""
    if parts > 1:
        frame = mapped(frame.repartition(1), _Combine(combine), "found binary")
    answers = combined([pickle.loads(row["found"]) for row in engine.collected(frame)], combine)
    engine.skipped.extend(answers.skipped)
    return answers


class TaskAnswer(NamedTuple):
    """What was found, or None, why some of the history was not judged, and keys that are to be judged otherwise."""

    found: Any
    skipped: tuple[str, ...] = ()
    oversized: frozenset[Key] = frozenset()


def combined(answers: list[TaskAnswer], combine: Callable[[list[Any]], Any]) -> TaskAnswer:
    """Several answers as one."""
    found = [each.found for each in answers if each.found is not None]
    skipped = alike(reason for each in answers for reason in each.skipped)[:_MOST_REASONS]
    oversized = frozenset(key for each in answers for key in each.oversized)
    return TaskAnswer(combine(found) if found else None, tuple(skipped), oversized)


def alike(reasons: Iterable[str]) -> list[str]:
    """Of reasons that differ in their numbers alone one is enough."""
    return sorted({re.sub(r"\d+", "", reason): reason for reason in sorted(reasons)}.values())


@dataclass(frozen=True, slots=True)
class _SplitPieces:
    reader: HistoryReader
    plan: Plan
    pieces: int
    buckets: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in (number for batch in batches for number in batch.column(0).to_pylist()):
            groups = self.reader.groups_of(piece, self.pieces)
            read = self.reader.batches(self.plan.columns, groups)
            for place, (bucket, data) in enumerate(self.plan.split(read, self.buckets)):
                if place >= STRINGS_PER_PIECE:
                    raise HarnessError("A piece of a history fell into more parts than can be kept in order.")
                yield message(bucket, piece * STRINGS_PER_PIECE + place, data)


def message(bucket: int, piece: int, data: bytes) -> pa.RecordBatch:
    """A row of SCHEMA: a part of a bucket and its place there."""
    arrays = [pa.array([bucket], pa.int64()), pa.array([piece], pa.int64()), pa.array([data], pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, names=["bucket", "piece", "data"])


def within(most_bytes: int, rows: Iterable[T], size_of: Callable[[T], int]) -> tuple[list[T], int]:
    """The rows and their bytes; of more than `most_bytes` none are left, and no more are held meanwhile."""
    held, size = list[T](), 0
    for row in rows:
        size += size_of(row)
        if size <= most_bytes:
            held.append(row)
        else:
            held.clear()
    return held, size


def rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, bytes]]:
    """The rows of batches (SCHEMA), one by one."""
    for batch in batches:
        for at in range(batch.num_rows):
            bucket, piece, data = (column[at].as_py() for column in batch.columns)
            yield bucket, piece, data


@dataclass(frozen=True, slots=True)
class _Judge:
    """Judges buckets one after the other; rows come in order of buckets and pieces."""

    plan: Plan
    most_bytes: int
    whole: bool = False
    sieve: Sieve | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        answers: TaskAnswer | None = None
        for _, rows in groupby(rows_of(batches), key=lambda row: row[0]):
            bucket = _Bucket(self.plan, self.sieve, self.most_bytes)
            for _, piece, data in rows:
                bucket.add(piece, data)
            found = [TaskAnswer(self.plan.judge(parts)) for parts in bucket.given()]
            found.append(TaskAnswer(None, self._left_out(bucket), bucket.oversized))
            answers = combined([*([answers] if answers else []), *found], self.plan.combine)
        if answers is not None:
            yield packed(answers)

    def _left_out(self, bucket: _Bucket) -> tuple[str, ...]:
        reasons = tuple(TOO_LARGE.format(size, self.most_bytes) for size in bucket.left_out)
        if reasons and self.whole:
            raise Undecided(reasons[0])
        return reasons


class _Bucket:
    """The parts of a bucket, as they come. What is held does not grow with a key that is too large: a sieve names it,
    and it is given up (`oversized`); without a sieve the bucket falls into fragments, of which at most twice what a
    task judges at once is held, and the others are left out."""

    def __init__(self, plan: Plan, sieve: Sieve | None, most: int) -> None:
        self._plan, self._sieve, self._most, self._full, self._size = plan, sieve, most, 2 * most, 0
        self._parts: list[tuple[int, bytes]] = []
        self._fragments: _Fragments | None = None
        self.oversized: frozenset[Key] = frozenset()

    def add(self, piece: int, data: bytes) -> None:
        """One more part, which has its place by its piece."""
        if self._sieve is not None and self.oversized:
            data = self._sieve.without(data, self.oversized)
        if not data:
            return
        if self._fragments is not None:
            self._fragments.add(piece, self._plan.split_again(data))
            return
        self._parts.append((piece, data))
        self._size += len(data)
        if self._size <= self._full:
            return
        if self._sieve is None:
            self._refine()
        else:  # where many keys share the bucket none may be too large yet
            self._give_up()
            self._full = max(self._full, 2 * self._size)

    def _give_up(self) -> None:
        heavy = self._sieve.heavy([data for _, data in self._parts], self._most) if self._sieve else None
        if self._sieve is None or not heavy:
            return
        left = [(piece, self._sieve.without(data, heavy)) for piece, data in self._parts]
        self._parts = [(piece, data) for piece, data in left if data]
        self._size = sum(len(data) for _, data in self._parts)
        self.oversized |= heavy

    def _refine(self) -> None:
        self._fragments = _Fragments(self._most)
        while self._parts:
            piece, data = self._parts.pop()
            self._fragments.add(piece, self._plan.split_again(data))

    @property
    def left_out(self) -> list[int]:
        """The sizes of what was not judged."""
        return self._fragments.left_out if self._fragments is not None else []

    def given(self) -> Iterator[list[bytes]]:
        """What is left of the parts, in order: all together, or what the bucket falls into."""
        if self._size > self._most and self._fragments is None:
            self._give_up()
            if self._size > self._most:
                self._refine()
        if self._fragments is not None:
            yield from self._fragments.given()
        elif self._parts:
            yield _in_order(self._parts)


class _Fragments:
    """What a bucket falls into that is too large for a task; each is held while it is not too large itself."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: dict[int, list[tuple[int, bytes]]] = {}
        self._sizes: Counter[int] = Counter()
        self._dropped: set[int] = set()

    def add(self, piece: int, split: Iterator[tuple[int, bytes]]) -> None:
        """One more part of the bucket, split."""
        for place, data in split:
            self._sizes[place] += len(data)
            self._parts.setdefault(place, []).append((piece, data))
            if place in self._dropped or self._sizes[place] > self._most:
                self._drop(place)
        while sum(self._sizes[place] for place in self._parts) > 2 * self._most:
            self._drop(max(self._parts, key=lambda place: self._sizes[place]))

    def _drop(self, place: int) -> None:
        self._dropped.add(place)
        self._parts.pop(place, None)

    @property
    def left_out(self) -> list[int]:
        """The sizes of what a task does not take by itself; of all together where that is too much."""
        return [size if (size := self._sizes[place]) > self._most else self._sizes.total() for place in self._dropped]

    def given(self) -> Iterator[list[bytes]]:
        """What is left, each in order."""
        while self._parts:
            yield _in_order(self._parts.popitem()[1])


def _in_order(parts: list[tuple[int, bytes]]) -> list[bytes]:
    """The parts by their pieces; the list is given back empty, for it may be large."""
    parts.sort(key=lambda part: part[0])
    mine = [data for _, data in parts]
    parts.clear()
    return mine


@dataclass(frozen=True, slots=True)
class _Batches:
    reader: HistoryReader
    columns: tuple[str, ...]
    kernel: Callable[[pa.RecordBatch], Any]
    combine: Callable[[list[Any]], Any]
    pieces: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in (number for batch in batches for number in batch.column(0).to_pylist()):
            groups = self.reader.groups_of(piece, self.pieces)
            whole = top_level(self.columns)
            found = [self.kernel(part.select(whole)) for part in self.reader.batches(self.columns, groups)]
            if found:
                yield packed(TaskAnswer(self.combine(found)))


@dataclass(frozen=True, slots=True)
class _Combine:
    combine: Callable[[list[Any]], Any]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total: list[TaskAnswer] = []
        for batch in batches:
            total = [combined([*total, *(pickle.loads(data) for data in batch.column(0).to_pylist())], self.combine)]
        if total:
            yield packed(total[0])


def packed(found: TaskAnswer) -> pa.RecordBatch:
    """An answer on its way."""
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(found)], pa.binary())], names=["found"])

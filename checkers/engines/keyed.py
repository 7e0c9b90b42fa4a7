"""The operations of each key to a keyed kernel, on Spark; keys whose operations one task does not take to many tasks.

These go through the steps of a `KeySplit` in turn: three shuffles, each of at most as many rows as the keys have
operations: by key and value, by key for what is in chains, by key and range of time. What was found on the way travels
with the rows, in a bucket of its own.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkers.columns.mops import Columns
from checkers.columns.projection import FLAT, Flat, Projection, concatenated, flatten, group, places_of, slices
from checkers.engines.api import KeyedKernel, KeySplit, Rows, Zones, joined
from checkers.engines.exchange import scattered, split, united
from checkers.engines.shuffle import (
    FRAGMENTS,
    SCHEMA,
    STRINGS_PER_PIECE,
    Room,
    TaskAnswer,
    answer,
    combined,
    message,
    met,
    most_bytes,
    most_held,
    packed,
    planned_buckets,
    rows_held,
    rows_of,
    run_sieved,
    within,
)
from checkers.engines.spark import SparkEngine, mapped
from checkers.findings import Findings, Key, merged
from checkers.source import KEY_COLUMNS, Source
from harness.history.saved import HistoryReader

_ROWS_PER_BUCKET: Final = 1 << 20
"""Operations that a task judges."""

_ROWS_PER_SPLIT: Final = 1 << 19
"""Operations that are split into buckets together."""

_BYTES_PER_ROW: Final = 256
"""What an operation takes while it is split, generously: its columns as they were read, joined, narrowed and moved."""

_ROOM: Final = Room(row=40)
"""Of the columns of an operation most are narrow."""

ROWS_PER_CALL: Final = 1 << 18
"""Operations in a kernel call, about (whole keys), which bounds what it needs besides the columns."""

_BYTES_PER_EVENT: Final = 256
"""What one event of a range of time can bring to the task that judges it: the three rows of a block, generously."""

_LEAST_SHARE: Final = 64
"""A key that has less than this part of a string of bytes is not looked at when a bucket is too large."""


def judge_keys_on_spark(
    engine: SparkEngine, source: Source, projection: Projection, kernel: KeyedKernel, explain: int
) -> Findings:
    """What the kernel finds in every key's operations; see `Engine.judge_keys`."""
    buckets = planned_buckets(engine, source, engine.parts(source.rows, _ROWS_PER_BUCKET), _ROOM)
    plan = KeyPlan(projection, source.key_columns(), kernel, explain, most_held(engine, _BYTES_PER_ROW))
    with engine.reader(source) as reader:
        found, oversized = run_sieved(engine, source, reader, plan, KeySieve(), buckets)
        if oversized:
            split = kernel.split(oversized, max(1, most_bytes(engine) // _BYTES_PER_EVENT))
            found_here = judge_split(engine, reader, Splitter(split, projection, plan.keys), buckets)
            found = merged([found_here, *([found] if found else [])], explain)
    return found or kernel(group(concatenated([])))


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """See `Plan`: equal keys meet."""

    projection: Projection
    keys: tuple[str, ...]
    kernel: KeyedKernel
    explain: int
    most_held: int

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.projection.columns(self.keys))

    def split(self, batches: Iterator[pa.RecordBatch], buckets: int) -> Iterator[tuple[int, bytes]]:
        held: list[Flat] = []
        for batch in batches:
            held.append(flatten(batch, self.projection))
            if sum(len(flat.invoke) for flat in held) >= rows_held(buckets, _ROWS_PER_SPLIT, self.most_held):
                yield from split(_columns(held), self.keys, buckets)
                held = []
        if held:
            yield from split(_columns(held), self.keys, buckets)

    def split_again(self, part: bytes) -> Iterator[tuple[int, bytes]]:
        return split(united([part], FLAT.names), self.keys, FRAGMENTS, again=True)

    def judge(self, parts: list[bytes]) -> Findings:
        keyed = group(_flat(united(parts, FLAT.names)))
        return merged([self.kernel(part) for part in slices(keyed, ROWS_PER_CALL)], self.explain)

    def combine(self, found: list[Any]) -> Findings:
        return merged(found, self.explain)


def _columns(held: list[Flat]) -> Columns:
    flat = concatenated(held)
    rows: dict[str, Any] = dict(zip(KEY_COLUMNS, flat.address, strict=True))
    return rows | dict(zip(flat._fields[1:], flat[1:], strict=True))


def _flat(rows: Columns) -> Flat:
    address = tuple(rows[name] for name in KEY_COLUMNS)
    invoke, complete, kind, value, expected = (rows[name] for name in Flat._fields[1:])
    return Flat(address, invoke, complete, kind.astype(np.int8), value, expected)  # type: ignore[arg-type]


class KeySieve:
    """The keys of a `KeyPlan`'s buckets; see `Sieve`."""

    def heavy(self, parts: list[bytes], least: int) -> frozenset[Key]:
        sizes: Counter[Key] = Counter()
        for part in parts:
            keyed = group(_flat(united([part], FLAT.names)))
            counts = np.diff(keyed.columns.offsets)
            for place in np.flatnonzero(counts * _LEAST_SHARE >= counts.sum()).tolist():
                sizes[Key.of(keyed.addresses[place])] += len(part) * int(counts[place]) // int(counts.sum())
        return frozenset(key for key, size in sizes.items() if size >= least)

    def without(self, part: bytes, keys: frozenset[Key]) -> bytes:
        rows = united([part], FLAT.names)
        kept = np.flatnonzero(places_of(_flat(rows).address, tuple(keys)) < 0)
        return b"".join(data for _, data in split({name: column[kept] for name, column in rows.items()}, (), 1))


_ROWS_TOGETHER: Final = 1 << 19
"""Operations that are thinned and split together."""

_ANSWERS: Final = -1
"""The bucket of what was found; chains of the key at place n are in bucket -2 - n."""

_RANGES: Final = 1 << 40
"""Range r of the key at place n is bucket n times this and r."""

_ROWS: Final = Rows._fields
_ZONES: Final = (*_ROWS, "handed")

CHAINS_TOO_LARGE: Final = (
    "The operations of one key that compare-and-sets link take {} bytes, and one task takes {} by the session's plan "
    "of memory."
)


@dataclass(frozen=True, slots=True)
class Splitter:
    """How some keys of a history are split, and how their operations are read."""

    split: KeySplit
    projection: Projection
    keys: tuple[str, ...]


def judge_split(engine: SparkEngine, reader: HistoryReader, how: Splitter, buckets: int) -> Findings:
    """What there is to find in these keys; `engine.skipped` says what could not be looked at."""
    pieces = max(1, min(4 * engine.cores, reader.manifest.groups))
    parts = max(buckets, engine.cores)
    read = mapped(engine.numbers(pieces, pieces), _ReadPieces(reader, how, pieces, parts), SCHEMA)
    zones = mapped(met(read, parts), _Gather(how.split), SCHEMA)
    linked = mapped(met(zones, parts), _Link(how.split, most_bytes(engine)), SCHEMA)
    found = mapped(met(linked, parts), _Compare(how.split), "found binary")
    found_here = answer(engine, found, how.split.united, parts).found
    doubts = ", and ".join(sorted(found_here.doubts))
    if doubts:
        engine.skipped.append(f"One key has more operations than one task takes, and {doubts}: that is not split.")
    return how.split.concluded(found_here)


@dataclass(frozen=True, slots=True)
class _ReadPieces:
    reader: HistoryReader
    how: Splitter
    pieces: int
    buckets: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        columns = tuple(self.how.projection.columns(self.how.keys))
        for piece in (number for batch in batches for number in batch.column(0).to_pylist()):
            held, place = list[Rows](), piece * STRINGS_PER_PIECE
            groups = self.reader.groups_of(piece, self.pieces)
            for batch in self.reader.batches(columns, groups):
                rows, found_here = self.how.split.read(flatten(batch, self.how.projection))
                held.append(rows)
                yield _answering(TaskAnswer(found_here))
                if sum(len(rows.key) for rows in held) >= _ROWS_TOGETHER:
                    yield from self._by_value(held, place)
                    place, held = place + self.buckets, []
            yield from self._by_value(held, place)

    def _by_value(self, held: list[Rows], place: int) -> Iterator[pa.RecordBatch]:
        rows = joined(held)._asdict()
        for bucket, data in split(rows, ("key", "value"), self.buckets):
            yield message(bucket, place, data)


def _answering(found_here: TaskAnswer) -> pa.RecordBatch:
    return message(_ANSWERS, 0, pickle.dumps(found_here))


def _by_bucket(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Iterator[bytes]]]:
    """Each bucket with its strings, which are held by nobody else."""
    for bucket, rows in groupby(rows_of(batches), key=lambda row: row[0]):
        yield bucket, (data for _, _, data in rows)


def _unpacked(parts: list[bytes]) -> Rows:
    return Rows(**united(parts, _ROWS))


def _ranges(zones: Zones) -> Iterator[pa.RecordBatch]:
    columns = zones.rows._asdict() | {"handed": zones.handed}
    for bucket, data in scattered(columns, zones.rows.key * _RANGES + zones.range):
        yield message(bucket, 0, data)


@dataclass(frozen=True, slots=True)
class _Gather:
    split: KeySplit

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for bucket, strings in _by_bucket(batches):
            if bucket == _ANSWERS:
                yield from (message(_ANSWERS, 0, data) for data in strings)
                continue
            zones, chains, found_here = self.split.gather(_unpacked(list(strings)))
            yield from _ranges(zones)
            for bucket, data in scattered(chains._asdict(), -2 - chains.key):
                yield message(bucket, 0, data)
            yield _answering(TaskAnswer(found_here))


@dataclass(frozen=True, slots=True)
class _Link:
    split: KeySplit
    most_bytes: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for bucket, strings in _by_bucket(batches):
            if bucket >= _ANSWERS:
                yield from (message(bucket, 0, data) for data in strings)
                continue
            mine, size = within(self.most_bytes, strings, len)
            if size > self.most_bytes:
                yield _answering(TaskAnswer(None, (CHAINS_TOO_LARGE.format(size, self.most_bytes),)))
                continue
            zones, found_here = self.split.blocks(_unpacked(mine))
            yield from _ranges(zones)
            yield _answering(TaskAnswer(found_here))


@dataclass(frozen=True, slots=True)
class _Compare:
    split: KeySplit

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total: TaskAnswer | None = None
        for bucket, strings in _by_bucket(batches):
            found_here = [total] if total else []
            if bucket == _ANSWERS:
                found_here += [pickle.loads(data) for data in strings]
            else:
                columns = united(list(strings), _ZONES)
                handed = columns.pop("handed")
                found_here.append(TaskAnswer(self.split.compare(Rows(**columns), handed)))
            total = combined(found_here, self.split.united)
        if total is not None:
            yield packed(total)

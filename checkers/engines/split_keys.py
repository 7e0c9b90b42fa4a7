"""Keys whose operations one task does not take, judged by many tasks on Spark: the steps of a `KeySplit` in turn.

Three shuffles, each of at most as many rows as the keys have operations: by key and value, by key for what is in
chains, by key and range of time. What was found on the way travels with the rows, in a bucket of its own.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import pyarrow as pa

from checkers.columns.key_split import Rows, Zones, joined
from checkers.columns.projection import Projection, flatten
from checkers.engines.api import KeySplit
from checkers.engines.exchange import scattered, split, united
from checkers.engines.shuffle import (
    SCHEMA,
    STRINGS_PER_PIECE,
    Told,
    answer,
    combined,
    message,
    met,
    most_bytes,
    packed,
    rows_of,
    within,
)
from checkers.engines.spark import SparkEngine, mapped
from checkers.findings import Findings
from harness.history.saved import HistoryReader

_ROWS_PER_SPLIT: Final = 1 << 19
"""Operations that are thinned and split together."""

_TOLD: Final = -1
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
    told = answer(engine, found, how.split.united, parts).found
    doubts = ", and ".join(sorted(told.doubts))
    if doubts:
        engine.skipped.append(f"One key has more operations than one task takes, and {doubts}: that is not split.")
    return how.split.concluded(told)


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
                rows, told = self.how.split.read(flatten(batch, self.how.projection))
                held.append(rows)
                yield _telling(Told(told))
                if sum(len(rows.key) for rows in held) >= _ROWS_PER_SPLIT:
                    yield from self._by_value(held, place)
                    place, held = place + self.buckets, []
            yield from self._by_value(held, place)

    def _by_value(self, held: list[Rows], place: int) -> Iterator[pa.RecordBatch]:
        rows = joined(held)._asdict()
        for bucket, data in split(rows, ("key", "value"), self.buckets):
            yield message(bucket, place, data)


def _telling(told: Told) -> pa.RecordBatch:
    return message(_TOLD, 0, pickle.dumps(told))


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
            if bucket == _TOLD:
                yield from (message(_TOLD, 0, data) for data in strings)
                continue
            zones, chains, told = self.split.gather(_unpacked(list(strings)))
            yield from _ranges(zones)
            for bucket, data in scattered(chains._asdict(), -2 - chains.key):
                yield message(bucket, 0, data)
            yield _telling(Told(told))


@dataclass(frozen=True, slots=True)
class _Link:
    split: KeySplit
    most_bytes: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for bucket, strings in _by_bucket(batches):
            if bucket >= _TOLD:
                yield from (message(bucket, 0, data) for data in strings)
                continue
            mine, size = within(self.most_bytes, strings, len)
            if size > self.most_bytes:
                yield _telling(Told(None, (CHAINS_TOO_LARGE.format(size, self.most_bytes),)))
                continue
            zones, told = self.split.blocks(_unpacked(mine))
            yield from _ranges(zones)
            yield _telling(Told(told))


@dataclass(frozen=True, slots=True)
class _Compare:
    split: KeySplit

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total: Told | None = None
        for bucket, strings in _by_bucket(batches):
            told = [total] if total else []
            if bucket == _TOLD:
                told += [pickle.loads(data) for data in strings]
            else:
                columns = united(list(strings), _ZONES)
                handed = columns.pop("handed")
                told.append(Told(self.split.compare(Rows(**columns), handed)))
            total = combined(told, self.split.united)
        if total is not None:
            yield packed(total)

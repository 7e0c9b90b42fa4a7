"""The operations of each key to a keyed kernel, on Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkers.columns.grouping import group, slices
from checkers.columns.mops import Columns
from checkers.columns.projection import FLAT, Flat, Projection, concatenated, flatten, places_of
from checkers.engines.api import KeyedKernel
from checkers.engines.exchange import split, united
from checkers.engines.shuffle import FINER, Room, most_bytes, most_held, planned_buckets, rows_held, run_sieved
from checkers.engines.spark import SparkEngine
from checkers.engines.split_keys import Splitter, judge_split
from checkers.findings import Findings, Key, merged
from checkers.source import KEY_COLUMNS, Source

_ROWS_PER_BUCKET: Final = 1 << 20
"""Operations that a task judges."""

_ROWS_PER_SPLIT: Final = 1 << 19
"""Operations that are split into buckets together."""

_BYTES_PER_ROW: Final = 256
"""What an operation takes while it is split, generously: its columns as they were read, joined, narrowed and moved."""

_ROOM: Final = Room(row=40)
"""Of the columns of an operation most are narrow."""

ROWS_PER_CALL: Final = 1 << 18
"""A kernel call gets about so many operations (whole keys), which bounds what it needs besides the columns."""

_BYTES_PER_EVENT: Final = 256
"""What one event of a range of time can bring to the task that judges it: the three rows of a block, generously."""

_LEAST_SHARE: Final = 64
"""A key that has less than this part of a string of bytes is not looked at when a bucket is too large."""


def judge_keys_on_spark(
    engine: SparkEngine, source: Source, projection: Projection, kernel: KeyedKernel, explain: int
) -> Findings:
    """See `Engine.judge_keys`."""
    buckets = planned_buckets(engine, source, engine.parts(source.rows, _ROWS_PER_BUCKET), _ROOM)
    plan = KeyPlan(projection, source.key_columns(), kernel, explain, most_held(engine, _BYTES_PER_ROW))
    with engine.reader(source) as reader:
        found, crowded = run_sieved(engine, source, reader, plan, KeySieve(), buckets)
        if crowded:
            split = kernel.split(crowded, max(1, most_bytes(engine) // _BYTES_PER_EVENT))
            told = judge_split(engine, reader, Splitter(split, projection, plan.keys), buckets)
            found = merged([told, *([found] if found else [])], explain)
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
        return split(united([part], FLAT.names), self.keys, FINER, finer=True)

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
    """See `Sieve`."""

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

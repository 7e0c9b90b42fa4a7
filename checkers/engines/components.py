"""Keys that operations link, directly or not, are a component, whose operations meet in one task on Spark.

Tasks read pieces and say which keys are linked there; one task joins what they say and tells each piece the components
of its keys; the pieces are read again and split by component. So what the driver holds does not grow with the keys, and
the one task is told 16 bytes for each key of each piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from checkers.columns.codes import Ints
from checkers.columns.graph import unite
from checkers.columns.mops import ADDRESS, Columns, MopProjection, flatten_mops, joined
from checkers.engines.exchange import numbers_of, scattered, split, united
from checkers.engines.shuffle import SCHEMA, STRINGS_PER_PIECE, Plan, judge_strings, message, most_bytes, pieces_of
from checkers.engines.spark import SparkEngine, mapped, placed
from checkers.source import Source
from checkers.verdict import Undecided
from harness.history.saved import HistoryReader

COMPONENT: Final = "component"

TOO_MANY_KEYS: Final = (
    "To say which keys operations link takes more than {} bytes, and one task takes no more by the session's plan of "
    "memory."
)

_EXPANDED: Final = 8
"""By how much joining links takes more than their bytes in the shuffle."""

_ROWS_PER_SPLIT: Final = 1 << 19
"""Rows that are split into buckets together."""


class Links(NamedTuple):
    """Keys by number, each once and rising, and for each one that stands for its component."""

    key: Ints
    of: Ints


def linked(keys: Ints, others: Ints) -> Links:
    """Components of keys of which each is linked with one of the others, which all are among the keys."""
    every, place = np.unique(keys, return_inverse=True)
    pairs = np.stack((place.reshape(-1), np.searchsorted(every, others)), axis=1)
    parents = np.arange(len(every))
    unite(np.repeat(np.arange(len(pairs)), 2), pairs.reshape(-1), parents)
    return Links(every, every[parents])


def judge_components(
    engine: SparkEngine, source: Source, plan: Plan, projection: MopProjection, buckets: int, expanded: int
) -> Any:
    """What the plan finds in rows that have a column COMPONENT and meet by it; None if it says nothing.

    Undecided if there are more keys than one task takes; see `run_plan` for components of which this is so.
    """
    with engine.reader(source) as reader:
        pieces = min(pieces_of(engine, source.rows, buckets), max(1, reader.manifest.groups))
        links = mapped(engine.numbers(pieces, pieces), _LinkPieces(reader, projection, pieces), SCHEMA)
        labels = mapped(links.repartition(1), _JoinLinks(most_bytes(engine, _EXPANDED)), SCHEMA)
        rows = mapped(placed(labels, pieces), _SplitByComponent(reader, projection, pieces, buckets), SCHEMA)
        return judge_strings(engine, rows, plan, buckets, expanded=expanded)


@dataclass(frozen=True, slots=True)
class _LinkPieces:
    reader: HistoryReader
    projection: MopProjection
    pieces: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in (number for batch in batches for number in batch.column(0).to_pylist()):
            found = Links(np.empty(0, np.int64), np.empty(0, np.int64))
            groups = self.reader.groups_of(piece, self.pieces)
            for batch in self.reader.batches(self.projection.columns, groups):
                more = _links_of(flatten_mops(batch, self.projection))
                found = linked(*(np.concatenate(both) for both in zip(found, more, strict=True)))
            if len(found.key):
                for bucket, data in scattered(found._asdict(), np.full(len(found.key), piece)):
                    yield message(bucket, 0, data)


def _links_of(rows: Columns) -> Links:
    """The key of each row, linked with that of its operation's first."""
    key, invoke = numbers_of(rows, ADDRESS), rows["invoke"]
    begins = np.flatnonzero(np.append(np.ones(min(1, len(key)), np.bool_), invoke[1:] != invoke[:-1]))
    first = np.repeat(begins, np.diff(np.append(begins, len(key))))
    return Links(key, key[first])


@dataclass(frozen=True, slots=True)
class _JoinLinks:
    most_bytes: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pieces, parts, size = list[int](), list[bytes](), 0
        for batch in batches:
            pieces += batch.column("bucket").to_pylist()
            parts += batch.column("data").to_pylist()
            size += sum(map(len, parts[-batch.num_rows :]))
            if size > self.most_bytes:
                raise Undecided(TOO_MANY_KEYS.format(self.most_bytes))
        if not parts:
            return
        piece = np.repeat(pieces, [len(united([part], Links._fields)["key"]) for part in parts])
        stated = Links(**united(parts, Links._fields))
        every = linked(*stated)
        component = every.of[np.searchsorted(every.key, stated.key)]
        for bucket, data in scattered({"key": stated.key, "of": component}, piece):
            yield message(bucket, 0, data)


@dataclass(frozen=True, slots=True)
class _SplitByComponent:
    reader: HistoryReader
    projection: MopProjection
    pieces: int
    buckets: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for piece, data in zip(batch.column("bucket").to_pylist(), batch.column("data").to_pylist(), strict=True):
                links = Links(**united([data], Links._fields))
                strings = enumerate(self._split(piece, links), piece * STRINGS_PER_PIECE)
                yield from (message(bucket, place, mine) for place, (bucket, mine) in strings)

    def _split(self, piece: int, links: Links) -> Iterator[tuple[int, bytes]]:
        held: list[Columns] = []
        for batch in self.reader.batches(self.projection.columns, self.reader.groups_of(piece, self.pieces)):
            held.append(flatten_mops(batch, self.projection))
            if sum(len(rows["kind"]) for rows in held) >= _ROWS_PER_SPLIT:
                yield from self._by_component(held, links)
                held = []
        yield from self._by_component(held, links)

    def _by_component(self, held: list[Columns], links: Links) -> Iterator[tuple[int, bytes]]:
        rows = joined(held, self.projection)
        rows[COMPONENT] = links.of[np.searchsorted(links.key, numbers_of(rows, ADDRESS))]
        return split(rows, (COMPONENT,), self.buckets)

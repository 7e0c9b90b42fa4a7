"""Finds operations to be shown: workers read the row groups that may have them, and put together what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkers.source import chosen, rows_with
from harness.history.saved import HistoryReader

_PACKED: Final = pa.ipc.IpcWriteOptions(compression="zstd")


class FetchedOnce:
    """Operations by their invocation indices, each fetched once: a cycle is named and later explained by the same.

    `fetch` takes sorted indices and the names of columns. What is kept is what is to be shown, so it is little.
    """

    def __init__(self, fetch: Callable[[Any, list[str]], list[pa.Table]]) -> None:
        self._fetch = fetch
        self._known: dict[tuple[str, ...], tuple[Any, list[pa.Table]]] = {}

    def __call__(self, wanted: Any, columns: list[str]) -> list[pa.Table]:
        known, tables = self._known.get(tuple(columns), (np.zeros(0, np.int64), []))
        new = np.setdiff1d(wanted, known)
        if len(new):
            tables = [*tables, *self._fetch(new, columns)]
            self._known[tuple(columns)] = np.union1d(known, new), tables
        return [chosen(table, wanted) for table in tables]


@dataclass(frozen=True, slots=True)
class Locator:
    """Picklable: turns piece numbers into the operations with some invocation indices (sorted), as one table."""

    reader: HistoryReader
    pieces: int
    wanted: Any
    columns: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        yield from as_one(table for piece in numbers for table in self._found(piece))

    def _found(self, piece: int) -> Iterator[pa.Table]:
        for group in self.reader.groups_with(self.wanted, self.reader.groups_of(piece, self.pieces)):
            yield from rows_with(self.reader, range(group, group + 1), self.wanted, list(self.columns))


def joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A stage that makes one table of what several `Locator`s found."""
    yield from as_one(pa.ipc.open_stream(data).read_all() for batch in batches for data in batch.column(0).to_pylist())


def as_one(tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
    """A row of a column `rows`, unless there are none: each table for itself would bring its schema with it, and that
    the history's dictionary."""
    found = [table.replace_schema_metadata(None) for table in tables if table.num_rows]
    if found:
        table, sink = pa.concat_tables(found).combine_chunks(), pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=_PACKED) as writer:
            writer.write_table(table)
        yield pa.RecordBatch.from_arrays([pa.array([bytes(sink.getvalue())], pa.binary())], names=["rows"])

"""Finds operations to be shown: workers read the row groups that may have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from checkers.source import rows_with
from harness.history.saved import Reader


@dataclass(frozen=True, slots=True)
class Locator:
    """Picklable: turns piece numbers into the operations with some invocation indices (sorted), as tables."""

    reader: Reader
    pieces: int
    wanted: Any
    columns: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in (number for batch in batches for number in batch.column(0).to_pylist()):
            for group in self.reader.groups_with(self.wanted, self.reader.groups_of(piece, self.pieces)):
                for table in rows_with(self.reader, range(group, group + 1), self.wanted, list(self.columns)):
                    if table.num_rows:
                        yield pa.RecordBatch.from_arrays([pa.array([_streamed(table)], pa.binary())], names=["rows"])


def _streamed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())

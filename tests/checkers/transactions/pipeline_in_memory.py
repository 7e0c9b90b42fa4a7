"""The distributed pipeline's stages run one after the other in this process, cut into many small parts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checkers.columns.batches import bucket_batch
from checkers.columns.codes import NEVER
from checkers.findings import Findings, merged
from checkers.source import Source
from checkers.transactions.stages.buckets import TIMES, BucketJudge
from checkers.transactions.stages.pieces import FINDINGS, PieceReader, Row, Stage, merged_times, unpack
from checkers.transactions.stages.pipeline import Inferences, Related, Search, combined, relate
from checkers.transactions.stages.time_segments import SIZES, Sizes
from checkers.transactions.transaction_mops import Txns
from harness.history.saved import open_saved


def run(stage: Stage, batches: Iterator[pa.RecordBatch]) -> list[Row]:
    found = []
    for batch in stage(batches):
        found += [Row(*row) for row in zip(*batch.to_pydict().values(), strict=True)]
    return found


def grouped(rows: list[Row]) -> Iterator[pa.RecordBatch]:
    ordered = sorted(rows, key=lambda row: (row.bucket, row.piece))
    for _, group in groupby(ordered, key=lambda row: row.bucket):
        yield bucket_batch(list(group))


class MemoryBlocks:
    """Implements `pipeline.Blocks` in memory."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows
        self.came = 0
        """Bytes that reached the driver."""

    def of(self, kind: int) -> MemoryBlocks:
        return MemoryBlocks([row for row in self._rows if row.bucket >= 0 and row.piece == kind])

    def only(self, split: Stage) -> MemoryBlocks:
        return MemoryBlocks(run(split, iter([bucket_batch([row]) for row in self._rows])))

    def beside(self, other: MemoryBlocks) -> MemoryBlocks:
        return MemoryBlocks([*self._rows, *other._rows])

    def met(self, judge: Stage, tasks: int) -> MemoryBlocks:
        return MemoryBlocks([row for group in grouped(self._rows) for row in run(judge, iter([group]))])

    def holds(self, bucket: int) -> bool:
        return any(row.bucket == bucket for row in self._rows)

    def collect(self, split: Stage, judge: Stage, combine: Stage) -> list[Row]:
        rows = run(split, iter([bucket_batch([row]) for row in self._rows]))
        told = [combined(run(judge, iter([group])), combine) for group in grouped(rows)]
        rows = combined([row for part in told for row in part], combine)
        self.came += sum(len(row.data) for row in rows)
        return rows


def find_in_pieces(
    source: Source,
    folder: Path,
    model: str,
    orders: int,
    sources: int,
    *,
    rows_each: int,
    buckets: int,
    stride: int,
    sizes: Sizes = SIZES,
) -> dict[str, int]:
    """Counts of anomalies, by way of Parquet row groups of `rows_each` rows."""
    path = folder / "history.parquet"
    assert source.table is not None
    pq.write_table(source.table, path, row_group_size=rows_each)
    saved = open_saved(path)
    pieces = max(1, saved.manifest.groups)
    reader = PieceReader(Source(source.path, "test", source.rows), saved, pieces, buckets, model, 2)
    ids = iter([pa.RecordBatch.from_arrays([pa.array(range(pieces))], names=["id"])])
    judged = run(BucketJudge(model, sources, 2), grouped(run(reader, ids)))
    alone = found_alone(judged)
    related, _ = relate_in_memory(source, judged, orders, stride, sizes)
    assert related.whole
    return dict(alone.counts) | related.by(orders).counts


def found_alone(judged: list[Row]) -> Findings:
    """What buckets told without cycles."""
    return merged([msgspec.msgpack.decode(row.data, type=Findings) for row in judged if row.bucket == FINDINGS], 2)


def relate_in_memory(
    source: Source, judged: list[Row], orders: int, stride: int, sizes: Sizes = SIZES
) -> tuple[Related, MemoryBlocks]:
    """The cycles, and the blocks with what they count."""
    assert source.table is not None
    txns = _txns(source.table.to_pydict())

    def fetch(wanted: Any) -> Txns:
        return Txns(*(column[np.searchsorted(txns.invoke, wanted)] for column in txns[:4]))

    times = merged_times([unpack(row.data)[0] for row in judged if row.bucket == TIMES][:1])
    blocks = MemoryBlocks([row for row in judged if row.bucket >= 0])
    inferred = Inferences(blocks, found_alone(judged).figures["floating"], times)
    return relate(inferred, fetch, Search((orders,), 2), sizes._replace(a_window=stride)), blocks


def _txns(table: dict[str, list[Any]]) -> Txns:
    outcome = np.array([{"ok": 0, "info": 1}.get(name, 2) for name in table["type"]], np.uint8)
    complete = np.array([NEVER if value is None else value for value in table["complete_index"]], np.int64)
    invoke, process = (np.array(table[name], np.int64) for name in ("invoke_index", "process"))
    return Txns(invoke, np.where(outcome == 0, complete, NEVER), outcome, process)

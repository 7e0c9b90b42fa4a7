"""Transactional models on Spark: pieces of the history, buckets of keys, windows and stretches of time (see those
modules). Only findings come back, and few enough cycles to be explained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from checkers.engines.spark import SparkEngine, mapped
from checkers.findings import Finding, Findings, merged
from checkers.kernels.columns import NEVER
from checkers.source import Source, rows_with
from checkers.transactions.buckets import COPIES, TIMES, BucketJudge
from checkers.transactions.found import NO_KEY, UNWRITTEN, Found
from checkers.transactions.local import refuse_copies
from checkers.transactions.mops import Txns
from checkers.transactions.packing import address_hashes, pack, unpack
from checkers.transactions.pieces import FINDINGS, REFUSED, SCHEMA, PieceReader, Row, Stage, as_batch, encode_findings
from checkers.transactions.pipeline import Related, Search, combined, relate
from checkers.transactions.stretches import FoundCycles
from checkers.transactions.times import Times, merged_times
from checkers.transactions.windows import NEIGHBOURS, NeighbourFinder, joined_neighbours
from checkers.verdict import Undecided
from harness.errors import UserError
from harness.history.saved import Reader

_ROWS_PER_PIECE: Final = 500_000
_ROWS_PER_BUCKET: Final = 400_000

_MOST_LONG: Final = 1 << 23
"""Ends of transactions of unknown outcome, or that last very long, which the driver and every task hold."""

_FEW_PARTS: Final = 8
"""The driver puts the results of so many tasks together; of more one task does."""


class OnSpark(NamedTuple):
    """See `Inferred`: what needs no cycles, what is on cycles, and how long transactions last."""

    source: Source
    alone: Findings
    related: Related
    times: Times

    def found(self, orders: int, explain: int) -> Found:
        return _found(self, self.related.by(orders), explain)


def infer_on_spark(
    source: Source, engine: SparkEngine, model: str, sources: int, orders: tuple[int, ...], explain: int
) -> OnSpark:
    """What the accesses of a transactional history say; see `local.infer_in_process`. `orders` are those that will be
    asked for."""
    from pyspark import StorageLevel

    with engine.reader(source) as reader:
        pieces = _pieces(engine, source, reader, model, explain)
        buckets = engine.parts(source.rows, _ROWS_PER_BUCKET, 2)
        grouped = pieces.repartition(buckets, "bucket").sortWithinPartitions("bucket", "piece")
        judge = NeighbourFinder(BucketJudge(model, sources, explain))
        judged = mapped(grouped, judge, SCHEMA).persist(StorageLevel.DISK_ONLY)
        try:
            told = _rows(engine, mapped(judged.where("bucket < 0").repartition(1), ToldMerger(model, explain), SCHEMA))
            times = merged_times([unpack(row.data)[0] for row in told if row.bucket == TIMES][:1])
            alone = _alone(source, told, model, explain)
            neighbours = [unpack(row.data) for row in told if row.bucket == NEIGHBOURS]
            _require_few_long(neighbours)
            blocks, fetch = _SparkBlocks(engine, judged, buckets), _TxnReader(reader)
            related = relate(blocks, times.usual, neighbours, fetch, Search(orders, explain))
        finally:
            judged.unpersist()
    return OnSpark(source, alone, related, times)


def _require_few_long(neighbours: list[list[Any]]) -> None:
    """Raise Undecided if more transactions are long than the driver and every task can hold."""
    count = sum(len(part[0]) + len(part[2]) for part in neighbours)
    if count > _MOST_LONG:
        raise Undecided(
            f"{count} ends of transactions are of unknown outcome or last very long, and Spark takes {_MOST_LONG}."
        )


@dataclass(frozen=True, slots=True)
class ToldMerger:
    """Picklable: what pieces and buckets tell the driver, as one row of each kind."""

    model: str
    explain: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        findings, kept, neighbours = Findings(), dict[int, Row](), list[list[Any]]()
        for row in (Row(*row) for batch in batches for row in zip(*batch.to_pydict().values(), strict=True)):
            if row.bucket == FINDINGS:
                more = msgspec.msgpack.decode(row.data, type=Findings)
                findings = merged((findings, more), max(1, self.explain))
            elif row.bucket == NEIGHBOURS:
                neighbours.append(unpack(row.data))
            elif row.bucket not in kept or _first_told(row) < _first_told(kept[row.bucket]):
                kept[row.bucket] = row
        yield as_batch([Row(FINDINGS, 0, encode_findings(findings)), *kept.values()])
        if neighbours:
            yield as_batch([Row(NEIGHBOURS, 0, pack(joined_neighbours(neighbours)))])


def _first_told(row: Row) -> tuple[Any, ...]:
    """Of several rows of a kind the driver is told the first: of copies that of the earliest event."""
    if row.bucket == COPIES:
        told = unpack(row.data)[0].tolist()
        return min(told[4:]), tuple(told)
    return row.piece, row.data


def _pieces(engine: SparkEngine, source: Source, reader: Reader, model: str, explain: int) -> Any:
    buckets = engine.parts(source.rows, _ROWS_PER_BUCKET, 2)
    pieces = min(engine.parts(source.rows, _ROWS_PER_PIECE, 2), max(1, reader.manifest.groups))
    named = Source(source.path, source.format, source.rows)
    return mapped(engine.numbers(pieces, pieces), PieceReader(named, reader, pieces, buckets, model, explain), SCHEMA)


def _alone(source: Source, rows: list[Row], model: str, explain: int) -> Findings:
    """What was found without cycles; raises UserError for what can't be judged."""
    refused = sorted((row.piece, row.data.decode()) for row in rows if row.bucket == REFUSED)
    if refused:
        raise UserError(refused[0][1])
    copies = [unpack(row.data)[0].tolist() for row in rows if row.bucket == COPIES]
    if copies:
        *key, one, other = min(copies, key=lambda told: (min(told[4:]), told))
        refuse_copies(source, "append" if model == "list-append" else "write", tuple(key), (one, other))
    parts = [msgspec.msgpack.decode(row.data, type=Findings) for row in rows if row.bucket == FINDINGS]
    return merged(parts, max(1, explain))


class _SparkBlocks:
    """See `pipeline.Blocks`."""

    def __init__(self, engine: SparkEngine, frame: Any, parts: int) -> None:
        self._engine = engine
        self._frame = frame
        self._parts = parts

    def collect(self, split: Stage, judge: Stage, combine: Stage) -> list[Row]:
        made = mapped(self._frame, split, SCHEMA).repartition(self._parts, "bucket").sortWithinPartitions("bucket")
        told = mapped(made, _Both(judge, combine), SCHEMA)
        if self._parts > _FEW_PARTS:
            told = mapped(told.repartition(1), combine, SCHEMA)
        return combined(_rows(self._engine, told), combine)


@dataclass(frozen=True, slots=True)
class _Both:
    """Picklable: two stages in one task."""

    first: Stage
    second: Stage

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.second(self.first(batches))


def _rows(engine: SparkEngine, frame: Any) -> list[Row]:
    return [Row(row["bucket"], row["piece"], bytes(row["data"])) for row in engine.collected(frame)]


@dataclass(frozen=True, slots=True)
class _TxnReader:
    """Picklable: the transactions with the given invocation indices, from the row groups that may have them."""

    reader: Reader

    def __call__(self, ids: Any) -> Txns:
        columns, wanted = ["invoke_index", "complete_index", "type", "process"], np.asarray(ids, np.int64)
        found = [
            part
            for group in self.reader.groups_with(wanted)
            for part in rows_with(self.reader, range(group, group + 1), wanted, columns)
        ]
        table = pa.concat_tables([part.set_column(2, "type", part.column("type").cast(pa.string())) for part in found])
        kinds = table.column("type").to_pylist()
        outcome = np.array([{"ok": 0, "info": 1}.get(kind, 2) for kind in kinds], np.uint8)
        complete = table.column("complete_index").fill_null(NEVER).to_numpy()
        return Txns(ids, np.where(outcome == 0, complete, NEVER), outcome, table.column("process").to_numpy())


def _cycle_findings(source: Source, cycles: FoundCycles) -> tuple[Finding, ...]:
    """The kept cycles; keys are found again among what their transactions touch."""
    rows = source.operations([index for cycle in cycles.kept for index in cycle.ops])
    addresses: dict[int, list[int]] = {}
    for row in rows.values():
        mine = [[mop[name] for name in ("table", "partition", "row", "column")] for mop in row["mops"]]
        addresses |= dict(zip(address_hashes(np.array(mine, np.int64)).tolist(), mine, strict=True))
    found = []
    for cycle in cycles.kept:
        keys = [None if key is None else addresses.get(key) for key in cycle.keys]
        facts = {"kinds": list(cycle.kinds), "keys": keys}
        found.append(Finding(cycle.anomaly, min(cycle.ops), NO_KEY, cycle.ops, facts))
    return tuple(found)


def _found(inferred: OnSpark, cycles: FoundCycles, explain: int) -> Found:
    source, alone, related, times = inferred
    counts = dict(alone.counts)
    unwritten = counts.pop(UNWRITTEN, 0)
    dependencies = {name: alone.figures.get(name, 0) for name in ("ww", "wr", "rw")}
    figures: dict[str, Any] = {
        "transactions": times.outcomes,
        "keys": alone.figures.get("keys", 0),
        "dependencies": dependencies,
    }
    findings = tuple(finding for finding in alone.kept if finding.anomaly != UNWRITTEN)
    return Found(
        counts | cycles.counts,
        (*findings, *_cycle_findings(source, cycles)) if explain else (),
        times.orderless and not any(dependencies.values()),
        sum(times.outcomes.values()),
        figures | ({"reads_of_unwritten_values": unwritten} if unwritten else {}),
        related.whole and cycles.whole,
    )

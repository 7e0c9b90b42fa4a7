"""Transactional models on Spark: pieces of the history, buckets of keys, windows and segments of time (see those
modules). Only findings come back, and few enough cycles to be explained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.columns.batches import bucket_batch
from checkers.columns.codes import NEVER
from checkers.engines.shuffle import Room, most_bytes, planned_buckets
from checkers.engines.spark import SparkEngine, mapped, placed
from checkers.findings import NO_KEY, Finding, Findings, Key, merged
from checkers.source import Source, rows_with
from checkers.transactions.polygraph.levels import LevelQuestion, is_open
from checkers.transactions.stages.buckets import COPIES, SKIPPED, TIMES, BucketJudge
from checkers.transactions.stages.pieces import (
    FINDINGS,
    REFUSED,
    SCHEMA,
    PieceReader,
    Row,
    Stage,
    Times,
    address_hashes,
    encode_findings,
    merged_times,
    rows_of,
    unpack,
)
from checkers.transactions.stages.pipeline import Inferences, Related, Search, combined, relate
from checkers.transactions.stages.time_segments import FoundCycles, sizes_for
from checkers.transactions.transaction_findings import TXN_MODELS, Decided, Found, found_of, infer_from, refuse_copies
from checkers.transactions.transaction_mops import Txns, columns_of, read_batch
from harness.errors import UserError
from harness.history.saved import HistoryReader

_ROWS_PER_PIECE: Final = 500_000
_ROWS_PER_BUCKET: Final = 400_000

_EXPANDED: Final = 8
"""How many times their bytes in the shuffle it takes to infer from accesses (`python -m bench task_memory`)."""

_ROOM: Final = Room(mop=40)
"""An access takes 34 bytes (`list-append`) or 38 in a shuffle; lists go once a piece and key, not with each read."""

_READ: Final = Room(row=64, mop=160)
"""What transactions and their accesses take where a piece is read, until they are packed."""

_NO_TASK: Final = (
    "To order versions that nobody observed one task reads the whole history, which takes about {} bytes; by the "
    "session's plan of memory it may take {}."
)

_FEW_PARTS: Final = 8
"""Tasks whose results the driver puts together; of more one task does."""


class InferredFrom(NamedTuple):
    """What was asked to be inferred, of which history, and where."""

    engine: SparkEngine
    source: Source
    model: str
    sources: int


class OnSpark(NamedTuple):
    """See `Inferred`: what needs no cycles, what is on cycles, and how long transactions last."""

    asked: InferredFrom
    alone: Findings
    related: Related
    times: Times

    def found(self, orders: int, explain: int) -> Found:
        cycles, alone, times = self.related.by(orders), self.alone, self.times
        dependencies = {name: alone.figures.get(name, 0) for name in ("ww", "wr", "rw")}
        figures = {"transactions": times.outcomes, "keys": alone.figures.get("keys", 0), "dependencies": dependencies}
        explained = _cycle_findings(self.asked.source, cycles) if explain else None
        orderless = times.orderless and not any(dependencies.values())
        return found_of(alone, (cycles.counts, explained, self.related.whole and cycles.whole), orderless, figures)

    def decided(self, question: LevelQuestion) -> Decided:
        """One task reads and judges the whole history."""
        engine, source, model, sources = self.asked
        if not is_open(question.consistency, model == "list-append", self.alone.figures.get("open", 0), question.shown):
            return Decided(True)
        room = engine.task_bytes()
        if (need := 2 * _READ.of(source.breadth)) > room:
            return Decided(None, reason=_NO_TASK.format(need, room))
        question = question._replace(memory=min(question.memory, room))
        with engine.reader(source) as reader:
            stage = _WholeJudge(_named(source), reader, model, sources, question)
            (row,) = _rows(engine, mapped(engine.numbers(1, 1), stage, SCHEMA))
        return msgspec.msgpack.decode(row.data, type=Decided)


@dataclass(frozen=True, slots=True)
class _WholeJudge:
    """Picklable: the answer to a question about the whole history, as the only row."""

    source: Source
    reader: HistoryReader
    model: str
    sources: int
    question: LevelQuestion

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            dialect = TXN_MODELS[self.model].dialect
            read = (read_batch(self.source, dialect, batch) for batch in self.reader.batches(columns_of(self.source)))
            decided = infer_from(read, self.source, self.model, self.sources, 1).decided(self.question)
            yield bucket_batch([Row(FINDINGS, 0, msgspec.msgpack.encode(decided))])


def _named(source: Source) -> Source:
    """What tasks need to know of a source that they read by a reader of its own."""
    told: Any = {name: getattr(source, name) for name in ("initial", "stated", "versions")}
    return Source(source.path, source.format, source.rows, **told)


def infer_on_spark(
    source: Source, engine: SparkEngine, model: str, sources: int, orders: tuple[int, ...], explain: int
) -> OnSpark:
    """What the accesses of a transactional history say; see `transaction_findings.infer_in_process`. `orders` are those
    that will be asked for."""
    with engine.reader(source) as reader:
        buckets = engine.parts(source.rows, _ROWS_PER_BUCKET, 2)
        buckets = planned_buckets(engine, source, buckets, _ROOM, _EXPANDED)
        pieces = _pieces(engine, source, reader, buckets, model, explain)
        blocks = _SparkBlocks(engine, pieces, buckets, [])
        try:
            judged = blocks.met(BucketJudge(model, sources, explain, most_bytes(engine, _EXPANDED)), buckets)
            told = judged.collected(DriverMerger(model, explain))
            times = merged_times([unpack(row.data)[0] for row in told if row.bucket == TIMES][:1])
            engine.skipped.extend(row.data.decode() for row in told if row.bucket == SKIPPED)
            alone = _alone(source, told, model, explain)
            inferences = Inferences(judged, alone.figures.get("floating", 0), times)
            edges = sum(alone.figures.get(kind, 0) for kind in ("ww", "wr", "rw"))
            sizes = sizes_for(edges, times.last + 1, engine.task_bytes())
            related = relate(inferences, _TxnReader(reader), Search(orders, explain), sizes)
        finally:
            blocks.close()
    return OnSpark(InferredFrom(engine, source, model, sources), alone, related, times)


@dataclass(frozen=True, slots=True)
class DriverMerger:
    """Picklable: what pieces and buckets tell the driver, as one row of each kind."""

    model: str
    explain: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        findings, kept = Findings(), dict[int, Row]()
        for row in rows_of(batches):
            if row.bucket == FINDINGS:
                more = msgspec.msgpack.decode(row.data, type=Findings)
                findings = merged((findings, more), max(1, self.explain))
            elif row.bucket not in kept or _first_of_kind(row) < _first_of_kind(kept[row.bucket]):
                kept[row.bucket] = row
        yield bucket_batch([Row(FINDINGS, 0, encode_findings(findings)), *kept.values()])


def _first_of_kind(row: Row) -> tuple[Any, ...]:
    """Of several rows of a kind the driver is told the first: of copies that of the earliest event."""
    if row.bucket == COPIES:
        told = unpack(row.data)[0].tolist()
        return min(told[4:6]), tuple(told)
    return row.piece, row.data


def _pieces(engine: SparkEngine, source: Source, reader: HistoryReader, buckets: int, model: str, explain: int) -> Any:
    by_room = -(-2 * _READ.of(source.breadth) // max(1, engine.task_bytes()))
    pieces = min(max(engine.parts(source.rows, _ROWS_PER_PIECE, 2), by_room), max(1, reader.manifest.groups))
    return mapped(
        engine.numbers(pieces, pieces), PieceReader(_named(source), reader, pieces, buckets, model, explain), SCHEMA
    )


def _alone(source: Source, rows: list[Row], model: str, explain: int) -> Findings:
    """What was found without cycles; raises UserError for what can't be judged."""
    refused = sorted((row.piece, row.data.decode()) for row in rows if row.bucket == REFUSED)
    if refused:
        raise UserError(refused[0][1])
    copies = [unpack(row.data)[0].tolist() for row in rows if row.bucket == COPIES]
    if copies:
        *key, one, other, stated = min(copies, key=lambda copy: (min(copy[4:6]), copy))
        refuse_copies(source, TXN_MODELS[model].verb, Key(*key), (one, other), stated > 0)
    parts = [msgspec.msgpack.decode(row.data, type=Findings) for row in rows if row.bucket == FINDINGS]
    return merged(parts, max(1, explain))


@dataclass(frozen=True, slots=True)
class _SparkBlocks:
    """See `pipeline.Blocks`. `held` are all frames that are kept, until `close`."""

    engine: SparkEngine
    frame: Any
    parts: int
    held: list[Any]

    def of(self, kind: int) -> _SparkBlocks:
        return replace(self, frame=self.frame.where("bucket >= 0").where(f"piece = {kind}"))

    def only(self, split: Stage) -> _SparkBlocks:
        return replace(self, frame=mapped(self.frame, split, SCHEMA))

    def beside(self, other: _SparkBlocks) -> _SparkBlocks:
        return replace(self, frame=self.frame.union(other.frame))

    def met(self, judge: Stage, tasks: int) -> _SparkBlocks:
        from pyspark import StorageLevel

        grouped = placed(self.frame, tasks).sortWithinPartitions("bucket", "piece")
        made = mapped(grouped, judge, SCHEMA).persist(StorageLevel.DISK_ONLY)
        self.held.append(made)
        return replace(self, frame=made)

    def holds(self, bucket: int) -> bool:
        return bool(_rows(self.engine, self.frame.where(f"bucket = {bucket}").limit(1)))

    def collected(self, merge: Stage) -> list[Row]:
        """What goes to the driver, put together by a task."""
        return _rows(self.engine, mapped(self.frame.where("bucket < 0").repartition(1), merge, SCHEMA))

    def collect(self, split: Stage, judge: Stage, combine: Stage) -> list[Row]:
        made = placed(mapped(self.frame, split, SCHEMA), self.parts).sortWithinPartitions("bucket")
        told = mapped(made, _Both(judge, combine), SCHEMA)
        if self.parts > _FEW_PARTS:
            told = mapped(told.repartition(1), combine, SCHEMA)
        return combined(_rows(self.engine, told), combine)

    def close(self) -> None:
        """Let go of what is kept."""
        for frame in self.held:
            frame.unpersist()


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

    reader: HistoryReader

    def __call__(self, ids: Any) -> Txns:
        columns, wanted = ["invoke_index", "complete_index", "type", "process"], np.asarray(ids, np.int64)
        found = [
            part
            for group in self.reader.groups_with(wanted)
            for part in rows_with(self.reader, range(group, group + 1), wanted, columns)
        ]
        table = pa.concat_tables([part.set_column(2, "type", part.column("type").cast(pa.string())) for part in found])
        outcome = pc.index_in(table.column("type"), pa.array(["ok", "info"])).fill_null(2).to_numpy().astype(np.uint8)
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

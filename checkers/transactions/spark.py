"""Transactional models on Spark: pieces of the history, buckets of keys, windows of time (see those modules).

Only findings, stretches of time and the few dependencies inside them come back; cycles are named in-process by the same
code as ever.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.engines.spark import SparkEngine, mapped
from checkers.findings import Finding, Findings, merged
from checkers.kernels.columns import NEVER
from checkers.source import Source
from checkers.transactions.buckets import COPIES, TIMES, BucketJudge
from checkers.transactions.cycles import Cycles
from checkers.transactions.found import NO_KEY, UNWRITTEN, Found
from checkers.transactions.local import refuse_copies
from checkers.transactions.mops import Txns
from checkers.transactions.packing import address_hashes, unpack
from checkers.transactions.pieces import FINDINGS, REFUSED, SCHEMA, PieceReader, Row, Stage, row_groups
from checkers.transactions.pipeline import Related, relate
from checkers.transactions.times import Times, merged_times
from checkers.transactions.windows import NEIGHBOURS, NeighbourFinder
from harness.errors import UserError

_ROWS_PER_PIECE: Final = 500_000
_ROWS_PER_BUCKET: Final = 400_000


class OnSpark(NamedTuple):
    """See `Inferred`: what needs no cycles, what may be on cycles, and how long transactions last."""

    source: Source
    alone: Findings
    related: Related
    times: Times

    def found(self, orders: int, explain: int) -> Found:
        return _found(self, self.related.cycles(orders, explain), explain)


def infer_on_spark(source: Source, engine: SparkEngine, model: str, sources: int, explain: int) -> OnSpark:
    """What the accesses of a transactional history say; see `local.infer_in_process`."""
    from pyspark import StorageLevel

    with engine.parquet(source) as parquet:
        pieces = _pieces(engine, source, parquet, model, explain)
        buckets = engine.parts(source.rows, _ROWS_PER_BUCKET, 2)
        grouped = pieces.repartition(buckets, "bucket").sortWithinPartitions("bucket", "piece")
        judge = NeighbourFinder(BucketJudge(model, sources, explain))
        judged = mapped(grouped, judge, SCHEMA).persist(StorageLevel.DISK_ONLY)
        try:
            told = _rows(judged.where("bucket < 0"))
            times = merged_times([unpack(row.data)[0] for row in told if row.bucket == TIMES][:1])
            alone = _alone(source, told, model, explain)
            neighbours = [unpack(row.data) for row in told if row.bucket == NEIGHBOURS]
            related = relate(_SparkBlocks(judged, buckets), times.usual, neighbours, partial(_txns_of, source))
        finally:
            judged.unpersist()
    return OnSpark(source, alone, related, times)


def _pieces(engine: SparkEngine, source: Source, parquet: Path, model: str, explain: int) -> Any:
    groups = row_groups(parquet, engine.parts(source.rows, _ROWS_PER_PIECE, 2))
    buckets = engine.parts(source.rows, _ROWS_PER_BUCKET, 2)
    named = Source(source.path, source.format, source.rows)
    reader = PieceReader(named, str(parquet), groups, buckets, model, explain)
    return mapped(engine.numbers(len(groups), len(groups)), reader, SCHEMA)


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

    def __init__(self, frame: Any, parts: int) -> None:
        self._frame = frame
        self._parts = parts

    def collect(self, stage: Stage) -> list[Row]:
        return _rows(mapped(self._frame, stage, SCHEMA))

    def collect_grouped(self, stage: Stage, judge: Stage) -> list[Row]:
        made = mapped(self._frame, stage, SCHEMA).repartition(self._parts, "bucket")
        return _rows(mapped(made.sortWithinPartitions("bucket"), judge, SCHEMA))


def _rows(frame: Any) -> list[Row]:
    return [Row(row["bucket"], row["piece"], bytes(row["data"])) for row in frame.collect()]


def _txns_of(source: Source, ids: Any) -> Txns:
    """The transactions with the given invocation indices."""
    columns = ("invoke_index", "complete_index", "type", "process")
    wanted, parts = pa.array(ids), []
    for batch in source.batches(columns):
        chosen = pc.is_in(batch.column("invoke_index"), value_set=wanted)
        parts.append(pa.Table.from_batches([batch]).select(columns).filter(chosen))
    table = pa.concat_tables(parts).sort_by("invoke_index")
    kinds = table.column("type").to_pylist()
    outcome = np.array([{"ok": 0, "info": 1}.get(kind, 2) for kind in kinds], np.uint8)
    complete = table.column("complete_index").fill_null(NEVER).to_numpy()
    return Txns(ids, np.where(outcome == 0, complete, NEVER), outcome, table.column("process").to_numpy())


def _cycle_findings(source: Source, cycles: Cycles, hashes: list[Any], txns: Txns) -> tuple[Finding, ...]:
    """The kept cycles; keys are found again among what their transactions touch."""
    kept = [(name, cycle) for name, found in cycles.kept.items() for cycle in found]
    ops = [tuple(int(txns.invoke[txn]) for txn in cycle.txns) for _, cycle in kept]
    rows = source.operations([index for indices in ops for index in indices])
    addresses: dict[int, list[int]] = {}
    for row in rows.values():
        mine = [[mop[name] for name in ("table", "partition", "row", "column")] for mop in row["mops"]]
        addresses |= dict(zip(address_hashes(np.array(mine, np.int64)).tolist(), mine, strict=True))
    found = []
    for (name, cycle), indices in zip(kept, ops, strict=True):
        keys = [addresses.get(hashes[key]) if key >= 0 else None for key in cycle.keys]
        found.append(Finding(name, min(indices), NO_KEY, indices, {"kinds": list(cycle.kinds), "keys": keys}))
    return tuple(found)


def _found(inferred: OnSpark, cycles: Cycles, explain: int) -> Found:
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
        (*findings, *_cycle_findings(source, cycles, related.hashes, related.txns)) if explain else (),
        times.orderless and not any(dependencies.values()),
        sum(times.outcomes.values()),
        figures | ({"reads_of_unwritten_values": unwritten} if unwritten else {}),
    )

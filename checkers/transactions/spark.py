"""Transactional models on Spark: pieces of the history, buckets of keys, windows of time (see those modules).

Only findings, stretches of time and the few dependencies inside them come back; cycles are named in-process by the same
code as ever.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlparse

import msgspec
import numpy as np

from checkers.engines.spark import SparkEngine
from checkers.findings import Finding, Findings, merged
from checkers.kernels.columns import NEVER
from checkers.source import Source
from checkers.transactions.buckets import COPIES, BucketJudge
from checkers.transactions.cycles import Cycles
from checkers.transactions.found import NO_KEY, UNWRITTEN, Found
from checkers.transactions.local import refuse_copies
from checkers.transactions.mops import Txns
from checkers.transactions.packing import address_hashes, unpack
from checkers.transactions.pieces import FINDINGS, REFUSED, SCHEMA, PieceReader, Row, row_groups
from checkers.transactions.pipeline import Named, Stage, Times, cycles_of
from harness.errors import UserError

_ROWS_PER_PIECE: Final = 500_000
_ROWS_PER_BUCKET: Final = 400_000
_FEW_ROWS: Final = 20_000


def find_on_spark(source: Source, engine: SparkEngine, model: str, orders: int, sources: int, explain: int) -> Found:
    """Anomalies of a transactional history; see `local.find_in_lists` and `find_in_registers`."""
    from pyspark import StorageLevel

    with engine.frame(source) as frame:
        parquet = Path(unquote(urlparse(frame.inputFiles()[0]).path))
        times = _times(frame)
        pieces = _pieces(frame.sparkSession, engine, source, parquet, model, explain)
        buckets = _parts(engine, source.rows, _ROWS_PER_BUCKET)
        grouped = pieces.repartition(buckets, "bucket").sortWithinPartitions("bucket", "piece")
        judged = grouped.mapInArrow(BucketJudge(model, sources, explain), SCHEMA).persist(StorageLevel.DISK_ONLY)
        try:
            alone = _alone(source, judged, model, explain)
            named = cycles_of(_SparkBlocks(judged), times, orders, explain, partial(_txns_of, frame))
        finally:
            judged.unpersist()
    return _found(source, alone, named, times, explain)


def _parts(engine: SparkEngine, rows: int, rows_each: int) -> int:
    """Into how many parts rows are split: one if they are few, else enough for every core."""
    return 1 if rows <= _FEW_ROWS else max(2 * engine.cores, -(-rows // rows_each))


def _times(frame: Any) -> Times:
    from pyspark.sql import functions as fn

    clients = frame.where("process >= 0")
    ok = fn.col("type") == "ok"
    lasts = fn.when(ok, fn.col("complete_index") - fn.col("invoke_index"))
    counts = [fn.count(fn.when(fn.col("type") == name, 1)).alias(name) for name in ("ok", "info", "fail")]
    row = clients.agg(
        *counts,
        fn.avg(lasts).alias("average"),
        fn.max(lasts).alias("longest"),
        fn.min(fn.when(ok, fn.col("complete_index"))).alias("first"),
        fn.max("invoke_index").alias("last"),
    ).collect()[0]
    orderless = row["first"] is None or row["last"] <= row["first"]
    return Times(
        {name: row[name] for name in ("ok", "info", "fail")}, row["average"] or 0.0, row["longest"] or 0, orderless
    )


def _pieces(session: Any, engine: SparkEngine, source: Source, parquet: Path, model: str, explain: int) -> Any:
    groups = row_groups(parquet, _parts(engine, source.rows, _ROWS_PER_PIECE))
    buckets = _parts(engine, source.rows, _ROWS_PER_BUCKET)
    named = Source(source.path, source.format, source.rows)
    reader = PieceReader(named, str(parquet), groups, buckets, model, explain)
    return session.range(0, len(groups), 1, max(1, len(groups))).mapInArrow(reader, SCHEMA)


def _alone(source: Source, judged: Any, model: str, explain: int) -> Findings:
    """What was found without cycles; raises UserError for what can't be judged."""
    rows = _rows(judged.where("bucket < 0"))
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

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def collect(self, stage: Stage) -> list[Row]:
        return _rows(self._frame.mapInArrow(stage, SCHEMA))

    def collect_grouped(self, stage: Stage, judge: Stage) -> list[Row]:
        made = self._frame.mapInArrow(stage, SCHEMA).repartition(self._frame.rdd.getNumPartitions(), "bucket")
        return _rows(made.sortWithinPartitions("bucket").mapInArrow(judge, SCHEMA))


def _rows(frame: Any) -> list[Row]:
    return [Row(row["bucket"], row["piece"], bytes(row["data"])) for row in frame.collect()]


def _txns_of(frame: Any, ids: Any) -> Txns:
    """The transactions with the given invocation indices."""
    from pyspark.sql import functions as fn

    low, high = int(ids.min()), int(ids.max())
    wanted = frame.where(fn.col("invoke_index").between(low, high) & (fn.col("process") >= 0))
    table = wanted.select("invoke_index", "complete_index", "type", "process").toArrow().sort_by("invoke_index")
    invoke = table.column("invoke_index").to_numpy()
    rows = np.searchsorted(invoke, ids)
    outcome = np.array(
        [{"ok": 0, "info": 1}.get(name, 2) for name in table.column("type").take(rows).to_pylist()], np.uint8
    )
    complete = table.column("complete_index").fill_null(NEVER).to_numpy()[rows]
    return Txns(ids, np.where(outcome == 0, complete, NEVER), outcome, table.column("process").to_numpy()[rows])


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


def _found(source: Source, alone: Findings, named: Named, times: Times, explain: int) -> Found:
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
        counts | named.cycles.counts,
        (*findings, *_cycle_findings(source, *named)) if explain else (),
        times.orderless and not any(dependencies.values()),
        sum(times.outcomes.values()),
        figures | ({"reads_of_unwritten_values": unwritten} if unwritten else {}),
    )

"""Transactional models on Spark: pieces of the history, buckets of keys, windows of time (see those modules).

Only findings, stretches of time and the few dependencies inside them come back; cycles are named in-process by the same
code as ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlparse

import msgspec
import numpy as np

from checkers.engines.spark import SparkEngine
from checkers.findings import Finding, Findings, merged
from checkers.kernels.columns import NEVER
from checkers.kernels.graph_edges import Edges
from checkers.source import Source
from checkers.transactions.buckets import COPIES, HELPER, Block, BucketJudge
from checkers.transactions.cycles import Cycles, find_cycles
from checkers.transactions.found import NO_KEY, UNWRITTEN, Found
from checkers.transactions.local import refuse_copies
from checkers.transactions.mops import Txns
from checkers.transactions.packing import address_hashes, unpack
from checkers.transactions.pieces import FINDINGS, REFUSED, SCHEMA, PieceReader, row_groups
from checkers.transactions.windows import (
    EXTENTS,
    Gatherer,
    Long,
    NeighbourFinder,
    Plan,
    WindowJudge,
    WindowSplit,
    merged_extents,
    settle_long,
)
from harness.errors import UserError

_ROWS_PER_PIECE: Final = 500_000
_ROWS_PER_BUCKET: Final = 400_000
_FEW_ROWS: Final = 20_000
_LEAST_STRIDE: Final = 1 << 18
"""Windows are at least so many events long."""

_LONG: Final = 32
"""Transactions that last longer than so many times the average are treated like those that never end."""


class _Times(NamedTuple):
    """Of all client transactions: how many by outcome, average and longest duration of those that completed, their
    first completion and the last invocation of all."""

    outcomes: dict[str, int]
    average: float
    longest: int
    orderless: bool


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
            cycles = _cycles(frame, judged, times, orders, explain)
        finally:
            judged.unpersist()
    return _found(source, alone, cycles, times, explain)


def _parts(engine: SparkEngine, rows: int, rows_each: int) -> int:
    """Into how many parts rows are split: one if they are few, else enough for every core."""
    return 1 if rows <= _FEW_ROWS else max(2 * engine.cores, -(-rows // rows_each))


def _times(frame: Any) -> _Times:
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
    return _Times(
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
    rows = judged.where("bucket < 0").collect()
    refused = sorted((row["piece"], bytes(row["data"]).decode()) for row in rows if row["bucket"] == REFUSED)
    if refused:
        raise UserError(refused[0][1])
    copies = [unpack(bytes(row["data"]))[0].tolist() for row in rows if row["bucket"] == COPIES]
    if copies:
        *key, one, other = min(copies, key=lambda told: (min(told[4:]), told))
        refuse_copies(source, "append" if model == "list-append" else "write", tuple(key), (one, other))
    parts = [msgspec.msgpack.decode(row["data"], type=Findings) for row in rows if row["bucket"] == FINDINGS]
    return merged(parts, max(1, explain))


def _cycles(frame: Any, judged: Any, times: _Times, orders: int, explain: int) -> tuple[Cycles, list[Any], Txns]:
    """Cycles, the key numbers that they name, and the transactions that they are about."""
    most = min(times.longest, int(_LONG * times.average) + 1)
    near = judged.mapInArrow(NeighbourFinder(most), SCHEMA).collect()
    long, endless = settle_long([unpack(bytes(row["data"])) for row in near])
    plan = _plan(long, most)
    split = judged.mapInArrow(WindowSplit(plan), SCHEMA)
    windows = split.repartition(int(judged.rdd.getNumPartitions()), "bucket").sortWithinPartitions("bucket")
    rows = windows.mapInArrow(WindowJudge(plan), SCHEMA).collect()
    extents = [tuple(map(int, pair)) for row in rows for pair in unpack(bytes(row["data"]))[0]]
    extents += [(int(pair.min()), int(pair.max())) for pair in endless]
    if not extents:
        return Cycles({}, {}), [], _no_txns()
    union = tuple(merged_extents(extents, 2 * plan.longest + 1))  # type: ignore[arg-type]
    gathered = judged.mapInArrow(Gatherer(plan, union), SCHEMA).collect()
    edges, hashes, ids = _edges_of([Block(*unpack(bytes(row["data"]))) for row in gathered])
    txns = _txns_of(frame, union, ids)
    return find_cycles(edges, txns, orders, explain), hashes, txns


def _plan(long: Long, most: int) -> Plan:
    ended = long.complete != NEVER
    longest = max(most, int((long.complete[ended] - long.invoke[ended]).max(initial=0)))
    return Plan(long, longest, max(_LEAST_STRIDE, 8 * longest))


def _no_txns() -> Txns:
    nothing = np.empty(0, np.int64)
    return Txns(nothing, nothing, np.empty(0, np.uint8), nothing)


def _edges_of(blocks: list[Block]) -> tuple[Edges, list[Any], Any]:
    """Edges by small numbers, the key numbers behind theirs, and the transactions (invocation indices, in order)."""
    columns = [np.concatenate([block[i] for block in blocks]) for i in range(6)]
    source, target, kind, key = columns[0], columns[2], columns[4], columns[5]
    every = np.unique(np.concatenate((source, target)))
    ids, helpers = every[every >= 0], every[every < 0]
    numbers = np.concatenate((ids, helpers))
    order = np.argsort(numbers, kind="stable")

    def number(column: Any) -> Any:
        return order[np.searchsorted(numbers, column, sorter=order)].astype(np.int32)

    hashes, keys = np.unique(key, return_inverse=True)
    count = np.array([len(source), len(numbers)])
    return Edges(number(source), number(target), kind, keys.astype(np.int32), count), hashes.tolist(), ids


def _txns_of(frame: Any, extents: Iterable[tuple[int, int]], ids: Any) -> Txns:
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


def _found(
    source: Source, alone: Findings, cycles: tuple[Cycles, list[Any], Txns], times: _Times, explain: int
) -> Found:
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
        counts | cycles[0].counts,
        (*findings, *_cycle_findings(source, *cycles)) if explain else (),
        times.orderless and not any(dependencies.values()),
        sum(times.outcomes.values()),
        figures | ({"reads_of_unwritten_values": unwritten} if unwritten else {}),
    )


__all__ = ["EXTENTS", "HELPER", "find_on_spark"]

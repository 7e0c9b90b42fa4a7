"""For each model, valid histories of any size and how operations of them are corrupted.

Models whose generators make small histories, operation by operation, get many of these one after the other, each about
partitions of its own; a corrupted one among them is an anomaly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from growth import Row, corrupted, lower_by_one, shortened, unwritten

from checkers.importers.transactions import transactions_source
from checkers.made.generate import MadeHistory, anomalies, base_of, made_batches
from checkers.made.isolation import TransactionShape, transactions
from checkers.made.jepsen import Shape, history
from checkers.made.objects import ObjectShape, object_source
from checkers.made.pages import PageShape, page_batches
from checkers.made.registers import RegisterShape, register_batches
from checkers.made.transactions import TxnShape, txn_batches
from harness.history.columns import MOP, SCHEMA
from harness.history.table import to_table
from tests.support.injecting import ANOMALIES, inject

Batches = Iterator[pa.RecordBatch]

INFO = 0.05


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of history: `make(n, share)` gives a valid one of about `n` operations with a share of anomalies, spread
    evenly; `dictionary` has its strings once all batches are made, `refuted` whether the model takes them for
    anomalies, `most` how many operations the campaign judges: one task takes no more of a model that nothing splits
    (`docs/scale.md`)."""

    make: Callable[[int, float], Batches]
    dictionary: Collection[str] = ()
    refuted: bool = True
    most: int = 10_000_000


def _streamed(make: Callable[[int], Batches], change: Callable[[Row], bool], *, most: int = 10_000_000) -> Kind:
    return Kind(lambda n, share: corrupted(make(n), share, change), most=most)


def _tiled(valid: Callable[[], pa.Table], wrong: Callable[[], pa.Table]) -> Kind:
    """A history made of small ones of about `_TILE` operations."""

    def make(n: int, share: float) -> Batches:
        every = max(1, round(1 / (share * _TILE))) if share else 0
        (good,), (bad,) = (tile.combine_chunks().to_batches() for tile in (valid(), wrong()))
        behind, number = Behind(), 0
        while behind.rows < n:
            tile = bad if every and number % every == every - 1 else good
            yield moved(tile, behind)
            processes = int(np.max(tile.column("process").to_numpy())) + 1
            behind, number = behind.more(2 * _TILE * 4, tile.num_rows, processes, 1_000), number + 1

    return _repeated(Kind(make))


def _repeated(kind: Kind) -> Kind:
    """Of slowly made histories those of a million operations, as often as it takes, each as one batch."""

    def make(n: int, share: float) -> Batches:
        made, behind = pa.Table.from_batches(kind.make(min(n, _REPEATED), share)), Behind()
        (tile,) = made.combine_chunks().to_batches()
        last = pa.compute.max(pa.compute.max_element_wise(tile.column("invoke_index"), tile.column("complete_index")))
        for _ in range(-(-n // _REPEATED)):
            yield moved(tile, behind)
            # What is injected has numbers of its own, 10^4 from 10^12 on, of processes from 10^9, of tables from 10^6:
            # none of them is another one's by these steps.
            behind = behind.more(last.as_py() + 1, tile.num_rows, 10**6, 10**7, 3 * 10**5)

    return Kind(make, kind.dictionary, kind.refuted, kind.most)


_TILE = 100
_REPEATED = 1_000_000
_NS_PER_EVENT = 1_000_000


class Behind(NamedTuple):
    """How much further behind a history stands, and about what partitions and tables and by what processes it is; each
    table has a feed, which is a session."""

    events: int = 0
    rows: int = 0
    processes: int = 0
    partitions: int = 0
    tables: int = 0

    def more(self, events: int, rows: int, processes: int, partitions: int, tables: int = 0) -> Behind:
        return Behind(*map(sum, zip(self, (events, rows, processes, partitions, tables), strict=True)))


def moved(batch: pa.RecordBatch, behind: Behind) -> pa.RecordBatch:
    """A history further behind, about other partitions and by other processes, but for those that are no clients."""
    ns = behind.events * _NS_PER_EVENT
    more = {"op": behind.rows, "invoke_index": behind.events, "complete_index": behind.events}
    more |= {"invoke_time": ns, "complete_time": ns, "session": behind.tables}
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name == "mops":
            column = _elsewhere(column, {"partition": behind.partitions, "table": behind.tables})
        elif name == "process":
            others = pa.compute.add(column, pa.scalar(behind.processes, column.type))
            column = pa.compute.if_else(pa.compute.less(column, 0), column, others)
        elif name in more:
            column = pa.compute.add(column, pa.scalar(more[name], column.type))
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _elsewhere(mops: pa.Array, more: dict[str, int]) -> pa.Array:
    fields = list(mops.flatten().flatten())
    for place, field in enumerate(MOP):
        if added := more.get(field.name):
            fields[place] = pa.compute.add(fields[place], pa.scalar(added, field.type))
    inner = pa.StructArray.from_arrays(fields, fields=list(MOP))
    return pa.ListArray.from_arrays(mops.offsets, inner, type=SCHEMA.field("mops").type, mask=mops.is_null())


def _jepsen(model: str) -> Kind:
    @cache
    def events() -> Any:
        return history(model, Shape(_TILE, info_share=INFO), seed=3)

    # What a queue lost may be what a dequeue of unknown outcome took.
    anomaly = "unexpected" if model.endswith("queue") else next(iter(ANOMALIES[model]))

    def wrong() -> pa.Table:
        return to_table(inject(model, anomaly, events()))

    return _tiled(lambda: to_table(events()), wrong)


def _objects(model: str) -> Kind:
    def source(bad: bool) -> Any:
        values = 0 if model != "multi-register" else 5
        return object_source(ObjectShape(model, _TILE, clients=3, values=values, info_share=INFO, corrupted=bad))

    return _tiled(lambda: source(False).table, lambda: source(True).table)


def _isolation(n: int) -> Batches:
    table = transactions_source(Path("made"), "parquet", transactions(TransactionShape(n, keys=max(20, n // 50)))).table
    assert table is not None
    yield from table.combine_chunks().to_batches(max_chunksize=1 << 16)


def _registers(n: int) -> Batches:
    return register_batches(RegisterShape(n, keys=max(20, n // 1_000), info_share=INFO))


def _pages(n: int) -> Batches:
    return page_batches(PageShape(n, partitions=max(20, n // 100), info_share=INFO))


def _quorum(n: int) -> Batches:
    return page_batches(PageShape(n, partitions=max(20, n // 100), info_share=INFO, quorum=True))


def _txns(model: Any) -> Callable[[int], Batches]:
    return lambda n: txn_batches(TxnShape(n, model, info_share=INFO))


def shown_unwritten(row: Row) -> bool:
    """Let a successful transaction read what nobody wrote."""
    for mop in row["mops"] if row["type"] == "ok" else ():
        if mop["f"] == "r" and mop["value"] is not None:
            mop["value"] = 10**15 + row["invoke_index"]
            return True
    return False


def shown_older(row: Row) -> bool:
    """Let a successful transaction read what was replaced long ago."""
    for mop in row["mops"] if row["type"] == "ok" else ():
        if mop["f"] == "r" and (mop["value"] or 0) > 20:
            mop["value"] -= 20
            return True
    return False


def _made(model: str, most: int = 10_000_000, per_key: int | None = None) -> Kind:
    """A generated history with the first of the model's anomalies in it, on as many keys as the model's have unless
    longer ones than `per_key` need more: what is of unknown outcome stays open to the end of its key."""

    texts: dict[str, int] = {}

    def make(n: int, share: float) -> Batches:
        texts.clear()
        anomaly = next(iter(anomalies(model))) if share else None
        keys = max(base_of(model).keys, n // per_key) if per_key else None
        return made_batches(MadeHistory(model, n, keys, anomaly, share or None, INFO), texts)

    return Kind(make, texts, most=most)


SESSIONS = ("read-your-writes", "monotonic-writes", "writes-follow-reads")
OBJECTS = ("multi-register", "mutex", "lin-set", "lin-queue", "fifo-queue")
JEPSEN = tuple(ANOMALIES)

KINDS: dict[str, Kind] = {
    "register": _streamed(_registers, unwritten),
    "cas-register": _streamed(_registers, unwritten),
    **{model: _objects(model) for model in OBJECTS},
    "list-append": _streamed(_txns("list-append"), shortened),
    "rw-register": _streamed(_txns("rw-register"), shown_older),
    "isolation": _streamed(_isolation, shown_unwritten, most=5_000_000),
    **{model: _streamed(_pages, lower_by_one) for model in ("monotonic-reads", "sessions")},
    **{model: _made(model, per_key=100) for model in (*SESSIONS, "write-atomicity")},
    **{model: _jepsen(model) for model in JEPSEN},
    "durable-rows": _streamed(_quorum, lower_by_one),
    "catalog-rows": _made("catalog-rows"),
    **{model: _repeated(_made(model)) for model in ("change-feed", "snapshot-reads")},
    "kv-append": _repeated(_made("kv-append", per_key=1_000)),
    "catalog": _made("catalog", most=2_000_000),
    "stats": Kind(lambda n, share: _registers(n), refuted=False),
}
"""By model, of which `logs` has none: it judges what nodes wrote, no history."""

"""What a history says of its clients: counts by phase, `f` and type, times of a load; read in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import ELSEWHERE, UserError
from harness.history.ops import Op
from harness.history.saved import open_saved
from harness.history.table import batches, pairs

_COLUMNS = ["process", "phase", "f", "type", "invoke_time", "node", "error_class"]
_COLUMNS += ["mops.list.element.table", "mops.list.element.partition"]


class HistorySummary(msgspec.Struct):
    """`counts[phase][f][type]` of client operations; `ends_ns[phase]` is the phase's last invocation; `keys[phase]` has
    how often each key (table, partition) was asked for, and how often it answered; `nodes[phase]` the same of each node
    that is named, where a refusal because others serve (`ELSEWHERE`) is an answer."""

    counts: dict[str, dict[str, dict[str, int]]] = {}
    ends_ns: dict[str, int] = {}
    keys: dict[str, dict[tuple[int, int], tuple[int, int]]] = {}
    nodes: dict[str, dict[str, tuple[int, int]]] = {}

    def of_phase(self, phase: str) -> dict[str, dict[str, int]]:
        """Counts by `f` and type."""
        return self.counts.get(phase, {})

    def types_of_phase(self, phase: str) -> dict[str, int]:
        """Counts by type, over all `f`."""
        totals: dict[str, int] = {}
        for by_type in self.of_phase(phase).values():
            for type, count in by_type.items():
                totals[type] = totals.get(type, 0) + count
        return totals

    def keys_of_phase(self, phase: str, often: int) -> tuple[int, int] | None:
        """How many keys were asked for at least so often, and how many of them answered; None if none was."""
        keys = self.keys.get(phase)
        if not keys:
            return None
        asked = [answered for count, answered in keys.values() if count >= often]
        return len(asked), sum(answered > 0 for answered in asked)

    def answered_again(self, first: str, then: str) -> tuple[int, int]:
        """How many keys answered in one phase, and how many of them in a later one too."""
        answered = [key for key, (_, count) in self.keys.get(first, {}).items() if count]
        later = self.keys.get(then, {})
        return len(answered), sum(later.get(key, (0, 0))[1] > 0 for key in answered)

    def groups_of_phase(self, phase: str, groups: int) -> tuple[int, int] | None:
        """How many groups the keys are spread over (see `harness.protocols.Sharded`), and how many of them answered."""
        keys = self.keys.get(phase)
        if not keys:
            return None
        return groups, len({partition % groups for (_, partition), (_, answered) in keys.items() if answered})

    def add_key(self, phase: str, key: tuple[int, int], asked: int, answered: int) -> None:
        keys = self.keys.setdefault(phase, {})
        before = keys.get(key, (0, 0))
        keys[key] = (before[0] + asked, before[1] + answered)

    def add_node(self, phase: str, node: str, asked: int, answered: int) -> None:
        nodes = self.nodes.setdefault(phase, {})
        before = nodes.get(node, (0, 0))
        nodes[node] = (before[0] + asked, before[1] + answered)

    def add(self, phase: str, f: str, type: str, count: int, last_ns: int) -> None:
        by_type = self.counts.setdefault(phase, {}).setdefault(f, {})
        by_type[type] = by_type.get(type, 0) + count
        self.ends_ns[phase] = max(self.ends_ns.get(phase, 0), last_ns)


def summarise_events(events: Iterable[Op]) -> HistorySummary:
    """The summary of a history given as events."""
    summary = HistorySummary()
    for invocation, completion in pairs(events):
        if invocation.process >= 0:
            type = completion.type if completion else "info"
            summary.add(invocation.phase or "", invocation.f, type, 1, invocation.time)
            for key in dict.fromkeys((mop.table, mop.partition) for mop in invocation.mops or ()):
                summary.add_key(invocation.phase or "", key, 1, int(type == "ok"))
            last = completion or invocation
            if last.node is not None:
                answered = type == "ok" or last.error_class == ELSEWHERE
                summary.add_node(invocation.phase or "", last.node, 1, int(answered))
    return summary


def summarise_parquet(path: Path) -> HistorySummary:
    """The summary of `history.parquet`; raises UserError if it can't be read."""
    summary = HistorySummary()
    try:
        for batch in open_saved(path).batches(_COLUMNS, texts=()):
            clients = batch.filter(pc.greater_equal(batch["process"], 0))
            groups = pa.Table.from_batches([clients]).group_by(["phase", "f", "type"])
            for row in groups.aggregate([([], "count_all"), ("invoke_time", "max")]).to_pylist():
                last_ns = row["invoke_time_max"]
                summary.add(row["phase"] or "", row["f"], row["type"], row["count_all"], last_ns)
            _add_keys(summary, clients)
            _add_nodes(summary, clients)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"The history {path} can't be read: {error}.") from error
    return summary


def _add_nodes(summary: HistorySummary, clients: pa.RecordBatch) -> None:
    elsewhere = pc.fill_null(pc.equal(clients["error_class"], ELSEWHERE), False)
    answered = pc.or_(pc.equal(clients["type"], "ok"), elsewhere).cast(pa.int64())
    table = pa.table({"phase": clients["phase"], "node": clients["node"], "answered": answered})
    named = table.filter(pc.is_valid(table["node"])).group_by(["phase", "node"])
    for row in named.aggregate([([], "count_all"), ("answered", "sum")]).to_pylist():
        summary.add_node(row["phase"] or "", row["node"], row["count_all"], row["answered_sum"])


def _add_keys(summary: HistorySummary, clients: pa.RecordBatch) -> None:
    mops, rows = pc.list_flatten(clients["mops"]), pc.list_parent_indices(clients["mops"])
    table = pa.table(
        {
            "row": rows,
            "table": pc.struct_field(mops, "table"),
            "partition": pc.struct_field(mops, "partition"),
            "phase": clients["phase"].take(rows),
            "ok": pc.equal(clients["type"], "ok").take(rows).cast(pa.int64()),
        }
    )
    once = table.group_by(["row", "phase", "table", "partition"]).aggregate([("ok", "max")])
    keys = once.group_by(["phase", "table", "partition"]).aggregate([([], "count_all"), ("ok_max", "sum")])
    for row in keys.to_pylist():
        key = (row["table"], row["partition"])
        summary.add_key(row["phase"] or "", key, row["count_all"], row["ok_max_sum"])


Times = npt.NDArray[np.int64]

_TIMES_COLUMNS = ["process", "phase", "type", "invoke_time", "complete_time", "mops.list.element.partition"]


@dataclass(frozen=True, slots=True)
class Served:
    """The client operations of a run's load: when each was invoked and completed (ns; one that never did: at the end),
    whether it succeeded, and the group of its key."""

    invoked_ns: Times
    completed_ns: Times
    ok: npt.NDArray[np.bool_]
    group: Times


def served_in_parquet(path: Path, phase: str, groups: int, end_ns: int) -> Served:
    """The client operations of a phase; those that never completed count as completed at `end_ns`. Raises UserError."""
    try:
        return _served(open_saved(path).batches(_TIMES_COLUMNS, texts=()), phase, groups, end_ns)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"The history {path} can't be read: {error}.") from error


def served_in_events(events: Iterable[Op], phase: str, groups: int, end_ns: int) -> Served:
    """The client operations of a phase, of a history given as events."""
    return _served(batches(events), phase, groups, end_ns)


def _served(found: Iterable[pa.RecordBatch], phase: str, groups: int, end_ns: int) -> Served:
    parts = [_part(batch, phase, groups, end_ns) for batch in found]
    if not parts:
        empty = np.zeros(0, dtype=np.int64)
        return Served(empty, empty, np.zeros(0, dtype=bool), empty)
    return Served(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _part(batch: pa.RecordBatch, phase: str, groups: int, end_ns: int) -> tuple[Times, Times, Times, Times]:
    wanted = pc.and_(pc.greater_equal(batch["process"], 0), pc.fill_null(pc.equal(batch["phase"], phase), False))
    rows = batch.filter(wanted)
    return (
        _numbers(rows["invoke_time"]),
        _numbers(pc.fill_null(rows["complete_time"], end_ns)),
        np.asarray(pc.equal(rows["type"], "ok").to_numpy(zero_copy_only=False), dtype=bool),
        _first_partition(rows["mops"]) % groups,
    )


def _numbers(column: pa.Array) -> Times:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def _first_partition(mops: pa.Array) -> Times:
    """The partition of each operation's first micro-operation, 0 for none."""
    lengths = _numbers(pc.fill_null(pc.list_value_length(mops), 0))
    flat = _numbers(pc.struct_field(pc.list_flatten(mops), "partition"))
    starts = np.cumsum(lengths) - lengths
    found = np.zeros(len(lengths), dtype=np.int64)
    found[lengths > 0] = flat[starts[lengths > 0]]
    return found

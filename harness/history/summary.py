"""Counts of a saved history: client operations by phase, `f` and type, read in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.errors import UserError
from harness.history.table import pairs
from harness.ops import Op


class Summary(msgspec.Struct):
    """`counts[phase][f][type]` of client operations; `ends_ns[phase]` is the phase's last invocation."""

    counts: dict[str, dict[str, dict[str, int]]] = {}
    ends_ns: dict[str, int] = {}

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

    def add(self, phase: str, f: str, type: str, count: int, last_ns: int) -> None:
        by_type = self.counts.setdefault(phase, {}).setdefault(f, {})
        by_type[type] = by_type.get(type, 0) + count
        self.ends_ns[phase] = max(self.ends_ns.get(phase, 0), last_ns)


def summarise_events(events: Iterable[Op]) -> Summary:
    """The summary of a history given as events."""
    summary = Summary()
    for invocation, completion in pairs(events):
        if invocation.process >= 0:
            type = completion.type if completion else "info"
            summary.add(invocation.phase or "", invocation.f, type, 1, invocation.time)
    return summary


def summarise_parquet(path: Path) -> Summary:
    """The summary of `history.parquet`; raises UserError if it can't be read."""
    summary = Summary()
    try:
        file = pq.ParquetFile(path)
        for batch in file.iter_batches(columns=["process", "phase", "f", "type", "invoke_time"]):
            clients = batch.filter(pc.greater_equal(batch["process"], 0))
            groups = pa.Table.from_batches([clients]).group_by(["phase", "f", "type"])
            for row in groups.aggregate([([], "count_all"), ("invoke_time", "max")]).to_pylist():
                last_ns = row["invoke_time_max"]
                summary.add(row["phase"] or "", row["f"], row["type"], row["count_all"], last_ns)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"The history {path} can't be read: {error}.") from error
    return summary

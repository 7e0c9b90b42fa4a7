"""What an engine does: hands groups of a history to kernels, and counts by columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from checkers.findings import Findings
from checkers.grouping import KeyedOps
from checkers.projection import Projection
from checkers.source import Source

KeyedKernel: TypeAlias = Callable[[KeyedOps], Findings]
"""Judges many keys at once; picklable, for workers call it too."""

Tally: TypeAlias = dict[tuple[str, str], int]
"""Client operations by (f, type)."""


class Engine(Protocol):
    """The same groups to the same kernels, in-process or through Spark."""

    @property
    def name(self) -> str: ...

    @property
    def skipped(self) -> list[str]:
        """Why some of a history was not judged, since the list was cleared; what was found holds without that."""

    def judge_keys(self, source: Source, projection: Projection, kernel: KeyedKernel, explain: int) -> Findings:
        """Every key's operations, sorted by invocation, through the kernel; the kernel's findings merged."""

    def tally(self, source: Source) -> Tally:
        """How many client operations there are by (f, type)."""

    def verify(self, source: Source) -> None:
        """Raise UserError unless what a source reads is a whole history (`checkers.integrity`)."""

    def located(self, source: Source) -> Source:
        """The source, which finds operations as the engine does."""

    def close(self) -> None:
        """Release what the engine holds; it starts again at its next use."""


TALLIED: Final = ("process", "f", "type")
"""The columns that `tally_of` reads."""


def tally_of(batch: pa.RecordBatch) -> Tally:
    """The tally of a batch."""
    table = pa.Table.from_batches([batch]).filter(pc.greater_equal(batch.column("process"), 0))
    rows = table.group_by(["f", "type"]).aggregate([([], "count_all")]).to_pylist()
    return {(str(row["f"]), str(row["type"])): row["count_all"] for row in rows}


def total_tally(tallies: list[Tally]) -> Tally:
    """Several tallies as one."""
    counts: Counter[tuple[str, str]] = Counter()
    for tally in tallies:
        counts.update(tally)
    return dict(counts)

"""The in-process engine: streams batches, keeps only the projected columns, sorts by key in linear time."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from checkers.engines.api import KeyedKernel, Tally
from checkers.findings import Findings, merged
from checkers.grouping import group
from checkers.projection import Projection, concatenated, flatten
from checkers.source import Source


class LocalEngine:
    """See `Engine`."""

    name = "local"

    def judge_keys(self, source: Source, projection: Projection, kernel: KeyedKernel, explain: int) -> Findings:
        columns = projection.columns(source.key_columns())
        parts = [flatten(batch, projection) for batch in source.batches(columns)]
        flat = concatenated(parts)
        parts.clear()
        return merged([kernel(group(flat))], explain)

    def tally(self, source: Source) -> Tally:
        counts: Counter[tuple[str, str]] = Counter()
        for batch in source.batches(["process", "f", "type"]):
            table = pa.Table.from_batches([batch]).filter(pc.greater_equal(batch.column("process"), 0))
            for row in table.group_by(["f", "type"]).aggregate([([], "count_all")]).to_pylist():
                counts[str(row["f"]), str(row["type"])] += row["count_all"]
        return dict(counts)

    def close(self) -> None:
        """Nothing is held."""

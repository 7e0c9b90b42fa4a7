"""The in-process engine: streams batches, keeps only the projected columns, sorts by key in linear time."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from checkers.engines.api import KeyedKernel, Tally
from checkers.findings import Findings, merged
from checkers.grouping import group, slices
from checkers.projection import Flat, Projection, concatenated, flatten
from checkers.source import Source

_ROWS_PER_CALL: Final = 1 << 18
"""A kernel call gets about so many operations (whole keys), which bounds what it needs besides the columns."""


class LocalEngine:
    """See `Engine`."""

    name = "local"

    def judge_keys(self, source: Source, projection: Projection, kernel: KeyedKernel, explain: int) -> Findings:
        keyed = group(_read(source, projection))
        return merged([kernel(part) for part in slices(keyed, _ROWS_PER_CALL)], explain)

    def tally(self, source: Source) -> Tally:
        counts: Counter[tuple[str, str]] = Counter()
        for batch in source.batches(["process", "f", "type"]):
            table = pa.Table.from_batches([batch]).filter(pc.greater_equal(batch.column("process"), 0))
            for row in table.group_by(["f", "type"]).aggregate([([], "count_all")]).to_pylist():
                counts[str(row["f"]), str(row["type"])] += row["count_all"]
        return dict(counts)

    def close(self) -> None:
        """Nothing is held."""


def _read(source: Source, projection: Projection) -> Flat:
    """The projected columns; batches are given back as they are joined."""
    columns = projection.columns(source.key_columns())
    return concatenated([flatten(batch, projection) for batch in source.batches(columns)])

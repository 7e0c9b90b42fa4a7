"""The in-process engine: streams batches, keeps only the projected columns, sorts by key in linear time."""

from __future__ import annotations

from typing import Final

from checkers.columns.grouping import group, slices
from checkers.columns.projection import Flat, Projection, concatenated, flatten
from checkers.engines.api import TALLIED, KeyedKernel, R, Tally, Work, tally_of, total_tally
from checkers.findings import Findings, merged
from checkers.importers.integrity import verify_here
from checkers.source import Source

_ROWS_PER_CALL: Final = 1 << 18
"""A kernel call gets about so many operations (whole keys), which bounds what it needs besides the columns."""


class LocalEngine:
    """See `Engine`."""

    name = "local"

    def __init__(self) -> None:
        self.skipped: list[str] = []

    def run(self, work: Work[R]) -> R:
        return work.here()

    def parts(self, rows: int, rows_each: int, each_core: int = 1) -> int:
        return 1

    def judge_keys(self, source: Source, projection: Projection, kernel: KeyedKernel, explain: int) -> Findings:
        keyed = group(_read(source, projection))
        return merged([kernel(part) for part in slices(keyed, _ROWS_PER_CALL)], explain)

    def tally(self, source: Source) -> Tally:
        return total_tally([tally_of(batch) for batch in source.batches(TALLIED)])

    def verify(self, source: Source) -> None:
        if source.saved is not None:
            verify_here(source)

    def located(self, source: Source) -> Source:
        return source

    def close(self) -> None:
        """Nothing is held."""


def _read(source: Source, projection: Projection) -> Flat:
    """The projected columns; batches are given back as they are joined."""
    columns = projection.columns(source.key_columns())
    return concatenated([flatten(batch, projection) for batch in source.batches(columns)])

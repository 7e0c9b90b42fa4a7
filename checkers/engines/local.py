"""The in-process engine: streams batches, keeps only the projected columns, sorts by key in linear time.

Where there is enough to do it works on all cores that it may use: row groups are read and flattened, and slices of keys
are judged, by as many threads (`docs/checking.md`, "Engines"). What each finds is put together in the order of the
history, so that the verdict does not hang on how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Final, TypeVar

import pyarrow as pa

from checkers.columns.projection import Flat, KeyedOps, Projection, concatenated, flatten, group, slices
from checkers.engines.api import TALLIED, KeyedKernel, R, Tally, Work, tally_of, total_tally
from checkers.findings import Findings, merged
from checkers.importers.integrity import verify_here
from checkers.source import Source
from harness.history.cores import in_order, usable_cores

P = TypeVar("P")

_ROWS_PER_CALL: Final = 1 << 17
"""Operations in a kernel call, about (whole keys), which bounds what it needs besides the columns."""

_LEAST_JUDGED: Final = 1 << 18
_SHARE_JUDGED: Final = 4
"""Operations that are judged at once, or of a longer history this share of all; one key may have more, and then it is
judged alone."""

_FEW_ROWS: Final = 1 << 17
"""Operations for which no threads are begun: they would cost more than they save."""


class LocalEngine:
    """Judges in this process, on `cores` (None: all that it may use); see `Engine`."""

    name = "local"

    def __init__(self, cores: int | None = None) -> None:
        self.skipped: list[str] = []
        self._asked = cores

    def run(self, work: Work[R]) -> R:
        return work.here(self)

    @cached_property
    def _cores(self) -> int:
        return self._asked or usable_cores()

    def threads(self, rows: int) -> int:
        """How many threads work on that many operations."""
        return self._cores if rows > _FEW_ROWS else 1

    def mapped(self, source: Source, columns: Sequence[str], work: Callable[[pa.RecordBatch], P]) -> Iterator[P]:
        """What `work` makes of each batch of a history, in order, on all cores."""
        return source.mapped(columns, work, self.threads(source.rows))

    def parts(self, rows: int, rows_each: int, each_core: int = 1) -> int:
        return 1

    def judge_keys(self, source: Source, projection: Projection, kernel: KeyedKernel, explain: int) -> Findings:
        return self.judge_grouped(group(self._read(source, projection), self.threads(source.rows)), kernel, explain)

    def judge_grouped(self, keyed: KeyedOps, kernel: KeyedKernel, explain: int) -> Findings:
        """What the kernel finds in operations that are loaded and grouped, merged; on all cores."""
        rows = len(keyed.columns.kind)
        most = max(_LEAST_JUDGED, rows // _SHARE_JUDGED)
        threads = min(self.threads(rows), most // _ROWS_PER_CALL)

        def wide(part: KeyedOps) -> bool:
            return len(part.columns.kind) > most // threads

        return merged(in_order(kernel, slices(keyed, _ROWS_PER_CALL), threads, alone=wide), explain)

    def _read(self, source: Source, projection: Projection) -> Flat:
        """The projected columns; batches are given back as they are joined."""
        columns = projection.columns(source.key_columns())
        return concatenated(list(self.mapped(source, columns, partial(flatten, projection=projection))))

    def tally(self, source: Source) -> Tally:
        return total_tally(list(self.mapped(source, TALLIED, tally_of)))

    def verify(self, source: Source) -> None:
        if source.saved is not None:
            verify_here(source)

    def located(self, source: Source) -> Source:
        return source

    def close(self) -> None:
        """Nothing is held."""

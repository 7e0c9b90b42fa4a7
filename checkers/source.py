"""Where a history comes from: a saved one that is streamed, or a table in memory that an importer made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from harness.history.address import Place
from harness.history.breadth import Breadth, breadth_of_rows
from harness.history.columns import FOREIGN_BASE, SCHEMA
from harness.history.cores import in_order
from harness.history.saved import ADDRESS_COLUMNS, BATCH_ROWS, HistoryReader

R = TypeVar("R")

FailedCas: TypeAlias = Literal["observed", "absent"]
"""What a failed compare-and-set says: it completed and found another value, or it never took place."""

Located: TypeAlias = Callable[[Any, list[str]], list[pa.Table]]
"""The operations with some invocation indices (a sorted array), with the given columns as far as there are any."""

KEY_COLUMNS: Final = ADDRESS_COLUMNS

NO_CLOCK: Final = "none"
"""`clock` of operations whose history states no times, but the order of their events."""

SESSIONS_CLOCK: Final = "sessions"
"""`clock` of operations of whose order a history states no more than what each session did after what."""

EVIDENCE_COLUMNS: Final = (
    *("op", "invoke_index", "complete_index", "invoke_time", "complete_time", "type", "process", "f", "mops"),
    *("node", "clock", "error_class", "value"),
)


@dataclass(frozen=True, slots=True)
class Interned:
    """Picklable: the foreign values of a history, as text; those of a saved one each process reads by itself."""

    saved: HistoryReader | None = None
    held: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """All of them, by the place that stands in the history."""
        return self.held if self.saved is None else self.saved.dictionary


@dataclass(frozen=True, slots=True)
class Source:
    """A history to be judged: `path` as the user named it; what `saved` reads, or else `table`.

    `failed_cas` is what its format says of failed compare-and-sets; `note` a sentence for the verdict. `cut_short` says
    in a sentence that the history is not all of its run: it can refute the run but never make it valid. `independent`
    says that partitions are keys of independent objects and rows what is within them (tuples of `jepsen.independent`
    around transactions or maps). `strings` says of each value of the dictionary whether it was a string, where the
    format says so. `holder` keeps a temporary file alive. `located` is how an engine finds operations, if it does so
    better than this process. `initial` is what its registers begin as (None: unset), where a model asks for it.
    """

    path: Place
    format: str
    rows: int
    saved: HistoryReader | None = None
    table: pa.Table | None = None
    failed_cas: FailedCas = "absent"
    dictionary: tuple[str, ...] = ()
    strings: tuple[bool, ...] = ()
    note: str | None = None
    cut_short: str | None = None
    independent: bool = False
    holder: Any = None
    located: Located | None = None
    initial: int | None = None

    @property
    def real_time(self) -> bool:
        """Whether the order of events is one in real time. Where it is not, operations of several sessions stand in any
        order, and only the order within each session means something."""
        first = next(self.batches(["clock"]), None)
        return first is None or not first.num_rows or first.column("clock")[0].as_py() != SESSIONS_CLOCK

    @property
    def interned(self) -> Interned:
        """The dictionary, for workers."""
        return Interned(None, self.dictionary) if self.saved is None else Interned(self.saved.absolute())

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The history in order of invocation, with (at least) the given Parquet columns."""
        if self.table is not None:
            yield from self.table.select(top_level(columns)).to_batches(max_chunksize=BATCH_ROWS)
            return
        assert self.saved is not None
        yield from self.saved.batches(columns)

    def mapped(self, columns: Sequence[str], work: Callable[[pa.RecordBatch], R], threads: int) -> Iterator[R]:
        """What `work` makes of each batch of `batches`, in order; done by that many threads at once."""
        if self.saved is not None and threads > 1:
            return self.saved.mapped(columns, work, threads)
        return in_order(work, self.batches(columns), threads, ahead=2 * threads)

    def require_whole(self) -> None:
        """Raise UserError if the Parquet file can't be read to its end, which may be what a checker died of."""
        for _ in self.batches(SCHEMA.names):
            pass

    @property
    def breadth(self) -> Breadth:
        """How much there is to read and to judge."""
        if self.table is not None:
            return breadth_of_rows(self.table)
        assert self.saved is not None
        return self.saved.breadth()

    def key_columns(self) -> tuple[str, ...]:
        """The parts of cells' addresses that can differ from zero, as far as is known; the partition always."""
        return KEY_COLUMNS if self.saved is None else self.saved.manifest.varies

    def states(self, names: Sequence[str]) -> bool:
        """Whether any operation may state one of some `LATER_COLUMNS`."""
        if self.table is not None:
            return any(self.table.column(name).null_count < self.rows for name in names)
        assert self.saved is not None
        return not set(names).isdisjoint(self.saved.manifest.states)

    def operations(self, indices: Sequence[int], extra: Sequence[str] = ()) -> dict[int, dict[str, Any]]:
        """The rows of the operations with the given invocation indices, by index; with `extra` columns beside
        EVIDENCE_COLUMNS."""
        wanted = np.array(sorted({index for index in indices if index >= 0}), np.int64)
        if not len(wanted):
            return {}
        columns = [*EVIDENCE_COLUMNS, *extra]
        tables = self.located(wanted, columns) if self.located is not None else self._located(wanted, columns)
        return {row["invoke_index"]: row for table in tables for row in table.to_pylist()}

    def _located(self, wanted: Any, columns: list[str]) -> list[pa.Table]:
        if self.table is not None:
            kept = [name for name in columns if name in self.table.column_names]
            return [chosen(self.table.select(kept), wanted)]
        assert self.saved is not None
        groups = list(self.saved.groups_with(wanted))
        return [table for group in groups for table in rows_with(self.saved, range(group, group + 1), wanted, columns)]

    def shown_key(self, key: Sequence[int]) -> Any:
        """An address as verdicts have it: the partition alone where the rest is zero, foreign parts as text."""
        table, partition, row, column = (self._part_shown(part) for part in key)
        if self.independent:
            return [partition, row]
        return partition if (table, row, column) == (0, 0, 0) else [table, partition, row, column]

    def _part_shown(self, value: int) -> Any:
        return self.shown(value) if 0 <= FOREIGN_BASE - 1 - value < len(self.dictionary) else value

    def shown(self, value: int | None) -> str:
        """A value or key as the history wrote it: foreign ones from the dictionary, `nil` for None."""
        if value is None:
            return "nil"
        place = FOREIGN_BASE - 1 - value
        return self.dictionary[place] if 0 <= place < len(self.dictionary) else str(value)


def rows_with(reader: HistoryReader, groups: range, wanted: Any, columns: list[str]) -> Iterator[pa.Table]:
    """The operations of some row groups that have one of some invocation indices."""
    for batch in reader.batches(columns, groups):
        yield chosen(pa.Table.from_batches([batch]).select(columns), wanted)


def chosen(rows: pa.Table, wanted: Any) -> pa.Table:
    """The rows of operations with one of some invocation indices, which are in order."""
    invoke = rows.column("invoke_index").to_numpy()
    place = np.searchsorted(wanted, invoke)
    held = place < len(wanted)
    held[held] = wanted[place[held]] == invoke[held]
    return rows.filter(pa.array(held))


def top_level(columns: Sequence[str]) -> list[str]:
    """The history's columns that these are, or are parts of."""
    return list(dict.fromkeys(column.split(".", 1)[0] for column in columns))

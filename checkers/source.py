"""Where a history comes from: a saved one that is streamed, or a table in memory that an importer made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import shortened
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

AGAINST_ORDER: Final = "contradicts the order of events"
"""`clock` of operations that are evidence, and whose times say another order than their events."""

EVIDENCE_COLUMNS: Final = (
    *("op", "invoke_index", "complete_index", "invoke_time", "complete_time", "type", "process", "f", "mops"),
    *("node", "clock", "error_class", "error", "value"),
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
    `stated` is the field of operations that `served_ts` was read from, where that was another than this; `versions` the
    column of integers that orders the versions of registers, where a model is told so.
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
    stated: str | None = None
    versions: str | None = None

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
        """Whether any operation may state one of some columns that are null in most histories (`LATER_COLUMNS`)."""
        if self.table is not None:
            return any(self.table.column(name).null_count < self.rows for name in names)
        assert self.saved is not None
        return not set(names).isdisjoint(self.saved.manifest.states)

    def operations(self, indices: Sequence[int], extra: Sequence[str] = ()) -> dict[int, dict[str, Any]]:
        """The rows of the operations with the given invocation indices, by index; with `extra` columns beside
        EVIDENCE_COLUMNS. Where their times contradict the order of their events, these have no clock to be told by."""
        wanted = np.array(sorted({index for index in indices if index >= 0}), np.int64)
        if not len(wanted):
            return {}
        columns = [*EVIDENCE_COLUMNS, *extra]
        tables = self.located(wanted, columns) if self.located is not None else self._located(wanted, columns)
        rows = {row["invoke_index"]: row for table in tables for row in table.to_pylist()}
        if times_against_order(tables) is not None:
            for row in rows.values():
                row["clock"] = AGAINST_ORDER
        return rows

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
        """A value or key as the history wrote it: foreign ones from the dictionary (`shortened`), `nil` for None."""
        if value is None:
            return "nil"
        place = FOREIGN_BASE - 1 - value
        return shortened(self.dictionary[place]) if 0 <= place < len(self.dictionary) else str(value)


def times_against_order(tables: Sequence[pa.Table | pa.RecordBatch]) -> str | None:
    """What is wrong with a history in which the times of events contradict their order, in a sentence; None if nothing.

    The order is what is judged, so that verdicts hold; whoever wrote the history has to say which of both is right.
    """
    if not tables:
        return None
    index, time_ns = map(np.concatenate, zip(*map(_events, tables), strict=True))
    order = np.argsort(index, kind="stable")
    index, time_ns = index[order], time_ns[order]
    back = np.flatnonzero(time_ns[1:] < time_ns[:-1])
    if not len(back):
        return None
    before, after = (f"event {index[i]} ({in_seconds(int(time_ns[i]))})" for i in (back[0], back[0] + 1))
    times = "once" if len(back) == 1 else f"{len(back):,} times"
    return (
        f"The times of this history go back {times} against the order of its events: {after} comes after {before}. "
        "It was judged by that order; if the times are right, its events have to be sorted by them first."
    )


def _events(table: pa.Table | pa.RecordBatch) -> tuple[Any, Any]:
    """Numbers and times (ns) of the events of operations that have a time."""
    clocked = pc.not_equal(pc.fill_null(table.column("clock").cast(pa.string()), ""), NO_CLOCK)
    told: list[list[Any]] = [[], []]
    for edge in ("invoke", "complete"):
        columns = [table.column(f"{edge}_{what}") for what in ("index", "time")]
        kept = pc.and_(clocked, pc.and_(*(column.is_valid() for column in columns)))
        for found, column in zip(told, columns, strict=True):
            found.append(column.filter(kept).to_numpy(zero_copy_only=False))
    return np.concatenate(told[0]), np.concatenate(told[1])


def in_seconds(time_ns: int) -> str:
    """`12.031 s`, and what is short of 10 ms whole."""
    if time_ns >= 10_000_000:
        return f"{time_ns / 1e9:.3f} s"
    return f"{time_ns / 1e9:.9f}".rstrip("0").rstrip(".") + " s"


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

"""Where a history comes from: a Parquet file that is streamed, or a table in memory that an importer made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.columns import DICTIONARY_KEY, FOREIGN_BASE, LATER_COLUMNS, SCHEMA
from harness.errors import UserError

FailedCas: TypeAlias = Literal["observed", "absent"]
"""What a failed compare-and-set says: it completed and found another value, or it never took place."""

KEY_COLUMNS: Final = ("table", "partition", "row", "column")
"""What addresses a cell."""

NO_CLOCK: Final = "none"
"""`clock` of operations whose history states no times."""

EVIDENCE_COLUMNS: Final = (
    *("op", "invoke_index", "complete_index", "invoke_time", "complete_time", "type", "process", "f", "mops"),
    *("node", "clock", "error_class", "value"),
)

_BATCH_ROWS: Final = 1 << 17

_DICTIONARY_COLUMNS: Final = ["type", "f", "error_class"]


@dataclass(frozen=True, slots=True)
class Source:
    """A history to be judged: `path` as the user named it; its table is in `parquet` on disk or else in `table`.

    `failed_cas` is what its format says of failed compare-and-sets; `note` a sentence for the verdict. `cut_short` says
    in a sentence that the history is not all of its run: it can refute the run but never make it valid. `independent`
    says that partitions are keys of independent objects and rows what is within them (tuples of `jepsen.independent`
    around transactions or maps). `strings` says of each value of the dictionary whether it was a string, where the
    format says so. `holder` keeps a temporary file alive.
    """

    path: Path
    format: str
    rows: int
    parquet: Path | None = None
    table: pa.Table | None = None
    failed_cas: FailedCas = "absent"
    dictionary: tuple[str, ...] = ()
    strings: tuple[bool, ...] = ()
    note: str | None = None
    cut_short: str | None = None
    independent: bool = False
    holder: Any = None

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The history in order of invocation, with (at least) the given Parquet columns."""
        if self.table is not None:
            yield from self.table.select(_top_level(columns)).to_batches(max_chunksize=_BATCH_ROWS)
            return
        assert self.parquet is not None
        try:
            with opened_parquet(self.parquet, [c for c in _DICTIONARY_COLUMNS if c in columns]) as file:
                lacking = LATER_COLUMNS.intersection(columns).difference(file.schema_arrow.names)
                for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=list(columns)):
                    yield with_nulls(batch, lacking) if lacking else batch
        except (OSError, pa.ArrowException) as error:
            raise damaged(self.path, error) from error

    def any_succeeded(self) -> bool:
        """Whether any operation of a client succeeded; reads no further than the first."""
        for batch in self.batches(("type", "process")):
            succeeded = pc.equal(batch.column("type").cast(pa.string()), "ok")
            if pc.any(pc.and_(succeeded, pc.greater_equal(batch.column("process"), 0))).as_py():
                return True
        return False

    def require_whole(self) -> None:
        """Raise UserError if the Parquet file can't be read to its end, which may be what a checker died of."""
        for _ in self.batches(SCHEMA.names):
            pass

    def key_columns(self) -> tuple[str, ...]:
        """The parts of cells' addresses that can differ from zero, by the file's statistics; the partition always."""
        if self.parquet is None:
            return KEY_COLUMNS
        metadata = pq.read_metadata(self.parquet)
        varies = {"partition"}
        for group in range(metadata.num_row_groups):
            for place in range(metadata.num_columns):
                column = metadata.row_group(group).column(place)
                name = column.path_in_schema.rsplit(".", 1)[-1]
                known = column.is_stats_set and column.statistics.has_min_max
                if name in KEY_COLUMNS and not (known and column.statistics.min == column.statistics.max == 0):
                    varies.add(name)
        return tuple(name for name in KEY_COLUMNS if name in varies)

    def operations(self, indices: Sequence[int], extra: Sequence[str] = ()) -> dict[int, dict[str, Any]]:
        """The rows of the operations with the given invocation indices, by index; with `extra` columns beside
        EVIDENCE_COLUMNS."""
        wanted = pa.array(sorted({index for index in indices if index >= 0}), pa.int64())
        if not len(wanted):
            return {}
        columns = [*EVIDENCE_COLUMNS, *extra]
        tables = [self.table] if self.table is not None else self._row_groups(wanted, columns)
        found: dict[int, dict[str, Any]] = {}
        for table in tables:
            rows = table.select([name for name in columns if name in table.column_names])
            mask = pc.is_in(rows.column("invoke_index"), value_set=wanted)
            found |= {row["invoke_index"]: row for row in rows.filter(mask).to_pylist()}
        return found

    def _row_groups(self, wanted: pa.Array, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The row groups whose range of invocation indices holds a wanted one."""
        ids = wanted.to_pylist()
        assert self.parquet is not None
        try:
            with opened_parquet(self.parquet) as file:
                place = file.schema_arrow.names.index("invoke_index")
                for group in range(file.metadata.num_row_groups):
                    statistics = file.metadata.row_group(group).column(place).statistics
                    known = statistics is not None and statistics.has_min_max
                    if not known or any(statistics.min <= index <= statistics.max for index in ids):
                        yield file.read_row_group(group, columns=list(columns))
        except (OSError, pa.ArrowException) as error:
            raise damaged(self.path, error) from error

    def told_key(self, key: tuple[int, int, int, int]) -> Any:
        """An address as verdicts have it: the partition alone where the rest is zero, foreign parts as text."""
        table, partition, row, column = (self._told(part) for part in key)
        if self.independent:
            return [partition, row]
        return partition if (table, row, column) == (0, 0, 0) else [table, partition, row, column]

    def _told(self, value: int) -> Any:
        return self.shown(value) if 0 <= FOREIGN_BASE - 1 - value < len(self.dictionary) else value

    def shown(self, value: int | None) -> str:
        """A value or key as the history wrote it: foreign ones from the dictionary, `nil` for None."""
        if value is None:
            return "nil"
        place = FOREIGN_BASE - 1 - value
        return self.dictionary[place] if 0 <= place < len(self.dictionary) else str(value)


def with_nulls(batch: pa.RecordBatch, lacking: Iterable[str]) -> pa.RecordBatch:
    """The batch with columns of the schema that its file was written without."""
    for name in sorted(lacking):
        field = SCHEMA.field(name)
        batch = batch.append_column(field, pa.nulls(batch.num_rows, field.type))
    return batch


def opened_parquet(path: Path, dictionary_columns: Sequence[str] = ()) -> pq.ParquetFile:
    """A Parquet file whose pages are compared with their checksums as they are read."""
    return pq.ParquetFile(path, read_dictionary=list(dictionary_columns), page_checksum_verification=True)


def damaged(path: Path, error: BaseException) -> UserError:
    """The sentence on a Parquet file that can't be read to its end."""
    reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
    return UserError(f"{path} is damaged: it can't be read to its end as Parquet ({reason}).")


def _top_level(columns: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(column.split(".", 1)[0] for column in columns))


def dictionary_of(schema: pa.Schema) -> tuple[str, ...]:
    """The interned foreign values that a schema's metadata carries, as text."""
    raw = (schema.metadata or {}).get(DICTIONARY_KEY, b"[]")
    values = msgspec.json.decode(raw)
    return tuple(v if isinstance(v, str) else msgspec.json.encode(v).decode() for v in values)

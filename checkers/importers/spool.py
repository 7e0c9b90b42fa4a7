"""Collects the rows of a history that is read block by block, and hands them over in order of invocation.

Nearly all rows come in that order. Those of operations that were still open at the end of their block come late; they
are kept apart and put in their places at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from harness.atomic_write import no_scratch, scratch_folder
from harness.history.columns import SCHEMA
from harness.history.parts import ROWS_PER_GROUP, parquet_writer

_NOTHING = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in SCHEMA], schema=SCHEMA)


class Spool:
    """Holds rows in memory, or on disk where there will be many; raises UnwritableError where nothing can be kept."""

    def __init__(self, on_disk: bool) -> None:
        self._folder = scratch_folder("import") if on_disk else None
        self._batches: list[pa.RecordBatch] = []
        self._firsts: list[int] = []
        self._late: list[pa.RecordBatch] = []
        self._writer: Any = None
        self.rows = 0

    @property
    def on_disk(self) -> bool:
        """Whether the rows are on disk."""
        return self._folder is not None

    def add(self, batch: pa.RecordBatch, late: int) -> None:
        """Take a batch, of which so many rows at its beginning are late."""
        self.rows += batch.num_rows
        if late:
            self._late.append(batch.take(pa.array(range(late))))  # A slice would keep the whole batch alive.
        batch = batch.slice(late)
        if not batch.num_rows:
            return
        self._firsts.append(batch.column("invoke_index")[0].as_py())
        if self._folder is None:
            self._batches.append(batch)
            return
        try:
            if self._writer is None:
                self._writer = pa.ipc.new_file(str(Path(self._folder.name) / "rows.arrow"), SCHEMA)
            self._writer.write_batch(batch)
        except OSError as error:
            raise no_scratch(error) from error

    def table(self, schema: pa.Schema) -> pa.Table:
        """All rows, in memory."""
        return pa.Table.from_batches([batch.cast(schema) for batch in self._ordered()], schema=schema)

    def parquet(self, schema: pa.Schema) -> tuple[Path, Any]:
        """All rows as a Parquet file, which lives as long as what is handed back with its path."""
        assert self._folder is not None
        path = Path(self._folder.name) / "history.parquet"
        try:
            with parquet_writer(path, schema) as writer:
                for batch in self._ordered():
                    writer.write_batch(batch.cast(schema), row_group_size=ROWS_PER_GROUP)
        except OSError as error:
            raise no_scratch(error) from error
        (path.parent / "rows.arrow").unlink(missing_ok=True)
        return path, self._folder

    def _spooled(self) -> Iterator[pa.RecordBatch]:
        if self._writer is None:
            yield from self._batches
            return
        assert self._folder is not None
        self._writer.close()
        with pa.memory_map(str(Path(self._folder.name) / "rows.arrow")) as file:
            reader = pa.ipc.open_file(file)
            for place in range(reader.num_record_batches):
                yield reader.get_batch(place)

    def _ordered(self) -> Iterator[pa.RecordBatch]:
        late = pa.Table.from_batches(self._late, schema=SCHEMA).sort_by("invoke_index").combine_chunks()
        index = late.column("invoke_index").to_numpy()
        bounds = [0, *np.searchsorted(index, self._firsts[1:]).tolist(), len(index)]
        done = 0
        for place, batch in enumerate(self._spooled() if self._firsts else [_NOTHING]):
            batch = _inserted(batch, late.slice(bounds[place], bounds[place + 1] - bounds[place]))
            yield batch.set_column(0, SCHEMA.field(0), pa.array(np.arange(done, done + batch.num_rows)))
            done += batch.num_rows


def _inserted(batch: pa.RecordBatch, late: pa.Table) -> pa.RecordBatch:
    """The batch with late rows in their places; both are in order of invocation."""
    if not late.num_rows:
        return batch
    (rows,) = late.combine_chunks().to_batches()
    places = np.searchsorted(batch.column("invoke_index"), rows.column("invoke_index"))
    cuts, firsts = np.unique(places, return_index=True)
    parts = [batch.slice(0, int(cuts[0]))]
    for i, (cut, first) in enumerate(zip(cuts.tolist(), firsts.tolist(), strict=True)):
        last = int(firsts[i + 1]) if i + 1 < len(firsts) else len(places)
        end = int(cuts[i + 1]) if i + 1 < len(cuts) else batch.num_rows
        parts += [rows.slice(first, last - first), batch.slice(cut, end - cut)]
    return pa.concat_batches(parts)

"""Jepsen histories as EDN, JSON or log lines, turned into our table block by block.

A spool collects the rows and hands them over in order of invocation. Nearly all come in that order; those of operations
that were still open at the end of their block come late, and are put in their places at the end.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from checkers.importers.blocks import BLOCK_BYTES, BlockReader, Data
from checkers.importers.operations import BlockOperations, Meaning, make_rows, understand
from checkers.importers.pairing import ITSELF, PairingState, find_operations, pair
from checkers.importers.tape import EDN_CLASSES, skip_blanks
from checkers.source import FailedCas, Source
from harness.atomic_write import no_scratch, scratch_file, scratch_folder
from harness.errors import UserError
from harness.history.columns import DICTIONARY_KEY, SCHEMA, SCHEMA_VERSION, VERSION_KEY
from harness.history.parts import ROWS_PER_GROUP, parquet_writer
from harness.history.saved import open_saved

IN_MEMORY_BYTES: Final = 64 << 20
"""Longer texts become Parquet on disk."""

_ALONE: Final = "The history has completions alone, so its operations were all taken as concurrent."

_LOG_LINE: Final = re.compile(rb".*?jepsen\.util\s+-\s+(\S+)[ \t]+:(invoke|ok|fail|info)[ \t]+:(\S+)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ReadingPlan:
    """How a text is read: that many bytes at a time (None: as a whole), spooled to disk or not; `keyed` says whether
    values are pairs of independent keys (None: found out). `alone`: each event is an operation, whose invocation the
    text does not have. `stated` is a field of events that is read as `served_ts` (`Source.stated`)."""

    block_bytes: int | None = BLOCK_BYTES
    on_disk: bool = False
    keyed: bool | None = None
    alone: bool = False
    stated: str | None = None

    @staticmethod
    def first(data: Data, alone: bool = False, stated: str | None = None) -> ReadingPlan:
        """How a text is tried first: a long one is spooled to disk."""
        return ReadingPlan(on_disk=len(data) > IN_MEMORY_BYTES, alone=alone, stated=stated)


@dataclass(frozen=True, slots=True)
class Text:
    """What is read, and what its format says of failed compare-and-sets."""

    path: Path
    format: str
    data: Data
    failed_cas: FailedCas = "absent"


def open_edn(path: Path, data: Data, plan: ReadingPlan | None = None) -> Source:
    """A Jepsen history as EDN: operations as maps, in one list or one after the other."""
    return _source(Text(path, "edn", data), plan)


def open_json(path: Path, data: Data, plan: ReadingPlan | None = None) -> Source:
    """A Jepsen history as a JSON array of objects."""
    return _source(Text(path, "json", data), plan)


def open_jepsen_log(path: Path, data: Data, plan: ReadingPlan | None = None) -> Source:
    """The lines `jepsen.util - PROCESS :TYPE :F VALUE` of a log; a failed compare-and-set found another value."""
    if data[-1:] not in (b"", b"\n"):
        line = data[:].count(b"\n") + 1
        raise UserError(f"{path}, line {line}: the last line has no end, so the log is truncated.")
    events = b"".join(_logged(data)) if len(data) <= IN_MEMORY_BYTES else on_disk(_logged(data))
    if skip_blanks(np.frombuffer(events, np.uint8), 0, EDN_CLASSES) == len(events):
        raise UserError(f"{path} is no log of operations: no line reads `jepsen.util - PROCESS :TYPE :F VALUE`.")
    return _source(Text(path, "jepsen-log", events, "observed"), plan)


def _logged(data: Data) -> Iterator[bytes]:
    """The events of a log as EDN, each on the line that it has there."""
    begin = 0
    while begin < len(data):
        chunk = data[begin : begin + BLOCK_BYTES]
        end = chunk.rfind(b"\n") + 1 or data.find(b"\n", begin) + 1 - begin
        found = map(_LOG_LINE.match, data[begin : begin + end].split(b"\n")[:-1])
        yield b"".join(_log_event(line) if line else b"\n" for line in found)
        begin += end


def _log_event(found: re.Match[bytes]) -> bytes:
    process, kind, f, value = found.groups()
    return b"{:process %s :type :%s :f :%s :value %s}\n" % (process, kind, f, value.strip() or b"nil")


def on_disk(pieces: Iterator[bytes]) -> Data:
    """A text on disk, which lives as long as it is used; raises UnwritableError where nothing can be kept."""
    try:
        with scratch_file() as file:
            file.writelines(pieces)
            file.flush()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise no_scratch(error) from error


def _source(text: Text, plan: ReadingPlan | None) -> Source:
    tried: Source | ReadingPlan = plan or ReadingPlan.first(text.data)
    while isinstance(tried, ReadingPlan):
        tried = _read(text, tried)
    return tried


def _read(text: Text, plan: ReadingPlan) -> Source | ReadingPlan:
    """The source, or the plan by which the text is to be read again, since something in it contradicts this one."""
    path = text.path
    reader = BlockReader(path, text.data, text.format == "json", plan.block_bytes)
    spool, course, meaning = Spool(plan.on_disk), PairingState(alone=plan.alone), Meaning(keyed=plan.keyed)
    carried, final = b"", False
    while not final:
        block = reader.next(carried)
        tape, final = block.tape, block.final
        found = pair(path, tape, find_operations(path, tape, plan.stated), course, plan.block_bytes is None)
        if found is None:
            return replace(plan, block_bytes=None)
        paired, events = found
        is_open = (paired.completion < 0) & (not final)
        late = int(np.searchsorted(paired.invocation[~is_open], len(course.carried)))
        operations = BlockOperations(
            path, tape, events, paired, paired.invocation[~is_open], paired.completion[~is_open]
        )
        fresh = paired.invocation[paired.invocation >= len(course.carried)]
        if not understand(operations, fresh, meaning):
            return replace(plan, keyed=False)
        spool.add(make_rows(operations, meaning), late)
        left = paired.invocation[is_open]
        course.carried = paired.index[left]
        carried = b"".join(tape.bytes(token) + b"\n" for token in events[left, ITSELF].tolist())
    source = replace(_finished(text, spool, meaning), stated=plan.stated)
    return replace(source, note=_ALONE) if plan.alone else source


def _finished(text: Text, spool: Spool, meaning: Meaning) -> Source:
    values = meaning.interner.values
    metadata = {VERSION_KEY: str(SCHEMA_VERSION).encode(), DICTIONARY_KEY: msgspec.json.encode(values)}
    schema = SCHEMA.with_metadata(metadata)
    known = Source(
        text.path,
        text.format,
        spool.rows,
        failed_cas=text.failed_cas,
        dictionary=values,
        strings=meaning.interner.strings,
        independent=meaning.within > 0,
    )
    if not spool.on_disk:
        return replace(known, table=spool.table(schema))
    parquet, holder = spool.parquet(schema)
    return replace(known, saved=open_saved(parquet), holder=holder)


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
        """Take a batch, of which the first `late` rows are late."""
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

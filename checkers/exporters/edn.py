"""Export of a history as Jepsen EDN: one map an event, `{:index 0, :type :invoke, :process 3, :f :read, …}`.

What was written is read back and compared: what can't be said in EDN is refused, never left in a file.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.exporters.events import Counts, event_lines
from checkers.exporters.values import foreign_forms
from checkers.importers.detect import open_source
from checkers.importers.text_parts import write_text_parts
from checkers.source import Source
from harness.atomic_write import atomic_write
from harness.errors import UserError
from harness.history.address import Place
from harness.history.columns import FOREIGN_BASE, MOP, SCHEMA
from harness.history.parts import PART_ROWS


def write_edn(source: Source, path: Path, part_rows: int = PART_ROWS) -> Counts:
    """Write a history as EDN, one event a line, and return how much it was; of more operations than go into a part it
    is a folder of parts (`checkers.importers.text_parts`).

    It appears whole or not at all, once it was read back and found to hold the same client operations. Raises
    UserError for a history that Jepsen's form can't say, UnwritableError if it can't be written.
    """
    counts = Counts()
    lines = event_lines(source, counts)
    with _atomic_write(path) as unfinished:
        if source.rows > part_rows:
            write_text_parts(unfinished, _cut(lines, counts, part_rows))
        else:
            with unfinished.open("w", encoding="utf-8") as file:
                for line in lines:
                    file.write(line + "\n")
                if not counts.events:
                    file.write("[]\n")  # A file without anything in it could be one that was cut short.
        check_reads_back(source, unfinished)
    return counts


@contextmanager
def _atomic_write(path: Path) -> Iterator[Path]:
    """A file or a folder; a folder takes the place of a file too."""
    with atomic_write(path, f"The history {path}") as unfinished:
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            yield unfinished
            if unfinished.is_dir():
                path.unlink(missing_ok=True)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise


def _cut(lines: Iterator[str], counts: Counts, part_rows: int) -> Iterator[Iterator[str]]:
    """The lines by part: an invocation of more than `part_rows` operations begins the next."""
    following = next(lines, None)
    while following is not None:
        first, begun = following, counts.operations

        def part(first: str = first, full: int = begun - 1 + part_rows) -> Iterator[str]:
            nonlocal following
            yield first
            while (following := next(lines, None)) is not None and counts.operations <= full:
                yield following

        yield part()


_ROWS: Final = 1 << 16
_COMPARED: Final = tuple(name for name in SCHEMA.names if name != "op")


def check_reads_back(source: Source, written: Path) -> None:
    """Compare the client operations of a history with those of the EDN file written of it; raises UserError at the
    first that comes back as another."""
    try:
        back = open_source(written, "edn")
    except UserError as error:
        reason = str(error).removeprefix(f"{written}").lstrip(", :")
        raise UserError(f"{source.path} can't be exported: what EDN says of it can't be read ({reason}).") from error
    if back.independent != source.independent:
        raise UserError(f"{source.path} can't be exported: it has too little that shows its keys to be independent.")
    ids = _ids(source, back)
    theirs = _blocks(back)
    for ours in _blocks(source):
        other = next(theirs, ours.slice(0, 0))
        if ids is not None and other.num_rows:
            place = SCHEMA.get_field_index("mops")
            other = other.set_column(place, SCHEMA.field(place), pa.chunked_array([_renamed(other["mops"], ids)]))
        for name in _COMPARED:
            if not ours[name].equals(other[name]):
                raise UserError(_sentence(source.path, name, ours, other))
    if next(theirs, None) is not None:
        raise UserError(f"{source.path} can't be exported: more operations come back from EDN than it has.")


def _blocks(source: Source) -> Iterator[pa.Table]:
    """Client operations, that many at a time but for the last ones."""
    left = SCHEMA.empty_table()
    for batch in source.batches(SCHEMA.names):
        rows = batch.filter(pc.greater_equal(batch.column("process"), 0)).select(SCHEMA.names).cast(SCHEMA)
        left = pa.concat_tables((left, pa.Table.from_batches([rows])))
        while left.num_rows >= _ROWS:
            yield left.slice(0, _ROWS).combine_chunks()
            left = left.slice(_ROWS)
    if left.num_rows:
        yield left.combine_chunks()


def _ids(source: Source, back: Source) -> np.ndarray | None:
    """What each foreign id that came back is in the source; None if there are none."""
    known = {form: FOREIGN_BASE - 1 - place for place, form in enumerate(foreign_forms(source))}
    forms = foreign_forms(back)
    found = [known.get(form, int(form) if form.lstrip("-").isdecimal() else FOREIGN_BASE) for form in forms]
    return np.array(found, np.int64) if found else None


def _renamed(lists: pa.ChunkedArray, ids: np.ndarray) -> pa.Array:
    """Micro-operations with other foreign ids."""
    (whole,) = lists.chunks
    flat = dict(zip((field.name for field in MOP), whole.flatten().flatten(), strict=True))
    for name in ("partition", "row", "value", "expected"):
        flat[name] = _renamed_integers(flat[name], ids)
    values = flat["values"]
    items = _renamed_integers(values.flatten(), ids)
    flat["values"] = pa.ListArray.from_arrays(_offsets(values), items, type=values.type)
    structs = pa.StructArray.from_arrays([flat[field.name] for field in MOP], fields=list(MOP))
    return pa.ListArray.from_arrays(_offsets(whole), structs, type=whole.type)


def _offsets(lists: pa.ListArray) -> pa.Array:
    """Where the lists begin in what `flatten` gives; null for null ones."""
    lengths = lists.value_lengths().fill_null(0).to_numpy()
    begins = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    missing = np.concatenate((lists.is_null().to_numpy(zero_copy_only=False), [False]))
    return pa.array(begins, mask=missing)


def _renamed_integers(column: pa.Array, ids: np.ndarray) -> pa.Array:
    numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
    places = FOREIGN_BASE - 1 - numbers
    foreign = (numbers < FOREIGN_BASE) & (places < len(ids)) if len(ids) else np.zeros(len(numbers), bool)
    renamed = np.where(foreign, ids[np.where(foreign, places, 0)], numbers)
    return pa.array(renamed, mask=column.is_null().to_numpy(zero_copy_only=False))


def _sentence(path: Place, name: str, ours: pa.Table, other: pa.Table) -> str:
    """Which operation comes back as another, and in what."""
    for place in range(ours.num_rows):
        stated = ours[name][place].as_py()
        if place >= other.num_rows or stated != other[name][place].as_py():
            break
    index, f = ours["invoke_index"][place].as_py(), ours["f"][place].as_py()
    return f"{path} can't be exported: the {name} of event {index} ({f}) can't be said in EDN as Jepsen has it."

"""Whether a history that was written reads back as the same operations: what can't be said is told, never written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.exporters.words import foreign_forms
from checkers.importers.detect import open_source
from checkers.source import Source
from harness.errors import UserError
from harness.history.address import Place
from harness.history.columns import FOREIGN_BASE, MOP, SCHEMA

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
        told = ours[name][place].as_py()
        if place >= other.num_rows or told != other[name][place].as_py():
            break
    index, f = ours["invoke_index"][place].as_py(), ours["f"][place].as_py()
    return f"{path} can't be exported: the {name} of event {index} ({f}) can't be said in EDN as Jepsen has it."

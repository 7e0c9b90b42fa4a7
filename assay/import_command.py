"""`assay import`: any history that `assay check` reads, as one of assay's own, at a path or an address."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa

from assay.progress import working
from checkers.importers.detect import open_source
from checkers.source import Source
from harness.errors import UserError
from harness.history.address import Place, exists, one_line, place_of
from harness.history.columns import SCHEMA
from harness.history.parts import PART_ROWS, write_history


def import_history(path: Place | str, to: Place | str, format: str, part_rows: int = PART_ROWS) -> Iterator[str]:
    """Write the history at `path` to another place, in parts of at most so many operations, and say what was written.

    Raises UserError for a history that can't be read, or that says more than a saved one can, and for a place at which
    there is something; HarnessError if it can't be written.
    """
    place = place_of(to)
    if exists(place):
        raise UserError(f"{place} is there already; name another place with --to.")
    with working(f"importing {place_of(path)}"):
        source = open_source(place_of(path), format)
        _require_said(source)
        rows = write_history(_read(source), place, part_rows=part_rows, dictionary=_dictionary(source))
    yield f"{place}: {rows} operations"
    if source.note:
        yield f"  {source.note}"
    if source.failed_cas == "observed":
        yield "  A failed compare-and-set found another value here; check the copy with --failed-cas observed."


def _read(source: Source) -> Iterator[pa.RecordBatch]:
    """The history, read while it is written: a failure to read is not one to write."""
    try:
        for batch in source.batches(SCHEMA.names):
            if batch.num_rows:
                yield batch.cast(SCHEMA)
    except OSError as error:
        raise UserError(f"{source.path} can't be read: {one_line(error)}.") from error


def _require_said(source: Source) -> None:
    """Raise UserError for what would be lost: a copy could be judged otherwise than what it was made of."""
    if source.cut_short is not None:
        raise UserError(f"{source.path} is not the history of a whole run, and a copy would not say so.")
    if source.independent:
        raise UserError(f"{source.path} has independent keys around its operations, which a saved history can't say.")


def _dictionary(source: Source) -> bytes:
    if source.saved is not None:
        return source.saved.manifest.dictionary.encode()
    return msgspec.json.encode(source.dictionary)

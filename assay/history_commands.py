"""`assay generate | export | import`: histories that are made, written as Jepsen EDN, or taken in as assay's own.

A made history is valid by construction, or has anomalies injected in it. EDN is what Jepsen's, Elle's and Knossos'
tools read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from assay.progress import working
from checkers.exporters.edn import write_edn
from checkers.importers.detect import open_source
from checkers.made.generate import MadeHistory, settings_of, write_made
from checkers.source import Source
from harness.atomic_write import scratch_folder
from harness.errors import NoScratchError, UnwritableError, UserError
from harness.history.address import Place, exists, one_line, place_of
from harness.history.columns import NO_PURPOSE, SCHEMA
from harness.history.parts import PART_ROWS, write_history
from harness.history.rundir import is_run, open_run

FORMATS: Final = ("parquet", "edn")


@dataclass(frozen=True, slots=True)
class Target:
    """Where a history is written, in which format, and how many operations are in a part of it."""

    to: Place | str
    format: str = "parquet"
    part_rows: int = PART_ROWS


def with_anomaly(wanted: MadeHistory, text: str | None) -> MadeHistory:
    """What is wanted with an anomaly as the command line names it: NAME, or NAME,RATE; raises UserError for no rate."""
    if text is None:
        return wanted
    name, comma, told = text.partition(",")
    if not comma:
        return replace(wanted, anomaly=name)
    try:
        rate = float(told)
    except ValueError:
        rate = -1.0
    if not 0 < rate <= 0.5:
        raise UserError(f"--anomaly takes NAME or NAME,RATE with a rate above 0 and up to 0.5, not {text!r}.")
    return replace(wanted, anomaly=name, rate=rate)


def generate_history(wanted: MadeHistory, target: Target) -> Iterator[str]:
    """Write the history and say what was written. Raises UserError for what can't be made or said in the format, and
    for a place at which there is something; HarnessError if it can't be written."""
    if not 0 <= wanted.info <= 1:
        raise UserError(f"--info is a share between 0 and 1, not {wanted.info:g}.")
    if target.format not in FORMATS:
        raise UserError(f"Histories are generated as {' or '.join(FORMATS)}, not as {target.format!r}.")
    place = place_of(target.to)
    if exists(place):
        raise UserError(f"{place} is there already; name another place with --to.")
    if isinstance(place, Path) and not place.parent.is_dir():
        raise UserError(f"There is no directory {place.parent} for the history {place.name}.")
    with working(f"generating {place}"):
        rows = _written(wanted, target, place)
    yield f"{place}: {rows} operations"
    if settings := settings_of(wanted):
        told = " ".join(f"-o {name}={value}" for name, value in settings.items())
        yield f"  {wanted.model} finds {wanted.anomaly} with {told}."


def _written(wanted: MadeHistory, target: Target, place: Place) -> int:
    if target.format == "parquet":
        return write_made(wanted, place, target.part_rows)
    if not isinstance(place, Path):
        raise UserError(f"{place}: EDN is written to a path, not to an address.")
    with scratch_folder("generate", place.parent) as folder:
        saved = Path(folder) / "history.parquet"
        write_made(wanted, saved, target.part_rows)
        return write_edn(open_source(saved), place, target.part_rows).operations


def export_history(
    named: Place | str, to: Place | str | None, format: str, overwrite: bool, part_rows: int = PART_ROWS
) -> Iterator[str]:
    """Write the history at `path` to a file (of a run: its `history.edn` unless told), or to a folder of parts if
    it has more than `part_rows` operations, and say what was written.

    Raises UserError for a history that can't be read or said in Jepsen's form and for a file that is there already,
    UnwritableError if it can't be written.
    """
    path = place_of(named)
    if not exists(path):
        raise UserError(f"There is no file or run directory {path}.")
    target = _target(path, to, overwrite)
    with working(f"exporting {path}"):
        source = open_source(path, format)
        if target.exists() and isinstance(source.path, Path) and target.samefile(source.path):
            raise UserError(f"{target} is what is to be exported; name another file with --to.")
        try:
            counts = write_edn(source, target, part_rows)
        except NoScratchError:
            raise
        except UnwritableError as error:
            raise UnwritableError(f"{str(error).rstrip('.')}; name another file with --to.") from error
    yield f"{target}: {counts.operations} operations, {counts.events} events"
    if note := source.cut_short or source.note:
        yield f"  {note}"
    if source.failed_cas == "observed":
        yield "  A failed compare-and-set found another value here; check the copy with --failed-cas observed."


def _target(path: Place, named: Place | str | None, overwrite: bool) -> Path:
    to = _in_run(path) if named is None else place_of(named)
    if not isinstance(to, Path):
        raise UserError(f"{to}: EDN is written to a path, not to an address.")
    if not to.parent.is_dir():
        raise UserError(f"There is no directory {to.parent} for the history {to.name}.")
    if to.is_dir():
        raise UserError(f"{to} is a directory; name a file with --to.")
    if to.exists() and not overwrite:
        raise UserError(f"{to} is there already; name another file with --to, or replace it with --overwrite.")
    return to


def _in_run(path: Place) -> Path:
    if not isinstance(path, Path) or not is_run(path):
        raise UserError(f"{path} is not the directory of a run; name the file to write with --to.")
    return open_run(path).history_edn


def import_history(path: Place | str, to: Place | str, format: str, part_rows: int = PART_ROWS) -> Iterator[str]:
    """Write the history at `path` to another place, in parts of at most `part_rows` rows, and say what was written.

    Raises UserError for a history that can't be read, or that says more than a saved one can, and for a place at which
    there is something; HarnessError if it can't be written.
    """
    place = place_of(to)
    if exists(place):
        raise UserError(f"{place} is there already; name another place with --to.")
    with working(f"importing {place_of(path)}"):
        source = open_source(place_of(path), format)
        _require_said(source)
        purpose = NO_PURPOSE if source.saved is None else source.saved.manifest.purpose
        dictionary = _dictionary(source)
        rows = write_history(_read(source), place, part_rows=part_rows, dictionary=dictionary, purpose=purpose)
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

"""`assay export`: a saved run or another history as Jepsen EDN, which Jepsen's, Elle's and Knossos' tools read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from assay.progress import working
from checkers.exporters.edn import write_edn
from checkers.importers.detect import open_source
from harness.errors import NoScratchError, UnwritableError, UserError
from harness.history.address import Place, exists, place_of
from harness.history.parts import PART_ROWS
from harness.history.rundir import is_run, open_run


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

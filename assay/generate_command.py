"""`assay generate`: makes a history of any model, valid by construction or with anomalies injected in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from assay.progress import working
from checkers.exporters.edn import write_edn
from checkers.importers.detect import open_source
from checkers.made.generate import MadeHistory, settings_of, write_made
from harness.atomic_write import scratch_folder
from harness.errors import UserError
from harness.history.address import Place, exists, place_of
from harness.history.parts import PART_ROWS

FORMATS: Final = ("parquet", "edn")


@dataclass(frozen=True, slots=True)
class Target:
    """Where a history is written, in which format, and how many operations are in a part of it."""

    to: Place | str
    format: str = "parquet"
    part_rows: int = PART_ROWS


def with_anomaly(wanted: MadeHistory, text: str | None) -> MadeHistory:
    """The same with an anomaly as the command line names it: NAME, or NAME,RATE; raises UserError for no rate."""
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

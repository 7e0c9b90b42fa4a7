"""Our own Parquet: checked for version, columns and the order of its events, then streamed by whoever judges it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from checkers.importers.events import COLUMNS, EventOrder
from checkers.source import Source, dictionary_of
from harness.columns import LATER_COLUMNS, SCHEMA, SCHEMA_VERSION, VERSION_KEY
from harness.errors import UserError
from harness.history.seal import KEY as SEAL_KEY
from harness.history.seal import check_seal

MAGIC = b"PAR1"


def open_parquet(path: Path) -> Source:
    """A source over `history.parquet`; raises UserError for anything that is not one, whole and of this version."""
    sealed = _is_sealed(path)
    schema, rows = _footer(path)
    if not sealed and SEAL_KEY in (schema.metadata or {}):
        raise UserError(f"{path} is damaged: its checksum is gone.")
    _check_schema(path, schema)
    try:
        source = Source(path, "parquet", rows, parquet=path, dictionary=dictionary_of(schema))
    except (msgspec.DecodeError, TypeError) as error:
        raise UserError(f"{path} has a dictionary of foreign values that can't be read: {error}.") from error
    EventOrder(path).check(source.batches(COLUMNS), rows)
    return source


def _is_sealed(path: Path) -> bool:
    try:
        return check_seal(path)
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}.") from error


def _footer(path: Path) -> tuple[pa.Schema, int]:
    try:
        with pq.ParquetFile(path) as file:
            return file.schema_arrow, file.metadata.num_rows
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path} is not a whole Parquet file: {_first_line(error)}.") from error


def _check_schema(path: Path, schema: pa.Schema) -> None:
    version = (schema.metadata or {}).get(VERSION_KEY)
    if version is None:
        raise UserError(f"{path} is Parquet but not a history of assay: it states no {VERSION_KEY.decode()}.")
    if version != str(SCHEMA_VERSION).encode():
        shown = version.decode(errors="replace")
        raise UserError(f"{path} has history version {shown}; this assay reads version {SCHEMA_VERSION}.")
    for field in SCHEMA:
        place = schema.get_field_index(field.name)
        if place < 0 and field.name in LATER_COLUMNS:
            continue
        if place < 0 or not schema.field(place).type.equals(field.type):
            found = "is missing" if place < 0 else f"is {schema.field(place).type}, not {field.type}"
            raise UserError(f"{path} is not a history of assay: its column {field.name} {found}.")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")

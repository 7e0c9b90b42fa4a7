"""Exports a history and reads it back, and rows as they can be compared: foreign ids by what they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from checkers.exporters.edn import write_edn
from checkers.importers.detect import open_source
from checkers.source import Source
from harness.history.columns import FOREIGN_BASE, SCHEMA

Row = dict[str, Any]


def exported(source: Source, path: Path) -> Source:
    """The copy of a history, read back."""
    counts = write_edn(source, path)
    lines = path.read_text().splitlines()
    assert (counts.operations, counts.events) == (source.rows, len(lines) if lines != ["[]"] else 0)
    return open_source(path, "edn")


def rows(source: Source) -> list[Row]:
    """The rows of a history with foreign values as (text, whether it is a string)."""
    found: list[Row] = []
    for batch in source.batches(SCHEMA.names):
        found += batch.to_pylist()
    for row in found:
        for mop in row["mops"] or ():
            for name in ("partition", "row", "value", "expected"):
                mop[name] = named_value(source, mop[name])
            mop["values"] = mop["values"] and [named_value(source, item) for item in mop["values"]]
    return found


def named_value(source: Source, value: int | None) -> Any:
    place = FOREIGN_BASE - 1 - (value or 0)
    if 0 <= place < len(source.dictionary):
        return source.dictionary[place], bool(source.strings) and source.strings[place]
    return value

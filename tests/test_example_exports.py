"""Every worked example of an anomaly can be exported as Jepsen EDN, and is the same history there; or it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from anomaly_examples import READERS

from checkers.api import check
from checkers.exporters.edn import write_edn
from checkers.importers.detect import open_source
from checkers.made.examples import Example, groups
from checkers.options import CheckOptions
from checkers.source import Source
from harness.errors import UserError
from harness.history.columns import SCHEMA

EXAMPLES = {e.file: e for group in groups() for e in group.examples if e.path.suffix != ".log"}

UNSOLICITED = "an unsolicited event (feed-row) has micro-operations"
OPEN = "can't be said in EDN as Jepsen has it"
"""Lists with nothing at a place: the open bounds of pages and deletions, columns that a schema leaves out."""


def rows(source: Source) -> list[dict[str, Any]]:
    return [row for batch in source.batches(SCHEMA.names) for row in batch.to_pylist()]


def verdict(example: Example, path: Path) -> tuple[Any, ...]:
    settings = dict(setting.split("=", 1) for setting in example.settings)
    options = CheckOptions(consistency=example.consistency, settings=settings)
    found = check(path, example.model, engine="local", options=options)
    return found.valid, found.counts, found.strongest, found.rules_out


def refusal(group: str, source: Source) -> str | None:
    """Why a history can't be exported, if it can't."""
    found = rows(source)
    if group == "change-feed" and any(row["f"] == "feed-row" for row in found):
        return UNSOLICITED
    if any(row["f"] == "list" and row["mops"] is None for row in found):
        return "can't be exported"  # A listing of nothing has no key, and others have one.
    if any(mop["values"] and mop["value"] is not None for row in found for mop in row["mops"] or ()):
        return OPEN  # What a master answers of a table stands beside the table.
    lists = [mop["values"] for row in found for mop in row["mops"] or () if mop["values"]]
    return OPEN if any(None in values for values in lists) else None


@pytest.mark.parametrize("group", sorted({name.split("/")[0] for name in EXAMPLES}))
def test_examples_survive(tmp_path: Path, group: str) -> None:
    for example in EXAMPLES.values():
        if example.file.split("/")[0] != group:
            continue
        path = READERS.get(example.path.suffix, lambda path, _: path)(example.path, tmp_path)
        source, copy = open_source(path), tmp_path / "copy.edn"
        if (reason := refusal(group, source)) is not None:
            with pytest.raises(UserError) as refused:
                write_edn(source, copy)
            assert reason in str(refused.value)
            continue
        write_edn(source, copy)
        back = open_source(copy)
        assert (rows(back), back.dictionary) == (rows(source), source.dictionary), example.file
        assert verdict(example, copy) == verdict(example, path), example.file

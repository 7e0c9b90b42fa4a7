"""What is exported is EDN also for a reader that is none of ours (`edn_format`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import edn_format
import pytest
from edn_format import Keyword
from test_edn_export import JEPSEN

from checkers.exporters.edn import write_edn
from checkers.importers.detect import open_source
from checkers.made.registers import RegisterShape, write_register_history
from checkers.made.transactions import TxnShape, write_txn_history
from harness.history.columns import SCHEMA


def read_elsewhere(text: str) -> list[dict[str, Any]]:
    """Events by the names of their fields, as the other reader has them."""
    events = [edn_format.loads(line) for line in text.strip().splitlines()]
    return [{key.name: value for key, value in event.items()} for event in events]


@pytest.mark.parametrize("name", JEPSEN)
def test_another_reader_finds_what_was_imported(name: str, tmp_path: Path) -> None:
    original, copy = tmp_path / "original.edn", tmp_path / "copy.edn"
    original.write_text(JEPSEN[name])
    write_edn(open_source(original), copy)
    assert read_elsewhere(copy.read_text()) == read_elsewhere(JEPSEN[name])


def value_of(row: dict[str, Any], known: bool) -> Any:
    """What Jepsen writes as the value of an operation on one of several registers, or of a transaction; of a read not
    `known` there is none yet."""
    mops = row["mops"]
    if row["f"] == "txn":
        shown = [mop["values"] if mop["values"] is not None else mop["value"] for mop in mops]
        told = [None if mop["f"] == "r" and not known else value for mop, value in zip(mops, shown, strict=True)]
        return [[Keyword(mop["f"]), mop["partition"], value] for mop, value in zip(mops, told, strict=True)]
    (mop,) = mops
    if mop["f"] == "cas":
        return [mop["partition"], [mop["expected"], mop["value"]]]
    return [mop["partition"], mop["value"] if mop["f"] == "w" or known else None]


@pytest.mark.parametrize("kind", ["register", "transactions"])
def test_another_reader_finds_the_operations_of_made_histories(kind: str, tmp_path: Path) -> None:
    path, copy = tmp_path / "made.parquet", tmp_path / "made.edn"
    if kind == "register":
        write_register_history(RegisterShape(120, keys=5, info_share=0.3), path)
    else:
        write_txn_history(TxnShape(60, info_share=0.3), path)
    source = open_source(path)
    write_edn(source, copy)
    events = {event["index"]: event for event in read_elsewhere(copy.read_text())}
    rows = [row for batch in source.batches(SCHEMA.names) for row in batch.to_pylist()]
    for row in rows:
        begun = events.pop(row["invoke_index"])
        assert (begun["type"], begun["process"], begun["f"]) == (Keyword("invoke"), row["process"], Keyword(row["f"]))
        assert begun["value"] == value_of(row, known=False)
        if row["complete_index"] is not None:
            ended = events.pop(row["complete_index"])
            assert (ended["type"], ended["process"]) == (Keyword(row["type"]), row["process"])
            assert ended["value"] == value_of(row, known=row["type"] == "ok")
    assert not events and len(rows) > 50

"""The random histories of Elle's table against the definitions: what we rule out is ruled out, and nothing else is."""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.corpus import CORPUS, needs_corpus

sys.path.insert(0, str(Path(__file__).parent))

import naive
from weak_store import Txn

from checkers.engines.local import LocalEngine
from checkers.importers.detect import open_source
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.transactions.inference.register_accesses import ORDER_REALTIME
from checkers.transactions.judge_transactions import judge_by_each, orders_of
from checkers.transactions.lattice import friendly_name, impossible_models

TRUTH = CORPUS / "elle-random" / "truth.tsv"
MORE_THAN_ELLE = Path(__file__).parent / "more_than_elle.tsv"
OPTIONS = CheckOptions(explain=1, settings={"linearizable-keys": "true"})

pytestmark = needs_corpus


def lines_of(table: Path) -> dict[tuple[str, str], list[dict[str, str]]]:
    """The lines of a table by file and model."""
    found = defaultdict(list)
    with table.open() as file:
        for line in csv.DictReader(file, delimiter="\t"):
            found[line["file"], line["model"]].append(line)
    return dict(found)


def history_of(source: Source, model: str) -> list[Txn]:
    """The transactions of a history as the naive checker takes them; lists that say nothing are empty."""
    assert source.table is not None
    silent = () if model == "list-append" else None
    return [
        Txn(
            row["process"],
            row["type"],
            row["invoke_index"],
            row["complete_index"] if row["type"] == "ok" else None,
            tuple((mop["f"], key_of(mop), value_of(mop, silent)) for mop in row["mops"]),
        )
        for row in source.table.to_pylist()
        if row["process"] >= 0
    ]


def key_of(mop: dict[str, Any]) -> Any:
    return tuple(mop[name] for name in ("table", "partition", "row", "column"))


def value_of(mop: dict[str, Any], silent: Any) -> Any:
    if mop["values"] is not None:
        return tuple(mop["values"])
    return silent if mop["value"] is None else mop["value"]


def by_definition(source: Source, model: str, consistency: str) -> set[str]:
    """All anomalies that there are."""
    history = history_of(source, model)
    infer = (
        naive.list_anomalies if model == "list-append" else partial(naive.register_anomalies, sources=ORDER_REALTIME)
    )
    anomalies, kinds = infer(history)
    naive.add_orders(history, kinds, orders_of(friendly_name(consistency)))
    return anomalies | naive.projected_classes(kinds, len(history))


@pytest.mark.parametrize(
    "table", [MORE_THAN_ELLE, pytest.param(TRUTH, marks=pytest.mark.campaign)], ids=["more", "all"]
)
@pytest.mark.parametrize("model", ["list-append", "rw-register"])
def test_all_that_is_ruled_out_is_so_by_definition(table: Path, model: str) -> None:
    listed = [(name, lines) for (name, kind), lines in lines_of(table).items() if kind == model]
    assert listed
    for name, lines in listed:
        source = open_source(CORPUS / "elle-random" / name, "edn")
        asked = [line["consistency"] for line in lines]
        for line, verdict in zip(lines, judge_by_each(model, source, LocalEngine(), OPTIONS, asked), strict=True):
            expected = by_definition(source, model, line["consistency"])
            assert set(verdict.counts) <= expected, (line, set(verdict.counts) - expected)
            assert impossible_models(verdict.counts) == impossible_models(expected), (line, verdict.counts, expected)
            assert set(line.get("because", "").split(",")) - {""} <= expected, line

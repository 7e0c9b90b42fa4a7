"""Inputs made after public bug reports: the words that follow from the definitions, whatever other tools say."""

from __future__ import annotations

import csv

import pytest

from checkers.api import judge_source
from checkers.engines.local import LocalEngine
from checkers.importers.detect import open_source
from checkers.options import CheckOptions
from harness.errors import UserError
from tests.support.corpus import CORPUS, NO_CORPUS

REPORTS = CORPUS / "reports"

OF_ANOTHER_MODEL = {"101-fractured.edn": "rw-register"}
"""Lines whose table names a model that does not know their micro-operations, with the one that does: this history
writes registers (`w`), which a list has no order for, so list-append refuses it as it does any other `w`."""

WORDS = {
    "true": {"true"},
    "false": {"false"},
    "unknown": {"unknown"},
    "refused": {"refused"},
    "not-true": {"false", "unknown", "refused"},
    "not-false": {"true", "unknown"},
}


def lines() -> list[dict[str, str]]:
    """The table, empty where the corpus is not here."""
    path = REPORTS / "index.tsv"
    return list(csv.DictReader(path.read_text().splitlines(), delimiter="\t")) if path.exists() else []


def found(line: dict[str, str], model: str) -> str:
    settings = dict(option.split("=", 1) for option in line["options"].split())
    consistency = settings.pop("consistency", None)
    try:
        source = open_source(REPORTS / line["file"], line["format"])
        options = CheckOptions(consistency=consistency, settings=settings)
        return str(judge_source(source, model, LocalEngine(), options).valid).lower()
    except UserError:
        return "refused"


@pytest.mark.skipif(not REPORTS.exists(), reason=NO_CORPUS)
def test_the_table_names_models_that_refuse_their_history() -> None:
    wrong = [line for line in lines() if line["file"] in OF_ANOTHER_MODEL]
    assert [found(line, line["model"]) for line in wrong] == ["refused"] * len(OF_ANOTHER_MODEL)


@pytest.mark.skipif(not REPORTS.exists(), reason=NO_CORPUS)
@pytest.mark.parametrize("line", lines(), ids=lambda line: line["file"])
def test_public_reports(line: dict[str, str]) -> None:
    model = OF_ANOTHER_MODEL.get(line["file"], line["model"])
    assert found(line, model) in WORDS[line["expected"]], line["why"]

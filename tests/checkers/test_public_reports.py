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

PENDING = {
    "101-fractured.edn": "the table has registers judged as lists, which are refused",
}
"""What is not as it should be yet; a line that comes right has to leave this list."""

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


def found(line: dict[str, str]) -> str:
    settings = dict(option.split("=", 1) for option in line["options"].split())
    consistency = settings.pop("consistency", None)
    try:
        source = open_source(REPORTS / line["file"], line["format"])
        options = CheckOptions(consistency=consistency, settings=settings)
        return str(judge_source(source, line["model"], LocalEngine(), options).valid).lower()
    except UserError:
        return "refused"


@pytest.mark.skipif(not REPORTS.exists(), reason=NO_CORPUS)
def test_the_table_has_all_that_is_pending() -> None:
    assert set(PENDING) <= {line["file"] for line in lines()}


@pytest.mark.skipif(not REPORTS.exists(), reason=NO_CORPUS)
@pytest.mark.parametrize("line", lines(), ids=lambda line: line["file"])
def test_public_reports(line: dict[str, str]) -> None:
    assert (found(line) in WORDS[line["expected"]]) is (line["file"] not in PENDING), line["why"]

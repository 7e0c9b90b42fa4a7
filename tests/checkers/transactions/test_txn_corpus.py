"""What the real Elle said of 200 random histories, and the conformance histories of Elle's own kinds."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from checkers.engines.local import LocalEngine
from checkers.engines.spark import SparkEngine
from checkers.importers.detect import open_source
from checkers.options import CheckOptions
from checkers.transactions.judge import judge_list_append, judge_rw_register
from checkers.transactions.lattice import implied_anomalies, impossible_models
from checkers.verdict import Verdict

CORPUS = Path(__file__).resolve().parents[4] / "shared" / "corpus"
JUDGES = {"list-append": judge_list_append, "rw-register": judge_rw_register}


def truths() -> list[dict[str, str]]:
    path = CORPUS / "elle-random" / "truth.tsv"
    if not path.exists():
        pytest.skip(f"the corpus is not here: {path}")
    with path.open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


def options(consistency: str) -> CheckOptions:
    return CheckOptions(consistency=consistency, explain=1, settings={"linearizable-keys": "true"})


def compare(truth: dict[str, str], verdict: Verdict) -> None:
    """Elle's verdict, what it rules out, and its anomalies or some that rule out as much."""
    note = (truth, verdict.counts)
    assert verdict.valid is (truth["valid"] == "true"), note
    named = set(truth["not"].split(",")) - {""}
    assert named <= {*verdict.rules_out, *verdict.also_rules_out}, note
    ours = impossible_models(verdict.counts)
    for anomaly in set(truth["anomalies"].split(",")) - {""}:
        assert anomaly in implied_anomalies(verdict.counts) or impossible_models([anomaly]) <= ours, (anomaly, note)
    assert not any(name.endswith("cycle-exists") for name in verdict.counts), note


@pytest.mark.parametrize("model", JUDGES)
def test_what_elle_says_of_random_histories(model):
    engine = LocalEngine()
    lines = [truth for truth in truths() if truth["model"] == model]
    assert len(lines) == 300
    for truth in lines:
        source = open_source(CORPUS / "elle-random" / truth["file"], "edn")
        compare(truth, JUDGES[model](source, engine, options(truth["consistency"])))


@pytest.mark.spark
@pytest.mark.parametrize("model", JUDGES)
def test_the_same_on_spark(model):
    engine = SparkEngine()
    lines = [truth for truth in truths() if truth["model"] == model]
    try:
        for truth in lines[::43]:
            source = open_source(CORPUS / "elle-random" / truth["file"], "edn")
            compare(truth, JUDGES[model](source, engine, options(truth["consistency"])))
    finally:
        engine.close()


@pytest.mark.campaign
@pytest.mark.spark
def test_all_of_them_on_spark():
    engine = SparkEngine()
    try:
        for truth in truths():
            source = open_source(CORPUS / "elle-random" / truth["file"], "edn")
            compare(truth, JUDGES[truth["model"]](source, engine, options(truth["consistency"])))
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("name", "model", "valid"),
    [("elle-rw-register.edn", "rw-register", True), ("elle-paper-example.edn", "list-append", False)],
)
def test_histories_of_elle_cli(name, model, valid):
    path = CORPUS / "elle-cli" / name
    if not path.exists():
        pytest.skip(f"the corpus is not here: {path}")
    assert JUDGES[model](open_source(path, "edn"), LocalEngine(), CheckOptions()).valid is valid

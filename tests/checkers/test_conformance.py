"""Every line of the conformance corpus on both engines: verdicts that other tools state, and more only where listed."""

from __future__ import annotations

import csv
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from checkers.api import judge_source
from checkers.engines.api import Engine
from checkers.importers.detect import open_source
from checkers.models import MODELS
from checkers.options import CheckOptions
from checkers.transactions.judge_transactions import judge_by_each
from checkers.transactions.lattice import implied_anomalies, implied_models, impossible_models
from checkers.verdict import Verdict, in_two_words
from tests.support.corpus import CORPUS, needs_corpus

MORE_THAN_ELLE = Path(__file__).parent / "transactions" / "more_than_elle.tsv"
SHARES = 4

JEPSENS = frozenset(name for name, info in MODELS.items() if info.function.startswith("jepsen."))
"""Models whose histories Spark judges all in the ordinary tests: there are few."""

LINEARIZABLE = ("cas-register", "mutex", "fifo-queue", "kv-append")

OTHERWISE = {"elle-cli/elle-rw-register.edn": "false"}
"""Where we differ from the project that a history is of; `docs/conformance.md` says why."""

Line = dict[str, str]

pytestmark = needs_corpus

SAMPLE = 96
"""Spark judges one in SAMPLE histories of a part in the ordinary tests (each costs it a second), all in campaigns."""

ENGINES = [
    pytest.param("local", 1, id="local"),
    pytest.param("spark", SAMPLE, marks=pytest.mark.spark, id="spark-sample"),
    pytest.param("spark", 1, marks=[pytest.mark.spark, pytest.mark.campaign], id="spark"),
]


@cache
def lines_of(table: Path) -> tuple[Line, ...]:
    with table.open() as file:
        return tuple(csv.DictReader(file, delimiter="\t"))


def elle_files(share: int) -> dict[tuple[str, str], list[Line]]:
    """One in SHARES of the files of Elle's table, from the `share`th on, with their lines."""
    found: dict[tuple[str, str], list[Line]] = {}
    for line in lines_of(CORPUS / "elle-random" / "truth.tsv"):
        found.setdefault((line["file"], line["model"]), []).append(line)
    return dict(list(found.items())[share::SHARES])


def test_the_tables_are_whole() -> None:
    lines = lines_of(CORPUS / "elle-random" / "truth.tsv")
    assert sum(len(mine) for share in range(SHARES) for mine in elle_files(share).values()) == len(lines) == 600
    assert len(lines_of(CORPUS / "index.tsv")) >= 100
    assert sum(line["model"] in JEPSENS for line in lines_of(CORPUS / "index.tsv")) >= 6
    random = lines_of(CORPUS / "linear-random" / "truth.tsv")
    assert len(random) == 286
    models = Counter(line["model"] for line in (*lines_of(CORPUS / "index.tsv"), *random))
    assert models["cas-register"] >= 160 and sum(models[model] for model in LINEARIZABLE[1:]) >= 190


def comparable(verdict: Verdict) -> Verdict:
    """All that does not differ with the engine."""
    return msgspec.structs.replace(verdict, engine="", seconds=0.0)


def require_explained(line: Line, verdict: Verdict) -> None:
    """What is refuted is shown: by a sentence and operations, and where an object's search got stuck."""
    found = [anomaly for anomalies in verdict.anomalies.values() for anomaly in anomalies]
    assert bool(found) is (verdict.valid is False), line
    assert all(anomaly.message and anomaly.ops for anomaly in found), line
    assert line["model"] == "cas-register" or all("stuck" in anomaly.details for anomaly in found), line


@pytest.mark.parametrize(("engine", "step"), ENGINES)
@pytest.mark.parametrize("table", ["index.tsv", "linear-random/truth.tsv"])
@pytest.mark.parametrize("half", [0, 1])
def test_what_other_projects_say(engines: dict[str, Engine], engine: str, step: int, table: str, half: int) -> None:
    wrong = []
    lines = lines_of(CORPUS / table)[half::2]
    for line in [line for number, line in enumerate(lines) if number % step == 0 or line["model"] in JEPSENS]:
        source = open_source((CORPUS / table).parent / line["file"], line.get("format") or "auto")
        verdict = judge_source(source, line["model"], engines[engine])
        assert verdict.engine == engine
        if line["model"] in LINEARIZABLE:
            require_explained(line, verdict)
        if engine != "local" and line["model"] in (*LINEARIZABLE, *JEPSENS):
            local = judge_source(source, line["model"], engines["local"])
            assert comparable(verdict) == comparable(local), line
        assert "=" not in line["valid"] or verdict.valid is (verdict.strongest == "causal"), line
        found = f"strongest={verdict.strongest}" if "=" in line["valid"] else in_two_words(verdict)
        if found != OTHERWISE.get(line["file"], line["valid"]):
            wrong.append((line["file"], line["model"], line["valid"], found, verdict.reason))
    assert wrong == []


@pytest.mark.parametrize(("engine", "step"), ENGINES)
@pytest.mark.parametrize("share", range(SHARES))
def test_what_elle_says(engines: dict[str, Engine], engine: str, step: int, share: int) -> None:
    """`valid` on every line; whatever Elle rules out and names; and what we rule out besides is what is listed."""
    options = CheckOptions(explain=1, settings={"linearizable-keys": "true"})
    more = []
    files = dict(list(elle_files(share).items())[::step])
    for (name, model), lines in files.items():
        source = open_source(CORPUS / "elle-random" / name, "edn")
        asked = [line["consistency"] for line in lines]
        for line, verdict in zip(lines, judge_by_each(model, source, engines[engine], options, asked), strict=True):
            assert verdict.engine == engine
            compare(line, verdict)
            more += more_than_elle(line, verdict)
    mine = {name for name, _ in files}
    assert more == [line for line in lines_of(MORE_THAN_ELLE) if line["file"] in mine]


def names(cell: str) -> set[str]:
    return set(cell.split(",")) - {""}


def compare(line: Line, verdict: Verdict) -> None:
    """Elle's verdict, what it rules out, and its anomalies or some that rule out as much."""
    note = (line, verdict.counts)
    assert str(verdict.valid).lower() == line["valid"], note
    assert names(line["not"]) <= {*verdict.rules_out, *verdict.also_rules_out}, note
    ours = impossible_models(verdict.counts)
    for anomaly in names(line["anomalies"]):
        assert anomaly in implied_anomalies(verdict.counts) or impossible_models([anomaly]) <= ours, (anomaly, note)
    assert not any(anomaly.endswith("cycle-exists") for anomaly in verdict.counts), note


def more_than_elle(line: Line, verdict: Verdict) -> list[Line]:
    """The weakest models that we rule out and Elle does not, with the anomalies that do it."""
    elle = names(line["not"]) | names(line["also_not"])
    more = {*verdict.rules_out, *verdict.also_rules_out} - elle
    if not more:
        return []
    weakest = sorted(model for model in more if implied_models(model).isdisjoint(more))
    because = sorted(anomaly for anomaly in verdict.counts if not impossible_models([anomaly]) <= elle)
    told: dict[str, Any] = {"file": line["file"], "model": line["model"], "consistency": line["consistency"]}
    return [told | {"not": ",".join(weakest), "because": ",".join(because)}]

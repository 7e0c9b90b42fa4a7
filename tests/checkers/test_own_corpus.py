"""Our own small histories (`tests/corpus`) on both engines: verdicts by brute force, which a clone has with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

import pytest

from assay.manifest import ManifestRow, read_manifest
from checkers.api import judge_source
from checkers.engines.api import Engine
from checkers.engines.local import LocalEngine
from checkers.importers.detect import open_source
from checkers.models import MODELS
from tests.support.corpus import OWN
from tests.support.fresh import compare, disagreement
from tests.support.small_histories import SMALL, SmallHistory

FRESH = range(20_000, 20_006)
NO_HISTORY = "logs"
NEVER_INVALID = "stats"
VALID = ("true", "strongest=causal")


@cache
def rows() -> list[ManifestRow]:
    return read_manifest(OWN / "index.tsv")


def wrong(chosen: Sequence[ManifestRow], engine: Engine) -> list[str]:
    """The lines with which an engine disagrees."""
    found = []
    for row in chosen:
        source = open_source(OWN / row.file, row.format)
        verdict = judge_source(source, row.model, engine)
        assert verdict.engine == engine.name
        if told := disagreement(SmallHistory(source, row.expected, frozenset(row.anomalies)), verdict):
            found.append(f"{row.file}: {told}")
    return found


def test_every_model_is_there_with_both_verdicts() -> None:
    assert set(SMALL) == set(MODELS) - {NO_HISTORY}
    assert {row.model for row in rows()} == set(SMALL)
    told = Counter((row.model, row.expected in VALID) for row in rows())
    assert all(told[model, True] >= 2 for model in SMALL)
    assert all(told[model, False] >= 1 for model in SMALL if model != NEVER_INVALID)


def test_no_history_lies_about_unused() -> None:
    present = {str(path.relative_to(OWN)) for path in OWN.glob("*/*")}
    assert present == {row.file for row in rows()}


def test_verdicts_are_those_of_brute_force() -> None:
    assert wrong(rows(), LocalEngine()) == []


def test_others_agree_too() -> None:
    """Some that are not kept; `python -m tests.support.fresh` judges as many as are asked for."""
    disagreements = [line for model in SMALL for line in compare(model, FRESH, LocalEngine())[1]]
    assert disagreements == []


@pytest.mark.spark
def test_spark_says_the_same_of_one_of_each_model(spark: Engine) -> None:
    """One that is invalid where there is one; all of them in campaigns, for each costs Spark half a second."""
    invalid_last = sorted(rows(), key=lambda row: row.expected not in VALID)
    assert wrong(list({row.model: row for row in invalid_last}.values()), spark) == []


@pytest.mark.spark
@pytest.mark.campaign
def test_spark_says_the_same_of_all(spark: Engine) -> None:
    assert wrong(rows(), spark) == []

"""Worked examples of anomalies, and long histories in which they are injected, shrink to no more than the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from assay.reproduce.shrink_history import HistoryQuestion, HistorySearch
from checkers.api import judge_source
from checkers.engines.local import LocalEngine
from checkers.made.examples import Example, groups, open_example
from checkers.made.generate import MadeHistory, anomalies, made_batches, settings_of
from checkers.models import MODELS
from checkers.options import CheckOptions
from checkers.source import Source
from harness.history.columns import SCHEMA

EXAMPLES: Final = [example for group in groups() for example in group.examples if example.model != "logs"]
INJECTED: Final = [(model, name) for model in MODELS if model != "logs" for name in anomalies(model)]
LONG: Final = 100_000
KEYS: Final = {"causal-reverse": 1_000, "lin-set": 1_000, "set": 1_000, "set-full": 1_000}
"""Sets are read as a whole."""

KEPT_BY_OTHERS: Final = {("catalog", "table-twice"), ("catalog", "version-without-alter")}
"""In long histories these are `no-order`, for changes of unknown outcome might explain them, which therefore stay:
without them another finding takes its place, and is not followed."""


def shrunk(source: Source, question: HistoryQuestion, anomaly: str) -> HistorySearch:
    """The search for the smallest part that shows the anomaly, done; the part is as bad as the whole."""
    verdict = judge_source(source, question.model, LocalEngine(), question.options)
    families = question.families(verdict)
    wanted = next((family for family, names in families.items() if anomaly in names), next(iter(families)))
    search = HistorySearch(source, question, verdict, wanted, 600.0)
    part = search.run()
    assert search.smallest and part is not None
    found = question.verdict(part)
    assert found is not None
    assert next(iter(question.families(found))) == wanted
    return search


def options_of(example: Example) -> CheckOptions:
    stated = dict(setting.split("=", 1) for setting in example.settings)
    return CheckOptions(settings=stated, consistency=example.consistency)


@pytest.mark.parametrize(
    "example",
    [pytest.param(each, marks=[pytest.mark.campaign] * bool(place % 4)) for place, each in enumerate(EXAMPLES)],
    ids=lambda example: f"{example.model}-{example.anomaly}",
)
def test_examples_shrink_to_what_shows_the_same(example: Example) -> None:
    source = open_example(example.path)
    search = shrunk(source, HistoryQuestion(example.model, options_of(example)), example.anomaly)
    assert search.trials.best is not None
    assert 1 <= search.trials.best.rows <= source.rows


def operations_of_example(model: str, name: str) -> int:
    """How many operations are injected."""
    few, none = (_made(MadeHistory(model, 30, anomaly=anomaly)).rows for anomaly in (name, None))
    return few - none


def _made(wanted: MadeHistory) -> Source:
    texts: dict[str, int] = {}
    table = pa.Table.from_batches([batch.cast(SCHEMA) for batch in made_batches(wanted, texts)], SCHEMA)
    return Source(Path("made"), "parquet", table.num_rows, table=table, dictionary=tuple(texts))


def assert_shrinks(model: str, name: str, operations: int) -> None:
    wanted = MadeHistory(model, operations, KEYS.get(model), name)
    source = _made(wanted)
    search = shrunk(source, HistoryQuestion(model, CheckOptions(settings=settings_of(wanted))), name)
    assert search.trials.best is not None
    most = 5 if (model, name) in KEPT_BY_OTHERS else 3
    assert search.trials.best.rows <= most * operations_of_example(model, name)


@pytest.mark.parametrize(("model", "name"), INJECTED[::12], ids="-".join)
def test_injected_anomalies_shrink_to_their_examples(model: str, name: str) -> None:
    assert_shrinks(model, name, 1_000)


@pytest.mark.campaign
@pytest.mark.parametrize(("model", "name"), INJECTED, ids="-".join)
def test_anomalies_in_long_histories_shrink_to_their_examples(model: str, name: str) -> None:
    assert_shrinks(model, name, LONG)

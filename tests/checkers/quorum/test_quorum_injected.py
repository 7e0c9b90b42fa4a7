"""Longer histories, as they are and with one thing spoilt: each model finds just what it is about, on both engines."""

import msgspec
import pytest
from injected_quorum import Plan, history
from quorum_histories import events_of

from checkers.api import check_run
from checkers.engines.local import LocalEngine
from checkers.importers.detect import open_source
from checkers.made.pages import PageShape, write_page_history
from checkers.models import MODELS
from checkers.options import CheckOptions
from harness.history.table import write_parquet
from tests.support.few_seeds import few_of

JUDGED = ("write-atomicity", "monotonic-reads", "read-your-writes", "sessions", "durable-rows")
EXPECTED = {
    "none": {},
    "went-back-at-one": {},
    "torn": {"write-atomicity": "torn-read"},
    "went-back": {
        "monotonic-reads": "non-monotonic-read",
        "sessions": "non-monotonic-read",
        "durable-rows": "lost-write",
    },
    "lost-write": {"durable-rows": "lost-write"},
    "lost-deletion": {"durable-rows": "deleted-row-returned"},
    "made-up": dict.fromkeys(JUDGED, "unwritten-value"),
}


def written(anomaly, seed, path):
    write_parquet(events_of(history(Plan(seed=seed, anomaly=anomaly))), path)
    return path


@pytest.mark.parametrize("seed", few_of(1, 10))
@pytest.mark.parametrize("anomaly", EXPECTED)
def test_each_model_finds_what_it_is_about(anomaly, seed, tmp_path):
    found = check_run(written(anomaly, seed, tmp_path / "history.parquet"), JUDGED, engine="local")
    for model in JUDGED:
        expected = EXPECTED[anomaly].get(model)
        counts = found[model].counts
        if expected is not None:
            assert found[model].valid is False and expected in counts, (model, counts)
        elif model == "write-atomicity" or not EXPECTED[anomaly]:
            assert found[model].valid is True, (model, counts)
    assert found["write-atomicity"].details["pages"] > 500
    assert found["monotonic-reads"].details["comparisons"] > 2000


@pytest.mark.parametrize("anomaly", ["none", "torn-read", "non-monotonic-read"])
def test_synthetic_pages_are_valid_until_something_is_injected(anomaly, tmp_path):
    path = tmp_path / "history.parquet"
    write_page_history(PageShape(6000, partitions=40, quorum=True, anomaly=anomaly), path)
    found = check_run(path, JUDGED, engine="local")
    assert found["write-atomicity"].valid is (anomaly != "torn-read")
    assert found["monotonic-reads"].valid is (anomaly == "none")
    assert found["durable-rows"].valid is (anomaly == "none")


@pytest.mark.spark
def test_spark_finds_the_same(spark, tmp_path):
    for anomaly, models in (
        ("none", ("sessions", "convergence")),
        ("torn", ("write-atomicity", "sessions")),
        ("lost-deletion", ("durable-rows", "convergence")),
    ):
        source = open_source(written(anomaly, 0, tmp_path / f"{anomaly}.parquet"))
        for model in models:
            both = [MODELS[model].judge(source, engine, CheckOptions()) for engine in (LocalEngine(), spark)]
            one, other = (msgspec.structs.replace(verdict, engine="", seconds=0.0) for verdict in both)
            assert one == other
            if model != "convergence" and (model in EXPECTED[anomaly] or anomaly == "none"):
                assert one.valid is (model not in EXPECTED[anomaly])

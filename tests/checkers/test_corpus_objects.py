"""Locks, queues and strings of the conformance corpus, with the verdicts that their projects (or Porcupine) state."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import msgspec
import pytest

from checkers.api import _judged as judged
from checkers.api import check
from checkers.engines.spark import SparkEngine
from checkers.importers.detect import open_source
from checkers.models import MODELS
from checkers.options import CheckOptions
from checkers.verdict import in_two_words

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Path(os.environ.get("ASSAY_CORPUS", ROOT.parent / "shared" / "corpus"))
OBJECTS = ("mutex", "fifo-queue", "kv-append")

pytestmark = pytest.mark.skipif(
    not (CORPUS / "index.tsv").exists(), reason=f"no conformance corpus at {CORPUS}; set ASSAY_CORPUS to where it is"
)


def truth(models: tuple[str, ...]) -> list[tuple[Path, str, bool]]:
    """Files with their model and whether they are valid."""
    found = []
    for table in (CORPUS / "index.tsv", CORPUS / "linear-random" / "truth.tsv"):
        with table.open() as lines:
            rows = [row for row in csv.DictReader(lines, delimiter="\t") if row["model"] in models]
        found += [(table.parent / row["file"], row["model"], row["valid"] == "true") for row in rows]
    return found


def test_verdicts_agree_and_refuted_ones_are_explained() -> None:
    expected = truth(OBJECTS)
    assert len(expected) >= 190
    for path, model, valid in expected:
        verdict = check(path, model, engine="local")
        assert in_two_words(verdict) == str(valid).lower(), path
        found = [anomaly for anomalies in verdict.anomalies.values() for anomaly in anomalies]
        assert bool(found) is not valid
        assert all("stuck" in anomaly.details and anomaly.ops and anomaly.message for anomaly in found), path


@pytest.mark.spark
@pytest.mark.parametrize("share", [pytest.param(1, marks=pytest.mark.campaign), 14])
def test_spark_agrees(spark: SparkEngine, share: int) -> None:
    for path, model, valid in truth(OBJECTS)[::share]:
        source = open_source(path)
        verdict = judged(MODELS[model], source, spark, CheckOptions())
        assert (in_two_words(verdict), verdict.engine) == (str(valid).lower(), "spark"), path
        local = check(path, model, engine="local")
        assert msgspec.structs.replace(verdict, engine="local", seconds=0.0) == msgspec.structs.replace(
            local, seconds=0.0
        )

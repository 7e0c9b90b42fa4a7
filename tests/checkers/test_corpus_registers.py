"""The register histories of the conformance corpus, with the verdicts that their projects (or Porcupine) state."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from checkers.api import check

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Path(os.environ.get("ASSAY_CORPUS", ROOT.parent / "shared" / "corpus"))

pytestmark = pytest.mark.skipif(
    not (CORPUS / "index.tsv").exists(), reason=f"no conformance corpus at {CORPUS}; set ASSAY_CORPUS to where it is"
)


def expected(table: str, model: str) -> list[tuple[Path, bool]]:
    """Files of one model with whether they are valid."""
    path = CORPUS / table
    folder = path.parent
    with path.open() as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))
    return [(folder / row["file"], row["valid"] == "true") for row in rows if row["model"] == model]


@pytest.mark.parametrize("table", ["index.tsv", "linear-random/truth.tsv"])
def test_verdicts_agree(table: str) -> None:
    truth = expected(table, "cas-register")
    assert len(truth) >= 80
    found = [(path, check(path, "cas-register", engine="local").valid) for path, _ in truth]
    assert found == truth


def test_refuted_ones_are_explained() -> None:
    for path, valid in expected("index.tsv", "cas-register"):
        verdict = check(path, "cas-register", engine="local")
        assert bool(verdict.anomalies) is not valid
        assert all(anomaly.message and anomaly.ops for found in verdict.anomalies.values() for anomaly in found)

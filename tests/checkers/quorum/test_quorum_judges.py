"""The judges of quorum tables against their definitions, by trying everything, over many small histories."""

import os

import pytest
from quorum_histories import faults, random_history, side_by_side

from checkers.columns.mops import flatten_mops, joined
from checkers.engines.grouped import SLICES, judge_mops
from checkers.engines.local import LocalEngine
from checkers.importers.detect import open_source
from checkers.quorum.quorum_history import read_quorum_history
from checkers.quorum.quorum_kernel import QuorumKernel
from checkers.source import Source
from harness.history.table import write_batches

MANY = 1_000_000
MODELS = ("write-atomicity", "monotonic-reads", "read-your-writes", "sessions", "durable-rows")


def guilty(table):
    """The models that each partition breaks, by the kernels."""
    source = Source(None, "table", table.num_rows, table=table)
    reading = read_quorum_history(source, LocalEngine())
    parts = [flatten_mops(batch, reading.projection) for batch in table.to_batches(max_chunksize=997)]
    rows, found = joined(parts, reading.projection), {}
    for model in MODELS:
        findings = QuorumKernel(model, reading.binding, MANY)(rows)
        assert findings.undecided == 0 and not any(name.startswith("refused") for name in findings.counts)
        for finding in findings.kept:
            found.setdefault(finding.key.partition, set()).add(model)
    return found


def compare(seeds):
    histories = [random_history(seed) for seed in seeds]
    found, broken = guilty(side_by_side(histories)), 0
    for number, seed in enumerate(seeds):
        expected = faults(histories[number])
        assert found.get(number, set()) == expected, (seed, histories[number])
        broken += bool(expected)
    return broken


SMALL_HISTORIES = int(os.environ.get("ASSAY_SMALL_HISTORIES", "20000"))


@pytest.mark.parametrize("many", [500, pytest.param(SMALL_HISTORIES, marks=pytest.mark.campaign)])
def test_small_histories_are_judged_as_trying_everything_does(many):
    for first in range(0, many, 500):
        assert 100 < compare(range(first, first + 500)) < 400


@pytest.mark.spark
@pytest.mark.campaign
def test_many_small_histories_on_spark(spark, tmp_path):
    histories, path = [random_history(seed) for seed in range(SMALL_HISTORIES)], tmp_path / "history.parquet"
    write_batches(iter(side_by_side(histories).to_batches(max_chunksize=10_000)), path)
    source, found = open_source(path), {}
    reading = read_quorum_history(source, spark)
    for model in MODELS:
        kernel = QuorumKernel(model, reading.binding, MANY)
        findings = judge_mops(spark, source, reading.projection, ("table", "partition"), kernel, MANY, SLICES)
        assert findings.undecided == 0 and not any(name.startswith("refused") for name in findings.counts)
        for finding in findings.kept:
            found.setdefault(finding.key.partition, set()).add(model)
    for number, history in enumerate(histories):
        assert found.get(number, set()) == faults(history), (number, history)
    assert SMALL_HISTORIES // 5 < len(found) < SMALL_HISTORIES * 4 // 5

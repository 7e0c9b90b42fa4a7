"""Bounds on work, memory and what is shown: none of them hides a violation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from checkers.api import judge_source
from checkers.engines import shuffle
from checkers.engines.local import LocalEngine
from checkers.engines.spark import SparkEngine
from checkers.importers.detect import open_source
from checkers.jepsen.logs import matches_of
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.synthetic import RegisterShape, write_register_history
from checkers.transactions import cycles
from checkers.transactions.judge import judge_list_append
from checkers.transactions.planted import PLANTED, history_of

CONSISTENCIES = ("read-committed", "snapshot-isolation", "serializable", "strict-serializable")


def judged(anomaly: str, consistency: str) -> object:
    table = history_of(PLANTED["list-append"][anomaly])
    source = Source(Path("planted"), "test", table.num_rows, table=table)
    return judge_list_append(source, LocalEngine(), CheckOptions(consistency=consistency)).valid


@pytest.mark.parametrize("anomaly", PLANTED["list-append"])
def test_a_cycle_search_that_ends_early_never_makes_valid(anomaly: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {name: judged(anomaly, name) for name in CONSISTENCIES}
    monkeypatch.setattr(cycles, "_MOST_WORK", -1)
    for name in CONSISTENCIES:
        if told[name] is False:
            assert judged(anomaly, name) is not True, f"{anomaly} is hidden from {name}"


def test_some_planted_anomaly_was_hidden_by_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above tests something: with nothing searched there are unknown verdicts."""
    monkeypatch.setattr(cycles, "_MOST_WORK", -1)
    assert "unknown" in {judged(anomaly, name) for anomaly in PLANTED["list-append"] for name in CONSISTENCIES}


@pytest.mark.parametrize("before", range((1 << 16) - 6, 1 << 16))
def test_a_panic_across_the_pieces_of_a_long_line_is_found(before: int, tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    path.write_bytes(b"fine\n" + b"." * before + b" PANIC here\n" + b"fine\n")
    assert [match.line for match in matches_of(path, "n1", re.compile(rb"\bPANIC\b"))] == [2]


@pytest.mark.spark
@pytest.mark.parametrize("model", ["register", "monotonic-reads", "isolation"])
def test_what_one_task_does_not_take_is_unknown(
    model: str, spark: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_register_history(RegisterShape(2_000), tmp_path / "h.parquet")
    source = open_source(tmp_path / "h.parquet")
    monkeypatch.setattr(shuffle, "most_bytes", lambda: 1_000)
    verdict = judge_source(source, model, spark, CheckOptions())
    assert verdict.valid == "unknown" and "one task takes 1000" in str(verdict.reason)

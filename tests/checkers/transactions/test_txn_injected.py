"""Synthetic histories: valid by construction, and with each injected anomaly; what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkers.engines.local import LocalEngine
from checkers.importers.detect import open_parquet
from checkers.made.injection import INJECTED, history_of
from checkers.made.transactions import TxnShape, write_txn_history
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.transactions.judge_transactions import judge_list_append, judge_rw_register
from checkers.transactions.lattice import MODELS, prohibited_anomalies
from checkers.verdict import Verdict

JUDGES = {"list-append": judge_list_append, "rw-register": judge_rw_register}
EVERY = [(model, anomaly) for model, injected in INJECTED.items() for anomaly in injected]


def judge(model: str, source: Source, consistency: str | None = None) -> Verdict:
    return JUDGES[model](source, LocalEngine(), CheckOptions(consistency=consistency))


def alone(model: str, anomaly: str) -> Source:
    table = history_of(INJECTED[model][anomaly])
    return Source(Path("injected"), "test", table.num_rows, table=table)


@pytest.mark.parametrize(("model", "anomaly"), EVERY)
def test_each_injected_anomaly_is_found_and_explained(model, anomaly):
    verdict = judge(model, alone(model, anomaly))
    assert verdict.valid is False
    assert anomaly in verdict.counts
    example = verdict.anomalies[anomaly][0]
    assert example.message.endswith(".") and "?" not in example.message
    assert len(example.ops) >= 1
    for step in example.steps:
        assert step["source"] != step["target"]
        assert step["why"]


def test_some_anomaly_refutes_every_model_that_any_rules_out():
    ruled_out: set[str] = set()
    for anomaly in INJECTED["list-append"]:
        verdict = judge("list-append", alone("list-append", anomaly))
        ruled_out |= {*verdict.rules_out, *verdict.also_rules_out}
    assert ruled_out == {name for name in MODELS if prohibited_anomalies(name)}


@pytest.mark.parametrize("model", JUDGES)
def test_a_healthy_history_is_valid(model, tmp_path):
    write_txn_history(TxnShape(3000, model, active_keys=5, writes_per_key=40), tmp_path / "h.parquet")
    verdict = judge(model, open_parquet(tmp_path / "h.parquet"))
    assert verdict.valid is True
    assert verdict.counts == {}
    assert verdict.ops == 3000
    assert all(verdict.details["dependencies"].values())


@pytest.mark.parametrize(("model", "anomaly"), EVERY)
def test_a_injected_anomaly_is_all_that_is_wrong(model, anomaly, tmp_path):
    shape = TxnShape(400, model, active_keys=4, writes_per_key=30, anomaly=anomaly, seed=5)
    write_txn_history(shape, tmp_path / "h.parquet")
    assert judge(model, open_parquet(tmp_path / "h.parquet")).counts == judge(model, alone(model, anomaly)).counts


def test_why_one_transaction_comes_before_the_other():
    verdict = judge("list-append", alone("list-append", "G-single-item"), "serializable")
    (example,) = verdict.anomalies["G-single-item"]
    why = {step["kind"]: step["why"] for step in example.steps}
    assert why["rw"] == "T1 read key 0 while it was empty, and T0 appended 1 to it, so T1 comes before T0"
    assert why["wr"] == "T1 read [1] of key 1, whose last element 1 T0 appended, so T0 comes before T1"
    assert verdict.rules_out == ("consistent-view", "repeatable-read")


def test_consistency_decides_what_is_invalid():
    skew = alone("list-append", "G2-item")
    assert judge("list-append", skew, "snapshot-isolation").valid is True
    assert judge("list-append", skew, "snapshot-isolation").details["allowed"] == ["G2-item"]
    assert judge("list-append", skew, "PL-SI").valid is True
    assert judge("list-append", skew, "serializable").valid is False
    late = alone("list-append", "G-single-item-realtime")
    assert judge("list-append", late, "serializable").valid is True
    assert judge("list-append", late).valid is False


def test_stale_registers_need_real_time_to_be_seen():
    late = alone("rw-register", "cyclic-versions-realtime")
    assert judge("rw-register", late, "serializable").valid is True
    assert judge("rw-register", late).counts["cyclic-versions-realtime"] == 1

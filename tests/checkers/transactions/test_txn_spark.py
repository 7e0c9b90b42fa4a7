"""Both engines say the same, word for word, of histories of many pieces."""

from __future__ import annotations

import msgspec
import pytest

from checkers.engines.local import LocalEngine
from checkers.importers.detect import open_parquet
from checkers.made.transactions import TxnShape, write_txn_history
from checkers.options import CheckOptions
from checkers.transactions.judge_transactions import judge_list_append, judge_rw_register
from harness.errors import UserError

JUDGES = {"list-append": judge_list_append, "rw-register": judge_rw_register}
CASES = [
    ("list-append", "G-single-item-realtime"),
    ("rw-register", None),
    ("rw-register", "lost-update"),
    pytest.param("list-append", None, marks=pytest.mark.campaign),
    pytest.param("list-append", "incompatible-order", marks=pytest.mark.campaign),
    pytest.param("list-append", "internal", marks=pytest.mark.campaign),
    pytest.param("rw-register", "cyclic-versions-realtime", marks=pytest.mark.campaign),
]


@pytest.mark.spark
@pytest.mark.parametrize(("model", "anomaly"), CASES)
def test_engines_agree(spark, model, anomaly, tmp_path):
    shape = TxnShape(40_000, model, active_keys=20, writes_per_key=64, anomaly=anomaly, seed=3)
    write_txn_history(shape, tmp_path / "h.parquet")
    source = open_parquet(tmp_path / "h.parquet")
    ours, theirs = (JUDGES[model](source, engine, CheckOptions()) for engine in (LocalEngine(), spark))
    assert ours.valid is (anomaly is None)
    assert msgspec.structs.replace(theirs, engine="local") == ours


@pytest.mark.spark
def test_a_worker_s_refusal_reaches_the_user_as_one_sentence(spark, tmp_path):
    write_txn_history(TxnShape(100, "rw-register"), tmp_path / "h.parquet")
    with pytest.raises(UserError, match=r"h\.parquet, event \d+: .* so the model list-append can't judge it\.$"):
        judge_list_append(open_parquet(tmp_path / "h.parquet"), spark, CheckOptions())

"""Inputs that must not hurt: each gives a verdict or one clear sentence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from weak_store import Txn, source_of

from checkers.api import judge_source
from checkers.engines.local import LocalEngine
from checkers.importers.detect import open_source
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.transactions.judge_transactions import judge_list_append, judge_rw_register
from checkers.verdict import Verdict
from harness.errors import UserError
from harness.history.parts import schema

LEAST, MOST = -(2**63), 2**63 - 1


def lists(*txns: Txn) -> Verdict:
    return judge_list_append(source_of(list(txns)), LocalEngine(), CheckOptions())


def registers(*txns: Txn) -> Verdict:
    return judge_rw_register(source_of(list(txns)), LocalEngine(), CheckOptions())


def txn(at: int, *mops: tuple[str, int, Any], outcome: str = "ok", process: int | None = None) -> Txn:
    who = at if process is None else process
    return Txn(who, outcome, 2 * at, None if outcome == "info" else 2 * at + 1, mops)


@pytest.mark.parametrize("judge", [lists, registers])
def test_nothing_to_judge_is_unknown(judge):
    for history in ((), (txn(0, ("r", 1, None), outcome="info"),), (txn(0),)):
        verdict = judge(*history)
        assert verdict.valid == "unknown"
        assert verdict.reason is not None and "nothing to judge" in verdict.reason


def test_two_transactions_in_a_row_are_judged():
    assert lists(txn(0, ("append", 1, 1)), txn(1, ("r", 2, ()))).valid is True


def test_extreme_integers():
    extremes = (("append", MOST, LEAST), ("append", MOST, MOST), ("append", LEAST, 0))
    assert lists(txn(0, *extremes), txn(1, ("r", MOST, (LEAST, MOST)), ("r", LEAST, (0,)))).valid is True
    assert lists(txn(0, *extremes), txn(1, ("r", MOST, (LEAST,)))).valid is False
    assert registers(txn(0, ("w", LEAST, MOST)), txn(1, ("r", LEAST, MOST))).valid is True
    with pytest.raises(UserError, match="reserved integer"):
        registers(txn(0, ("w", 1, LEAST)))


def test_an_unknown_transaction_counts_if_it_was_seen():
    unseen = txn(0, ("append", 1, 1), outcome="info")
    assert lists(unseen, txn(1, ("r", 1, ())), txn(2, ("r", 1, ()))).valid is True
    assert lists(unseen, txn(1, ("r", 1, (1,))), txn(2, ("r", 1, ()))).valid is False


@pytest.mark.parametrize(
    ("mop", "sentence"),
    [
        (("cas", 1, 2), "neither a read"),
        (("r", 1, 5), "a single value instead of a list"),
        (("append", 1, None), "no single value"),
        (("append", 1, (1, 2)), "no single value"),
    ],
)
def test_strange_micro_operations_of_lists(mop, sentence):
    with pytest.raises(UserError, match=f"event 2: .*{sentence}.*list-append can't judge it"):
        lists(txn(0, ("append", 1, 1)), txn(1, ("r", 1, (1,)), mop))


def test_strange_micro_operations_of_registers():
    with pytest.raises(UserError, match="a list instead of a single value"):
        registers(txn(0, ("r", 1, (1, 2))))
    with pytest.raises(UserError, match="neither a read"):
        registers(txn(0, ("append", 1, 2)))


def test_values_written_twice_are_refused():
    with pytest.raises(UserError, match="events 0 and 2 append the same value to key 1"):
        lists(txn(0, ("append", 1, 1)), txn(1, ("append", 1, 1), outcome="info"))
    with pytest.raises(UserError, match="event 0 writes a value twice to key 1"):
        registers(txn(0, ("w", 1, 1), ("w", 1, 1)))


def test_what_failed_may_be_written_again():
    """Who reads the value read it of who did not fail, whoever was first."""
    for outcomes in (("fail", "ok"), ("ok", "fail")):
        appends = [txn(n, ("append", 1, 1), outcome=word) for n, word in enumerate(outcomes)]
        writes = [txn(n, ("w", 1, 1), outcome=word) for n, word in enumerate(outcomes)]
        assert lists(*appends, txn(2, ("r", 1, (1,)))).valid is True
        assert registers(*writes, txn(2, ("r", 1, 1))).valid is True
        assert lists(*appends, txn(2, ("r", 1, (1,))), txn(3, ("r", 1, ()))).valid is False


def test_a_register_that_many_clients_write_at_once_needs_more_dependencies_than_accesses():
    """Each of 40 concurrent writes comes after each of the 40 before it."""
    rounds, clients = 20, 40
    history = [
        Txn(client, "ok", 2 * clients * turn + client, 2 * clients * turn + clients + client, (("w", 1, 1 + value),))
        for value, (turn, client) in enumerate((turn, client) for turn in range(rounds) for client in range(clients))
    ]
    verdict = registers(*history)
    assert verdict.valid is True
    assert verdict.details["dependencies"]["ww"] == (rounds - 1) * clients**2


def test_settings_and_consistency_have_to_exist():
    source = source_of([txn(0, ("w", 1, 1))])
    with pytest.raises(UserError, match="no consistency model 'eventual'"):
        judge_rw_register(source, LocalEngine(), CheckOptions(consistency="eventual"))
    with pytest.raises(UserError, match="linearizable-keys is true or false, not 'maybe'"):
        judge_rw_register(source, LocalEngine(), CheckOptions(settings={"linearizable-keys": "maybe"}))


def test_operations_without_transactions_are_refused():
    row = {"op": 0, "invoke_index": 0, "complete_index": 1, "invoke_time": 0, "type": "ok", "process": 0, "f": "txn"}
    table = pa.Table.from_pylist([row], schema=schema())
    with pytest.raises(UserError, match="event 0: this operation is not a transaction"):
        judge_list_append(Source(Path("x"), "test", 1, table=table), LocalEngine(), CheckOptions())


def test_nemesis_operations_and_foreign_keys_and_values(tmp_path):
    text = """
    {:index 0, :type :invoke, :process 0, :f :txn, :value [[:append :x "a"] [:append 5 1]]}
    {:index 1, :type :info, :process :nemesis, :f :kill, :value :n1}
    {:index 2, :type :ok, :process 0, :f :txn, :value [[:append :x "a"] [:append 5 1]]}
    {:index 3, :type :invoke, :process 1, :f :txn, :value [[:r :x nil] [:r 5 nil]]}
    {:index 4, :type :ok, :process 1, :f :txn, :value [[:r :x ["a"]] [:r 5 nil]]}
    {:index 5, :type :invoke, :process 1, :f :txn, :value []}
    {:index 6, :type :ok, :process 1, :f :txn, :value []}
    """
    path = tmp_path / "history.edn"
    path.write_text(text)
    verdict = judge_list_append(open_source(path, "edn"), LocalEngine(), CheckOptions())
    assert verdict.valid is False
    assert verdict.details["keys"] == 2
    assert "key :x" in verdict.anomalies["G-single-item"][0].message


def test_an_element_that_is_nil_is_shown_as_nil(tmp_path):
    """It was told by the integer that stands for it."""
    path = tmp_path / "history.edn"
    path.write_text("""
    {:type :invoke, :process 0, :f :txn, :value [[:append 1 2] [:r 1 nil]]}
    {:type :ok, :process 0, :f :txn, :value [[:append 1 2] [:r 1 [nil 2]]]}
    """)
    (anomaly,) = judge_source(open_source(path), "list-append", LocalEngine()).anomalies["garbage-read"]
    assert "read [nil 2] of key 1" in anomaly.message
    assert anomaly.ops[0]["mops"][1]["values"] == [None, 2]


MOPS = st.tuples(
    st.sampled_from(["r", "append", "w"]),
    st.integers(0, 2),
    st.none() | st.integers(0, 4) | st.lists(st.integers(0, 4), max_size=4).map(tuple),
)
HISTORIES = st.lists(st.tuples(st.lists(MOPS, max_size=4), st.sampled_from(["ok", "info", "fail"])), max_size=8)


@given(HISTORIES)
def test_any_history_gets_a_verdict_or_a_sentence(history):
    txns = [txn(i, *mops, outcome=outcome, process=i % 3) for i, (mops, outcome) in enumerate(history)]
    for judge in (lists, registers):
        try:
            assert judge(*txns).valid in (True, False, "unknown")
        except UserError as error:
            assert str(error).endswith(".")

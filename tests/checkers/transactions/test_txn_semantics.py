"""What single anomalies mean in the finer cases: own writes, unknown and failed transactions, nested elements."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from weak_store import Txn, source_of

from checkers.engines.local import LocalEngine
from checkers.options import CheckOptions
from checkers.transactions.judge_transactions import judge_list_append, judge_rw_register
from checkers.verdict import Verdict

JUDGES = {"list-append": judge_list_append, "rw-register": judge_rw_register}


def judge(model: str, history: list[Txn], consistency: str | None = None, **settings: str) -> Verdict:
    options = CheckOptions(
        consistency=consistency, settings={name.replace("_", "-"): settings[name] for name in settings}
    )
    return JUDGES[model](source_of(history), LocalEngine(), options)


def after(at: int, *mops: tuple[str, int, Any], outcome: str = "ok", process: int | None = None) -> Txn:
    """A transaction that begins when all with a smaller `at` are over."""
    end = None if outcome == "info" else 2 * at + 1
    return Txn(at if process is None else process, outcome, 2 * at, end, mops)


def together(*txns: tuple[str, tuple[tuple[str, int, Any], ...]]) -> list[Txn]:
    """Concurrent transactions of different processes."""
    count = len(txns)
    return [
        Txn(i, outcome, i, None if outcome == "info" else count + i, mops) for i, (outcome, mops) in enumerate(txns)
    ]


def append(key: int, value: int) -> tuple[str, int, Any]:
    return ("append", key, value)


def read(key: int, *values: int) -> tuple[str, int, Any]:
    return ("r", key, values)


LISTS: dict[str, tuple[list[Txn], set[str]]] = {
    "a transaction may read its own unfinished list": (
        [after(0, append(1, 1), read(1, 1), append(1, 2), read(1, 1, 2))],
        set(),
    ),
    "others may not": ([after(0, append(1, 1), append(1, 2)), after(1, read(1, 1))], {"G1b", "G-single-item"}),
    "an aborted element counts wherever it stands in the list": (
        [after(0, append(1, 1), outcome="fail"), after(1, append(1, 2)), after(2, read(1, 1, 2))],
        {"G1a", "dirty-update"},
    ),
    "reads of failed transactions say nothing": (
        [after(0, append(1, 1)), after(1, read(1, 9, 9), read(1), outcome="fail"), after(2, read(1, 1))],
        set(),
    ),
    "an unknown transaction that was read took effect as a whole": (
        together(("info", (append(1, 1), append(2, 1))), ("ok", (read(1, 1), read(2)))),
        {"G-single-item"},
    ),
    "one that nobody read may never take effect": (
        [after(0, append(1, 1), append(2, 1), outcome="info"), after(1, read(1), read(2)), after(2, read(1), read(2))],
        set(),
    ),
    "unknown between aborted and committed does not hide what was built upon": (
        [
            after(0, append(1, 1), outcome="fail"),
            after(1, append(1, 2), outcome="info"),
            after(2, append(1, 3)),
            after(3, read(1, 1, 2, 3)),
        ],
        {"G1a", "dirty-update"},
    ),
    "a list without one's own append is internal": ([after(0, append(1, 1), read(1))], {"internal"}),
    "a list that changes under one's eyes is internal": (
        together(("ok", (append(1, 1),)), ("ok", (read(1), read(1, 1)))),
        {"internal", "G-single-item"},
    ),
    "empty transactions say nothing": ([after(0), after(1, append(1, 1)), after(2), after(3, read(1, 1))], set()),
    "two that found a key empty and appended to it": (
        together(("ok", (read(1), append(1, 1))), ("ok", (read(1), append(1, 2))), ("ok", (read(1, 1, 2),))),
        {"lost-update", "G-single-item"},
    ),
    "an append that nobody read comes after those that were": (
        [after(0, append(1, 1)), after(1, append(1, 2)), after(2, read(1, 1))],
        {"G-single-item-realtime"},
    ),
    "an element that nobody appended": ([after(0, append(1, 1)), after(1, read(1, 1, 7))], {"garbage-read"}),
    "two longest lists that contradict each other are no cycle of writes": (
        together(("ok", (append(1, 1),)), ("ok", (append(1, 2),)), ("ok", (read(1, 1, 2),)), ("ok", (read(1, 2, 1),))),
        {"incompatible-order"},
    ),
    "of two longest lists the one read first orders the appends": (
        together(
            ("ok", (append(1, 1), append(2, 1))),
            ("ok", (append(1, 2), append(2, 2))),
            ("ok", (read(1, 1, 2),)),
            ("ok", (read(1, 2, 1),)),
            ("ok", (read(2, 2, 1),)),
        ),
        {"incompatible-order", "G0", "G-single-item"},
    ),
}


@pytest.mark.parametrize("case", LISTS)
def test_lists(case):
    history, anomalies = LISTS[case]
    verdict = judge("list-append", history)
    assert set(verdict.counts) == anomalies
    assert verdict.valid is (not anomalies) or (not anomalies and verdict.valid == "unknown")


REGISTERS: dict[str, tuple[list[Txn], set[str]]] = {
    "a transaction may read its own intermediate write": (
        [after(0, ("w", 1, 1), ("r", 1, 1), ("w", 1, 2), ("r", 1, 2))],
        set(),
    ),
    "others may not": (together(("ok", (("w", 1, 1), ("w", 1, 2))), ("ok", (("r", 1, 1),))), {"G1b"}),
    "a transaction may not read what it is yet to write": (
        [after(0, ("r", 1, 1), ("w", 1, 1)), after(1, ("r", 1, 1))],
        {"future-read"},
    ),
    "nor what it is yet to write after something else": (
        [after(0, ("r", 1, 2), ("w", 1, 1), ("w", 1, 2)), after(1, ("r", 1, 2))],
        {"future-read"},
    ),
    "nor what it writes over itself": (
        [after(0, ("r", 1, 1), ("w", 1, 1), ("w", 1, 2)), after(1, ("r", 1, 2))],
        {"future-read"},
    ),
    "aborted writes may not be read": (
        together(("fail", (("w", 1, 1),)), ("ok", (("r", 1, 1),))),
        {"G1a"},
    ),
    "an unknown transaction that was read took effect as a whole": (
        together(("info", (("w", 1, 1), ("w", 2, 1))), ("ok", (("r", 1, 1), ("r", 2, None)))),
        {"G-single-item"},
    ),
    "unset comes before all versions": (
        together(("ok", (("w", 1, 1), ("r", 2, None))), ("ok", (("w", 2, 1), ("r", 1, None)))),
        {"G2-item"},
    ),
    "nobody reads what nobody wrote": ([after(0, ("r", 1, 7)), after(1, ("r", 1, 7))], {"garbage-read"}),
    "two that read one version and wrote": (
        together(("ok", (("w", 1, 1),)), ("ok", (("r", 1, 1), ("w", 1, 2))), ("ok", (("r", 1, 1), ("w", 1, 3)))),
        {"lost-update"},
    ),
    "unset after a version": (
        [after(0, ("w", 1, 1)), after(1, ("r", 1, None))],
        {"cyclic-versions-realtime", "G-single-item-realtime"},
    ),
    "a value that changes under one's eyes is internal": (
        together(("ok", (("w", 1, 1),)), ("ok", (("r", 1, None), ("r", 1, 1)))),
        {"internal"},
    ),
}


@pytest.mark.parametrize("case", REGISTERS)
def test_registers(case):
    history, anomalies = REGISTERS[case]
    verdict = judge("rw-register", history)
    assert set(verdict.counts) == anomalies
    assert verdict.valid is (not anomalies) or (not anomalies and verdict.valid == "unknown")


SOURCES: dict[str, tuple[list[Txn], set[str], dict[str, str]]] = {
    "a write of unknown outcome is behind what its process left": (
        [
            after(0, ("w", 1, 1), process=0),
            after(1, ("w", 1, 2), process=0, outcome="info"),
            after(2, ("r", 1, 2), process=1),
            after(3, ("r", 1, 1), process=1),
        ],
        {"cyclic-versions"},
        {"sequential_keys": "true", "linearizable_keys": "false"},
    ),
    "what was written over what was read, and real time, contradict each other": (
        [
            Txn(0, "ok", 0, 9, (("w", 1, 1),)),
            Txn(1, "ok", 1, 2, (("r", 1, 1), ("w", 1, 2))),
            Txn(2, "ok", 3, 4, (("r", 1, 1),)),
        ],
        {"cyclic-versions-realtime", "G-single-item-realtime"},
        {"wfr_keys": "true"},
    ),
    "a value that nobody wrote orders nothing, but what is written over it does": (
        [
            after(0, ("r", 1, 7), ("w", 1, 1), process=0),
            after(1, ("r", 1, 2), process=0),
            after(2, ("w", 1, 2), process=1),
            after(3, ("r", 1, 1), process=1),
        ],
        {"cyclic-versions", "garbage-read"},
        {"sequential_keys": "true", "linearizable_keys": "false"},
    ),
    "what was read and written over by turns has an order": (
        [
            after(0, ("w", 1, 1), process=0),
            after(1, ("r", 1, 1), ("w", 1, 2), process=1),
            after(2, ("r", 1, 2), ("w", 1, 3), process=0),
            after(3, ("r", 1, 3), process=1),
        ],
        set(),
        {"sequential_keys": "true", "wfr_keys": "true"},
    ),
}


@pytest.mark.parametrize("case", SOURCES)
def test_sources_of_version_order(case):
    history, anomalies, settings = SOURCES[case]
    verdict = judge("rw-register", history, "serializable" if "linearizable_keys" in settings else None, **settings)
    assert set(verdict.counts) == anomalies


def test_sessions_and_real_time_order_versions_where_the_model_implies_it_and_rule_out_no_other():
    own = [Txn(0, "ok", 0, 2, (("w", 1, 1),)), Txn(1, "ok", 1, 3, (("w", 1, 2),))]
    sessions = [*own, Txn(0, "ok", 4, 6, (("r", 1, 2),)), Txn(1, "ok", 5, 7, (("r", 1, 1),))]
    verdict = judge("rw-register", sessions, "strong-session-serializable")
    assert verdict.counts == {"cyclic-versions-process": 1} and verdict.valid is False
    assert verdict.rules_out == ("strong-session-snapshot-isolation",)
    assert judge("rw-register", sessions).rules_out == verdict.rules_out
    unordered = judge("rw-register", sessions, "strong-session-serializable", sequential_keys="false")
    assert unordered.counts == {"no-version-order": 1}, "sessions order transactions, whatever orders versions"
    assert judge("rw-register", sessions, "serializable").valid is True
    others = [*own, Txn(2, "ok", 4, 6, (("r", 1, 2),)), Txn(3, "ok", 8, 9, (("r", 1, 1),))]
    late = judge("rw-register", [*others, Txn(4, "ok", 10, 11, (("r", 1, 2),))])
    assert set(late.counts) == {"cyclic-versions-realtime"} and late.rules_out == ("strong-snapshot-isolation",)
    granted = judge("rw-register", others[:2] + sessions[2:], "serializable", linearizable_keys="true")
    assert set(granted.counts) == {"cyclic-versions"} and granted.rules_out == ("read-uncommitted",)
    assert granted.details["settings"] == {"linearizable-keys": "true"}


@pytest.mark.parametrize("model", JUDGES)
def test_the_last_transaction_of_a_session_follows_the_others_whatever_became_of_it(model):
    """T0 then T2 in one session; T2's outcome is unknown, but T1 saw it, and did not see T0."""
    f, seen, unseen = ("append", (1,), ()) if model == "list-append" else ("w", 1, None)
    history = [
        Txn(0, "ok", 0, 3, ((f, 1, 1),)),
        Txn(1, "ok", 1, 5, (("r", 2, seen), ("r", 1, unseen))),
        Txn(0, "info", 4, None, ((f, 2, 1),)),
    ]
    assert judge(model, history, "serializable").valid is True
    verdict = judge(model, history, "strong-session-serializable", linearizable_keys="false")
    assert verdict.valid is False
    assert verdict.counts == {"G-single-item-process": 1}
    (example,) = verdict.anomalies["G-single-item-process"]
    assert "Process 0 ran" in example.message


@pytest.mark.parametrize("consistency", ["linearizable", "sequential", "causal", "PRAM", "view-serializable", "1SR"])
def test_a_model_that_no_anomaly_rules_out_is_unknown(consistency):
    history = [after(0, append(1, 1)), after(1, read(1)), after(2, read(1, 9, 9, 1))]
    verdict = judge("list-append", history, consistency)
    assert verdict.valid == "unknown" and consistency in (verdict.reason or "")
    assert verdict.counts

"""What the complete judge says of orders of versions that nobody observed: rule by rule, by name of each level."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from weak_store import Txn, source_of

from checkers.columns.codes import FAIL, INFO
from checkers.engines.local import LocalEngine
from checkers.isolation.judge_isolation import judge_isolation
from checkers.options import CheckOptions
from checkers.transactions import transaction_findings
from checkers.transactions.judge_transactions import judge_by_each
from checkers.transactions.lattice import MODELS, implied_models
from checkers.transactions.polygraph.conditions import CONDITIONS
from checkers.transactions.polygraph.history_polygraph import INITIAL, Accessed, TxnTimes
from checkers.verdict import Verdict
from harness.errors import UserError


def txns(*several: Any) -> list[Txn]:
    """Transactions that all overlap: each as words, `wx1 rx1 ax1 rx12 rx.`, behind `info` or `fail` if it did so."""
    found = []
    for number, words in enumerate(several):
        outcome = next((word for word in words.split() if word in ("info", "fail")), "ok")
        mops = tuple(mop(word) for word in words.split() if word not in ("info", "fail"))
        complete = None if outcome == "info" else len(several) + number
        found.append(Txn(number, outcome, number, complete, mops))
    return found


def mop(word: str) -> tuple[str, int, Any]:
    f, key, value = word[0], ord(word[1]), word[2:]
    if f == "l":
        return "r", key, tuple(map(int, value))
    return {"r": "r", "w": "w", "a": "append"}[f], key, int(value) if value != "." else None


def in_sessions(history: list[Txn], *sessions: int) -> list[Txn]:
    """A history whose transactions begin one by one in these sessions, and overlap all of others' but not their own."""
    end, found = 2 * len(history), []
    for number, (txn, session) in enumerate(zip(history, sessions, strict=True)):
        complete = 2 * number + 1 if session in sessions[number + 1 :] else end + number
        found.append(txn._replace(process=session, invoke=2 * number, complete=complete))
    return found


def in_turn(history: list[Txn]) -> list[Txn]:
    """A history whose transactions begin when the one before has completed."""
    return [txn._replace(invoke=2 * number, complete=2 * number + 1) for number, txn in enumerate(history)]


def judged(history: list[Txn], names: tuple[str, ...] = tuple(MODELS), **settings: str) -> dict[str, Verdict]:
    model = "list-append" if any(f == "append" for txn in history for f, _, _ in txn.mops) else "rw-register"
    options = CheckOptions(settings=settings)
    return dict(zip(names, judge_by_each(model, source_of(history), LocalEngine(1), options, names), strict=True))


FRACTURED = txns("wx1 wy1", "wx2 wy2", "rx1 ry2")
RULES = {
    "a fractured read of blind writes": (FRACTURED, "read-committed", "read-atomic"),
    "seeded write skew": (txns("wx1 wy1", "rx1 wy2", "ry1 wx2"), "snapshot-isolation", "repeatable-read"),
    "unread appends of two that missed each other": (txns("aa1 lb ac1", "aa2 ab1 lc"), "prefix", "update-atomic"),
    "a fractured read of appends": (txns("ax1", "ax2 ay2", "lx12 ly"), "read-committed", "read-atomic"),
    "plain levels have no session order": (in_sessions(txns("wx1", "rx."), 0, 0), "serializable", "strong-session-s"),
    "the initial version precedes every writer": (txns("wx1 wy1", "rx1 ry."), "read-committed", "read-atomic"),
    "who reads and writes follows what it read": (txns("rx. wx1", "rx. wx2"), "prefix", "update-atomic"),
    "one edge of D, not a path": (txns("wx1 wy1", "ry1 wz1", "rz1 rx."), "update-atomic", "causal-cerone"),
    "at prefix somebody may come between": (txns("rx. wx1", "wx2 wz1", "rz1 rx1"), "prefix", "update-atomic"),
    "a long fork of blind writes": (txns("wx1", "wy1", "rx1 ry.", "rx. ry1"), "consistent-view", "prefix"),
    "unknown, unseen: dropped": (txns("info wx1 wy1", "rx. ry."), "serializable", None),
    "unknown, seen: took place whole": (txns("info wx1 wy1", "rx1 ry."), "read-committed", "read-atomic"),
    "unknown: its reads say nothing": (txns("info rx. wx1 ry5", "rx1"), "serializable", None),
    "a transaction's appends stand together": (txns("ax1 ax2", "lx2"), "read-uncommitted", "read-committed"),
    "a transaction's appends keep their order": (txns("ax1 ax2", "ax3", "lx213"), "read-uncommitted", "read-committed"),
    "only the last write of a key shows": (txns("wx1 wx2 wy1", "rx2 ry1"), "serializable", None),
    "no other write of a key shows": (txns("wx1 wx2 wy1", "rx1 ry1"), "read-uncommitted", "read-committed"),
    "a read before the own write is of others": (txns("wx1 wy1", "rx1 wx2 ry."), "read-committed", "read-atomic"),
    "a read behind the own write is its own": (txns("wx1 wy1", "wx2 rx2 ry."), "serializable", None),
    "two reads that differ": (txns("wx1", "wx2", "rx1 rx2"), "read-committed", "read-atomic"),
    "unknown, seen by unknown ones: dropped": (txns("info wx1 wy1", "info rx1 wz1", "rz1 ry."), "serializable", None),
    "a failed write may be written again": (txns("fail wx1", "wx1", "rx1"), "serializable", None),
    "real time is no matter of plain levels": (in_turn(txns("wx1", "rx.")), "strong-session-s", "strong-serializable"),
    "blind writers go round in a circle of choices": (
        txns("wx1", "rx1 wx2 wy2", "wx3", "wx4 wy4", "wy5"),
        "serializable",
        None,
    ),
}
"""Rule → a history, a level that it reaches, and one that it does not."""


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_tells_one_level_from_the_next(rule: str) -> None:
    history, reached, missed = RULES[rule]
    verdicts = judged(history)
    for name, valid in ((reached, True), (missed, False))[: 1 + (missed is not None)]:
        level = name if name in MODELS else f"{name}erializable"
        assert verdicts[level].valid is valid, verdicts[level]


def relaxed(level: str, **condition: Any) -> Any:
    """A level without one of its rules."""
    was, form = CONDITIONS[level]
    return lambda patch: patch.setitem(CONDITIONS, level, (was._replace(**condition), form))


def polygraph_of(change: Callable[[TxnTimes, Accessed], Any]) -> Any:
    """The polygraph of a history that is changed."""
    make = transaction_findings.make_polygraph
    return lambda patch: patch.setattr(transaction_findings, "make_polygraph", lambda *told: make(*change(*told)))


def succeeded(rule: str) -> Any:
    """A rule's history, as if unknown outcomes were none."""
    history, *levels = RULES[rule]
    known = [txn._replace(outcome="ok", complete=len(history) + n) for n, txn in enumerate(history)]
    return lambda patch: patch.setitem(RULES, rule, (known, *levels))


SWITCHES = {
    "a fractured read of blind writes": relaxed("read-atomic", demands=""),
    "one edge of D, not a path": relaxed("update-atomic", one_edge=False),
    "at prefix somebody may come between": relaxed("prefix", chains=True),
    "a long fork of blind writes": relaxed("prefix", split=False, ww_to_commit=False, rw_edges=False),
    "the initial version precedes every writer": polygraph_of(
        lambda times, told: (times, told._replace(reads=told.reads[:, told.reads[2] != INITIAL]))
    ),
    "unknown, seen: took place whole": polygraph_of(
        lambda times, told: (times._replace(outcome=np.where(times.outcome == INFO, FAIL, times.outcome)), told)
    ),
    "unknown: its reads say nothing": succeeded("unknown: its reads say nothing"),
}
"""Rule → how it is switched off. Others are what the levels of their row differ in, or follow from the rest, so that
nothing is missed without them: chains at update atomic and above, and dropping what nobody saw."""


@pytest.mark.parametrize("rule", SWITCHES)
def test_a_rule_that_is_switched_off_is_missed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    SWITCHES[rule](monkeypatch)
    with pytest.raises(AssertionError):
        test_a_rule_tells_one_level_from_the_next(rule)


def test_read_committed_of_sessions_is_not_adyas() -> None:
    """Whoever saw of a transaction what it wrote last must not see what that replaced."""
    history = txns("wx1 wy1", "rx1 wx2 wy2", "ry2 rx1")
    assert judged(history, ("read-committed",))["read-committed"].valid is True
    options = CheckOptions(consistency="read-committed")
    assert judge_isolation(source_of(history), LocalEngine(1), options).valid is False


def test_an_initial_version_of_a_value_is_one_like_nil() -> None:
    fractured, levels = txns("wx1 wy1", "rx1 ry0"), ("read-committed", "read-atomic")
    assert [each.valid for each in judged(fractured, levels, initial="0").values()] == [True, False]
    assert judged(fractured, levels)["read-committed"].counts == {"garbage-read": 1}
    with pytest.raises(UserError, match="write"):
        judged(txns("wx0", "rx0"), levels, initial="0")


@pytest.mark.parametrize("rule", RULES)
def test_nothing_contradicts_the_lattice(rule: str) -> None:
    verdicts = judged(RULES[rule][0])
    for name, verdict in verdicts.items():
        for weaker in implied_models(name):
            assert verdict.valid is not True or verdicts[weaker].valid is not False, (name, weaker)
        assert verdict.valid is not True or name not in (*verdict.rules_out, *verdict.also_rules_out), verdict


def test_an_unknown_write_never_ends() -> None:
    """It may take effect long after, in real time too."""
    history = in_sessions(txns("info wx1", "rx.", "rx1"), 0, 1, 2)
    history = txns("wx1", "wx2", "rx1 wy1", "ry1")
    history = [txn._replace(invoke=4 * i, complete=4 * i + 1) for i, txn in enumerate(history)]
    assert judged(history, ("serializable",))["serializable"].valid is True
    stated = judged(history, ("serializable",), **{"linearizable-keys": "true"})
    assert stated["serializable"].valid is False


def test_a_refutation_tells_each_choice_in_words() -> None:
    (anomaly,) = judged(FRACTURED)["serializable"].anomalies["no-version-order"]
    assert anomaly.message.startswith("No order of versions is possible at serializable. If ")
    assert "'s write of key 120 comes before" in anomaly.message and anomaly.message.count("which is a cycle") == 3
    assert {step["kind"] for step in anomaly.steps} == {"ww", "wr", "rw"} and len(anomaly.ops) == 3


def test_past_the_limits_the_answer_is_unknown() -> None:
    options = CheckOptions(memory_mib=0)
    (verdict,) = judge_by_each("rw-register", source_of(FRACTURED), LocalEngine(1), options, ("serializable",))
    assert verdict.valid == "unknown" and "memory limit of 0 MiB" in str(verdict.reason)
    options = CheckOptions(time_limit_s=0)
    history = txns("wx1 wy1", "wx2 wy2", "rx1 ry1")
    (verdict,) = judge_by_each("rw-register", source_of(history), LocalEngine(1), options, ("serializable",))
    assert verdict.valid == "unknown" and "time limit" in str(verdict.reason)


def test_an_unknown_write_that_was_seen_is_tied_to_nobody_who_began_after_its_reader() -> None:
    """Though nobody read what it wrote to the other key."""
    unknown = Txn(0, "info", 0, None, (("w", 0, 1), ("w", 1, 1)))
    writers = [Txn(1, "ok", 2 * n + 1, 2 * n + 2, (("w", 1, n + 1),)) for n in range(1, 4_000)]
    source = source_of([unknown, Txn(1, "ok", 1, 2, (("r", 0, 1),)), *writers])
    options = CheckOptions(memory_mib=1)  # a table of all transactions takes two
    (verdict,) = judge_by_each("rw-register", source, LocalEngine(1), options, ("strict-serializable",))
    assert verdict.valid is True, verdict.reason


@pytest.mark.spark
def test_spark_says_the_same(spark: Any) -> None:
    for history in (FRACTURED, RULES["unread appends of two that missed each other"][0]):
        model = "list-append" if history is not FRACTURED else "rw-register"
        source, names = source_of(history), ("read-committed", "snapshot-isolation", "linearizable")
        ours = judge_by_each(model, source, LocalEngine(1), CheckOptions(), names)
        theirs = judge_by_each(model, source, spark, CheckOptions(), names)
        assert [msgspec.structs.replace(verdict, engine="local") for verdict in theirs] == ours

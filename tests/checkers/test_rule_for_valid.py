"""The one rule for `valid`: no model at any level says it where nothing was compared, or where something was seen that
no rule covers. And a history that states no times is judged by the order of sessions alone."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

sys.path.append(str(Path(__file__).parent / "transactions"))

from weak_store import random_history, source_of, with_strange_reads

from checkers.api import judge_source, judge_source_by_each
from checkers.engines.local import LocalEngine
from checkers.exporters.edn import write_edn
from checkers.importers.detect import open_source
from checkers.isolation.isolation_levels import LEVELS
from checkers.models import MODELS
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.transactions.judge_transactions import orders_of
from checkers.transactions.lattice import MODELS as CONSISTENCIES
from checkers.verdict import NO_TIMES, Validity
from harness.errors import UserError
from tests.support.few_seeds import ranges_of

LEVELS_OF: dict[str, tuple[str | None, ...]] = {
    "list-append": tuple(CONSISTENCIES),
    "rw-register": tuple(CONSISTENCIES),
    "isolation": LEVELS[1:],
}


def words(source: Source, model: str) -> dict[str | None, Validity]:
    """The verdict by each level of a model."""
    levels = LEVELS_OF.get(model, (None,))
    found = judge_source_by_each(source, model, LocalEngine(), CheckOptions(), levels)
    return dict(zip(levels, (verdict.valid for verdict in found), strict=True))


def opened(folder: Path, operations: tuple[str, ...]) -> Source:
    """Operations, each `f value told`, one after the other."""
    lines = []
    for process, operation in enumerate(operations):
        f, value, told = operation.split("|")
        lines.append(f"{{:process {process} :type :invoke :f :{f} :value {value}}}")
        lines.append(f"{{:process {process} :type :ok :f :{f} :value {told or value}}}")
    path = folder / "history.edn"
    path.write_text("\n".join(lines))
    return open_source(path)


WROTE, TXN = "write|1|", "txn|[[:w 1 1] [:w 2 1]]|"
WRITES_ONLY = {
    **dict.fromkeys(("register", "cas-register"), (WROTE, "write|2|")),
    **dict.fromkeys(("multi-register", "rw-register", "isolation"), (TXN, "txn|[[:w 1 2]]|")),
    "list-append": ("txn|[[:append 1 1] [:append 2 1]]|", "txn|[[:append 1 2]]|"),
    **dict.fromkeys(("sessions", "monotonic-reads", "read-your-writes", "writes-follow-reads"), (WROTE, "write|2|")),
    **dict.fromkeys(("write-atomicity", "snapshot-reads"), (TXN,)),
    "long-fork": ("txn|[[:w 1 1]]|", "txn|[[:w 2 1]]|"),
    **dict.fromkeys(("set", "set-full", "lin-set", "counter"), ("add|1|", "add|2|")),
    **dict.fromkeys(("queue", "total-queue", "lin-queue", "fifo-queue"), ("enqueue|1|", "enqueue|2|")),
    "kv-append": ('put|[1 "a"]|', 'append|[1 "b"]|'),
    "bank": ("transfer|{:from 0 :to 1 :amount 5}|",),
}

READ = "read|nil|7"
UNWRITTEN = {
    **dict.fromkeys(("register", "cas-register"), (WROTE, READ)),
    **dict.fromkeys(("sessions", "monotonic-reads", "read-your-writes", "writes-follow-reads"), (WROTE, READ)),
    **dict.fromkeys(("multi-register", "rw-register", "isolation"), (TXN, "txn|[[:r 1 nil]]|[[:r 1 7]]")),
    "list-append": ("txn|[[:append 1 1]]|", "txn|[[:r 1 nil]]|[[:r 1 [1 7]]]"),
    "write-atomicity": (TXN, "txn|[[:r 1 nil] [:r 2 nil]]|[[:r 1 7] [:r 2 1]]"),
    **dict.fromkeys(("set", "set-full", "lin-set"), ("add|1|", "read|nil|[1 7]")),
    **dict.fromkeys(("queue", "total-queue", "lin-queue", "fifo-queue"), ("enqueue|1|", "dequeue|nil|7")),
    "kv-append": ('append|[1 "a"]|', 'get|[1 nil]|[1 "ab"]'),
    "counter": ("add|1|", READ),
}


@pytest.mark.parametrize("table", [WRITES_ONLY, UNWRITTEN], ids=["writes only", "unwritten values"])
def test_nothing_is_valid_that_was_not_compared(tmp_path: Path, table: dict[str, tuple[str, ...]]) -> None:
    believed = {}
    for model, operations in table.items():
        found = words(opened(tmp_path, operations), model)
        if valid := [level for level, word in found.items() if word is True]:
            believed[model] = valid
    assert believed == {}


@pytest.mark.parametrize("model", ["list-append", "rw-register"])
def test_what_nobody_wrote_may_be_in_what_a_crash_cut_off(tmp_path: Path, model: str) -> None:
    source = opened(tmp_path, UNWRITTEN[model])
    whole = judge_source(source, model, LocalEngine())
    assert whole.valid is False and whole.counts == {"garbage-read": 1}
    cut = judge_source(replace(source, cut_short="The journal ended early."), model, LocalEngine())
    assert (cut.valid, cut.counts, cut.anomalies) == ("unknown", {}, {}) and "ended early" in str(cut.reason)


def plume(seed: int) -> list[str]:
    """Sessions of a few transactions in Plume's text, which read what somebody wrote, or 0."""
    dice, sessions, value = Random(seed), [], 0
    written: dict[int, list[int]] = {1: [], 2: []}
    for session in range(dice.randint(2, 3)):
        lines = []
        for txn in range(dice.randint(1, 2)):
            for _ in range(dice.randint(1, 2)):
                key, read = dice.randint(1, 2), dice.random() < 0.5 and written[1] and written[2]
                value += 1
                shown = dice.choice(written[key]) if read and written[key] else value
                written[key] += [] if read else [value]
                lines.append(f"{'r' if read else 'w'}({key},{shown},{session},{10 * session + txn})")
        sessions.append("\n".join(lines))
    return sessions


def untimed(folder: Path, sessions: list[str]) -> Source:
    path = folder / "history.txt"
    path.write_text("\n".join(sessions))
    return open_source(path, "plume-text")


ORDERLESS = sorted(set(MODELS) - {"list-append", "bank", "unique-ids", "long-fork", "logs", "stats"})
"""Models that take reads and writes, or say that there are no times before they look at what there is."""


@pytest.mark.parametrize("seeds", ranges_of(4, 400))
def test_sessions_that_swap_places_do_not_swap_the_verdict(tmp_path: Path, seeds: range) -> None:
    timed = {name for name in CONSISTENCIES if orders_of(name) == 2}
    for seed in seeds:
        sessions = plume(seed)
        orders = (sessions, sessions[::-1], Random(seed).sample(sessions, len(sessions)))
        for model in ORDERLESS if seed % 4 == 0 else LEVELS_OF.keys() & set(ORDERLESS):
            found = [words(untimed(tmp_path, order), model) for order in orders]
            assert found[0] == found[1] == found[2], (model, sessions)
            assert MODELS[model].timeless or found[0] == {None: "unknown"}
            assert model != "rw-register" or not any(found[0][name] is True for name in timed)


def test_what_needs_times_says_so_in_a_sentence(tmp_path: Path) -> None:
    source = untimed(tmp_path, ["w(1,5,0,0)", "r(1,5,1,1)"])
    for model in ("register", "multi-register", "snapshot-reads", "queue", "rw-register"):
        assert judge_source(source, model, LocalEngine()).reason == NO_TIMES
    write_edn(source, tmp_path / "copy.edn")
    assert judge_source(open_source(tmp_path / "copy.edn"), "register", LocalEngine()).reason == NO_TIMES
    with pytest.raises(UserError, match="states no times, so -o linearizable-keys"):
        judge_source(source, "rw-register", LocalEngine(), CheckOptions(settings={"linearizable-keys": "true"}))


@pytest.mark.parametrize("seeds", ranges_of(12, 3_000))
@pytest.mark.parametrize("model", ["list-append", "rw-register"])
def test_what_one_verdict_rules_out_no_other_finds_valid(model: str, seeds: range) -> None:
    names = list(CONSISTENCIES)
    for seed in seeds:
        history = random_history(seed, model == "list-append")
        if model == "rw-register":
            history = with_strange_reads(history, Random(seed), 0.3)
        found = judge_source_by_each(source_of(history), model, LocalEngine(), CheckOptions(), names)
        valid = {name for name, verdict in zip(names, found, strict=True) if verdict.valid is True}
        for name, verdict in zip(names, found, strict=True):
            assert valid.isdisjoint((*verdict.rules_out, *verdict.also_rules_out)), (seed, name, verdict.counts)

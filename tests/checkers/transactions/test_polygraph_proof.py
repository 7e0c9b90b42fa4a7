"""The complete judge against the definitions: the same word at each level in each form, a witness that replays for each
history that is possible, and for each that is not a refutation that says why, of which nothing can be left out. Where
there are too many transactions for the definitions, witnesses and refutations prove the word by themselves."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any

import pytest
from abstract_executions import FORMS, LEVELS, Words, allowed
from adversarial_histories import Small, adversarial
from test_certificate import client_side
from weak_store import Txn, random_history, source_of, with_strange_reads

from checkers.engines.local import LocalEngine
from checkers.options import CheckOptions
from checkers.transactions.graph.edges import PROCESS, REALTIME, RW, WR
from checkers.transactions.judge_transactions import judge_by_each
from checkers.transactions.lattice import prohibited_anomalies
from checkers.transactions.polygraph.certificate import first_fault
from checkers.transactions.polygraph.clauses import Clause, CycleStep
from checkers.transactions.polygraph.conditions import CONDITIONS
from checkers.transactions.polygraph.decide import DecisionBudget, Holds, Refuted, decide
from checkers.transactions.transaction_findings import infer_in_process
from tests.support.few_seeds import blocks_of

SINGLE = frozenset(
    {"internal", "future-read", "G1a", "G1b", "garbage-read", "incompatible-order", "duplicate-elements"}
)
"""What reads show by themselves, of which the polygraph knows nothing."""


@pytest.mark.parametrize("seeds", blocks_of(60, 20_000))
@pytest.mark.parametrize("model", ["rw-register", "list-append"])
def test_each_level_in_each_form_is_decided_as_the_definition_says(model: str, seeds: range) -> None:
    lists = model == "list-append"
    for seed in seeds:
        small = adversarial(seed, lists)
        words, told = allowed(small.txns, lists, small.initial), client_side(small.txns, small.initial)
        found = infer_in_process(replace(source_of(small.txns), initial=small.initial), model, 0, 1)
        polygraph, alone = found.polygraph(False), found.found(0, 0)
        shown = set(alone.counts) | ({"G1a"} if "reads_of_unwritten_values" in alone.figures else set())
        for level, (form, name) in product(LEVELS, enumerate(FORMS)):
            where = (seed, level, name, small)
            if shown & SINGLE & (prohibited_anomalies(level) | {"G1a"}):
                assert words[level, name] in (False, None), where
                continue
            answer = decide(polygraph, CONDITIONS[level][0], form, DecisionBudget())
            assert isinstance(answer, Holds | Refuted), (answer, where)
            if words[level, name] is not None:
                assert isinstance(answer, Holds) == words[level, name], (answer, where)
            if isinstance(answer, Holds):
                assert first_fault(told, lists, level, form, answer.order.tolist()) is None, where
            else:
                try:
                    check_refutation(answer.cycles, level, form, small, [small.txns[n] for n in polygraph.txn])
                except AssertionError as error:
                    raise AssertionError(where) from error


@pytest.mark.parametrize("seeds", blocks_of(12, 6_000, 500))
@pytest.mark.parametrize("model", ["rw-register", "list-append"])
def test_of_many_transactions_each_word_is_proved(model: str, seeds: range) -> None:
    lists = model == "list-append"
    for seed in seeds:
        txns = crowd(seed, lists)
        found, told = infer_in_process(source_of(txns), model, 0, 1), client_side(txns)
        polygraph, alone = found.polygraph(False), found.found(0, 0)
        for level, form in product(LEVELS, range(len(FORMS))):
            if set(alone.counts) & SINGLE & (prohibited_anomalies(level) | {"G1a"}):
                continue
            where = (seed, level, FORMS[form])
            answer = decide(polygraph, CONDITIONS[level][0], form, DecisionBudget())
            assert isinstance(answer, Holds | Refuted), (answer, where)
            if isinstance(answer, Holds):
                assert first_fault(told, lists, level, form, answer.order.tolist()) is None, where
            else:
                check_cycles(answer.cycles, [txns[n] for n in polygraph.txn])


def crowd(seed: int, lists: bool) -> list[Txn]:
    """Up to forty transactions on few keys, some of which read what is old or anybody's."""
    dice = random.Random(f"crowd {seed} {lists}")
    txns = random_history(dice.getrandbits(48), lists, dice.randint(6, 40), dice.randint(1, 5), dice.randint(2, 4))
    return txns if lists or dice.random() < 0.5 else with_strange_reads(txns, dice, 0.02)


def named() -> dict[str, tuple[str, str]]:
    """The consistency models that are a level in a form, by name."""
    models = {}
    for model in CONDITIONS:
        form = next((form for form in ("strong-session", "strong") if model.startswith(f"{form}-")), "plain")
        level = model.removeprefix(f"{form}-")
        if level in LEVELS:
            models[model] = (level, form)
    return models


@pytest.mark.parametrize("seeds", blocks_of(60, 20_000))
@pytest.mark.parametrize("model", ["rw-register", "list-append"])
def test_verdicts_by_name_are_those_of_the_definition(model: str, seeds: range) -> None:
    lists, models = model == "list-append", named()
    for seed in seeds:
        small = adversarial(seed, lists)
        words = allowed(small.txns, lists, small.initial)
        settings = {} if small.initial is None else {"initial": str(small.initial)}
        options = CheckOptions(settings=settings)
        verdicts = judge_by_each(model, source_of(small.txns), LocalEngine(), options, list(models))
        for (name, key), verdict in zip(models.items(), verdicts, strict=True):
            nothing = verdict.valid == "unknown" and "nothing to judge" in str(verdict.reason)
            if words[key] is not None and not (nothing and words[key]):
                assert verdict.valid == words[key], (seed, name, verdict.valid, verdict.counts, verdict.reason, small)


def test_two_reads_that_differ_depend_on_two_versions() -> None:
    txns = [
        Txn(0, "ok", 0, 1, (("w", 0, 1), ("w", 1, 2))),
        Txn(0, "ok", 2, 3, (("r", 0, None), ("r", 1, None), ("r", 0, 1))),
    ]
    levels = ["read-committed", "consistent-view", "repeatable-read"]
    verdicts = judge_by_each("rw-register", source_of(txns), LocalEngine(), CheckOptions(), levels)
    assert [verdict.valid for verdict in verdicts] == [True, False, False]


def check_refutation(clauses: Sequence[Clause], level: str, form: int, small: Small, txns: list[Txn]) -> None:
    """Cycles of what the history shows, by which no order of versions is left, while without any one of them some is;
    and the history of those that are in them alone is refuted too. Numbers are those of the given transactions."""
    check_cycles(clauses, txns)
    core = {txns[end] for clause in clauses for step in clause.cycle for end in (*step[:2], step.reader) if end >= 0}
    lists = any(f == "append" for txn in core for f, _, _ in txn.mops)
    if any(step.reader >= 0 for clause in clauses for step in clause.cycle):  # who saw the source through others
        seen = {pair for txn in core for pair in writes_of(txn)}
        core |= {txn for txn in small.txns if not seen.isdisjoint(reads_of(txn))}
    if lists:  # the longest list tells the order of appends
        core |= {max(small.txns, key=lambda txn: longest(txn, key)) for key in range(3)}
    assert allowed_of(tuple(reduced(small.txns, core)), lists, small.initial)[level, FORMS[form]] is not True, clauses


def check_cycles(clauses: Sequence[Clause], txns: list[Txn]) -> None:
    """Cycles of what the transactions show, of which one comes of every order, and without any one of them some is."""
    for clause in clauses:
        ends = [(step.source, step.target) for step in clause.cycle]
        assert [target for _, target in ends] == [source for source, _ in (*ends[1:], ends[0])], clause
        assert all(holds(step, txns) for step in clause.cycle), clause
    assert not possible(clauses), clauses
    assert all(possible([*clauses[:i], *clauses[i + 1 :]]) for i in range(len(clauses))), clauses


def possible(clauses: Sequence[Clause]) -> bool:
    """Whether pairs of chains can be put in orders of which no cycle has all that it rests on."""
    return some_order([clause.pairs for clause in clauses])


def some_order(cycles: list[frozenset[tuple[int, int]]]) -> bool:
    fewest = min(cycles, key=len, default=frozenset[tuple[int, int]]())
    return not cycles or any(
        some_order([pairs - {(second, first)} for pairs in cycles if (first, second) not in pairs])
        for first, second in fewest
    )


@lru_cache(64)
def allowed_of(history: tuple[Txn, ...], lists: bool, initial: int | None) -> Words:
    return allowed(list(history), lists, initial)


def longest(txn: Txn, key: int) -> int:
    return max((len(value) for f, k, value in txn.mops if f == "r" and txn.outcome == "ok" and k == key), default=-1)


def holds(step: CycleStep, txns: list[Txn]) -> bool:
    """Whether an edge is one by what the transactions tell; of ww and rw only that it may be one."""
    one, other = txns[step.source], txns[step.target]
    if step.kind in (PROCESS, REALTIME):
        ended = one.complete is not None and one.outcome == "ok" and one.complete < other.invoke
        return ended and (step.kind == REALTIME or one.process == other.process)
    if step.kind == WR:
        return not reads_of(other).isdisjoint(writes_of(one))
    touched = {key for f, key, _ in one.mops if (f == "r") == (step.kind == RW)}
    return not touched.isdisjoint(key for key, _ in writes_of(other))


def reads_of(txn: Txn) -> set[tuple[int, Any]]:
    """The keys and values, or elements, that a transaction read, if it tells."""
    found = [(key, value) for f, key, value in txn.mops if f == "r" and txn.outcome == "ok"]
    return {(key, element) for key, value in found for element in (value if isinstance(value, tuple) else (value,))}


def writes_of(txn: Txn) -> set[tuple[int, Any]]:
    return {(key, value) for f, key, value in txn.mops if f != "r"}


def reduced(history: list[Txn], core: set[Txn]) -> list[Txn]:
    """The history of some transactions and of those that wrote what these read."""
    while True:
        seen = {pair for txn in core for pair in reads_of(txn)}
        more = {txn for txn in history if not seen.isdisjoint(writes_of(txn))}
        if more <= core:
            return [txn for txn in history if txn in core]
        core = core | more

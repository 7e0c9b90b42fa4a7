"""The complete judge against the definitions: the same word at each level in each form, a witness that replays for each
history that is possible, and for each that is not a refutation that says why, of which nothing can be left out."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import pairwise, permutations, product
from typing import Any, TypeAlias

import pytest
from abstract_executions import FORMS, LEVELS, Words, allowed
from adversarial_histories import GARBAGE, Small, adversarial
from test_certificate import told_of
from weak_store import Txn, source_of

from checkers.engines.local import LocalEngine
from checkers.options import CheckOptions
from checkers.transactions.graph.edges import PROCESS, REALTIME, RW, WR
from checkers.transactions.judge_transactions import judge_by_each
from checkers.transactions.lattice import prohibited_anomalies
from checkers.transactions.polygraph.certificate import first_fault
from checkers.transactions.polygraph.clauses import Step
from checkers.transactions.polygraph.conditions import CONDITIONS
from checkers.transactions.polygraph.decide import Budget, Holds, Refuted, decide
from checkers.transactions.transaction_findings import infer_in_process
from tests.support.few_seeds import blocks_of

Orders: TypeAlias = list[tuple[int, ...]]
"""Orders of those that wrote a key, by their numbers."""

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
        words, told = allowed(small.txns, lists, small.initial), told_of(small.txns, small.initial)
        found = infer_in_process(replace(source_of(small.txns), initial=small.initial), model, 0, 1)
        polygraph, alone = found.polygraph(False), found.found(0, 0)
        shown = set(alone.counts) | ({"G1a"} if "reads_of_unwritten_values" in alone.figures else set())
        for level, (form, name) in product(LEVELS, enumerate(FORMS)):
            where = (seed, level, name, small)
            if shown & SINGLE & (prohibited_anomalies(level) | {"G1a"}):
                assert words[level, name] in (False, None), where
                continue
            answer = decide(polygraph, CONDITIONS[level][0], form, Budget())
            assert isinstance(answer, Holds | Refuted), (answer, where)
            if words[level, name] is not None:
                assert isinstance(answer, Holds) == words[level, name], (answer, where)
            if isinstance(answer, Holds):
                assert first_fault(told, lists, level, form, answer.order.tolist()) is None, where
            else:
                try:
                    keys = found.addresses[:, 1].tolist()
                    cycles = [[s._replace(key=keys[s.key]) for s in clause.cycle] for clause in answer.cycles]
                    check_refutation(cycles, level, form, small, polygraph.txn.tolist())
                except AssertionError as error:
                    raise AssertionError(where) from error


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
            if words[key] is not None and not shows_garbage(small) and not (nothing and words[key]):
                assert verdict.valid == words[key], (seed, name, verdict.valid, verdict.counts, verdict.reason, small)


def shows_garbage(small: Small) -> bool:
    """Whether a read shows what nobody wrote."""
    return any(
        GARBAGE in (value if isinstance(value, tuple) else (value,)) for txn in small.txns for *_, value in txn.mops
    )


def check_refutation(cycles: list[list[Step]], level: str, form: int, small: Small, kept: list[int]) -> None:
    """Cycles of what the history shows, by which no order of versions is left, while without any one of them some is;
    and the history of those that are in them alone is refuted too. `kept` are the transactions that took place."""
    lists = any(f == "append" for txn in small.txns for f, _, _ in txn.mops)
    for cycle in cycles:
        ends = [(step.source, step.target) for step in cycle]
        assert [target for _, target in ends] == [source for source, _ in (*ends[1:], ends[0])], cycle
        assert all(holds(step, small.txns) for step in cycle), cycle
    rests = [frozenset((s.key, s.first, s.second) for s in cycle if s.first >= 0) for cycle in cycles]
    keys = sorted({key for choices in rests for key, _, _ in choices})
    ways = [version_orders(small, kept, key, lists, CONDITIONS[level][0].chains) for key in keys]
    assert not possible(rests, keys, [told for told, _ in ways]), cycles
    every = [all_of for _, all_of in ways]
    assert all(possible(rests[:i] + rests[i + 1 :], keys, every) for i in range(len(rests))), cycles
    core = {small.txns[end] for cycle in cycles for step in cycle for end in (*step[:2], step.reader) if end >= 0}
    if any(step.reader >= 0 for cycle in cycles for step in cycle):  # who saw the source through others
        seen = {pair for txn in core for pair in writes_of(txn)}
        core |= {txn for txn in small.txns if not seen.isdisjoint(reads_of(txn))}
    if lists:  # the longest list tells the order of appends
        core |= {max(small.txns, key=lambda txn: len(longest([txn], key))) for key in range(3)}
    assert allowed_of(tuple(reduced(small.txns, core)), lists, small.initial)[level, FORMS[form]] is not True, cycles


def possible(rests: list[frozenset[tuple[int, int, int]]], keys: list[int], ways: list[Orders]) -> bool:
    """Whether by some order of versions of each key no cycle has all the choices that it rests on."""
    return any(
        all(
            any(one.index(a) > one.index(b) for key, a, b in choices for one in [order[keys.index(key)]])
            for choices in rests
        )
        for order in product(*ways)
    )


def version_orders(small: Small, kept: list[int], key: int, lists: bool, chained: bool) -> tuple[Orders, Orders]:
    """The orders of those that wrote a key in which nobody comes between two of whom that is known; of these, first,
    the ones that begin with what was read of a list."""
    txns = {n: small.txns[n] for n in kept}
    writers = [n for n, txn in txns.items() if any(k == key for k, _ in writes_of(txn))]
    last = {[v for f, k, v in txns[n].mops if f != "r" and k == key][-1]: n for n in writers}
    told = list(dict.fromkeys(last[value] for value in longest(small.txns, key) if value in last)) if lists else []
    follows = set(pairwise([-1, *told]))
    for n in writers if chained else ():
        f, _, value = next(mop for mop in txns[n].mops if mop[1] == key)
        if f == "r" and txns[n].outcome == "ok":
            found = value[-1] if lists and value else None if lists or value == small.initial else value
            follows.add((-1 if found is None else last.get(found, -2), n))
    once = {pair for pair in follows if all([each[i] for each in follows].count(pair[i]) == 1 for i in (0, 1))}
    orders = [order for order in permutations(writers) if once <= set(pairwise([-1, *order]))]
    return [order for order in orders if order[: len(told)] == tuple(told)], orders


@lru_cache(64)
def allowed_of(history: tuple[Txn, ...], lists: bool, initial: int | None) -> Words:
    return allowed(list(history), lists, initial)


def longest(txns: list[Txn], key: int) -> tuple[int, ...]:
    found = [value for txn in txns if txn.outcome == "ok" for f, k, value in txn.mops if f == "r" and k == key]
    return max(found, key=len, default=())


def holds(step: Step, txns: list[Txn]) -> bool:
    """Whether an edge is one by what the transactions tell; of ww and rw only that it may be one."""
    one, other = txns[step.source], txns[step.target]
    if step.kind in (PROCESS, REALTIME):
        ended = one.complete is not None and one.outcome == "ok" and one.complete < other.invoke
        return ended and (step.kind == REALTIME or one.process == other.process)
    if step.kind == WR:
        return not reads_of(other).isdisjoint(writes_of(one))
    touched = {key for f, key, _ in one.mops if (f == "r") == (step.kind == RW)}
    return step.key in touched and step.key in {key for key, _ in writes_of(other)}


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

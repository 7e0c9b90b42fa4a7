"""Registers that operations link are judged by one task each component, which finds what one process finds."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
from bruteforce import some_order
from frames_in_memory import engine_in_memory
from object_histories import OBJECTS, random_calls

from checkers.api import judge_source
from checkers.columns.codes import Ints
from checkers.engines import components, shuffle, spark
from checkers.engines.components import linked
from checkers.engines.local import LocalEngine
from checkers.engines.spark import SparkEngine
from checkers.source import Source
from checkers.verdict import Verdict
from harness.history.ops import Mop, Op
from tests.support.retold import beside, table_of
from tests.support.small_histories import object_events, of_events

MODEL = "multi-register"


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> SparkEngine:
    """Of pieces of some operations."""
    monkeypatch.setattr(shuffle, "_ROWS_PER_PIECE", 5)
    monkeypatch.setattr(shuffle, "CELL_ROWS", 1)
    monkeypatch.setattr(components, "_ROWS_PER_SPLIT", 6)
    monkeypatch.setattr(spark, "_ROWS_PER_GROUP", 4)
    monkeypatch.setattr(spark, "_FEW_ROWS", 3)
    return engine_in_memory(monkeypatch)


def said(verdict: Verdict) -> object:
    messages = sorted(each.message for found in verdict.anomalies.values() for each in found)
    return verdict.valid, verdict.reason, verdict.counts, verdict.ops, verdict.details, messages


def naive(keys: Ints, others: Ints) -> dict[int, frozenset[int]]:
    """By key all that is linked with it."""
    groups = {key: frozenset({key}) for key in keys.tolist()}
    for one, other in zip(keys.tolist(), others.tolist(), strict=True):
        both = groups[one] | groups[other]
        groups |= dict.fromkeys(both, both)
    return groups


def test_components_are_all_that_pairs_link_and_no_more() -> None:
    sizes: Counter[int] = Counter()
    for seed in range(300):
        random = Random(seed)
        keys = np.array([random.randint(-(2**63), 2**63 - 1) >> random.choice((0, 58)) for _ in range(12)])
        others = np.array([random.choice(keys[: place + 1].tolist()) for place in range(12)])
        links, expected = linked(keys, others), naive(keys, others)
        found = {int(key): frozenset(links.key[links.of == of].tolist()) for key, of in zip(*links, strict=True)}
        assert found == expected and sorted(expected) == links.key.tolist(), seed
        sizes[len(set(expected.values()))] += 1
    assert len(sizes) > 5


def many_objects(seed: int) -> tuple[Source, bool]:
    """Some objects' histories side by side, and whether brute force finds all of them right."""
    random, start_and_steps, right = Random(seed), OBJECTS[MODEL], True
    rows: list[dict[str, object]] = []
    for _ in range(4):
        calls = random_calls(random, MODEL, random.randint(1, 6))
        right &= some_order(calls, *start_and_steps)
        rows = beside(of_events(object_events(MODEL, calls, ()), True).source.table.to_pylist(), rows)
    return Source(Path("made"), "test", len(rows), table=table_of(rows)), right


def test_many_tasks_say_what_one_process_and_brute_force_say(tasks: SparkEngine) -> None:
    seen: Counter[object] = Counter()
    for seed in range(60):
        source, right = many_objects(seed)
        theirs = judge_source(source, MODEL, tasks)
        assert said(theirs) == said(judge_source(source, MODEL, LocalEngine())), seed
        assert theirs.valid is right, seed
        seen[right] += 1
    assert min(seen[True], seen[False]) > 5, seen


def transactions(*mops: tuple[Mop, ...]) -> Source:
    """One after the other, all of which succeed."""
    events: list[Op] = []
    for number, each in enumerate(mops):
        op = call(number, 2 * number, each)
        events += [op, op.complete("ok", mops=each, index=2 * number + 1, time=2 * number + 1)]
    return of_events(events, True).source


def call(process: int, index: int, mops: tuple[Mop, ...]) -> Op:
    asked = tuple(Mop("r", mop.partition) if mop.f == "r" else mop for mop in mops)
    return Op("invoke", process, "txn", asked, index=index, time=index)


def chain(length: int, first: int) -> list[tuple[Mop, ...]]:
    """Transactions of two registers each, which all link the first with the last."""
    return [(Mop("w", one, one), Mop("w", other, one)) for one, other in pairwise(range(first, first + length))]


@pytest.mark.parametrize("torn", [False, True])
def test_what_only_a_chain_of_operations_in_many_pieces_links_is_judged_together(
    torn: bool, tasks: SparkEngine
) -> None:
    """Each copies what the one before has written, all at the same time, so who saw the last copy can't have missed the
    first; register by register all is well."""
    length = 14
    copies = [(Mop("r", place - 1, 1), Mop("w", place, 1)) for place in range(1, length)]
    opened: list[tuple[Mop, ...]] = [(Mop("w", 0, 1),), *copies]
    events = [call(process, process, mops) for process, mops in enumerate(opened)]
    for reader, mop in enumerate((Mop("r", length - 1, 1), Mop("r", 0, None if torn else 1))):
        seen = call(length + reader, len(events), (mop,))
        events += [seen, seen.complete("ok", mops=(mop,), index=len(events) + 1, time=len(events) + 1)]
    for process, mops in enumerate(opened):
        at = len(events)
        events.append(events[process].complete("ok", mops=mops, index=at, time=at))
    source = of_events(events, True).source
    theirs = judge_source(source, MODEL, tasks)
    assert theirs.valid is not torn and theirs.details["objects"] == 1
    assert said(theirs) == said(judge_source(source, MODEL, LocalEngine()))


def test_a_component_that_one_task_does_not_take_is_unknown_and_others_are_judged(
    tasks: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = [(Mop("w", place % 4, place), Mop("w", (place + 1) % 4, place)) for place in range(600)]
    small = [mops for first in range(1_000, 1_020, 2) for mops in chain(2, first)]
    fine, bad = transactions(*large, *small), transactions(*large, *small, (Mop("r", 1_010, 77),))
    monkeypatch.setattr(shuffle, "_ROWS_PER_PIECE", 100)
    monkeypatch.setattr(SparkEngine, "task_bytes", lambda self: 20_000)
    verdict = judge_source(fine, MODEL, tasks)
    assert verdict.valid == "unknown" and "keys that operations link" in str(verdict.reason)
    assert judge_source(bad, MODEL, tasks).valid is False


def test_more_registers_than_one_task_joins_are_unknown(tasks: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkEngine, "task_bytes", lambda self: 1_000 * components._EXPANDED)
    verdict = judge_source(transactions(*chain(200, 0)), MODEL, tasks)
    assert verdict.valid == "unknown" and "takes more than 1000 bytes" in str(verdict.reason)

"""One big counter or set in many tasks: ranges of time and shares of elements say together what one task says."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from frames_in_memory import engine_in_memory
from jepsen_histories import corrupted, judge

from checkers.columns.codes import NEVER
from checkers.engines import flows, shuffle, spark
from checkers.engines.spark import SparkEngine
from checkers.jepsen import counter, set_full
from checkers.made.jepsen import Shape, history
from checkers.verdict import Verdict
from harness.history.ops import Mop, Op, OpType


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> SparkEngine:
    """Of small tasks: some events, some elements."""
    monkeypatch.setattr(counter, "_ROWS_PER_RANGE", 3)
    monkeypatch.setattr(set_full, "_ITEMS_PER_SHARE", 8)
    monkeypatch.setattr(set_full, "_LEAST_SHOWN", 1)
    monkeypatch.setattr(flows, "_ROWS_PER_BUCKET", 10)
    monkeypatch.setattr(shuffle, "_ROWS_PER_PIECE", 10)
    monkeypatch.setattr(spark, "_ROWS_PER_GROUP", 7)
    monkeypatch.setattr(spark, "_FEW_ROWS", 5)
    return engine_in_memory(monkeypatch)


@pytest.fixture
def flows_run(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The flows that judges run, as they run them."""
    found: list[Any] = []
    run_flow = flows.run_flow

    def run(engine: Any, source: Any, flow: Any, combine: Any, **more: Any) -> Any:
        found.append(flow)
        return run_flow(engine, source, flow, combine, **more)

    for module in (counter, flows):
        monkeypatch.setattr(module, "run_flow", run)
    return found


def facts_of(verdict: Verdict) -> Any:
    messages = {name: [found.message for found in all] for name, all in verdict.anomalies.items()}
    return verdict.valid, verdict.reason, verdict.counts, verdict.ops, verdict.details, messages


def of_several(model: str, random: Random) -> list[Op]:
    """A history of one object, corrupted or not."""
    shape = Shape(random.randint(30, 60), random.randint(2, 8), random.choice((0.0, 0.2)), random.choice((0.0, 0.2)))
    return corrupted(model, history(model, shape, random.randrange(1_000)), random)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("model", ["counter", "set-full"])
def test_many_tasks_say_of_one_object_what_one_says(
    model: str, seed: int, engine: SparkEngine, flows_run: list[Any]
) -> None:
    events = of_several(model, Random(seed))
    ours = judge(model, events)
    theirs = judge(model, events, engine)
    assert facts_of(theirs) == facts_of(ours)
    split = flows_run[-1]
    assert split.width < NEVER if model == "counter" else split.shares > 1


def test_some_histories_are_refuted_and_some_are_not() -> None:
    for model in ("counter", "set-full"):
        verdicts = {judge(model, of_several(model, Random(seed))).valid for seed in range(12)}
        assert {True, False} <= verdicts


def event(index: int, process: int, type: OpType, f: str, value: int | None) -> Op:
    return Op(type, process, f, (Mop("r" if f == "read" else f, 0, value=value),), index=index, time=index)


def test_a_read_that_lasts_over_many_ranges_is_judged_by_its_halves(engine: SparkEngine) -> None:
    """It began when 3 was acknowledged and ended when 20 had begun."""
    adds = [(0, type, "add", 1) for _ in range(20) for type in PAIR]

    def facts_of_read(shown: int, engine: SparkEngine | None = None) -> Any:
        rows = [*adds[:6], (9, "invoke", "read", None), *adds[6:], (9, "ok", "read", shown)]
        return facts_of(judge("counter", [event(index, *row) for index, row in enumerate(rows)], engine))

    for shown, valid in ((2, False), (3, True), (20, True), (21, False)):
        assert facts_of_read(shown, engine) == facts_of_read(shown) and facts_of_read(shown)[0] is valid


PAIR: tuple[OpType, OpType] = ("invoke", "ok")


def test_sums_beyond_64_bits_pass_from_range_to_range(engine: SparkEngine) -> None:
    rows = [*((0, type, "add", 2**62) for _ in range(20) for type in PAIR), *((0, type, "read", 5) for type in PAIR)]
    ops = [event(index, *row) for index, row in enumerate(rows)]
    theirs = judge("counter", ops, engine)
    assert theirs.valid is False and str(20 * 2**62) in theirs.anomalies["below-bounds"][0].message
    assert facts_of(theirs) == facts_of(judge("counter", ops))


def test_tasks_are_told_nothing_of_many_counters() -> None:
    """What reaches them must not grow with the counters, which are judged each by itself."""
    few, many = ({((0, key, 0, 0), 0): counter.Sums() for key in range(count)} for count in (1_000, 1_001))
    assert counter.summed([few]) == few
    assert counter.summed([many]) is None
    assert counter.summed([few, {((0, 5_000, 0, 0), 0): counter.Sums()}]) is None

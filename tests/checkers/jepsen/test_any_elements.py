"""Histories that no store makes, against the naive checkers: elements put in again, or by operations that failed, and
shown at random, also before their time."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from jepsen_histories import judge
from test_jepsen_mutations import NAIVE, counted, nonzero

from harness.history.ops import Mop, Op
from tests.support.few_seeds import ranges_of

SEEDS = ranges_of(60, 5_000)


def some_list(random: Random, values: int) -> tuple[int, ...]:
    shown = [value for value in range(1, values + 1) if random.random() < 0.6]
    random.shuffle(shown)
    return (*shown, *([random.choice((1, 2, 9))] if random.random() < 0.15 else []))


def some_operation(random: Random, model: str, values: int) -> tuple[str, Mop, Mop]:
    """Its f, what is asked and what is told."""
    if model == "counter":
        add = Mop("add", 0, random.choice((1, 2, 5, 0, -1, -3)))
        return random.choice((("add", add, add), ("read", Mop("r", 0), Mop("r", 0, random.randint(-6, 12)))))
    into, out = ("add", "read") if model.startswith("set") else ("enqueue", "dequeue")
    put, draw = Mop(into, 0, random.randint(1, values)), random.random()
    if draw < 0.5:
        return into, put, put
    if out == "dequeue" and draw < 0.95:
        return out, Mop(out, 0), Mop(out, 0, random.randint(1, values))
    name, f = ("drain", "drain") if out == "dequeue" else (out, "r")
    return name, Mop(f, 0), Mop(f, 0, values=some_list(random, values))


def any_history(model: str, seed: int) -> list[Op]:
    """Events of clients that have one operation open each; a client whose operation is of unknown outcome is gone."""
    random = Random(f"{model} {seed}")
    values, info, fail = random.choice((2, 3, 8)), random.choice((0, 0, 0.2)), random.choice((0, 0.2))
    idle, busy, events = list(range(random.randint(1, 4))), dict[int, tuple[Op, Mop]](), list[Op]()
    left = random.randint(1, 14)
    while idle or busy:
        if left and idle and (not busy or random.random() < 0.5):
            left -= 1
            f, asked, told = some_operation(random, model, values)
            process = idle.pop(random.randrange(len(idle)))
            busy[process] = Op("invoke", process, f, (asked,)), told
            events.append(busy[process][0])
        elif busy:
            process = random.choice(list(busy))
            op, told = busy.pop(process)
            draw = random.random()
            outcome = "fail" if draw < fail else "info" if draw < fail + info and op.f != "drain" else "ok"
            events.append(op.complete(outcome, mops=(told,) if outcome == "ok" else op.mops))
            if outcome != "info":
                idle.append(process)
        else:
            break
    return [op.complete(op.type, index=index, time=index) for index, op in enumerate(events)]


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("model", ["set", "set-full", "counter", "queue", "total-queue"])
def test_any_history_agrees_with_the_naive_version(model: str, seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        events = any_history(model, seed)
        expected = NAIVE[model](events)
        assert counted(model, events) == nonzero(expected or {}), (seed, events)
        seen[str(judge(model, events).valid)] += 1
    assert min(seen["True"], seen["False"]) > len(seeds) // 100, "both answers must occur often"

"""Shrunk under a predicate that lies, valid histories of every model stay valid (`tests.support.lying`)."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

import pytest

from assay.reproduce.shrink_history import HistoryQuestion, HistorySearch
from checkers.made.objects import ObjectShape, object_source
from checkers.models import MODELS, OWN
from checkers.options import CheckOptions
from checkers.removal import rules
from checkers.source import Source
from harness.history.ops import Mop, Op
from harness.history.table import to_table
from tests.support.lying import LIED_ABOUT, broken_rules, refuted_part

HISTORIES: Final = 2
"""Of each model; `make torture` has a thousand."""


@pytest.mark.parametrize("model", LIED_ABOUT)
def test_no_valid_history_becomes_invalid(model: str) -> None:
    assert list(broken_rules(model, HISTORIES, first_seed=17)) == []


def test_the_design_has_the_rule_of_each_model() -> None:
    told = (Path(__file__).resolve().parents[3] / "docs" / "design" / "reproduce.md").read_text()
    for name, rule in rules.REMOVALS.items():
        models = ", ".join(f"`{model.name}`" for model in (*MODELS.values(), OWN) if model.removal == name)
        end = "no" if not rule.end else "unless reads are marked as final" if rule.until_final else "yes"
        assert f"| {rule.words} | {end} | {models} |" in told


def test_every_model_states_a_rule() -> None:
    """Models without one never refute a history, or judge none."""
    stated = {model.removal for model in (*MODELS.values(), OWN)}
    assert stated == set(rules.REMOVALS)
    default = rules.REMOVALS["nothing, nor the end"]
    assert [name for name, model in MODELS.items() if rules.REMOVALS[model.removal] is default] == ["logs", "stats"]
    assert set(LIED_ABOUT) == set(MODELS) - {"logs", "stats"}


MANY = ("register", "list-append", "queue", "owner-mutex", "catalog", "mutex", "semaphore", "counter", "kv-append")


@pytest.mark.parametrize("model", MANY)
def test_rules_that_allow_everything_are_seen(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, rule in rules.REMOVALS.items():
        monkeypatch.setitem(rules.REMOVALS, name, replace(rule, collect=lambda asked, needs: None))
    assert next(broken_rules(model, 20), None) is not None


def held(seed: int, permits: int, steps: int = 80, lost: float = 0.1, anomaly: int = -1) -> Source:
    """Permits that three clients take and give back, each change at a moment within its operation; a share of the
    operations is never heard of again. At the step `anomaly` one is taken whether there is one or not."""
    random, taken, events, processes = Random(seed), 0, list[Op](), count(1_000)
    busy: dict[int, tuple[Op, bool]] = {}
    for step in range(steps):
        if step == anomaly:
            op = Op("invoke", 999, "acquire", (Mop("acquire", 0),))
            events += [op, op.complete("ok")]
            continue
        process = random.choice([*busy, *([next(processes)] if len(busy) < 3 else [])])
        op, done = busy.get(process, (None, False))
        if op is None:
            due = taken + sum(1 if each.f == "acquire" else -1 for each, is_done in busy.values() if not is_done)
            f = "acquire" if due < permits and (due <= 0 or random.random() < 0.5) else "release"
            busy[process] = Op("invoke", process, f, (Mop(f, 0),)), False
            events.append(busy[process][0])
        elif random.random() < lost:
            del busy[process]
        elif done:
            events.append(busy.pop(process)[0].complete("ok"))
        elif 0 <= taken + (1 if op.f == "acquire" else -1) <= permits:
            taken += 1 if op.f == "acquire" else -1
            busy[process] = op, True
    table = to_table([op.complete(op.type, index=place, time=place) for place, op in enumerate(events)])
    return Source(Path("held"), "journal", table.num_rows, table=table)


def of_permits(permits: int) -> HistoryQuestion:
    settings = {} if permits == 1 else {"permits": str(permits)}
    return HistoryQuestion("mutex" if permits == 1 else "semaphore", CheckOptions(settings=settings))


@pytest.mark.parametrize("permits", [1, 2, 3])
def test_blocks_that_leave_permits_as_they_were_can_be_left_out(permits: int) -> None:
    question = of_permits(permits)
    for seed in range(12):
        source = held(seed, permits)
        verdict = question.verdict(source)
        assert verdict is not None and verdict.valid is True
        assert refuted_part(source, question, seed) is None, seed


@pytest.mark.parametrize(("seed", "lost", "most"), [(5, 0.0, 2), (2, 0.001, 5)])
def test_a_long_history_of_one_lock_becomes_short(seed: int, lost: float, most: int) -> None:
    source, question = held(seed, 1, 4_000, lost, anomaly=2_000), of_permits(1)
    whole = question.verdict(source)
    assert whole is not None and whole.valid is False and source.rows > 1_000
    search = HistorySearch(source, question, whole, next(iter(question.families(whole))), 600.0)
    part = search.run()
    assert part is not None and part.rows <= most


@pytest.mark.parametrize(("clients", "most"), [(1, 20), (3, 60)])
def test_a_long_string_loses_what_came_before_a_put(clients: int, most: int) -> None:
    """One get in the middle of 600 operations shows a string without its first letter."""
    shape = ObjectShape("kv-append", 600, clients=clients, values=0, info_share=0.001, corrupted=True, seed=3)
    source, question = object_source(shape), HistoryQuestion("kv-append", CheckOptions())
    whole = question.verdict(source)
    assert whole is not None and whole.valid is False
    search = HistorySearch(source, question, whole, next(iter(question.families(whole))), 600.0)
    part = search.run()
    assert part is not None and part.rows <= most
